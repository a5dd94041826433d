"""A verification's report as a file. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from kappa.errors import UsageError
from kappa.replay.proof.verdict import DiffReport


class Format(StrEnum):
    """The format of a report file."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


#: Format -> its writer, whose text ends with a line break. The package of the pages brings that of HTML.
WRITERS: dict[Format, Callable[[DiffReport], str]] = {
    Format.TEXT: lambda report: "\n".join(report.render()) + "\n",
    Format.JSON: lambda report: report.to_json() + "\n",
}


def rendered(report: DiffReport, format: Format) -> str:
    """A report as text that ends with a line break.

    Raises:
        UsageError: no installed package writes that format.
    """
    if format not in WRITERS:
        raise UsageError(f"A report as {format} is written by the package kappa_web, which has not been loaded.")
    return WRITERS[format](report)
