"""How long a call waits for an object store before it says that the store does not answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

#: What a slow line carries in a second.
_SECOND_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How often and for how long a request is tried, by obstore and by ``deltalake`` alike.

    Attributes:
        retries: how often it is sent again: so often that only the time ends it, since the pauses are random.
        retry_for: for how long it is: shorter than a heartbeat may be late.
        answer: how long an answer may take.
        connection: how long a connection may take.
    """

    retries: int = 100
    retry_for: timedelta = timedelta(seconds=10)
    answer: timedelta = timedelta(seconds=30)
    connection: timedelta = timedelta(seconds=5)

    @property
    def longest(self) -> timedelta:
        """How long a call takes: the last request is sent when the time for it is over, or a last pause later."""
        return self.retry_for + self.answer

    def within(self, span: timedelta) -> Retries:
        """The same for calls that take at most a span; unchanged where they never take longer."""
        part = min(1.0, span / self.longest)
        answer = self.answer * part
        return replace(self, retry_for=self.retry_for * part, answer=answer, connection=min(self.connection, answer))

    def carrying(self, size: int) -> Retries:
        """The same for calls that send this many bytes: an answer may take as much longer as they do on a slow line."""
        pieces = size // _SECOND_BYTES
        if not pieces:
            return self
        # A power of two, since each span has clients of its own.
        return replace(self, answer=self.answer + timedelta(seconds=1 << pieces.bit_length()))

    def retry_config(self) -> dict[str, Any]:
        """Retries, as obstore takes them."""
        return {"max_retries": self.retries, "retry_timeout": self.retry_for}

    def client_options(self) -> dict[str, Any]:
        """Answers and connections, as obstore takes them."""
        return {"timeout": self.answer, "connect_timeout": self.connection}

    def storage_options(self) -> dict[str, str]:
        """All of it, as ``deltalake`` takes it."""
        return {
            "max_retries": str(self.retries),
            "retry_timeout": _text(self.retry_for),
            "timeout": _text(self.answer),
            "connect_timeout": _text(self.connection),
        }


def _text(span: timedelta) -> str:
    return f"{span // timedelta(milliseconds=1)}ms"
