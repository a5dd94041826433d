"""Dead letters as the lake keeps them: the reason, the place, and the record as it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kappa.slices.rows.effects import with_seq
from kappa.topology import Source
from kappa.topology.masking import withheld

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns of a dead letter -> what they are called in the table of dead letters.
COLUMNS = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_key": "key",
    "_value": "value",
    "_dead": "reason",
}


def table(
    parts: Sequence[pa.Table], sources: Sequence[Source], seq: int, *, bound: Mapping[str, str], mask_key: str
) -> pa.Table:
    """Dead letters of a slice in the columns of the table of dead letters.

    Args:
        parts: rows with the columns of :data:`COLUMNS`.
        sources: the sources; keys and values of a sensitive one are withheld.
        seq: the slice.
        bound: source -> the versioned topic that is read as it.
        mask_key: key of what is kept of a value that is withheld.
    """
    import pyarrow as pa

    sensitive = {source.topic for source in sources if source.sensitive}
    tables = [with_seq(rows.select(list(COLUMNS)).rename_columns(list(COLUMNS.values())), seq) for rows in parts]
    letters = [_findable(_without_values(rows, sensitive, mask_key), bound) for rows in tables]
    # What may be null differs by where the rows come from; the table of dead letters says what may be.
    return pa.concat_tables(letters, promote_options="default") if letters else with_seq(pa.table({}), seq)


def _findable(letters: pa.Table, bound: Mapping[str, str]) -> pa.Table:
    """Dead letters with the topic in which the record is, not the name that the step knows."""
    if not bound or not letters.num_rows:
        return letters
    return _with(letters, "topic", [bound.get(name, name) for name in letters["topic"].to_pylist()])


def _without_values(letters: pa.Table, sensitive: set[str], mask_key: str) -> pa.Table:
    """Dead letters without the keys and values of sensitive sources."""
    if not sensitive or not letters.num_rows:
        return letters
    rows = letters.select(["topic", "key", "value"]).to_pylist()
    for row in rows:
        if row["topic"] in sensitive:
            key = None if row["key"] is None else withheld(row["key"].encode(), mask_key)
            row["key"] = None if key is None else key.decode()
            row["value"] = withheld(row["value"], mask_key)
    return _with(_with(letters, "key", [row["key"] for row in rows]), "value", [row["value"] for row in rows])


def _with(letters: pa.Table, name: str, values: Sequence[object]) -> pa.Table:
    import pyarrow as pa

    field = letters.schema.field(name)
    return letters.set_column(letters.schema.get_field_index(name), field, pa.array(values, field.type))
