"""Scans of a table by the leading columns of its key, a prefix, a range and a time of windows. Pure.

A scan is cut into pages along the key. A page's cursor names the snapshot and the last key, so that all pages show one
slice, whatever is committed meanwhile.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from kappa.delta.queries import quoted_name
from kappa.topology.shapes import Shape
from kappa_web.literals import equal, literal
from kappa_web.problems import Problem

#: Largest number of rows on a page, and the default.
MOST_ROWS, ROWS = 10_000, 100
#: The column with the start of a window in an operator's table.
WINDOW = "window_start"


@dataclass(frozen=True, kw_only=True)
class Scan:
    """Rows of a table that a caller requests.

    Attributes:
        key: values of the leading columns of the key.
        prefix: how the next column of the key begins.
        start: lowest value of the next column of the key.
        end: end of the range, exclusive.
        window_from: earliest start of a window.
        window_to: end of the range of starts, exclusive.
        after: the last key of the page before.
    """

    key: tuple[str, ...] = ()
    prefix: str | None = None
    start: str | None = None
    end: str | None = None
    window_from: str | None = None
    window_to: str | None = None
    after: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it is a scan of the whole table: each page of it reads all files."""
        return not any((self.key, self.prefix, self.start, self.end, self.window_from, self.window_to))

    @property
    def digest(self) -> str:
        """The part of a scan that its cursors carry."""
        parts = (self.key, self.prefix, self.start, self.end, self.window_from, self.window_to)
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Where the next page of a scan begins.

    Attributes:
        epoch: epoch of the first page.
        seq: slice of the first page.
        scan: :attr:`Scan.digest`.
        after: the last key of the page before, in its JSON form.
    """

    epoch: int
    seq: int
    scan: str
    after: tuple[str, ...]

    def text(self) -> str:
        """The cursor in a URL."""
        values = orjson.dumps([self.epoch, self.seq, self.scan, self.after])
        return base64.urlsafe_b64encode(values).decode().rstrip("=")

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Read what :meth:`text` gave.

        Raises:
            Problem: 400, the text is not a cursor.
        """
        try:
            epoch, seq, scan, after = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except (ValueError, binascii.Error, TypeError) as error:
            raise _no_cursor() from error
        if not (type(epoch) is type(seq) is int and type(scan) is str and type(after) is list):
            raise _no_cursor()
        if not all(type(value) is str for value in after):
            raise _no_cursor()
        return cls(epoch=epoch, seq=seq, scan=scan, after=tuple(after))


def resumed(scan: Scan, cursor: Cursor) -> Scan:
    """A scan that continues at a cursor.

    Raises:
        Problem: 400, the cursor belongs to another scan.
    """
    if cursor.scan != scan.digest:
        raise Problem(400, "malformed", "The cursor belongs to another scan: give it with the scan's own parameters.")
    return replace(scan, after=cursor.after)


def where(scan: Scan, shape: Shape) -> str | None:
    """The scan as an SQL condition; None for the whole table.

    Raises:
        Problem: 400, it does not fit the table's key, or a value its column.
    """
    if len(scan.key) > len(shape.key):
        raise Problem(400, "malformed", f"The key has {len(shape.key)} columns: {', '.join(shape.key)}.")
    names = shape.key[len(scan.key) :]
    conditions = [equal(name, _value(text, shape, name)) for name, text in zip(shape.key, scan.key, strict=False)]
    conditions += _next_column(scan, shape, names)
    conditions += _windows(scan, shape)
    if scan.after:
        conditions.append(f"({_beyond(shape.key, scan.after, shape)})")
    return " AND ".join(conditions) or None


def order(shape: Shape) -> str:
    """The order of a scan's rows."""
    return ", ".join(map(quoted_name, shape.key))


def key_condition(values: Sequence[str], shape: Shape) -> str:
    """The condition of one key.

    Raises:
        Problem: 400, the values are not those of all its columns.
    """
    if len(values) != len(shape.key):
        raise Problem(
            400,
            "malformed",
            f"The key has {len(shape.key)} columns: {', '.join(shape.key)}; {len(values)} values were given. Separate "
            "them by / and write a / within a value as %2F; to read several keys, scan.",
        )
    return " AND ".join(equal(name, _value(text, shape, name)) for name, text in zip(shape.key, values, strict=True))


def _value(text: str, shape: Shape, name: str) -> str:
    return literal(text, shape.columns[name], name)


def _next_column(scan: Scan, shape: Shape, names: Sequence[str]) -> list[str]:
    """Conditions on the column of the key after those whose values are given."""
    bounds = (scan.prefix, scan.start, scan.end)
    if bounds == (None, None, None):
        return []
    if not names:
        raise Problem(
            400, "malformed", "All columns of the key have a value; no column is left for prefix, from and to."
        )
    name, kind = names[0], shape.columns[names[0]]
    conditions = []
    if scan.prefix is not None:
        if kind != "STRING":
            raise Problem(400, "malformed", f"Column {name!r} is {kind}; prefix needs a STRING. Give from and to.")
        conditions.append(f"starts_with({quoted_name(name)}, {_value(scan.prefix, shape, name)})")
        conditions.append(f"{quoted_name(name)} >= {_value(scan.prefix, shape, name)}")  # it lets files be skipped
    if scan.start is not None:
        conditions.append(f"{quoted_name(name)} >= {_value(scan.start, shape, name)}")
    if scan.end is not None:
        conditions.append(f"{quoted_name(name)} < {_value(scan.end, shape, name)}")
    return conditions


def _windows(scan: Scan, shape: Shape) -> list[str]:
    if scan.window_from is None and scan.window_to is None:
        return []
    if shape.columns.get(WINDOW) != "TIMESTAMP":
        raise Problem(400, "malformed", f"The table has no windows: it has no column {WINDOW} TIMESTAMP.")
    name = quoted_name(WINDOW)
    conditions = [] if scan.window_from is None else [f"{name} >= {_value(scan.window_from, shape, WINDOW)}"]
    return conditions + ([] if scan.window_to is None else [f"{name} < {_value(scan.window_to, shape, WINDOW)}"])


def _beyond(key: Sequence[str], after: Sequence[str], shape: Shape) -> str:
    """The condition that a key is after another one."""
    if len(after) != len(key):
        raise _no_cursor()
    name, value = quoted_name(key[0]), _marked(after[0], shape.columns[key[0]], key[0])
    if len(key) == 1:
        return f"{name} > {value}"
    return f"{name} > {value} OR ({name} = {value} AND ({_beyond(key[1:], after[1:], shape)}))"


def mark(value: object) -> str:
    """The value of a key column in a cursor; for a time its number, since text cannot express all of them.

    Args:
        value: in its JSON form, a time or date as microseconds or days since 1970.
    """
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _marked(text: str, kind: str, name: str) -> str:
    """The SQL of a value of :func:`mark`."""
    match kind:
        case "TIMESTAMP":
            return f"arrow_cast({literal(text, 'BIGINT', name)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        case "DATE":
            return f"arrow_cast({literal(text, 'INT', name)}, 'Date32')"
        case _:
            return literal(text, kind, name)


def _no_cursor() -> Problem:
    return Problem(400, "malformed", "No page of a scan gave this cursor. Begin again without it.")
