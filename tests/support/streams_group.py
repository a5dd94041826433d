"""A member of a group of Kafka Streams with ``group.protocol=streams``, without Kafka Streams: its heartbeats."""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

#: Number and version of the request (Kafka's protocol, ``StreamsGroupHeartbeatRequest``).
_HEARTBEAT, _VERSION = 88, 0
#: The epoch of a member that joins, and of one that leaves.
_JOINS, _LEAVES = 0, -1
_NULL = _NO_TAGS = b"\0"


def _text(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def _list(items: Sequence[bytes] = ()) -> bytes:
    return bytes([len(items) + 1]) + b"".join(items)


def _heartbeat(group: str, member: str, epoch: int, topic: str) -> bytes:
    reads = [_text("0"), _list([_text(topic)]), *[_list()] * 5, _NO_TAGS]
    topology = b"\1" + struct.pack(">i", 0) + _list([b"".join(reads)]) + _NO_TAGS
    parts = [
        struct.pack(">hhi", _HEARTBEAT, _VERSION, 1) + _NULL * 2 + _NO_TAGS,
        _text(group) + _text(member) + struct.pack(">ii", epoch, 0) + _NULL * 2,
        struct.pack(">i", 60_000) + (topology + _list() * 3 if epoch == _JOINS else b"\xff" + _NULL * 3),
        _text("process") + b"\xff" + _list() + _NULL * 2 + b"\0" + _NO_TAGS,
    ]
    request = b"".join(parts)
    return struct.pack(">i", len(request)) + request


@contextmanager
def streams_member(bootstrap_servers: str, group: str, topic: str) -> Iterator[None]:
    """A member of the group, which reads the topic."""
    host, port = bootstrap_servers.split(",", maxsplit=1)[0].rsplit(":", 1)
    member = str(uuid.uuid4())
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as answers:

        def send(epoch: int) -> None:
            connection.sendall(_heartbeat(group, member, epoch, topic))
            (size,) = struct.unpack(">i", answers.read(4))
            # Correlation, tags, throttle time, then the error.
            (error,) = struct.unpack(">h", answers.read(size)[9:11])
            assert error == 0, error

        send(_JOINS)
        try:
            yield
        finally:
            send(_LEAVES)
