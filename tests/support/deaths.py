"""Where drivers died: a run says at its end how often at each point."""

from __future__ import annotations

#: A crash point for each death that a test waited for, with ``:stop`` behind it when the driver froze there.
DEATHS: list[str] = []

#: So many tries of a slice that no number of deaths in a test changes how the records are cut into slices.
ENDLESS = 1_000
