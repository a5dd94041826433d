"""The position of a change in its source's own log, as text that sorts like the log.

The block ``source`` of a change record names its place. Its order differs from connector to connector:

==================  ================================================================================================
connector           position
==================  ================================================================================================
postgresql          the greater of ``lsn`` and of the last commit before it (``sequence``), then ``lsn``: a transaction
                    that began before a snapshot and committed after it comes after the rows that the snapshot read
mysql, mariadb      number of the binlog file, ``pos``, ``row``
sqlserver           ``commit_lsn``, ``change_lsn``, ``event_serial_no``
oracle              ``commit_scn`` or ``scn``, ``scn``, ``rs_id``, ``ssn``: changes of a transaction may share a ``scn``
==================  ================================================================================================

A row of a snapshot comes before a change at the same place. The position is empty for other connectors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Block = Mapping[str, Any]

#: Hexadecimal digits of a number: 64 bits, also for Oracle, whose numbers have 48.
_DIGITS = 16
_FILE = re.compile(r".*\.([0-9]+)", re.ASCII | re.DOTALL)
_WORDS = re.compile(r"[0-9a-fA-F]{1,16}(?::[0-9a-fA-F]{1,16})*", re.ASCII)
_NUMBER = re.compile(r"[0-9]+", re.ASCII)
_REDO = re.compile(r" *(?:0x)?([0-9a-fA-F]{1,16})\.([0-9a-fA-F]{1,16})\.([0-9a-fA-F]{1,16}) *", re.ASCII)


class NoPositionError(Exception):
    """The block does not have the field that orders the changes of its connector; its text is that field."""


def position_of(block: Block, operation: str) -> str:
    """The position of a change.

    Args:
        block: the block ``source``, with its numbers as integers.
        operation: ``r`` for a row of a snapshot.

    Raises:
        NoPositionError: the block does not have it.
    """
    parts = _BY_CONNECTOR.get(str(block.get("connector")))
    if parts is None:
        return ""
    place, within = parts(block)
    return "/".join([*place, "0" if operation == "r" else "1", *within])


def _postgresql(block: Block) -> tuple[list[str], list[str]]:
    lsn = _number(block, "lsn")
    return [_text("lsn", max(lsn, _last_commit(block)))], [_text("lsn", lsn)]


def _last_commit(block: Block) -> int:
    """The first part of ``["<last commit>", "<lsn>"]``; 0 if it is not known, as at the first transaction."""
    try:
        first = json.loads(block.get("sequence") or "[]")[0]
    except (ValueError, TypeError, IndexError, KeyError, RecursionError):
        return 0
    return int(first) if isinstance(first, str) and _NUMBER.fullmatch(first) and len(first) < 20 else 0


def _mysql(block: Block) -> tuple[list[str], list[str]]:
    file = block.get("file")
    number = _FILE.fullmatch(file) if isinstance(file, str) else None
    if number is None or len(number[1]) > 18:
        raise NoPositionError("file")
    return [_text("file", int(number[1])), _text("pos", _number(block, "pos"))], [
        _text("row", _number(block, "row", absent=0))
    ]


def _sqlserver(block: Block) -> tuple[list[str], list[str]]:
    serial = _text("event_serial_no", _number(block, "event_serial_no", absent=0))
    return [_words(block, "commit_lsn")], [_words(block, "change_lsn", absent="0"), serial]


def _oracle(block: Block) -> tuple[list[str], list[str]]:
    scn = _number(block, "scn")
    within = [_text("scn", scn), _redo_place(block), _text("ssn", _number(block, "ssn", absent=0))]
    return [_text("commit_scn", _number(block, "commit_scn", absent=scn))], within


def _redo_place(block: Block) -> str:
    """The place of a change in the redo log, ``0x0034b1.00143517.0010``; zero if it is not known, as in a snapshot."""
    value = block.get("rs_id")
    words = _REDO.fullmatch(value) if isinstance(value, str) else None
    return ":".join(_text("rs_id", int(word, 16)) for word in (words.groups() if words else ("0",)))


def _number(block: Block, name: str, absent: int | None = None) -> int:
    """A number, or a text of digits; ``absent`` if the field is missing."""
    value = block.get(name)
    if isinstance(value, str) and _NUMBER.fullmatch(value) and len(value) < 20:
        value = int(value)
    if value is None and absent is not None:
        return absent
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise NoPositionError(name)
    return value


def _words(block: Block, name: str, absent: str | None = None) -> str:
    """Hexadecimal numbers with colons between them."""
    value = block.get(name, absent)
    if value in (None, "NULL"):
        value = absent
    if not isinstance(value, str) or _WORDS.fullmatch(value) is None:
        raise NoPositionError(name)
    return ":".join(_text(name, int(word, 16)) for word in value.split(":"))


def _text(name: str, number: int) -> str:
    if number >= 1 << 64:
        raise NoPositionError(name)
    return f"{number:0{_DIGITS}x}"


_BY_CONNECTOR: dict[str, Callable[[Block], tuple[list[str], list[str]]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlserver": _sqlserver,
    "oracle": _oracle,
}
