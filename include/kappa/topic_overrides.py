"""Settings that go over those of new topics: by name those of all topics, by a pattern of names those of some."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kappa.errors import ConfigError

#: What a topic is made with besides Kafka's settings, under names like theirs.
PARTITIONS, REPLICATION = "partitions", "replication.factor"

Overrides = Mapping[str, str | Mapping[str, str]]


def parsed(value: Any, place: str) -> dict[str, str | dict[str, str]]:
    """Overrides as somebody wrote them: as JSON, or as the values of it.

    Args:
        value: what is written.
        place: where it is, for messages.

    Raises:
        ConfigError: it is not an object of settings, or a value is wrong.
    """
    try:
        settings = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        raise _wrong(place, value, f"is not JSON ({error})") from error
    if not isinstance(settings, Mapping):
        raise _wrong(place, value, "is not an object of JSON")
    return {
        key: {name: _setting(place, value, name, one) for name, one in item.items()}
        if isinstance(item, Mapping)
        else _setting(place, value, key, item)
        for key, item in settings.items()
    }


def text_of(value: Any) -> str:
    """A value as Kafka's and Spark's settings have it."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def objection(name: str, text: str) -> str:
    """Why a text cannot be the value of a setting, as far as its name tells; empty if it can."""
    if name in (PARTITIONS, REPLICATION) and not re.fullmatch(r"([1-9][0-9]*)?", text):
        return f"has {text} for {name}, which is a number from 1 on"
    unit = {".ms": "milliseconds", ".bytes": "bytes"}.get(name[name.rfind(".") :])
    if unit and not re.fullmatch(r"(-?[0-9]+)?", text):
        return f"has {text} for {name}, which is a whole number of {unit}"
    return ""


def _setting(place: str, value: Any, name: str, one: Any) -> str:
    if not isinstance(one, str | int | float):
        raise _wrong(place, value, f"has {json.dumps(one)} for {name}, which is neither a text nor a number")
    text = text_of(one)
    if why := objection(name, text):
        raise _wrong(place, value, why)
    return text


def _wrong(place: str, value: Any, why: str) -> ConfigError:
    text = value if isinstance(value, str) else json.dumps(value)
    return ConfigError(
        f"{place}={text} {why}. Write settings of all topics, and by names or patterns those of some: "
        '{"retention.ms": "604800000", "kappa.retail.*.changelog": {"segment.ms": ""}}',
        name="topic_settings",
        value=text,
    )
