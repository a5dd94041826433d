"""Retail invoices made from a seed: pure, and the same for an index whatever was asked before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kappa.errors import UsageError

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

#: (key, value, timestamp in ms since 1970): what a Kafka record is made of.
Generated = tuple[bytes, bytes, int]

TOPIC = "pos"
DEFAULT_START = datetime(2025, 1, 1, tzinfo=UTC)

_BLOCK = 4096
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
_TAIL_OF_UNIT = 32
_UNIT = 1 << _TAIL_OF_UNIT
_DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True)
class Invoices:
    """An endless, seeded sequence of invoices; the key is the StoreID, money is a JSON number with two digits.

    Attributes:
        seed: another seed, other invoices.
        bad_share: share of values that no reader of the schema accepts: cut off, not JSON, empty, or without
            InvoiceNumber.
        out_of_order: share whose time is shifted back by up to ``lateness``; one in fifty of them is rogue: years away.
        lateness: the longest ordinary shift.
        rogue_future: whether half of the rogue times lie in the future instead of the past.
        stores: number of stores.
        customers: number of customers; None lets them grow, one new customer for each ten invoices. A customer has a
            home store and buys three invoices out of ten elsewhere.
        start_time: time of invoice 0.
        time_step: time between an invoice and the next one.
    """

    seed: int = 1
    bad_share: float = 0.0
    out_of_order: float = 0.0
    lateness: timedelta = timedelta(minutes=10)
    rogue_future: bool = False
    stores: int = 24
    customers: int | None = None
    start_time: datetime = DEFAULT_START
    time_step: timedelta = timedelta(milliseconds=100)

    def __post_init__(self) -> None:
        for name in ("bad_share", "out_of_order"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name}={getattr(self, name)} is not a share. Give a number from 0 to 1.", name=name)
        for name in ("stores", "customers"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise UsageError(f"{name}={number}: at least one is needed.", name=name)
        if self.start_time.tzinfo is None or self.start_time.timestamp() < 0:
            raise UsageError(
                f"start_time={self.start_time} needs a time zone and a year from 1970 on.", name="start_time"
            )
        if self.time_step < timedelta(0) or self.lateness < timedelta(milliseconds=1):
            raise UsageError("time_step must not be negative and lateness must be 1 ms or more.", name="time_step")

    def records(self, start: int, stop: int) -> Iterator[Generated]:
        """Invoices ``start`` to ``stop - 1``; equal indexes give equal bytes."""
        for block in range(start, stop, _BLOCK):
            yield from self._block(block, min(stop, block + _BLOCK))

    def bad(self, start: int, stop: int) -> int:
        """How many of those invoices are bad on purpose."""
        return int(np.count_nonzero(self._is_bad(np.arange(start, stop, dtype=np.int64))))

    def _bits(self, index: Ints, field: int) -> Bits:
        salt = ((self.seed << 8) + field) * 0xD1342543DE82EF95 % (1 << 64)
        return _mixed(index.astype(np.uint64) ^ np.full(1, salt, dtype=np.uint64))

    def _is_bad(self, index: Ints) -> npt.NDArray[np.bool_]:
        return _unit(self._bits(index, 1)) < int(self.bad_share * _UNIT)

    def _times(self, index: Ints) -> Ints:
        """Times in ms; a shift never leads before 1970."""
        step_us = self.time_step // timedelta(microseconds=1)
        times: Ints = (self.start_time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
            milliseconds=1
        ) + index * step_us // 1000
        if not self.out_of_order:
            return times
        bits, shape = self._bits(index, 2), self._bits(index, 3)
        is_late = _unit(bits) < int(self.out_of_order * _UNIT)
        is_rogue = _part(shape, 0, 50) == 0
        shift = 1 + _part(shape, 8, self.lateness // timedelta(milliseconds=1))
        far = _DAY_MS * (365 + _part(shape, 8, 3000))
        if self.rogue_future:
            far = np.where(_part(bits, 0, 2) == 0, far, -far)
        return np.maximum(0, times - np.where(is_late, np.where(is_rogue, far, shift), 0))

    def _block(self, start: int, stop: int) -> Iterator[Generated]:
        index = np.arange(start, stop, dtype=np.int64)
        pool = np.maximum(20, index // 10) if self.customers is None else np.full_like(index, self.customers)
        customer = (self._bits(index, 4) % pool.astype(np.uint64)).astype(np.int64)
        person, bits, items = self._bits(customer, 5), self._bits(index, 6), self._bits(index, 7)
        is_elsewhere = _part(bits, 0, 10) < 3
        store = np.where(is_elsewhere, _part(bits, 4, self.stores), _part(person, 4, self.stores))
        lines = 1 + _part(bits, 24, 5) // 2
        picks = np.stack([_part(items, 16 * line, _ITEMS * _QUANTITIES) for line in range(_MOST_LINES)])
        is_line = np.arange(_MOST_LINES)[:, None] < lines
        total = np.where(is_line, self._line_totals[picks], 0).sum(axis=0)
        columns = (
            index,
            self._times(index),
            store,
            _part(bits, 32, 64),
            _part(person, 40, 10),
            customer,
            total // 100,
            total % 100,
            lines,
            _part(bits, 40, len(_PAYMENTS)),
            *divmod((total * 25 + 500) // 1000, 100),
            *divmod((total * 125 + 50_000) // 100_000, 100),
            _part(bits, 48, 8),
            *picks,
            np.where(self._is_bad(index), 1 + _part(items, 0, 4), 0),
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
            chosen = (pieces[a], pieces[b], pieces[c])
            amount = f"{whole}{_CENTS[cents]}"
            gst = f"{tax}{_CENTS[tax_cents]}"
            text = (
                f'{{"InvoiceNumber":"{100_000_000 + i}","CreatedTime":{time},{stores[at]},{tills[till]},'
                f'"CustomerType":"{"PRIME" if kind < 6 else "NONPRIME"}","CustomerCardNo":"{2_000_000_000 + who}",'
                f'"TotalAmount":{amount},"NumberOfItems":{n},"PaymentMethod":"{_PAYMENTS[pay]}","TaxableAmount":{amount},'
                f'"CGST":{gst},"SGST":{gst},"CESS":{cess}{_CENTS[cess_cents]},'
                f"{_delivery(delivery, who)},"
                f'"InvoiceLineItems":[{",".join(chosen[:n])}]}}'
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
        return 100 + _part(_mixed(np.arange(_ITEMS, dtype=np.uint64)), 0, 50_000)

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
    """Half of the invoices are delivered, one in four of those under a name in small letters."""
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


def _mixed(bits: Bits) -> Bits:
    """splitmix64: well mixed 64 bits of each number. Source: Steele, Lea, Flood, OOPSLA 2014."""
    bits = (bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _unit(bits: Bits) -> Ints:
    return (bits >> np.uint64(64 - _TAIL_OF_UNIT)).astype(np.int64)


def _part(bits: Bits, shift: int, size: int) -> Ints:
    """A draw of 0 to ``size - 1`` from the bits above ``shift``."""
    return ((bits >> np.uint64(shift)) % np.uint64(size)).astype(np.int64)
