"""Values that outlive the code that wrote them: ledger rows, events, plans, markers, heartbeats, findings, reports.

An epoch keeps its code, so older and newer code read what the other wrote. One rule holds for all of these values: a
field that the reader does not know is ignored, and a field that is absent or null reads as its default. A field that is
added later therefore has a default. What older code must not ignore raises the record's format number, which that code
then refuses. A record without a number has format 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar

from kappa.errors import LedgerError, NewerFormatError

Kind = TypeVar("Kind")
#: The format of a lake that this code makes, and the newest that it opens: what no record's own number covers, as where
#: everything is, and what the parts of stored code are.
LAKE_FORMAT = 2
#: Name of that number among the properties of the record of epochs. A lake without it is of format 1.
LAKE_FORMAT_PROPERTY = "kappa.lakeFormat"


def read(kind: type[Kind], values: Mapping[str, Any]) -> Kind:
    """The dataclass whose fields were stored under these names.

    Raises:
        LedgerError: a field that has no default is absent.
    """
    arguments: dict[str, Any] = {}
    absent = []
    for name, has_default in _fields(kind):  # type: ignore[arg-type]  # a class has a hash
        if name in values and not (has_default and values[name] is None):
            arguments[name] = values[name]
        elif not has_default:
            absent.append(name)
    if absent:
        raise LedgerError(
            f"A stored {kind.__name__} has no {', '.join(absent)}: it was cut short, or is something else. It has "
            f"{sorted(values)}.",
            absent=absent,
        )
    return kind(**arguments)


@cache
def _fields(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The fields of a dataclass, and whether each has a default; a lake has many values of a few kinds."""
    return tuple(
        (item.name, item.default is not MISSING or item.default_factory is not MISSING) for item in fields(kind)
    )


def check_format(number: int | None, newest: int, *, what: str, where: str) -> None:
    """Refuse a record in a format of newer code.

    Args:
        number: the record's number; None, as in records that are older than these numbers, is 1.
        newest: the newest number that this code reads.
        what: the kind of record.
        where: the topic, table or file that it is in.

    Raises:
        NewerFormatError: the number is a newer one.
    """
    if number is not None and number > newest:
        raise NewerFormatError(
            f"A {what} in {where} has format {number}, and this code reads formats up to {newest}: newer code wrote "
            "it. Run the command with the version of Kappa that wrote it; a driver gets it with: kappa upgrade "
            "<topology>",
            what=what,
            where=where,
            format=number,
            known=newest,
        )


def check_lake(properties: Mapping[str, str], lake: str) -> None:
    """Refuse a lake in a format of newer code, or of code from before the first release.

    Args:
        properties: those of its record of epochs.
        lake: its address.

    Raises:
        NewerFormatError: the number is a newer one.
        LedgerError: it is that of a lake whose tables lie elsewhere.
    """
    number = int(properties.get(LAKE_FORMAT_PROPERTY, 1))
    if number < LAKE_FORMAT:
        raise LedgerError(
            f"The lake {lake} has format {number}: code from before Kappa 0.1.0 made it, and its tables lie elsewhere. "
            "Nothing was read or written. Use the code that made it, or build its topologies again, in an empty lake: "
            "KAPPA_LAKE=<new folder> kappa rebuild <topology> --from-changelog --execute",
            format=number,
            known=LAKE_FORMAT,
        )
    if number > LAKE_FORMAT:
        raise NewerFormatError(
            f"The lake {lake} has format {number}, and this version of Kappa opens lakes up to format {LAKE_FORMAT}: a "
            "newer version made the lake, or raised its format. Nothing was read or written. Use that version here; a "
            "driver gets it with: kappa upgrade <topology>",
            what="lake",
            where=lake,
            format=number,
            known=LAKE_FORMAT,
        )
