"""The platform's own columns: no schema may have one of their names in any case, because Spark does not distinguish
cases.

Every column that the platform adds to a user's columns in a frame or a Delta table is listed here; a test searches the
code.
"""

from __future__ import annotations

from collections.abc import Iterable

from kappa.errors import TopologyError

#: Columns that every record has besides its value; see :data:`kappa.topology.RECORD_COLUMNS` and
#: :data:`kappa.topology.times.event_time.EVENT_COLUMNS`.
_OF_RECORDS = """
    _key _headers _topic _partition _offset _timestamp _order_timestamp _event_time _frontier _is_released _tombstone
    _operation _position _source_time _unchanged
"""
#: Columns that Delta tables of an epoch have besides the declared ones.
OF_TABLES = frozenset({"_seq", "_deleted", "_handover"})
#: Columns that are added to a record's own while it is read and parsed.
_OF_READERS = "_value _dead _raw _state _read _bytes _rows _reached"
#: Columns that operators add to those of rows and keys.
_OF_OPERATORS = """
    _also _any _at _before _begins _carried _cell _changed _cleared _closes _earlier _expired _following _fresh _from
    _gone _had_mark _had_row _has_earlier _has_met _has_next _is_change _is_changed _is_cleared _is_gone _is_known
    _is_last _is_marked _is_new _is_tombstone _kept _key_partition _known _latest _left _meets _mine _moved _new
    _newest _next _old _one _other _partner _place _record _right _row _run _seen _so_far _source _start _stays _stored
    _turn _until _valid_from _version _was _was_gone
"""
#: Columns that checks, queries and comparisons add to the declared ones.
_OF_QUERIES = "_changes _changes_newest _effect _here _n _part _rank _rows_of_key _table"
#: All of them.
NAMES = OF_TABLES | frozenset(f"{_OF_RECORDS} {_OF_READERS} {_OF_OPERATORS} {_OF_QUERIES}".split())
#: Prefixes of further ones.
PREFIXES = ("_hash_", "_kappa", "_key_", "_raw_", "_refused_")


def is_reserved(name: str) -> bool:
    """Whether a column's name is one of the platform's own."""
    lower = name.lower()
    return lower in NAMES or lower.startswith(PREFIXES)


def check_names(what: str, names: Iterable[str], remedy: str, *, reserved_names: frozenset[str] | None = None) -> None:
    """Refuse declared columns with names of the platform's own columns.

    Args:
        what: the owner of the columns, for people.
        names: names of the columns.
        remedy: what to do, for people.
        reserved_names: the names that it may not have; None for all of them.

    Raises:
        TopologyError: one has.
    """
    clash = [
        name for name in names if (is_reserved(name) if reserved_names is None else name.lower() in reserved_names)
    ]
    if clash:
        raise TopologyError(
            f"{what}: {', '.join(map(repr, clash))} {'is a name' if len(clash) == 1 else 'are names'} of Kappa's own "
            f"columns, which are added to yours; case does not count. {remedy}",
            columns=clash,
        )
