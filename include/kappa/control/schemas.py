"""What a plan knows of the schemas of a topology's topics, from the lake and from a registry that answers."""

from __future__ import annotations

from kappa.config import Config
from kappa.errors import RegistryUnreachableError, SchemaRefusedError
from kappa.kafka.registry import Registry
from kappa.lake import schemas
from kappa.replay.facts import SchemaFacts
from kappa.topology import Topic, Topology
from kappa.topology.avro_schema import avro_schema
from kappa.topology.wire_schemas import WriterSchema


def schema_facts(config: Config, topology: Topology) -> SchemaFacts:
    """Facts about the schemas of a topology. Reads only; a registry that does not answer says nothing."""
    lacking, refused, avro = [], [], []
    for source in topology.sources:
        if source.format not in ("json", "avro"):
            continue
        known = schemas.load(config.lake, source.topic)
        has_schema = any(one.kind != schemas.UNKNOWN for one in known.values())
        if source.format == "avro" and not has_schema and not config.schema_registry:
            lacking.append(source.topic)
        if source.format == "json" and any(one.subject for one in known.values()):
            avro.append(source.topic)
    for topic in topology.topics:
        if topic.format != "avro" or _is_stored(config, topology, topic):
            continue
        if not config.schema_registry:
            lacking.append(topic.name)
        elif _is_refused(config, topology, topic):
            refused.append(topic.name)
    return SchemaFacts(lacking=tuple(lacking), refused=tuple(refused), avro=tuple(avro))


def _text(topology: Topology, topic: Topic) -> str:
    return avro_schema(topic.name, topology.rows_of(topic).columns)


def _is_stored(config: Config, topology: Topology, topic: Topic) -> bool:
    wanted = WriterSchema(text=_text(topology, topic))
    known = schemas.load(config.lake, topic.name)
    return any(one.subject and schemas.is_same(one.schema, wanted) for one in known.values())


def _is_refused(config: Config, topology: Topology, topic: Topic) -> bool:
    registry = Registry(config.schema_registry)
    try:
        return not registry.is_compatible(f"{topic.name}-value", _text(topology, topic))
    except SchemaRefusedError:
        return True
    except RegistryUnreachableError:
        return False  # the driver waits for it
