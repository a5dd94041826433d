"""A verification's report as a file. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from kappa.errors import UsageError
from kappa.replay.proof.verdict import DiffReport


class Format(StrEnum):
    """What a report can be written as."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


#: Format -> what writes a report in it, with a line break at its end. The package of the pages brings that of HTML.
WRITERS: dict[Format, Callable[[DiffReport], str]] = {
    Format.TEXT: lambda report: "\n".join(report.render()) + "\n",
    Format.JSON: lambda report: report.to_json() + "\n",
}


def rendered(report: DiffReport, format: Format) -> str:
    """A report as text that ends with a line break.

    Raises:
        UsageError: nothing that is installed writes that format.
    """
    if format not in WRITERS:
        raise UsageError(f"A report as {format} is written by the package kappa_web, which has not been loaded.")
    return WRITERS[format](report)
