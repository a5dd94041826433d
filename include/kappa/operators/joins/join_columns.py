"""The columns of a join's rows: the key once, then those of the left side, then those of the right one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kappa.errors import TopologyError
from kappa.operators.frames import check_rows
from kappa.operators.keys import Key, is_present
from kappa.operators.records import is_deleted
from kappa.topology.ddl import Column, columns_of, ddl_of, names_of, quote, quoted
from kappa.topology.reserved import is_reserved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Which rows without a partner a join keeps.
How = Literal["inner", "left", "outer"]
#: Key columns of both sides: common names, or left name -> right name.
JoinKey = Key | Mapping[str, str]
#: Suffix of a right column's name if the left side has a column of that name.
SUFFIX = "_right"


@dataclass(frozen=True, kw_only=True)
class JoinColumns:
    """Columns of both sides of a join, and their names in its rows.

    Attributes:
        left: columns of the left side.
        right: columns of the right side.
        left_key: names of the columns that are compared, on the left.
        right_key: their counterparts on the right, in the same order.
        named: right column -> its name in the joined rows; without key columns, which repeat the left ones.
        how: which rows without a partner are kept.
    """

    left: tuple[Column, ...]
    right: tuple[Column, ...]
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    named: Mapping[str, str]
    how: How

    @property
    def joined(self) -> tuple[Column, ...]:
        """Columns of the joined rows."""
        same = dict(zip(self.left_key, self.right_key, strict=True))
        may_lack = {column.name for column in self.right if column.nullable}
        left = (
            replace(c, nullable=c.nullable or (same[c.name] in may_lack if c.name in same else self.how == "outer"))
            for c in self.left
        )
        right = (
            replace(column, name=self.named[column.name], nullable=column.nullable or self.how != "inner")
            for column in self.right
            if column.name in self.named
        )
        return (*left, *right)

    @property
    def key_text(self) -> str:
        """The key as part of :attr:`kappa.topology.Table.made_by`."""
        pairs = zip(self.left_key, self.right_key, strict=True)
        return f"key=({', '.join(f'{left}={right}' for left, right in pairs)})"

    @property
    def is_equal(self) -> str:
        """SQL: whether rows ``l`` and ``r`` have the same key."""
        return is_equal(self.left_key, self.right_key)

    @property
    def of_pair(self) -> list[str]:
        """SQL of the joined row's columns, of rows ``l`` and ``r``."""
        left = [f"l.{quote(column.name)}" for column in self.left]
        return [*left, *(f"r.{quote(name)} AS {quote(shown)}" for name, shown in self.named.items())]

    @property
    def of_left(self) -> list[str]:
        """SQL of the joined row's columns, of a left row without a partner."""
        kinds = {column.name: column.type for column in self.right}
        nulls = (f"CAST(NULL AS {kinds[name]}) AS {quote(shown)}" for name, shown in self.named.items())
        return [*(quote(column.name) for column in self.left), *nulls]

    @property
    def of_right(self) -> list[str]:
        """SQL of the joined row's columns, of a right row without a partner."""
        same = dict(zip(self.left_key, self.right_key, strict=True))
        left = (
            f"{quote(same[column.name])} AS {quote(column.name)}"
            if column.name in same
            else f"CAST(NULL AS {column.type}) AS {quote(column.name)}"
            for column in self.left
        )
        return [*left, *(f"{quote(name)} AS {quote(shown)}" for name, shown in self.named.items())]


def join_columns(
    *,
    what: str,
    left: str,
    right: str,
    key: JoinKey,
    how: str,
    allowed: Sequence[How],
    required: Key | None = None,
    of_streams: bool = False,
) -> JoinColumns:
    """The columns of a join.

    A right column whose name the left side also has gets :data:`SUFFIX`. The key appears once, with its left name.

    Args:
        what: the operator, for messages.
        left: Spark DDL of the left rows.
        right: Spark DDL of the right rows.
        key: columns that are compared.
        how: which rows without a partner are kept.
        allowed: the values of ``how`` that the operator supports.
        required: left columns that are never null; None for the key columns.
        of_streams: whether the left side is a stream: if it keeps rows without a partner, it also keeps rows without a
            key. With ``outer`` the same holds for the right side.

    Raises:
        TopologyError: a key column is missing or has another type on the other side, a name begins with ``_`` or would
            appear twice, or ``how`` is not allowed.
    """
    kind = next((choice for choice in allowed if choice == how), None)
    if kind is None:
        raise TopologyError(f"{what}: how={how!r} is not one of {', '.join(allowed)}.", how=how)
    lefts = own_columns(left, f"the left side of {what}")
    rights = own_columns(right, f"the right side of {what}")
    left_key, right_key = sides_of(key)
    left_key = found_columns(lefts, left_key, f"the left side of {what}")
    right_key = found_columns(rights, right_key, f"the right side of {what}")
    check_types(what, lefts, left_key, rights, right_key)
    rest = [column.name for column in rights if column.name not in right_key]
    named = right_names(what, [column.name for column in lefts], rest)
    never_null = left_key if required is None else found_columns(lefts, names_of(required), f"the left side of {what}")
    if of_streams and kind != "inner":
        never_null = ()
    has_keys = not (of_streams and kind == "outer")
    return JoinColumns(
        left=tuple(replace(c, nullable=False) if c.name in never_null else c for c in lefts),
        right=tuple(replace(c, nullable=False) if has_keys and c.name in right_key else c for c in rights),
        left_key=left_key,
        right_key=right_key,
        named=named,
        how=kind,
    )


