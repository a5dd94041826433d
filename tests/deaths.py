"""Where drivers died: a run says at its end how often at each point."""

from __future__ import annotations

#: A crash point for each death that a test waited for, with ``:stop`` behind it when the driver froze there.
DEATHS: list[str] = []
