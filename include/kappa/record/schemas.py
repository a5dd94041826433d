"""Schemas in use, kept in the lake: records that were read or sent once are read again without a registry.

One file per schema, ``_kappa/schemas/<topic>/<id>.json``, written before the slice that uses it has effects. A schema
is never replaced: where the registry has another one later, the lake is right.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pyarrow import fs

from kappa.delta.fsync import fsync
from kappa.errors import SchemaRefusedError
from kappa.names import schemas_of
from kappa.replay import stored
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
    filesystem, folder = _open(schemas_of(lake, topic))
    listed = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    schemas = (from_json(_read(filesystem, item.path), item.path) for item in listed if item.path.endswith(".json"))
    return {one.id: one for one in schemas}


def store(lake: str, topic: str, schema: StoredSchema) -> None:
    """Store a schema; idempotent. A crash leaves it there, or a file that nothing reads.

    Raises:
        SchemaRefusedError: another schema is stored under its id.
    """
    filesystem, folder = _open(schemas_of(lake, topic))
    path = f"{folder}/{schema.id}.json"
    if filesystem.get_file_info(path).type != fs.FileType.NotFound:
        earlier = from_json(_read(filesystem, path), path)
        if earlier.kind != UNKNOWN and not is_same(earlier.schema, schema.schema):
            raise other_schema(topic, schema.id)
        if earlier.kind != UNKNOWN and (earlier.subject or not schema.subject):
            return
    filesystem.create_dir(folder, recursive=True)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    with filesystem.open_output_stream(temporary) as stream:
        stream.write(to_json(schema).encode())
    is_local = isinstance(filesystem, fs.LocalFileSystem)
    if is_local:
        fsync(Path(temporary))
    filesystem.move(temporary, path)
    if is_local:
        for parent in (Path(folder), *Path(folder).parents[:3]):
            fsync(parent)


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


def _content(schema: WriterSchema) -> list[object]:
    content: list[object] = []
    for text in (*schema.references, schema.text):
        try:
            content.append(json.loads(text))
        except ValueError:
            content.append(text.strip())
    return content


def _read(filesystem: fs.FileSystem, path: str) -> str:
    with filesystem.open_input_file(path) as stream:
        return bytes(stream.read()).decode()


def _open(place: str) -> tuple[fs.FileSystem, str]:
    if "://" in place:
        filesystem, path = fs.FileSystem.from_uri(place)
        return filesystem, path
    return fs.LocalFileSystem(), str(Path(place).absolute())
