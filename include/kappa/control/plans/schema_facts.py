"""Facts about the schemas of a topology's topics, from the lake and from a registry that answers."""

from __future__ import annotations

from kappa.config import Config
from kappa.errors import RegistryUnreachableError, SchemaRefusedError
from kappa.kafka.registry import Registry
from kappa.record import schemas
from kappa.replay.facts import SchemaFacts
from kappa.topology import Topology
from kappa.topology.schemas.value_schemas import value_schema
from kappa.topology.schemas.wire_schemas import BY_SCHEMA_ID, WriterSchema


def schema_facts(config: Config, topology: Topology) -> SchemaFacts:
    """Facts about the schemas of a topology. Reads only; a registry that does not answer says nothing."""
    without_schema, refused, avro, json = [], [], [], []
    for source in topology.sources:
        if source.format != "json" and not source.has_schema_ids:
            continue
        stored_schemas = schemas.load(config.lake, source.topic)
        has_schema = any(one.kind != schemas.UNKNOWN for one in stored_schemas.values())
        if source.has_schema_ids and not has_schema and not config.schema_registry:
            without_schema.append(source.topic)
        kinds = {one.kind for one in stored_schemas.values() if one.subject} if source.format == "json" else set()
        if "AVRO" in kinds:
            avro.append(source.topic)
        elif kinds:
            json.append(source.topic)
    for topic in topology.topics:
        if topic.format not in BY_SCHEMA_ID:
            continue
        schema = value_schema(topic.format, topic.name, topology.sent_columns(topic))
        if schemas.registered(schemas.load(config.lake, topic.name), topic.name, schema) is not None:
            continue
        if not config.schema_registry:
            without_schema.append(topic.name)
        elif _is_refused(config, topic.name, schema):
            refused.append(topic.name)
    return SchemaFacts(without_schema=tuple(without_schema), refused=tuple(refused), avro=tuple(avro), json=tuple(json))


def _is_refused(config: Config, topic: str, schema: WriterSchema) -> bool:
    registry = Registry(config.schema_registry)
    try:
        return not registry.is_compatible(schemas.subject_of(topic), schema.text, schema.kind)
    except SchemaRefusedError:
        return True
    except RegistryUnreachableError:
        return False  # the driver waits for it
