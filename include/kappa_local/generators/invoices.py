"""Retail invoices from a seed: pure, and equal for equal indexes, whatever was generated before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kappa.errors import UsageError
from kappa_local.generators.draws import DEFAULT_START, Course, Generated, Ints, mixed, part

__all__ = ["DEFAULT_START", "TOPIC", "Invoices"]

TOPIC = "pos"

_ITEMS, _QUANTITIES, _MOST_LINES = 200, 5, 3
_PAYMENTS = ("CARD", "CASH", "UPI", "WALLET")
_HOME, _AWAY = ("HOME-DELIVERY", "HOME-DELIVERY", "HOME-DELIVERY", "home-delivery"), "TAKEAWAY"
_THINGS = (
    "Slipcover",
    "Bookshelf",
    "Quilt",
    "Eyeliner",
    "Cushion",
    "Side table",
    "Wine rack",
    "Hammock",
    "Lamp",
    "Rug",
)
_STREETS = (
    "Lake View Road",
    "Station Road",
    "Temple Street",
    "Hill Lane",
    "Market Square",
    "Garden Avenue",
    "Mill Road",
)
_PLACES = (
    ("Pune", "Maharashtra", 411001),
    ("Mumbai", "Maharashtra", 400001),
    ("Chennai", "Tamil Nadu", 600001),
    ("Kochi", "Kerala", 682001),
    ("Jaipur", "Rajasthan", 302001),
    ("Surat", "Gujarat", 395001),
    ("Patna", "Bihar", 800001),
)
_CENTS = tuple(f".{cents:02d}" for cents in range(100))


@dataclass(frozen=True, kw_only=True)
class Invoices(Course):
    """An endless, seeded sequence of invoices; the key is the StoreID, money is a JSON number with two digits.

    A bad value is cut off, not JSON, empty, or without InvoiceNumber.

    Attributes:
        stores: number of stores.
        customers: number of customers; None lets them grow, one new customer for each ten invoices. A customer has a
            home store and buys three invoices out of ten elsewhere.
    """

    stores: int = 24
    customers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stores", "customers"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise UsageError(f"{name}={number}: at least one is needed.", name=name)

    def _block(self, index: Ints) -> Iterator[Generated]:
        pool = np.maximum(20, index // 10) if self.customers is None else np.full_like(index, self.customers)
        customer = (self._bits(index, 4) % pool.astype(np.uint64)).astype(np.int64)
        person, bits, items = self._bits(customer, 5), self._bits(index, 6), self._bits(index, 7)
        is_elsewhere = part(bits, 0, 10) < 3
        store = np.where(is_elsewhere, part(bits, 4, self.stores), part(person, 4, self.stores))
        lines = 1 + part(bits, 24, 5) // 2
        picks = np.stack([part(items, 16 * line, _ITEMS * _QUANTITIES) for line in range(_MOST_LINES)])
        is_line = np.arange(_MOST_LINES)[:, None] < lines
        total = np.where(is_line, self._line_totals[picks], 0).sum(axis=0)
        columns = (
            index,
            self._times(index),
            store,
            part(bits, 32, 64),
            part(person, 40, 10),
            customer,
            total // 100,
            total % 100,
            lines,
            part(bits, 40, len(_PAYMENTS)),
            *divmod((total * 25 + 500) // 1000, 100),
            *divmod((total * 125 + 50_000) // 100_000, 100),
            part(bits, 48, 8),
            *picks,
            np.where(self._is_bad(index), 1 + part(items, 0, 4), 0),
        )
        keys, stores, tills, pieces = self._keys, self._store_pieces, self._till_pieces, self._line_pieces
        for (
            i,
            time,
            at,
            till,
            kind,
            who,
            whole,
            cents,
            n,
            pay,
            tax,
            tax_cents,
            cess,
            cess_cents,
            delivery,
            a,
            b,
            c,
            spoiled,
        ) in zip(*(column.tolist() for column in columns), strict=True):
            line_texts = (pieces[a], pieces[b], pieces[c])
            amount = f"{whole}{_CENTS[cents]}"
            gst = f"{tax}{_CENTS[tax_cents]}"
            text = (
                f'{{"InvoiceNumber":"{100_000_000 + i}","CreatedTime":{time},{stores[at]},{tills[till]},'
                f'"CustomerType":"{"PRIME" if kind < 6 else "NONPRIME"}","CustomerCardNo":"{2_000_000_000 + who}",'
                f'"TotalAmount":{amount},"NumberOfItems":{n},"PaymentMethod":"{_PAYMENTS[pay]}","TaxableAmount":{amount},'
                f'"CGST":{gst},"SGST":{gst},"CESS":{cess}{_CENTS[cess_cents]},'
                f"{_delivery(delivery, who)},"
                f'"InvoiceLineItems":[{",".join(line_texts[:n])}]}}'
            )
            yield keys[at], (_spoiled(text, spoiled) if spoiled else text).encode(), time

    @cached_property
    def _keys(self) -> list[bytes]:
        return [f"STR{1000 + store}".encode() for store in range(self.stores)]

    @cached_property
    def _store_pieces(self) -> list[str]:
        return [f'"StoreID":"STR{1000 + store}"' for store in range(self.stores)]

    @cached_property
    def _till_pieces(self) -> list[str]:
        return [f'"PosID":"POS{100 + till // 8}","CashierID":"OAS{100 + till}"' for till in range(64)]

    @cached_property
    def _prices(self) -> Ints:
        """Price of each item in cents, 1.00 to 500.99; the same for every seed."""
        return 100 + part(mixed(np.arange(_ITEMS, dtype=np.uint64)), 0, 50_000)

    @cached_property
    def _line_totals(self) -> Ints:
        line = np.arange(_ITEMS * _QUANTITIES)
        totals: Ints = self._prices[line // _QUANTITIES] * (1 + line % _QUANTITIES)
        return totals

    @cached_property
    def _line_pieces(self) -> list[str]:
        def piece(line: int) -> str:
            item, quantity = line // _QUANTITIES, 1 + line % _QUANTITIES
            return (
                f'{{"ItemCode":"{300 + item}","ItemDescription":"{_THINGS[item % len(_THINGS)]}",'
                f'"ItemPrice":{_money(self._prices[item])},"ItemQty":{quantity},"TotalValue":{_money(self._line_totals[line])}}}'
            )

        return [piece(line) for line in range(_ITEMS * _QUANTITIES)]


def _money(cents: Any) -> str:
    return f"{cents // 100}{_CENTS[cents % 100]}"


def _delivery(draw: int, who: int) -> str:
    """Half of the invoices have a delivery; one in four of those has its type in lower case."""
    if draw >= 4:
        return f'"DeliveryType":"{_AWAY}"'
    city, state, pin = _PLACES[who % len(_PLACES)]
    return (
        f'"DeliveryType":"{_HOME[draw]}","DeliveryAddress":{{'
        f'"AddressLine":"{1 + who % 97} {_STREETS[who // 7 % len(_STREETS)]}",'
        f'"City":"{city}","State":"{state}","PinCode":"{pin + who % 89}",'
        f'"ContactNumber":"{9_000_000_000 + who * 7919 % 999_999_937}"}}'
    )


def _spoiled(text: str, kind: int) -> str:
    if kind == 1:
        return text[: len(text) // 2]
    if kind == 2:
        return f"invoice {text[18:27]} could not be read from the till"
    if kind == 3:
        return ""
    return "{" + text[text.index(",") + 1 :]  # InvoiceNumber is the first field
