"""Rows back from the JSON that :mod:`kappa.kafka.json_forms` describes, by Arrow, many at a time.

What Arrow does not read is left to Spark (:mod:`kappa.spark.decoding`), which reads every type at a fraction of the
speed: a MAP or BINARY, a number that is no number (``"NaN"``), a year of five digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.json

#: Values that are parsed at one time: most of them, and most bytes.
_ROWS, _BYTES = 50_000, 64 << 20
#: Decimal digits that always fit a 128-bit number.
_DIGITS = 38


def leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of single values in a type of structs and lists, at every depth."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from leaves(field.type)
    elif pa.types.is_list(kind):
        yield from leaves(kind.value_type)
    else:
        yield kind


def is_native(kind: pa.DataType) -> bool:
    """Whether Arrow reads single values of this type from JSON itself, without loss."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_float64(kind)
        # Arrow multiplies by ten to the scale before it looks at the size: with more digits the product wraps around.
        or (pa.types.is_decimal128(kind) and kind.precision + kind.scale <= _DIGITS)
    )


def is_readable(kind: pa.DataType) -> bool:
    """Whether values of this type can be read here, but for single values of it."""
    return all(
        is_native(leaf) or pa.types.is_floating(leaf) or pa.types.is_timestamp(leaf) or pa.types.is_date32(leaf)
        for leaf in leaves(kind)
    )


def read_rows(values: Sequence[bytes], schema: pa.Schema) -> pa.Table | None:
    """A row for each JSON object, in order; None where one of them cannot be read here, or lacks what may not be null.

    Args:
        values: as :func:`kappa.kafka.encoding.json_values` writes them.
        schema: the columns, of types that :func:`is_readable` allows. Further fields of an object are passed over.
    """
    written = pa.schema([pa.field(field.name, _written(field.type)) for field in schema])
    parse = pyarrow.json.ParseOptions(explicit_schema=written, unexpected_field_behavior="ignore")
    parts = [schema.empty_table()]
    for portion in _portions(values):
        text = b"\n".join(portion)
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            found = pyarrow.json.read_json(pa.BufferReader(text), read_options=options, parse_options=parse)
            found.validate(full=True)
            rows = found.cast(pa.schema([field.with_nullable(True) for field in schema]))
        except pa.ArrowInvalid:
            return None
        if rows.num_rows != len(portion) or any(rows[f.name].null_count for f in schema if not f.nullable):
            return None
        parts.append(rows.cast(schema))
    return pa.concat_tables(parts)


def _portions(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    first, size = 0, 0
    for place, value in enumerate(values):
        if place > first and (place - first == _ROWS or size + len(value) > _BYTES):
            yield values[first:place]
            first, size = place, 0
        size += len(value)
    if first < len(values):
        yield values[first:]


def _written(kind: pa.DataType) -> pa.DataType:
    """The type as which JSON has it."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _written(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_written(kind.value_type))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    return pa.float64() if pa.types.is_floating(kind) else kind
