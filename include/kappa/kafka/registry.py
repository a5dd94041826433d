"""The schema registry, by Confluent's own client: schemas of ids, and ids of schemas.

A schema that the registry does not know is distinguished from a registry that does not answer: the first is a fact
about a record, the second is transient.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

from kappa.errors import RegistryUnreachableError, SchemaRefusedError
from kappa.topology.schemas.wire_schemas import WriterSchema

_SECONDS = 5.0
#: Codes of a registry for an unknown schema, subject and version.
_NO_SCHEMA, _NO_SUBJECT, _NO_VERSION = 40403, 40401, 40402
_UNKNOWN = (_NO_SCHEMA, _NO_SUBJECT, _NO_VERSION)
#: Its status codes for a refused schema: incompatible, and not a schema.
_REFUSED = (409, 422)
#: User and password of each of several URLs; a password may have any characters.
_LOGIN = re.compile(r"//(?:(?!,https?://)\S)*@")

_Answer = TypeVar("_Answer")


class Registry:
    """A schema registry.

    Args:
        url: URL of the registry, several separated by commas; ``https://user:password@host`` if it requires a login.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        #: The url, without user and password.
        self.name = _LOGIN.sub("//", url)

    def schema(self, number: int) -> WriterSchema | None:
        """The schema of an id; None if the registry has none, or lacks one that it refers to.

        Raises:
            RegistryUnreachableError: it does not answer as a registry.
        """
        return self._ask(lambda client: self._schema(client.get_schema(number)), f"schema {number}", _UNKNOWN)

    def register(self, subject: str, text: str, kind: str = "AVRO") -> int:
        """The id of a schema under a subject; the schema is registered if it is new. Idempotent.

        Raises:
            SchemaRefusedError: the registry does not accept it, for example because it is incompatible with earlier
                ones.
            RegistryUnreachableError: it does not answer as a registry.
        """
        number = self._ask(
            lambda client: client.register_schema(subject, _schema(text, kind)), f"subject {subject!r}", ()
        )
        assert number is not None
        return int(number)

    def is_compatible(self, subject: str, text: str, kind: str = "AVRO") -> bool:
        """Whether the registry would accept a schema as the next one of a subject.

        Raises:
            SchemaRefusedError: the registry does not accept it as a schema.
            RegistryUnreachableError: it does not answer as a registry.
        """
        schema = _schema(text, kind)

        def ask(client: Any) -> Any:
            # The second asks about earlier versions too, as far as the subject's mode does; not every registry has it.
            return client.test_compatibility(subject, schema) and client.test_compatibility_all_versions(
                subject, schema
            )

        verdict = self._ask(ask, f"subject {subject!r}", _UNKNOWN)
        return verdict is None or bool(verdict)

    @cached_property
    def _client(self) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # 1.5 s: only if there is a registry

        return SchemaRegistryClient({"url": self._url, "timeout": _SECONDS, "max.retries": 0})

    def _ask(self, ask: Callable[[Any], _Answer], what: str, unknown: tuple[int, ...]) -> _Answer | None:
        from confluent_kafka.schema_registry import SchemaRegistryError

        if not self._url:
            raise RegistryUnreachableError(
                f"No schema registry is set, and {what} is not in the lake. Set KAPPA_SCHEMA_REGISTRY to its URL, and "
                "start the driver with it: kappa start"
            )
        try:
            return ask(self._client)
        except SchemaRegistryError as error:
            if error.error_code in unknown:
                return None
            if error.http_status_code in _REFUSED:
                raise SchemaRefusedError(
                    f"The schema registry {self.name} refuses the schema for {what}: {error.error_message} List its "
                    f"versions: curl {self.name}/subjects",
                    code=error.error_code,
                ) from error
            answer = f"answers {error.http_status_code} ({error.error_code}), not as a registry"
            raise self._unreachable(what, answer) from error
        except (
            Exception
        ) as error:  # any error that a connection, or a server that is not a registry, raises in the client
            raise self._unreachable(what, f"does not answer: {type(error).__name__}") from error

    def _unreachable(self, what: str, answer: str) -> RegistryUnreachableError:
        return RegistryUnreachableError(
            f"The schema registry {self.name} {answer}, and {what} is not in the lake. Nothing is lost: the slice "
            f"waits. Check KAPPA_SCHEMA_REGISTRY, and the registry: curl {self.name}/subjects",
            registry=self.name,
        )

    def _schema(self, schema: Any) -> WriterSchema:
        texts: dict[tuple[str, int], str] = {}
        for reference in schema.references or ():
            self._collect(reference, texts)
        return WriterSchema(text=schema.schema_str, references=tuple(texts.values()), kind=schema.schema_type or "AVRO")

    def _collect(self, reference: Any, texts: dict[tuple[str, int], str]) -> None:
        """Add the text of a reference after the texts of its own references."""
        at = (reference.subject, reference.version)
        if at in texts:
            return
        # Deleted versions too: a schema that refers to one is still there by its id.
        schema = self._client.get_version(*at, deleted=True).schema
        for further in schema.references or ():
            self._collect(further, texts)
        texts[at] = schema.schema_str


def _schema(text: str, kind: str) -> Any:
    from confluent_kafka.schema_registry import Schema

    return Schema(text, kind)
