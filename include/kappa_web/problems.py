"""Answers that are not a result: problem bodies (RFC 9457), and the errors that give them.

======  ==============================================================================================
status  when
======  ==============================================================================================
400     a parameter is malformed, unknown or given twice, or does not fit the table's key
401     no login
403     the caller may not read the topology
404     no such topology, epoch, slice, table or key
409     the files of the slice were cleaned up: begin again without ``epoch``, ``seq``, ``at`` or ``cursor``
503     not available now: nothing is live or committed yet, the lake does not answer or has moved, queries are many
======  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from kappa.errors import (
    DamagedTableError,
    KappaError,
    LakeMovedError,
    LedgerError,
    Transient,
    UnknownEpochError,
    UnknownTableError,
    UnknownTopologyError,
    UsageError,
)

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

    from kappa_web.access import Access

#: Seconds after which a caller may try again.
RETRY_SECONDS = 2


class Problem(Exception):
    """An answer that is not a result.

    Attributes:
        status: HTTP status.
        code: one word for programs: the last part of the problem's ``type``.
        detail: a sentence for people.
        more: further members of the body.
        headers: further headers of the answer.
    """

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.more = more
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """Members of the body."""
        return {
            "type": f"urn:kappa:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.more,
        }


def problem_of(error: Exception) -> Problem:
    """The answer to a request that failed with an error of :func:`answered`."""
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return Problem(error.status_code, "refused", str(error.detail), headers=error.headers)
    if isinstance(error, RequestValidationError):
        wrong = [f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors()]
        return Problem(400, "malformed", f"The request is malformed: {'; '.join(wrong)}.")
    if isinstance(error, UnknownEpochError) and "savepoints" in error.data:
        return Problem(409, "cleaned-up", str(error))
    status_and_code = next(
        ((status, code) for kind, status, code in _ANSWERS if isinstance(error, kind)), (500, "failed")
    )
    return Problem(*status_and_code, str(error))


def answered() -> tuple[type[Exception], ...]:
    """The errors that have an answer of their own; any other is the server's."""
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

    return (Problem, KappaError, RequestValidationError, HTTPException)


#: The first match counts.
_ANSWERS: tuple[tuple[type[KappaError], int, str], ...] = (
    (UsageError, 400, "malformed"),
    (UnknownTableError, 404, "no-such-table"),
    (UnknownTopologyError, 404, "no-such-topology"),
    (UnknownEpochError, 404, "no-such-epoch"),
    (DamagedTableError, 500, "damaged"),
    (LedgerError, 503, "not-now"),
    (LakeMovedError, 503, "not-now"),
    (Transient, 503, "not-now"),
)


def check_readable(caller: Access, topology: str) -> None:
    """Refuse a caller before anything is looked up, so that one without the right does not learn what exists.

    Raises:
        Problem: 403.
    """
    if not caller.may_read(topology):
        raise Problem(
            403,
            "forbidden",
            f"You may not read topology {topology!r}. Ask for the right to read its replay DAG in Airflow.",
        )


def answer(problem: Problem) -> Response:
    """A problem as a response."""
    from starlette.responses import Response

    headers = {**problem.headers, "Cache-Control": "no-store"}
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_SECONDS)
    return Response(orjson.dumps(problem.body), problem.status, headers=headers, media_type="application/problem+json")


def register(app: FastAPI) -> None:
    """Let an application answer its errors with problems."""

    def answer_to(_: Request, error: Exception) -> Response:
        return answer(problem_of(error))

    for kind in answered():
        app.add_exception_handler(kind, answer_to)
