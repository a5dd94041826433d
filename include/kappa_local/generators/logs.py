"""Logs of a web shop: actions of its browsers, views of its pages, and captchas."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kappa_local.generators.draws import Block, Made

LOGS, PAGE_VIEWS, CAPTCHA = "logs", "page-views", "captcha"
_ACTIONS = ("login", "search", "search", "view", "view", "view", "add-to-cart", "checkout")
_LEVELS = ("INFO", "INFO", "INFO", "INFO", "INFO", "INFO", "WARN", "ERROR")
_AGENTS = ("Firefox", "Chrome", "Safari", "Edge", "ExampleBot")
_BROWSERS, _PAGES, _THREADS = 300, 400, 8


def actions(block: Block) -> Iterator[Made]:
    """Log events by browser."""
    drawn = (_browser(block), block.draw(2, len(_ACTIONS)), block.draw(3, len(_LEVELS)), block.draw(4, _THREADS))
    for time, browser, action, level, thread in zip(block.times, *(column.tolist() for column in drawn), strict=True):
        name = f"b{browser:04d}"
        yield (
            name.encode(),
            {
                "browser": name,
                "thread": f"worker-{thread}",
                "level": _LEVELS[level],
                "action": _ACTIONS[action],
                "CreatedTime": time,
            },
        )


def page_views(block: Block) -> Iterator[Made]:
    """Views by page: a few pages have most of them, and one view in five is a crawler's."""
    many = block.draw(5, 1_000) / 1_000
    page = (many**3 * _PAGES).astype(np.int64)
    drawn = (page, _browser(block), block.draw(6, len(_AGENTS)))
    for time, at, browser, agent in zip(block.times, *(column.tolist() for column in drawn), strict=True):
        name = f"/products/{at}"
        view = {"page": name, "browser": f"b{browser:04d}", "agent": _AGENTS[agent], "CreatedTime": time}
        yield name.encode(), view


def captchas(block: Block) -> Iterator[Made]:
    """Captchas by browser; one in three is failed."""
    drawn = (_browser(block), block.draw(7, 3))
    for time, browser, luck in zip(block.times, *(column.tolist() for column in drawn), strict=True):
        name = f"b{browser:04d}"
        yield name.encode(), {"browser": name, "passed": luck > 0, "CreatedTime": time}


def _browser(block: Block) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return block.draw(1, _BROWSERS)
