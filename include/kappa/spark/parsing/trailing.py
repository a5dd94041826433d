"""Text behind a JSON object, which ``from_json`` does not look at: a second document, or what a producer cut in two."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

_SPACE = " \t\r\n"
_END = "_kappa_end"


def has_more(text: Column) -> Column:
    """Whether anything but white space follows the object with which a JSON text begins; null for null.

    The text is read once more as the first of two items of an array: the second is found only if the text is one
    object. Where the first brace that closes is the last character, the object is flat and nothing follows it.
    """
    from pyspark.sql import functions as F

    is_flat = F.instr(text, "}") == F.length(F.rtrim(text, F.lit(_SPACE)))
    mark = F.crc32(text.cast("binary"))
    both = F.concat(F.lit("["), text, F.lit(f',{{"{_END}":'), mark.cast("string"), F.lit("}]"))
    items = F.from_json(F.when(~is_flat, both), f"ARRAY<STRUCT<{_END}: BIGINT>>")
    is_one = (F.size(items) == 2) & (F.get(items, F.lit(1)).getField(_END) == mark)
    return F.when(text.isNotNull(), ~is_flat & ~F.coalesce(is_one, F.lit(False)))
