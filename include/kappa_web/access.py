"""The rights of the caller of a request. Airflow's are in :mod:`kappa_airflow.rights`; ``kappa ui`` has its own."""

from __future__ import annotations

from typing import Protocol

from starlette.exceptions import HTTPException


class Access(Protocol):
    """Rights of the caller of one request.

    Attributes:
        name: the caller, for a page.
        has_forms: whether Airflow's forms are on the same server.
    """

    @property
    def name(self) -> str: ...

    @property
    def has_forms(self) -> bool: ...

    def may_read(self, topology: str) -> bool:
        """Whether tables, reports and progress of a topology may be read."""
        ...

    def may_unmask(self, topology: str) -> bool:
        """Whether values of masked columns may be read."""
        ...


class LoginNeeded(HTTPException):
    """The caller has no login, or an expired one.

    Attributes:
        url: where to log in.
    """

    def __init__(self, url: str) -> None:
        super().__init__(401, "Log in first.")
        self.url = url


class Loopback:
    """Anyone who reaches the loopback of a host with a lake: reads everything but masked columns."""

    name = ""
    has_forms = False

    def may_read(self, topology: str) -> bool:
        """Always."""
        return True

    def may_unmask(self, topology: str) -> bool:
        """Never: a browser of the same host may be another user's."""
        return False


def loopback() -> Access:
    """Rights of callers of ``kappa ui``."""
    return Loopback()
