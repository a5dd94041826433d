"""Writes the table of docs/configuration.md from the settings that :class:`kappa.config.Config` declares."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from kappa.config import Config, settings
from kappa.setting_layers import PREFIX

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"

_HEAD = "| variable | default | meaning |\n|---|---|---|\n"
#: What `Config.from_env` makes where nothing is set.
_MADE = {
    "lake": "`<home>/lake`",
    "bootstrap_servers": "`127.0.0.1:9092`",
    "topologies": "`include/topologies` beside `kappa.toml`, or in the current folder",
    "home": "`.kappa` beside `kappa.toml`, or in the current folder",
    "cache": "`~/.cache/kappa`",
}


def page() -> str:
    """The page with its table from the settings."""
    before, _, rest = PAGE.read_text().partition(_HEAD)
    meanings = dict(re.findall(r"^    (\w+): (.+?)\.$(?=\n    \w|\Z)", attributes(), re.MULTILINE | re.DOTALL))
    rows = [f"| `{PREFIX}{item.name.upper()}` | {default(item)} | {line(meanings[item.name])} |" for item in settings()]
    return f"{before}{_HEAD}{chr(10).join(rows)}\n{rest[rest.index(chr(10) * 2) + 1 :]}"


def attributes() -> str:
    """The section of the docstring that describes each setting."""
    return inspect.getdoc(Config).partition("Attributes:\n")[2].rstrip()  # type: ignore[union-attr]  # it has one


def line(meaning: str) -> str:
    """A description in one line."""
    return re.sub(r"\s+", " ", meaning)


def default(item: Field[Any]) -> str:
    """The value of a variable that is not set."""
    if item.default is MISSING:
        return _MADE.get(item.name, "`{}`")
    return "empty" if item.default == "" else f"`{item.default}`"


if __name__ == "__main__":
    PAGE.write_text(page())
