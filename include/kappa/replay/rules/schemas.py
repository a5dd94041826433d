"""Rules about Avro schemas: a missing registry, a registry that refuses, and records in another format."""

from __future__ import annotations

from dataclasses import replace

from kappa.replay.facts import TopologyFacts
from kappa.replay.findings import Finding, refuses

SCHEMA_REGISTRY_MISSING = refuses(
    "schema-registry-missing",
    "Topology {topology!r} has Avro topics {lacking}, the lake has no schema for them, and KAPPA_SCHEMA_REGISTRY is "
    "not set.",
    "Set KAPPA_SCHEMA_REGISTRY to the URL of the schema registry, here and where drivers start.",
)
SCHEMA_REFUSED = refuses(
    "schema-refused",
    "The schema registry would refuse the schema of topic outputs {refused}: it is not compatible with the latest one "
    "of their subjects.",
    "Declare the columns so that readers of the latest schema can continue (a new one may be null, none is renamed), "
    "or give the topic output another name.",
)
SOURCE_IS_AVRO = refuses(
    "source-is-avro",
    "Sources {sources} are read as JSON, and an epoch of this lake sends Avro to topics of these names: each of those "
    "records would be a dead letter.",
    "Declare format='avro' on them. --allow source-is-avro reads them as declared, for example where the topic is JSON "
    "again.",
    may_be_allowed=True,
)
_SOURCE_IS_JSON_SCHEMA = replace(
    SOURCE_IS_AVRO,
    message="Sources {sources} are read as JSON, and an epoch of this lake sends JSON after a schema id to topics "
    "of these names: each of those records would be a dead letter.",
    remedy="Declare format='json_schema' on them. --allow source-is-avro reads them as declared, for example where the "
    "topic is plain JSON again.",
)


def schema_findings(topology: TopologyFacts) -> list[Finding]:
    """Objections to the schemas of a topology's topics."""
    words = {"topology": topology.name}
    schemas = topology.schemas
    findings = [SCHEMA_REGISTRY_MISSING(words, lacking=list(schemas.without_schema))] if schemas.without_schema else []
    findings += [SCHEMA_REFUSED(refused=list(schemas.refused))] if schemas.refused else []
    findings += [SOURCE_IS_AVRO(sources=list(schemas.avro))] if schemas.avro else []
    return findings + ([_SOURCE_IS_JSON_SCHEMA(sources=list(schemas.json))] if schemas.json else [])
