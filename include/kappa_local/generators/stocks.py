"""Ticks of a stock exchange: prices that move, and symbols that are delisted for a while."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kappa_local.generators.draws import Block, Made

TICKS = "ticks"
SYMBOLS = (
    "AXISBANK",
    "BAJFINANCE",
    "BHARTIARTL",
    "HCLTECH",
    "HDFCBANK",
    "HDFCLIFE",
    "HINDALCO",
    "ICICIBANK",
    "INFY",
    "ITC",
    "KOTAKBANK",
    "LT",
    "MARUTI",
    "NESTLEIND",
    "NTPC",
    "ONGC",
    "RELIANCE",
    "SBIN",
    "SUNPHARMA",
    "TATAMOTORS",
    "TATASTEEL",
    "TCS",
    "TITAN",
    "WIPRO",
)
_SWING = 500


def ticks(block: Block) -> Iterator[Made]:
    """Ticks by symbol; one in 200 is a null value, which ends the symbol until its next tick."""
    symbol = block.draw(1, len(SYMBOLS))
    base = 5_000 + block.draw(2, 200_000, of=symbol)
    wave = np.sin(block.index / _SWING + symbol)
    cents = (base * (1 + 0.05 * wave)).astype(np.int64) + block.draw(3, 201) - 100
    columns = (block.times, symbol, cents, 1 + block.draw(4, 500), block.draw(5, 200) == 0)
    for time, at, price, volume, is_gone in zip(*(np.asarray(column).tolist() for column in columns), strict=True):
        name = SYMBOLS[at]
        tick = {"symbol": name, "CreatedTime": time, "price": price / 100, "volume": volume}
        yield name.encode(), None if is_gone else tick
