"""Schemas that are stored apart from records: a schema registry keeps them by id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

#: How the values of a source or topic output are encoded.
Format = Literal["json", "avro", "json_schema", "string", "bytes"]
FORMATS: tuple[str, ...] = get_args(Format)
#: How the keys of a source are encoded; ``int`` and ``long`` as Kafka's own serializers write them.
KeyFormat = Literal["text", "json", "avro", "json_schema", "int", "long"]
KEY_FORMATS: tuple[str, ...] = get_args(KeyFormat)
#: Meanings of a number in a TIMESTAMP column; ``text``: times are text, and numbers are refused.
Timestamps = Literal["text", "epoch_seconds", "epoch_ms", "epoch_us"]
TIMESTAMPS: tuple[str, ...] = get_args(Timestamps)
#: Formats whose values begin with the id of a schema. Protobuf would belong here too.
BY_SCHEMA_ID = ("avro", "json_schema")
#: Formats of a source that has a schema of its own: columns with types.
OF_COLUMNS = ("json", *BY_SCHEMA_ID)
#: How the values of a topic output are encoded.
TopicFormat = Literal["json", "avro", "json_schema"]
TOPIC_FORMATS: tuple[str, ...] = get_args(TopicFormat)


@dataclass(frozen=True, kw_only=True)
class WriterSchema:
    """The schema with which a value was written.

    Attributes:
        text: the schema.
        references: texts of the schemas whose types it uses, in order of dependency.
        kind: the registry's name for its language: ``AVRO``, ``PROTOBUF`` or ``JSON``.
    """

    text: str
    references: tuple[str, ...] = ()
    kind: str = "AVRO"


#: Schemas by id; None for an id that the registry does not know.
WriterSchemas = Mapping[int, WriterSchema | None]
