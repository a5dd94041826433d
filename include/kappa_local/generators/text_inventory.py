"""Lines of text, and the stock movements of shops."""

from __future__ import annotations

from collections.abc import Iterator

from kappa_local.generators.draws import Block, Made

LINES, ITEMS = "lines", "items"
_WORDS = (
    *("all", "streams", "lead", "to", "Kafka", "the", "log", "is", "the", "source", "of", "truth"),
    *("Replay", "it", "and", "look", "again", "Größe", "naïve", "año", "don't", "well-known"),
)
_MARKS = (" ", " ", " ", " ", ", ", " - ", "; ")
_LONGEST = 12
_STORES, _SKUS = 24, 60
_TYPES = ("RESTOCK", "RESTOCK", "SALE", "SALE", "SALE", "SALE", "SALE", "SALE", "SALE", "sale")


def lines(block: Block) -> Iterator[Made]:
    """Lines of one to twelve words without a key; some letters are not ASCII."""
    length = (1 + block.draw(1, _LONGEST)).tolist()
    words = [block.draw(2 + at, len(_WORDS)).tolist() for at in range(_LONGEST)]
    marks = [block.draw(20 + at, len(_MARKS)).tolist() for at in range(_LONGEST)]
    for row, size in enumerate(length):
        pieces = [_WORDS[words[at][row]] + (_MARKS[marks[at][row]] if at < size - 1 else ".") for at in range(size)]
        yield None, "".join(pieces).encode()


def items(block: Block) -> Iterator[Made]:
    """Items by store: a restock brings six times what a sale takes. Some tills write the type in lower case."""
    sku = block.draw(42, _SKUS)
    drawn = (
        block.draw(41, _STORES),
        sku,
        block.draw(43, len(_TYPES)),
        block.draw(44, 5),
        block.draw(45, 9_900, of=sku),
    )
    columns = (column.tolist() for column in drawn)
    for time, store, at, kind, number, cents in zip(block.times, *columns, strict=True):
        name, is_restock = f"STR{1000 + store}", _TYPES[kind] == "RESTOCK"
        item = {
            "storeID": name,
            "sku": f"SKU{100 + at}",
            "type": _TYPES[kind],
            "quantity": (1 + number) * (6 if is_restock else 1),
            "price": (100 + cents) / 100,
            "CreatedTime": time,
        }
        yield name.encode(), item
