"""Brokers in the client's own library, which answer with the errors of real ones: no JVM, and up in a millisecond.

They are librdkafka's (``rdkafka_mock.h``), which the client for Python does not show.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import cimpl

#: Number of the request for offsets in Kafka's protocol.
LIST_OFFSETS = 2
_OF_PRODUCERS = 0


class MockBrokers:
    """A cluster of two brokers; see :func:`mock_brokers`.

    Attributes:
        bootstrap_servers: their addresses.
    """

    def __init__(self, library: ctypes.CDLL, cluster: ctypes.c_void_p) -> None:
        self._library = library
        self._cluster = cluster
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        library.rd_kafka_mock_set_controller_id(cluster, ctypes.c_int32(1))
        self.bootstrap_servers: str = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic."""
        assert self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def lead(self, topic: str, partition: int, broker: int | None) -> None:
        """Make a broker the leader of a partition, or none."""
        of = (self._cluster, topic.encode(), ctypes.c_int32(partition))
        assert self._library.rd_kafka_mock_partition_set_leader(*of, ctypes.c_int32(broker or -1)) == 0

    def refuse(self, request: int, code: int) -> None:
        """Answer the next request of a kind with an error."""
        of = (self._cluster, ctypes.c_int16(request), ctypes.c_size_t(1))
        self._library.rd_kafka_mock_push_request_errors(*of, ctypes.c_int(code))


@contextmanager
def mock_brokers() -> Iterator[MockBrokers]:
    """Within, the brokers run."""
    library = ctypes.CDLL(cimpl.__file__)  # what it is linked with is found by its handle
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_new.restype = library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    settings = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(settings, b"log_level", b"0", None, ctypes.c_size_t(0))
    client = ctypes.c_void_p(library.rd_kafka_new(_OF_PRODUCERS, settings, None, ctypes.c_size_t(0)))
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 2))
    try:
        yield MockBrokers(library, cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(client)
