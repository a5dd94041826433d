"""Schemas in use, kept in the lake: records that were read or sent once are read again without a registry.

One file per schema, ``_kappa/schemas/<topic>/<id>.json``, written before the slice that uses it has effects. A schema
is never replaced: where the registry has another one later, the lake is right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from kappa.errors import SchemaRefusedError
from kappa.names import schemas_of
from kappa.replay import stored
from kappa.store.stores import store_of
from kappa.topology.schemas.wire_schemas import WriterSchema

FORMAT = 1
#: The kind of an id that is not in the registry.
UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, kw_only=True)
class StoredSchema:
    """A schema of a topic's values.

    Attributes:
        id: the id that stands before the values.
        text: the schema.
        references: texts of the schemas whose types it uses, each after those that it uses itself.
        kind: the registry's word for its language; ``UNKNOWN`` where it had no schema of that id.
        subject: the subject under which an epoch registered it; empty where it was only read.
    """

    id: int
    text: str
    references: tuple[str, ...] = ()
    kind: str = "AVRO"
    subject: str = ""

    @property
    def schema(self) -> WriterSchema:
        """The schema that decodes a value."""
        return WriterSchema(text=self.text, references=self.references, kind=self.kind)


def load(lake: str, topic: str) -> dict[int, StoredSchema]:
    """The schemas that are stored for a topic, by id.

    Raises:
        NewerFormatError: newer code wrote one in a format that this code does not read.
    """
    folder = schemas_of(lake, topic)
    store = store_of(folder)
    paths = [file.path for file in store.files(folder) if file.name.endswith(".json")]
    return {one.id: one for one in map(_read, paths) if one is not None}


def load_one(lake: str, topic: str, number: int) -> StoredSchema | None:
    """The schema that is stored for a topic under an id; errors as :func:`load`."""
    return _read(_path(lake, topic, number))


def store(lake: str, topic: str, schema: StoredSchema) -> None:
    """Store a schema; idempotent. A crash leaves it there, or a file that nothing reads.

    Raises:
        SchemaRefusedError: another schema is stored under its id.
    """
    path = _path(lake, topic, schema.id)
    earlier = _read(path)
    if earlier is not None and earlier.kind != UNKNOWN:
        if schema.kind != UNKNOWN and not is_same(earlier.schema, schema.schema):
            raise other_schema(topic, schema.id)
        if earlier.subject or not schema.subject:
            return
    files = store_of(path)
    files.make_folder(schemas_of(lake, topic))
    files.put(path, to_json(schema).encode(), is_durable=True)


def to_json(schema: StoredSchema) -> str:
    """A schema as its file has it."""
    return json.dumps({"format": FORMAT, **asdict(schema)}, indent=2) + "\n"


def from_json(text: str, where: str) -> StoredSchema:
    """The inverse of :func:`to_json`.

    Raises:
        NewerFormatError: newer code wrote it in a format that this code does not read.
    """
    values = json.loads(text)
    stored.check_format(values.get("format"), FORMAT, what="schema", where=where)
    return stored.read(StoredSchema, {**values, "references": tuple(values.get("references") or ())})


def subject_of(topic: str) -> str:
    """The subject under which the values of a topic are registered."""
    return f"{topic}-value"


def registered(schemas: Mapping[int, StoredSchema], topic: str, schema: WriterSchema) -> StoredSchema | None:
    """The equal schema among those registered for the values of a topic; None where there is none."""
    return next(
        (one for one in schemas.values() if one.subject == subject_of(topic) and is_same(one.schema, schema)), None
    )


def is_same(one: WriterSchema, other: WriterSchema) -> bool:
    """Whether two schemas are the same, however they are written."""
    return (one.kind, _content(one)) == (other.kind, _content(other))


def other_schema(topic: str, number: int) -> SchemaRefusedError:
    """The registry is not the one with which the topic was read before."""
    return SchemaRefusedError(
        f"Schema {number} in the schema registry is not the one with which records of {topic!r} were read before: it "
        "is another registry, or one that was set up anew. Nothing is decoded with it. Set KAPPA_SCHEMA_REGISTRY to "
        "the registry of the topic's producers; see what a driver has: kappa status",
        topic=topic,
        id=number,
    )


def _path(lake: str, topic: str, number: int) -> str:
    return f"{schemas_of(lake, topic)}/{number}.json"


def _read(path: str) -> StoredSchema | None:
    content = store_of(path).get(path)
    return None if content is None else from_json(content.decode(), path)


def _content(schema: WriterSchema) -> list[object]:
    content: list[object] = []
    for text in (*schema.references, schema.text):
        try:
            content.append(json.loads(text))
        except ValueError:
            content.append(text.strip())
    return content