def is_equal(left: Sequence[str], right: Sequence[str]) -> str:
    """SQL: whether rows ``l`` and ``r`` have the same values in these columns of their sides."""
    return " AND ".join(f"l.{quote(one)} = r.{quote(other)}" for one, other in zip(left, right, strict=True))


def sides_of(key: JoinKey) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the key's columns on the left and on the right."""
    if isinstance(key, Mapping):
        return tuple(key), tuple(key.values())
    return names_of(key), names_of(key)


def own_columns(ddl: str, what: str) -> tuple[Column, ...]:
    """Columns of one side.

    Raises:
        TopologyError: one has a name that the platform uses for columns of the record or the operator.
    """
    columns = columns_of(ddl, what)
    odd = [column.name for column in columns if is_reserved(column.name)]
    if odd:
        raise TopologyError(f"{what} has columns {odd}, which are names that the platform uses. Rename them.")
    return columns


def found_columns(columns: Iterable[Column], names: Sequence[str], what: str) -> tuple[str, ...]:
    """The names, if all are columns and each appears once.

    Raises:
        TopologyError: one is not, or there are no names.
    """
    column_names = [column.name for column in columns]
    if not names or len(set(names)) < len(names):
        raise TopologyError(f"{what} has key {list(names)}. Name at least one column, and each once: key='id'.")
    for name in names:
        if name not in column_names:
            near = difflib.get_close_matches(name, column_names, n=1, cutoff=0.0)[0]
            raise TopologyError(f"{what} has no column {name!r}. Did you mean {near!r}? It has {column_names}.")
    return tuple(names)


def check_types(
    what: str, left: Iterable[Column], left_key: Sequence[str], right: Iterable[Column], right_key: Sequence[str]
) -> None:
    """Refuse compared columns of different types, because Spark would cast one of them, and those with maps.

    Raises:
        TopologyError: one is such a column.
    """
    lefts, rights = ({column.name: column for column in side} for side in (left, right))
    for left_name, right_name in zip(left_key, right_key, strict=True):
        if lefts[left_name].delta != rights[right_name].delta:
            raise TopologyError(
                f"{what} compares {left_name!r}, which is {lefts[left_name].type}, with {right_name!r}, which is "
                f"{rights[right_name].type}. Cast one of them in the step, and declare the new type."
            )
        if lefts[left_name].has_map:
            raise TopologyError(
                f"{what} compares {left_name!r}, which is {lefts[left_name].type}, and maps cannot be compared. Make "
                "a column of the part that counts in the step, and declare that."
            )


def state_ddl(columns: Iterable[Column], *more: str) -> str:
    """Columns, and further ones as DDL, as the schema of a state table."""
    return ", ".join([ddl_of(columns), *more])


def right_names(what: str, left: Iterable[str], right: Iterable[str]) -> dict[str, str]:
    """The names of the right side's columns in joined rows, without the key.

    Raises:
        TopologyError: a name would appear twice.
    """
    left_names = {name.lower() for name in left}
    named = {name: f"{name}{SUFFIX}" if name.lower() in left_names else name for name in right}
    shown = [*left_names, *(name.lower() for name in named.values())]
    twice = sorted({name for name in shown if shown.count(name) > 1})
    if twice:
        raise TopologyError(
            f"{what}: its rows would have {twice} twice. Rename a column of one side in the step, or leave it out of "
            "the rows of that side."
        )
    return named


def changed_rows(changes: DataFrame, columns: Sequence[Column], key: Sequence[str], operator: str) -> DataFrame:
    """Changes of a table with its columns and ``_deleted``, without changes that have no key.

    Only the key of a deleted row counts, whatever its other columns contain.

    Raises:
        TopologyError: a column is missing or of another type.
    """
    check_rows(changes, columns, operator)
    present, is_gone = changes.where(is_present(key)), is_deleted(changes)
    if is_gone == "FALSE":
        return present.selectExpr(*quoted(column.name for column in columns), "FALSE AS _deleted")
    values = (
        quote(column.name)
        if column.name in key
        else f"IF({is_gone}, NULL, {quote(column.name)}) AS {quote(column.name)}"
        for column in columns
    )
    return present.selectExpr(*values, f"{is_gone} AS _deleted")
