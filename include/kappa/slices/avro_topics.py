"""Topic outputs of Avro: their schemas are registered before anything is sent, and kept in the lake by their ids."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.kafka.avro_values import Encode, encoder
from kappa.slices.run import EpochRun
from kappa.topology import Topic
from kappa.topology.avro_schema import avro_schema


def register(run: EpochRun, topics: Iterable[Topic]) -> None:
    """Have the schemas of topic outputs registered; versioned topics of all epochs share the subject of their output.

    Idempotent; a schema that is in the lake asks no registry.

    Raises:
        SchemaRefusedError: the registry does not take one, for example as incompatible with those before it.
        RegistryUnreachableError: one is not in the lake, and the registry does not answer.
    """
    for topic in topics:
        if topic.format == "avro":
            _id_and_text(run, topic)


def encoder_of(run: EpochRun, topic: Topic) -> Encode | None:
    """What encodes the values of a topic output; None where they are JSON.

    Raises:
        SchemaRefusedError: as :func:`register`.
        RegistryUnreachableError: as :func:`register`.
    """
    if topic.format != "avro":
        return None
    number, text = _id_and_text(run, topic)
    return encoder(number, text, [column.name for column in run.topology.rows_of(topic).columns])


def _id_and_text(run: EpochRun, topic: Topic) -> tuple[int, str]:
    text = avro_schema(topic.name, run.topology.rows_of(topic).columns)
    return run.engines.schemas.id_of(topic.name, text), text
