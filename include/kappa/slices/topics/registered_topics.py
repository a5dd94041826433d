"""Topic outputs whose values begin with the id of a schema: it is registered before anything is sent, and kept in the
lake by its id.
"""

from __future__ import annotations

from collections.abc import Iterable

from kappa.slices.run import EpochRun
from kappa.topology import Topic
from kappa.topology.schemas.value_schemas import value_schema
from kappa.topology.schemas.wire_schemas import BY_SCHEMA_ID, WriterSchema
from kappa.wire.avro_values import Encode
from kappa.wire.wire_values import encoder


def register(run: EpochRun, topics: Iterable[Topic]) -> None:
    """Have the schemas of topic outputs registered; versioned topics of all epochs share the subject of their output.

    Idempotent; a schema that is in the lake asks no registry.

    Raises:
        SchemaRefusedError: the registry does not take one, for example as incompatible with those before it.
        RegistryUnreachableError: one is not in the lake, and the registry does not answer.
    """
    for topic in topics:
        if topic.format in BY_SCHEMA_ID:
            _id_and_schema(run, topic)


def encoder_of(run: EpochRun, topic: Topic) -> Encode | None:
    """The encoder of a topic output's values; None where they are plain JSON.

    Raises:
        SchemaRefusedError: as :func:`register`.
        RegistryUnreachableError: as :func:`register`.
    """
    if topic.format not in BY_SCHEMA_ID:
        return None
    number, schema = _id_and_schema(run, topic)
    return encoder(number, schema, [column.name for column in run.topology.sent_columns(topic)])


def _id_and_schema(run: EpochRun, topic: Topic) -> tuple[int, WriterSchema]:
    schema = value_schema(topic.format, topic.name, run.topology.sent_columns(topic))
    return run.engines.schemas.id_of(topic.name, schema.text, schema.kind), schema
