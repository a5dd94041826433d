"""Settings, parsed once at the edge into a frozen object."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kappa.errors import ConfigError

PREFIX = "KAPPA_"

#: What deltalake takes for a part of a URL, or for another path, instead of a part of a name.
_NO_PATH = re.compile(r"[\[\]^|\\*{}\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")

_REPOSITORY = Path(__file__).resolve().parents[2]


class Servers(str):
    """Addresses of Kafka's brokers, ``host:port`` separated by commas, with the file by which clients log in there.

    A text with something added, because it goes where addresses go: into messages, options and the ledger. Only what
    makes a client looks at the file.

    Attributes:
        client_file: path of the file; empty where brokers ask for no login.
    """

    client_file: str

    def __new__(cls, addresses: str, client_file: str = "") -> Servers:
        """Addresses, and the file that belongs to them."""
        made = super().__new__(cls, addresses)
        made.client_file = client_file
        return made


def client_file_of(bootstrap_servers: str) -> str:
    """The file that belongs to these addresses; empty for none."""
    return bootstrap_servers.client_file if isinstance(bootstrap_servers, Servers) else ""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Where everything is and how drivers run.

    Attributes:
        lake: root of the lake, a path on a file system that all hosts mount; a relative path is one from the folder of
            the call.
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas; they know ``kafka_client_file``.
        topologies: folder whose ``*.py`` files declare topologies.
        home: local working files: logs, process ids, extracted code. Never the only copy of anything.
        cache: downloaded jars, shared by all checkouts of one user.
        spark_master: Spark master of the drivers.
        spark_conf: further Spark settings of the drivers.
        slice_records: most offsets that one slice may span, of every epoch whose driver is started with it.
        slice_bytes: about as many bytes of records as one slice may have, by a look at some of them.
        topic_settings: settings, by Kafka's names, that go over those with which drivers make topics; an empty one is
            left to the broker.
        trigger_seconds: least time between the starts of two live slices.
        heartbeat_seconds: time between two heartbeats of a driver.
        stale_seconds: how long a heartbeat may stay as it is before its driver counts as dead.
        slow_minutes: how long a line of the protocol may take before its driver counts as slow.
        stuck_minutes: how long it may take before the driver counts as stuck.
        handover_seconds: how long an old driver waits for a new one before it goes on by itself.
        small_slice: largest span of a slice, in offsets, whose parsed records are taken into the driver's memory.
        arrow_rows: most rows of one effect that are written from the driver's memory; more are written by Spark.
        throttle_lag: offsets that the live epoch may lie behind before a replay beside it pauses between slices.
        attempts: how often a slice is tried before the epoch is stuck.
        merge_seconds: most time for which changes of slices are not merged into a table; readers that only know its
            path are that far behind.
        maintain_minutes: time between two looks after an epoch's Delta files.
        keep_minutes: how long every commit of an epoch stays readable.
        savepoint_minutes: of older commits, the first in each period of this length stays readable: a savepoint.
        savepoint_hours: how long savepoints stay readable.
        approval_hours: how long Airflow waits for an approval before it counts as rejected.
        rejected_hours: how long the tables of a rejected epoch are kept.
        delete_after_hours: files and leftovers younger than this are never removed, whether they are needed or not.
        rollup_slices: slices after which the rows of those before are rolled up in an epoch's ledger.
        mask_key: key of masked values, at least 16 characters; part of no lake, topic or log.
        schema_registry: URL of the schema registry, for sources and topic outputs of Avro; empty for none.
        metrics_port: where each driver answers Prometheus; 0 for any free port, None for no endpoint. Where the port is
            taken, any free one.
        metrics_address: interface on which it does.
        webhook_url: where notices are posted; empty for nowhere. A secret.
        webhook_url_file: a file on the driver's host that holds it instead.
        kafka_client_file: a properties file with which every Kafka client logs in, on each host for itself; empty where
            brokers ask for no login.
        approvals_from: ``airflow`` counts approvals by a login of Airflow only; empty does so where the lake or the
            drivers are not this host's own.
        launcher: ``here`` starts drivers on this host; ``elsewhere`` leaves that to a ``kappa drivers`` on another.
    """

    lake: str
    bootstrap_servers: str
    topologies: Path
    home: Path
    cache: Path
    spark_master: str = "local[*]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    slice_records: int = 500_000
    slice_bytes: int = 512 << 20
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    trigger_seconds: float = 1.0
    heartbeat_seconds: float = 2.0
    stale_seconds: float = 15.0
    slow_minutes: float = 5.0
    stuck_minutes: float = 20.0
    handover_seconds: float = 120.0
    small_slice: int = 50_000
    arrow_rows: int = 500_000
    throttle_lag: int = 100_000
    attempts: int = 3
    merge_seconds: float = 120.0
    maintain_minutes: float = 10.0
    keep_minutes: float = 30.0
    savepoint_minutes: float = 240.0
    savepoint_hours: float = 24.0
    delete_after_hours: float = 24.0
    rejected_hours: float = 72.0
    approval_hours: float = 24.0
    rollup_slices: int = 1000
    mask_key: str = field(default="", repr=False)
    schema_registry: str = field(default="", repr=False)
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    webhook_url: str = field(default="", repr=False)
    webhook_url_file: str = ""
    kafka_client_file: str = ""
    launcher: str = "here"
    approvals_from: str = ""

    def __post_init__(self) -> None:
        """Give the addresses the file that belongs to them."""
        object.__setattr__(self, "bootstrap_servers", Servers(self.bootstrap_servers, self.kafka_client_file))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Config:
        """Read ``KAPPA_*`` variables, then ``<home>/stack.json``, then the defaults.

        Raises:
            ConfigError: a variable or key is unknown or malformed; the message names the nearest known one.
        """
        env = os.environ if environ is None else environ
        given = {key.removeprefix(PREFIX).lower(): value for key, value in env.items() if key.startswith(PREFIX)}
        given.pop("crash_after", None)  # read by kappa.faults alone
        home = Path(given.get("home", Path.cwd() / ".kappa")).absolute()
        stack = home / "stack.json"
        written = json.loads(stack.read_text()) if stack.is_file() else {}
        values: dict[str, Any] = {
            "lake": str(home / "lake"),
            "bootstrap_servers": "127.0.0.1:9092",
            "topologies": str(_REPOSITORY / "include" / "topologies"),
            "cache": str(Path.home() / ".cache" / "kappa"),
            **written,
            **given,
            "home": str(home),
        }
        found = {name: _parse(name, value) for name, value in values.items()}
        _check_approvals(found.get("approvals_from", ""))
        _check_webhook(found.get("webhook_url", ""), found.get("webhook_url_file", ""))
        return cls(**{**found, "lake": _lake(found["lake"])})

    def to_env(self) -> dict[str, str]:
        """The variables from which :meth:`from_env` makes an equal object."""
        return {PREFIX + item.name.upper(): _render(getattr(self, item.name)) for item in fields(self)}


