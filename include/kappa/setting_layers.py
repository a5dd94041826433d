"""Where settings are from: variables, the settings file, what ``kappa up`` has written, defaults.

Only :mod:`kappa.config` reads them here.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kappa.errors import ConfigError
from kappa.settings_file import SettingsFile, path_of

PREFIX = "KAPPA_"

#: Where a setting is from that a variable sets.
ENVIRONMENT = "the environment"


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Settings of one origin.

    Attributes:
        origin: the environment, or the path of a file; empty for defaults.
        values: name -> value, as it is written there.
    """

    origin: str
    values: Mapping[str, Any]


def layers_of(env: Mapping[str, str], file: SettingsFile | None) -> tuple[Layer, ...]:
    """All settings; those of an earlier layer count.

    Args:
        env: the variables.
        file: the settings file; None where there is none.

    Raises:
        ConfigError: what ``kappa up`` has written cannot be read, or a home begins in that of a user who has none.
    """
    # Containers and workflows pass on variables that nobody has set: an empty one says nothing.
    own = ((key.removeprefix(PREFIX).lower(), value) for key, value in env.items() if key.startswith(PREFIX))
    # Files of variables may end their lines as Windows does; a key is all its characters.
    variables = {name: value if name == "mask_key" else value.strip() for name, value in own if value.strip()}
    for name in ("crash_after", "internals", "settings"):  # read by kappa.faults, and apart
        variables.pop(name, None)
    folder = file.path.parent if file else Path()
    written = [Layer(origin=ENVIRONMENT, values=variables)]
    if file:
        written.append(Layer(origin=str(file.path), values=file.values))
    settings_by_name = ChainMap(*(dict(layer.values) for layer in written))
    home = path_of(settings_by_name.get("home", str(folder / ".kappa")))
    if values := _stack(home):
        embedded = values.get("bootstrap_servers")
        if settings_by_name.get("bootstrap_servers", embedded) != embedded:
            values.pop("kafka_client_file", None)  # the login of other brokers
        written.append(Layer(origin=str(home / "stack.json"), values=values))
    defaults = {
        "lake": str(home / "lake"),
        "bootstrap_servers": "127.0.0.1:9092",
        "topologies": str(folder / "include" / "topologies"),
        "home": str(home),
        "cache": "~/.cache/kappa",
    }
    return (*written, Layer(origin="", values=defaults))


def _stack(home: Path) -> dict[str, Any]:
    """The settings that ``kappa up`` has written; none where it has not."""
    file = home / "stack.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        return {name: value for name, value in values.items() if name != "home"}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a JSON object"
        raise ConfigError(
            f"{file} cannot be read: {reason}. Name a home of your own by KAPPA_HOME, or remove the file, and write it "
            "anew: kappa up",
            path=str(file),
        ) from error


def origins_of(layers: Sequence[Layer]) -> dict[str, str]:
    """Where each setting is from; empty for its default."""
    return {name: layer.origin for layer in reversed(layers) for name in layer.values}


def place_of(name: str, origin: str) -> str:
    """A setting as it is named where it is set, or can be, for messages."""
    return f"{PREFIX}{name.upper()}" if origin in ("", ENVIRONMENT) else f"{origin}: {name}"


def setting_of(name: str, origin: str) -> str:
    """The same within a sentence."""
    return f"{PREFIX}{name.upper()}" if origin in ("", ENVIRONMENT) else f"{name} in {origin}"
