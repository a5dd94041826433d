"""Orders of a web shop with their cancellations, their payments and their products.

The three fit each other if they have the same seed, start and step: a payment names an order of its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import numpy as np

from kappa_local.generators.draws import Block, Ints, Made

ORDER_EVENTS, PAYMENTS, PRODUCTS = "order-events", "payments", "products"
#: Longer than in other scenarios: orders wait for half an hour, and payments come minutes later.
STEP = timedelta(seconds=10)
_CUSTOMERS, _SKUS, _UNKNOWN_SKUS = 400, 60, 2
_NAMES = ("Lamp", "Rug", "Quilt", "Hammock", "Bookshelf", "Wine rack", "Müslischale", "Cushion")
#: Number of records in a wave of events: orders first, then cancellations.
_WAVE, _ORDERS = 10, 8
#: Waves from an order to a late cancellation, and largest number of waves to a payment: 33 and 13 minutes.
_TOO_LATE, _SLOWEST = 20, 8


def events(block: Block) -> Iterator[Made]:
    """Events by order: eight orders and two cancellations in each ten records.

    One cancellation follows its order closely. The other comes before its order, or more than half an hour after it.
    """
    wave, at = block.index // _WAVE, block.index % _WAVE
    of_wave = np.where((block.draw(1, 2) == 0) | (wave < _TOO_LATE), wave + 1, wave - _TOO_LATE)
    number = _number(
        np.where(at == _WAVE - 1, of_wave, wave), np.where(at < _ORDERS, at, block.draw(2, _ORDERS, of=wave))
    )
    drawn = (
        number,
        at < _ORDERS,
        block.draw(3, _CUSTOMERS, of=number),
        block.draw(4, _SKUS + _UNKNOWN_SKUS, of=number),
        block.draw(5, 5, of=number),
    )
    for time, id, is_placed, customer, sku, quantity in zip(block.times, *(c.tolist() for c in drawn), strict=True):
        name = _order(id)
        event = {"orderID": name, "type": "PLACED" if is_placed else "CANCELLED", "CreatedTime": time}
        if is_placed:
            event |= {"customerID": f"c{customer:04d}", "sku": f"SKU{100 + sku}", "quantity": 1 + quantity}
        yield name.encode(), event


def payments(block: Block) -> Iterator[Made]:
    """Payments by order: most come within ten minutes of it, some later; one in ten comes before its order.

    An order may be paid twice, or never. One payment in ten is for an order that does not exist.
    """
    wave, at = block.index // _WAVE, block.index % _WAVE
    is_early, is_alone = at == _WAVE - 1, at == _WAVE - 2
    behind = np.where(is_early, -1, np.minimum(block.draw(11, _SLOWEST + 1), wave))
    number = _number(wave - behind, np.where(is_early, block.draw(12, _ORDERS), at))
    drawn = (block.index, number, is_alone, 100 + block.draw(13, 50_000, of=number))
    for time, index, id, is_of_none, cents in zip(block.times, *(column.tolist() for column in drawn), strict=True):
        name = f"x{index:07d}" if is_of_none else _order(id)
        payment = {"paymentID": f"p{index:07d}", "orderID": name, "amount": cents / 100, "CreatedTime": time}
        yield name.encode(), payment


def products(block: Block) -> Iterator[Made]:
    """Rows of products by SKU: first one for each product, then price changes; one in 20 is a null value, which
    deletes.
    """
    is_first = block.index < _SKUS
    sku = np.where(is_first, block.index, block.draw(21, _SKUS))
    cents = 500 + block.draw(22, 20_000, of=sku) + block.draw(23, 400)
    drawn = (sku, cents, ~is_first & (block.draw(24, 20) == 0))
    for time, at, price, is_gone in zip(block.times, *(column.tolist() for column in drawn), strict=True):
        name = f"SKU{100 + at}"
        kind = f"{_NAMES[at % len(_NAMES)]} {1 + at // len(_NAMES)}"
        yield name.encode(), None if is_gone else {"sku": name, "name": kind, "price": price / 100, "CreatedTime": time}


def _number(wave: Ints, at: Ints) -> Ints:
    return wave * _ORDERS + at


def _order(number: int) -> str:
    return f"o{number:07d}"