def _lake(given: str) -> str:
    """A lake's path as every process sees it, whatever folder that works in."""
    if "://" in given:
        return given
    path = str(Path(given).absolute())
    wrong = _NO_PATH.search(path)
    if wrong:
        raise ConfigError(
            f"The lake {path!r} has {wrong[0]!r} in its path, which Delta's libraries do not take for a part of a "
            f"name. Move it, or set {PREFIX}LAKE to a path without any of [ ] {{ }} * ^ | \\, control characters, and "
            "% before two hexadecimal digits.",
            name="lake",
            value=given,
        )
    return path


def _check_approvals(given: str) -> None:
    if given not in ("", "airflow"):
        raise ConfigError(
            f"{PREFIX}APPROVALS_FROM={given!r} is neither airflow nor empty. Set it to airflow, or unset it.",
            name="approvals_from",
            value=given,
        )


def _check_webhook(url: str, file: str) -> None:
    """Refuse what cannot be meant; the URL is a secret, and in no message."""
    if url and not re.match(r"https?://[^/\s]", url):
        raise ConfigError(f"{PREFIX}WEBHOOK_URL is no URL: it begins with http:// or https://.", name="webhook_url")
    if url and file:
        raise ConfigError(
            f"{PREFIX}WEBHOOK_URL and {PREFIX}WEBHOOK_URL_FILE are both set. Unset one of them.", name="webhook_url"
        )


def _render(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(dict(value)) if isinstance(value, Mapping) else str(value)


def _parse(name: str, value: Any) -> Any:
    kinds = {item.name: item.type for item in fields(Config)}
    if name not in kinds:
        near = difflib.get_close_matches(name, kinds, n=1)
        hint = f" Did you mean {PREFIX}{near[0].upper()}?" if near else ""
        raise ConfigError(f"Unknown setting {PREFIX}{name.upper()}.{hint}", name=name)
    kind = kinds[name]
    try:
        if kind == "Path":
            return Path(value).absolute()
        if kind == "int | None":
            return None if value in ("", None) else int(value)
        if kind == "int":
            return int(value)
        if kind == "float":
            return float(value)
        if kind == "str":
            return str(value)
        parsed = json.loads(value) if isinstance(value, str) else value
        return {str(key): str(item) for key, item in parsed.items()}
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            f"{PREFIX}{name.upper()}={value!r} is not a valid {kind}: {error}.", name=name, value=value
        ) from error
