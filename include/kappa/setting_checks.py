"""Checks of settings whose type does not say what they may be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from kappa.errors import ConfigError

_LAST_PORT = 65_535
_URL = re.compile(r"https?://[^/\s]")
#: The least value of numbers that count something, and of durations within which somebody has to answer.
_LEAST = {"slice_records": 1, "slice_bytes": 1, "throttle_lag": 0, "stale_seconds": 1, "handover_seconds": 1}
#: The largest of them.
_LARGEST = (1 << 63) - 1
#: Unit at the end of a setting's name -> the longest duration in it: that long ago there was a date still.
_MOST = {unit: timedelta(days=365_000) // timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours")}


def check(values: Mapping[str, Any], places: Mapping[str, str]) -> None:
    """Refuse what cannot be meant.

    Args:
        values: settings by name.
        places: name -> the setting as it is named where it is set, for messages.

    Raises:
        ConfigError: a value is malformed, or two settings exclude each other.
    """
    _check_durations(values, places)
    _check_word("approvals_from", values.get("approvals_from", ""), ("", "airflow"), places)
    _check_word("launcher", values.get("launcher", "here"), ("here", "elsewhere"), places)
    for name, least in _LEAST.items():
        _check_least(name, values.get(name, least), least, places)
    _check_registry(values.get("schema_registry", ""), places)
    _check_webhook(values.get("webhook_url", ""), values.get("webhook_url_file", ""), places)
    _check_metrics(values.get("metrics", ""), places)
    _check_environments(values.get("environments", ""), places)


def _check_durations(values: Mapping[str, Any], places: Mapping[str, str]) -> None:
    for name, value in values.items():
        _, _, unit = name.rpartition("_")
        if unit in _MOST and not 0 <= value <= _MOST[unit]:
            raise ConfigError(
                f"{places[name]}={value} is not a duration: it is a number of {unit} from 0 to {_MOST[unit]}, a "
                "thousand years. Set it to such a number, or remove it.",
                name=name,
                value=value,
            )


def _check_word(name: str, value: str, words: Sequence[str], places: Mapping[str, str]) -> None:
    if value not in words:
        kinds = " nor ".join(word or "empty" for word in sorted(words, key=lambda word: not word))
        raise ConfigError(
            f"{places[name]}={value!r} is neither {kinds}. Set it to {words[-1]}, or remove it.", name=name, value=value
        )


def _check_least(name: str, value: float, least: int, places: Mapping[str, str]) -> None:
    if not least <= value <= _LARGEST:
        raise ConfigError(
            f"{places[name]}={value} is not a number from {least} to {_LARGEST}. Set it to such a number, or remove "
            "it.",
            name=name,
            value=value,
        )


def _check_registry(urls: str, places: Mapping[str, str]) -> None:
    """Refuse what no client takes, as each slice would wait for it; a login may be in it, so it is in no message."""
    if urls and not all(_URL.match(url.strip()) for url in urls.split(",")):
        raise ConfigError(
            f"{places['schema_registry']} is not a URL, or several separated by commas: each begins with http:// or "
            "https://.",
            name="schema_registry",
        )


def _check_webhook(url: str, file: str, places: Mapping[str, str]) -> None:
    """Refuse what cannot be meant; the URL is a secret, and in no message."""
    if url and not _URL.match(url):
        raise ConfigError(
            f"{places['webhook_url']} is not a URL: it begins with http:// or https://.", name="webhook_url"
        )
    if file and not file.startswith("/"):
        raise ConfigError(
            f"{places['webhook_url_file']}={file!r} is not a path that each process reads alike. Set it to an absolute "
            "path.",
            name="webhook_url_file",
            value=file,
        )
    if url and file:
        raise ConfigError(
            f"{places['webhook_url']} and {places['webhook_url_file']} are both set. Remove one of them.",
            name="webhook_url",
        )


def _check_metrics(value: str, places: Mapping[str, str]) -> None:
    port = re.fullmatch(r"(?:.+:)?(\d{1,5})", value)
    if value and (port is None or int(port[1]) > _LAST_PORT):
        raise ConfigError(
            f"{places['metrics']}={value!r} is neither a port nor address:port. Set it to 0 for any free port of "
            "loopback.",
            name="metrics",
            value=value,
        )


def _check_environments(value: str, places: Mapping[str, str]) -> None:
    relative = [one.strip() for one in value.split(",") if one.strip() and not one.strip().startswith("/")]
    if relative:
        raise ConfigError(
            f"{places['environments']} names {relative[0]!r}, which is not an absolute path: drivers and the commands "
            "that start them have other folders. Write it from the root: /opt/kappa/*/bin/python",
            name="environments",
            value=value,
        )
