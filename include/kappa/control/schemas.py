"""What a plan knows of the schemas of a topology's topics, from the lake and from a registry that answers."""

from __future__ import annotations

from kappa.config import Config
from kappa.errors import RegistryUnreachableError, SchemaRefusedError
from kappa.kafka.registry import Registry
from kappa.lake import schemas
from kappa.replay.facts import SchemaFacts
from kappa.topology import Topology
from kappa.topology.avro_schema import avro_schema


def schema_facts(config: Config, topology: Topology) -> SchemaFacts:
    """Facts about the schemas of a topology. Reads only; a registry that does not answer says nothing."""
    lacking, refused, avro = [], [], []
    for source in topology.sources:
        if source.format != "json" and not source.has_schema_ids:
            continue
        known = schemas.load(config.lake, source.topic)
        has_schema = any(one.kind != schemas.UNKNOWN for one in known.values())
        if source.has_schema_ids and not has_schema and not config.schema_registry:
            lacking.append(source.topic)
        if source.format == "json" and any(one.subject for one in known.values()):
            avro.append(source.topic)
    for topic in topology.topics:
        if topic.format != "avro":
            continue
        text = avro_schema(topic.name, topology.rows_of(topic).columns)
        if schemas.registered(schemas.load(config.lake, topic.name), topic.name, text) is not None:
            continue
        if not config.schema_registry:
            lacking.append(topic.name)
        elif _is_refused(config, topic.name, text):
            refused.append(topic.name)
    return SchemaFacts(lacking=tuple(lacking), refused=tuple(refused), avro=tuple(avro))


def _is_refused(config: Config, topic: str, text: str) -> bool:
    registry = Registry(config.schema_registry)
    try:
        return not registry.is_compatible(schemas.subject_of(topic), text)
    except SchemaRefusedError:
        return True
    except RegistryUnreachableError:
        return False  # the driver waits for it
