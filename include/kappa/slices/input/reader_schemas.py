"""The schemas of a topology's records: from the lake where they were used before, else from the schema registry."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kappa.errors import RegistryUnreachableError
from kappa.record import schemas as lake_schemas
from kappa.record.schemas import UNKNOWN, StoredSchema, is_same, other_schema, registered, subject_of
from kappa.topology.schemas.wire_schemas import WriterSchema, WriterSchemas

#: Most ids of a topic that are kept as unknown: hostile bytes may name any.
_UNKNOWN_IDS = 100


class SchemaRegistry(Protocol):
    """The part of a schema registry that is used here; see :class:`kappa.kafka.registry.Registry`."""

    def schema(self, number: int) -> WriterSchema | None:
        """The schema of an id; None where the registry knows of none."""

    def register(self, subject: str, text: str, kind: str = "AVRO") -> int:
        """The id of a schema under a subject."""


class Schemas:
    """Schemas by topic and id; what the registry tells is in the lake before it is used.

    Topics are named as they are declared: versioned topics of several epochs have the schemas of one.

    A registry that answers is compared once, for each topic, with what the lake holds: an id that means something else
    there would decode records into other values without a word.

    Args:
        lake: the lake.
        registry: the schema registry.
    """

    def __init__(self, lake: str, registry: SchemaRegistry) -> None:
        self._lake = lake
        self._registry = registry
        self._topics: dict[str, dict[int, StoredSchema]] = {}
        self._is_silent = False
        #: Ids of schemas that the registry has lost.
        self._lost: set[int] = set()

    def of(self, topic: str) -> WriterSchemas:
        """The schemas of a topic that are in the lake.

        Raises:
            SchemaRefusedError: the registry has another one under an id.
        """
        return {number: one.schema for number, one in self._stored(topic).items() if one.kind != UNKNOWN}

    def look_up(self, topic: str, ids: Collection[int], *, is_history: bool = False) -> WriterSchemas:
        """The schemas of a topic that are in the lake, and those of these ids; None for one that the registry lacks.

        The first slice with an id that the registry lacks waits once: what answers may be a follower, a little behind.

        Args:
            is_history: whether an id that the registry did not know before is unknown while it does not answer: the
                records were read before. A live slice waits instead, since the id may have been registered meanwhile.

        Raises:
            RegistryUnreachableError: an id is not in the lake, and the registry does not answer, or lacks it so far.
            SchemaRefusedError: the registry has another one under an id.
        """
        new_ids: list[int] = []
        schemas: dict[int, WriterSchema | None] = dict(self.of(topic))
        for number in sorted(set(ids) - schemas.keys()):
            one = self._of_other_driver(topic, number)
            if one is not None and one.kind != UNKNOWN:
                schemas[number] = one.schema
                continue
            try:
                schemas[number] = schema = self._registry.schema(number)
            except RegistryUnreachableError:
                if not is_history or one is None:
                    raise
                schemas[number] = None
                continue
            if schema is not None:
                self._keep(topic, number, schema)
            elif number not in (stored := self._stored(topic)) and (
                sum(one.kind == UNKNOWN for one in stored.values()) < _UNKNOWN_IDS
            ):
                self._keep(topic, number, WriterSchema(text="", kind=UNKNOWN))
                new_ids.append(number)
        if new_ids:
            raise _not_there_yet(topic, new_ids)
        return schemas

    def id_of(self, topic: str, text: str, kind: str = "AVRO") -> int:
        """The id under which values of a topic are written with a schema; registered now where it was not, or where a
        registry that was set up anew has lost it.

        Raises:
            SchemaRefusedError: the registry does not take it.
            RegistryUnreachableError: it is not in the lake, and the registry does not answer.
        """
        candidates = {number: one for number, one in self._stored(topic).items() if number not in self._lost}
        entry = registered(candidates, topic, WriterSchema(text=text, kind=kind))
        if entry is not None:
            return entry.id
        subject = subject_of(topic)
        number = self._registry.register(subject, text, kind)
        self._keep(topic, number, WriterSchema(text=text, kind=kind), subject)
        return number

    def _keep(self, topic: str, number: int, schema: WriterSchema, subject: str = "") -> None:
        import structlog

        one = StoredSchema(id=number, text=schema.text, references=schema.references, kind=schema.kind, subject=subject)
        lake_schemas.store(self._lake, topic, one)
        self._stored(topic)[number] = one
        self._lost.discard(number)
        structlog.get_logger(__name__).info("schema", topic=topic, id=number, subject=subject or None)

    def _of_other_driver(self, topic: str, number: int) -> StoredSchema | None:
        """What the lake has under an id by now."""
        one = lake_schemas.load_one(self._lake, topic, number)
        if one is not None and one.kind != UNKNOWN:
            self._compare(topic, {number: one})
            self._stored(topic)[number] = one
        return one

    def _stored(self, topic: str) -> dict[int, StoredSchema]:
        if topic not in self._topics:
            entries = lake_schemas.load(self._lake, topic)
            self._compare(topic, entries)
            self._topics[topic] = entries
        return self._topics[topic]

    def _compare(self, topic: str, entries: dict[int, StoredSchema]) -> None:
        for number, one in entries.items():
            if self._is_silent:
                return
            if one.kind == UNKNOWN:
                continue
            try:
                other = self._registry.schema(number)
            except RegistryUnreachableError:
                self._is_silent = True  # the lake is enough
                return
            if other is None:
                self._lost.add(number)
            elif not is_same(one.schema, other):
                raise other_schema(topic, number)


def _not_there_yet(topic: str, ids: Collection[int]) -> RegistryUnreachableError:
    return RegistryUnreachableError(
        f"The schema registry does not have schema {', '.join(map(str, ids))} of {topic!r}. It may be behind: the "
        "slice waits once; records whose schema it lacks then are dead letters. See whether it is over: kappa status",
        topic=topic,
        ids=list(ids),
    )
