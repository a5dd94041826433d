"""Settings, parsed once at the edge into a frozen object."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from kappa import setting_checks, settings_file, topic_overrides
from kappa.errors import ConfigError
from kappa.setting_layers import PREFIX, Layer, layers_of, origins_of, place_of, setting_of
from kappa.store import options
from kappa.store.address import is_remote, lake_address


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
        servers = super().__new__(cls, addresses)
        servers.client_file = client_file
        return servers


def client_file_of(bootstrap_servers: str) -> str:
    """The file that belongs to these addresses; empty for none."""
    return bootstrap_servers.client_file if isinstance(bootstrap_servers, Servers) else ""


def _internal(default: Any, instead: str = "") -> Any:
    """A figure that only tests turn, with the hint for anybody who sets a variable of its name."""
    return field(default=default, metadata={"instead": instead or f"it is always {default}."})


@dataclass(frozen=True, kw_only=True)
class Config:
    r"""Where everything is and how drivers run. ``docs/configuration.md`` is made of this.

    Attributes:
        lake: root of the lake, for every process: a local path, a file system that all hosts mount, or
            [`s3://bucket/prefix`](lake-on-s3.md). A relative path in a variable is relative to the folder of the
            command. In a path, spaces and letters of every language are allowed; `[ ] { } * ^ \| \` and `%` before two
            hexadecimal digits are not.
        bootstrap_servers: your Kafka brokers, `host:port` separated by commas. `kappa up` starts its broker on this
            port.
        topologies: folder whose `*.py` files declare your topologies.
        home: local working files of each host: logs, process ids, extracted code, the embedded broker's data, and the
            lake unless `KAPPA_LAKE` names another path. Never the only copy of anything.
        cache: downloaded jars, shared by all repositories of one user.
        spark_master: Spark master of the drivers, for those who have a cluster or share a host.
        spark_conf: further Spark settings of the drivers, for those who know Spark, as a JSON object; they override
            Kappa's own, but for the form of times in files. They are in no command line, so other users of the host do
            not see them. Only `spark.driver.extraJavaOptions` becomes arguments of the JVM.
        slice_records: largest span of a slice, in offsets, for hosts with less memory. It also applies to existing
            epochs, from the next start of their drivers; a plan may have a smaller number.
        slice_bytes: about as many bytes of keys, values and headers as a slice may have, for topics of large records:
            a look at some of them says how large they are. One record may have more. It does not bound what is read
            from an archive.
        topic_settings: settings that go over those with which drivers make topics, as JSON by Kafka's names, for
            brokers whose [policy](managed-kafka.md#settings-of-new-topics) refuses some of these, such as
            `{"segment.ms": "", "kappa.retail.*.changelog": {"partitions": "6"}}`: for all topics, and for those whose
            name fits a pattern. An empty one is left to the broker.
        trigger_seconds: shortest time between the starts of two live slices, for readers that want rows sooner or
            fewer commits.
        stale_seconds: how long a heartbeat may stay unchanged before its driver counts as dead, by the clock of the
            process that looks, for file systems that show changes late. A heart beats seven times as often. A killed
            driver of the same host is noticed at once.
        stuck_minutes: how long one line of the protocol may take before `kappa status` shows `stuck`, for topologies
            with slow slices; after a quarter of that it shows `slow`, and the driver's log has the stacks of its
            threads. Lines that may take hours (seeding, verifying, a baseline) become only `slow`.
        handover_seconds: how long an old driver waits for a new one before it withdraws the handover and continues,
            for streams whose readers cannot wait that long. If the old driver hangs or is gone, any process that
            waits for the handover withdraws it after that time.
        throttle_lag: largest lag of the live epoch, in offsets, before a replay beside it pauses between slices, for
            streams that are always further behind or never may be.
        merge_seconds: longest time before changes of slices are
            [merged](decisions/changes-are-merged-several-slices-at-once.md) into a table: readers by path are behind by
            at most that, beside `publish_seconds`; `0` merges every slice.
        publish_seconds: least time between two commits of a
            [published table](readers.md#a-path-that-never-changes), for engines that read by path and have to be closer
            behind, or for fewer requests to an object store.
        published_hours: how long files stay that a published table named, for whoever reads its earlier versions by
            path.
        keep_minutes: how long every commit of an epoch stays readable, for readers with long queries.
        savepoint_minutes: of older commits, the first in each period of this length stays readable: a savepoint to
            replay from.
        savepoint_hours: how long savepoints stay readable, for those who replay from them later.
        rejected_hours: how long the tables of a [rejected](airflow.md#a-replay-from-trigger-to-undo) epoch are kept
            for whoever looks into it; then `kappa housekeeping` removes them.
        delete_after_hours: files of the Delta tables of an epoch younger than this are never removed, whether they are
            needed or not, for disks that [fill up](operations.md#the-disk-fills-up).
        mask_key: key of [masked values](event-time.md#personal-values), for topologies with a sensitive source, at
            least 16 characters; part of no lake, topic or log.
        schema_registry: URL of the schema registry, for sources and topic outputs of
            [Avro](writing-a-topology.md#avro) and [JSON Schema](writing-a-topology.md#json-schema); several separated
            by commas, with `user:password@` before the host where it asks for that. Messages leave that part out.
        metrics: where each driver answers your [Prometheus](metrics.md): a port of loopback, or `address:port`, for
            example `0.0.0.0:9464` for all interfaces; `0` for any free port. Where the port is taken, as by the other
            driver of a replay, the driver takes any free one. The endpoint asks for no login.
        webhook_url: URL to which drivers post [notices](metrics.md#notices-to-a-webhook) for whoever decides: stuck
            epochs, verdicts that failed or differ, moves. It is a secret: no message or log has it.
        webhook_url_file: a file on the driver's host that holds this URL instead, for secrets that come as files; not
            together with it.
        kafka_client_file: a properties file in the names of Kafka's Java clients, with which every Kafka client [logs
            in](security.md#one-file-for-every-client): TLS, SASL. Each process reads it on its own host. Empty where
            brokers ask for no login.
        lake_client_file: a properties file with which every process reaches a lake on S3: the store's [address, keys
            and region](lake-on-s3.md#the-store). Each process reads it on its own host, executors of Spark too, and
            again when it has [new keys](lake-on-s3.md#new-keys). Empty where the variables `AWS_*` of the environment
            say it, or the host's own role does.
        launcher: `here` starts drivers on this host; `elsewhere` leaves that to `kappa drivers` on another host, for
            schedulers that run none.
        approvals_from: `airflow` counts [approvals](security.md#approvals) by a login of Airflow only, for teams.
            Empty does so where the lake or the drivers are not this host's own, and counts users of this host too
            where they are.
        environments: Python interpreters for [epochs of other environments](the-teams-own-code.md), for hosts that keep
            several: paths separated by commas, patterns allowed, such as `/opt/kappa/*/bin/python`. A driver is started
            with the one whose environment is that of its epoch.
        image: name of the image that this host or container runs, such as `orders:2026-11-28`, for teams that deploy
            images: it is part of the [environment](the-teams-own-code.md) of an epoch.
    """

    #: Variable with figures that only tests turn, as JSON; not a setting. A field with ``instead`` is one of them, and
    #: that is the hint for anybody who sets a variable of its name.
    INTERNALS: ClassVar[str] = f"{PREFIX}INTERNALS"
    #: Variable that names the settings file; not a setting. Empty in :meth:`to_env`: a child process reads no file.
    SETTINGS: ClassVar[str] = settings_file.VARIABLE

    lake: str
    bootstrap_servers: str
    topologies: Path
    home: Path
    cache: Path
    spark_master: str = "local[*]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    slice_records: int = 500_000
    slice_bytes: int = 512 << 20
    topic_settings: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    trigger_seconds: float = 1.0
    stale_seconds: float = 15.0
    stuck_minutes: float = 20.0
    handover_seconds: float = 120.0
    throttle_lag: int = 100_000
    merge_seconds: float = 120.0
    publish_seconds: float = 10.0
    published_hours: float = 168.0
    keep_minutes: float = 30.0
    savepoint_minutes: float = 240.0
    savepoint_hours: float = 24.0
    rejected_hours: float = 72.0
    delete_after_hours: float = 24.0
    mask_key: str = field(default="", repr=False)
    schema_registry: str = field(default="", repr=False)
    metrics: str = ""
    webhook_url: str = field(default="", repr=False)
    webhook_url_file: str = ""
    kafka_client_file: str = ""
    lake_client_file: str = ""
    launcher: str = "here"
    approvals_from: str = ""
    environments: str = ""
    image: str = ""
    #: Most offsets of a slice whose parsed records are in the driver's memory; Spark's workers have larger ones.
    small_slice: int = _internal(50_000)
    #: Most rows of one effect that are written from the driver's memory; Spark writes more.
    arrow_rows: int = _internal(500_000)
    #: Size of a table's files from which a cluster merges it. On one host four times that: Spark's merge is several
    #: times slower there. In the driver's process merges of up to 698 MB took 524 MB of memory at most.
    merge_bytes: int = _internal(256 << 20)
    #: How often a slice of one record is tried before the epoch is stuck.
    attempts: int = _internal(3, "a slice is always tried 3 times.")
    #: Time between two looks after an epoch's Delta files.
    maintain_minutes: float = _internal(10.0)
    #: Slices after which the rows of those before are rolled up in an epoch's ledger.
    rollup_slices: int = _internal(1000)
    #: Time between two heartbeats; 0 for what follows from ``stale_seconds``.
    heartbeat_seconds: float = _internal(0.0, "it is a seventh of KAPPA_STALE_SECONDS.")
    #: How long a line of the protocol may take before it is slow; 0 for what follows from ``stuck_minutes``.
    slow_minutes: float = _internal(0.0, "it is a quarter of KAPPA_STUCK_MINUTES.")

    @property
    def beat_seconds(self) -> float:
        """Time between two heartbeats: a few may be late before a driver counts as dead."""
        return self.heartbeat_seconds or self.stale_seconds / 7

    @property
    def idle_seconds(self) -> float:
        """Pause between two looks at the record while there is nothing to do: an object store charges for each."""
        return 2.0 if is_remote(self.lake) else 0.2

    @property
    def slow_seconds(self) -> float:
        """How long a line of the protocol may take before its driver counts as slow."""
        return 60 * (self.slow_minutes or self.stuck_minutes / 4)

    @property
    def metrics_endpoint(self) -> tuple[str, int] | None:
        """Interface and port at which drivers answer Prometheus; None where they do not."""
        if not self.metrics:
            return None
        address, _, port = self.metrics.rpartition(":")
        return address.strip("[]") or "127.0.0.1", int(port)

    def __post_init__(self) -> None:
        """Give the addresses the files that belong to them."""
        servers = ",".join(one.strip() for one in self.bootstrap_servers.split(","))
        object.__setattr__(self, "bootstrap_servers", Servers(servers, self.kafka_client_file))
        stale_after = timedelta(seconds=self.stale_seconds)
        options.declare(self.lake, self.lake_client_file, cache=self.cache, stale_after=stale_after)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Config:
        """Read ``KAPPA_*`` variables, then ``kappa.toml``, then ``<home>/stack.json``, then the defaults.

        Raises:
            ConfigError: a variable or key is unknown or malformed, and the message names the nearest known one; or the
                settings file cannot be read.
        """
        env = os.environ if environ is None else environ
        layers = _layers(env)
        values = ChainMap(*(dict(layer.values) for layer in layers))
        origin = origins_of(layers)
        places = {name: place_of(name, origin[name]) for name in values}
        settings_by_name = {name: _parse(name, value, places[name]) for name, value in values.items()}
        setting_checks.check(settings_by_name, places)
        internals = json.loads(env.get(cls.INTERNALS) or "{}")
        lake = lake_address(settings_by_name["lake"], setting=setting_of("lake", origin["lake"]))
        return cls(**{**settings_by_name, **internals, "lake": lake})

    def to_env(self) -> dict[str, str]:
        """The variables from which :meth:`from_env` makes an equal object."""
        internals = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if "instead" in item.metadata and getattr(self, item.name) != item.default
        }
        variables = {PREFIX + item.name.upper(): _render(getattr(self, item.name)) for item in settings()}
        return {**variables, self.SETTINGS: "", self.INTERNALS: _render(internals)}


def settings() -> tuple[Field[Any], ...]:
    """The fields that variables set."""
    return tuple(item for item in fields(Config) if "instead" not in item.metadata)


#: Name of an earlier setting -> what takes its place.
_GONE: Mapping[str, str] = {
    **{item.name: item.metadata["instead"] for item in fields(Config) if "instead" in item.metadata},
    **dict.fromkeys(("metrics_port", "metrics_address"), f"{PREFIX}METRICS takes a port, or address:port."),
    "approval_hours": "the DAG file has it, `dags(approval_hours=24)`.",
}


#: A value within quotes that nobody took off.
_QUOTED = re.compile(r"(['\"]).*\1", re.DOTALL)
_MAY_BE_EMPTY = frozenset(item.name for item in settings() if item.default == "")


def origins(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Where each setting is from that is not at its default: the environment, or the path of a file.

    Raises:
        ConfigError: the settings file cannot be read, or has a mistake.
    """
    layers = _layers(os.environ if environ is None else environ)
    return {name: origin for name, origin in origins_of(layers).items() if origin}


def repository(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of a team's repository: that of the settings file, or the working directory where there is none.

    Raises:
        ConfigError: the settings file cannot be read, or has a mistake.
    """
    file = _file(os.environ if environ is None else environ)
    return file.path.parent if file else Path.cwd()


def _layers(env: Mapping[str, str]) -> tuple[Layer, ...]:
    return layers_of(env, _file(env))


def _file(env: Mapping[str, str]) -> settings_file.SettingsFile | None:
    return settings_file.settings_file(env.get(settings_file.VARIABLE), settings(), _GONE)


def _text_of(value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError(f"a value of it is {'null' if value is None else 'a list or a table'}")
    return topic_overrides.text_of(value)


def _render(value: Any) -> str:
    return json.dumps(dict(value)) if isinstance(value, Mapping) else str(value)


def _parse(name: str, value: Any, place: str) -> Any:
    kinds = {item.name: item.type for item in settings()}
    if name in _GONE:
        raise ConfigError(f"{place} is not a setting any more: {_GONE[name]} Unset it.", name=name)
    if name not in kinds:
        near = difflib.get_close_matches(name, kinds, n=1)
        names = [f"{PREFIX}{other.upper()}" if place.startswith(PREFIX) else other for other in near]
        hint = f" Did you mean {names[0]}?" if names else ""
        raise ConfigError(f"Unknown setting {place}.{hint}", name=name)
    if name == "topic_settings":
        return topic_overrides.parsed(value, place)
    kind = kinds[name]
    if value == "" and name not in _MAY_BE_EMPTY:
        raise ConfigError(f"{place} is empty. Give it a value, or remove it.", name=name)
    if name != "mask_key" and isinstance(value, str) and _QUOTED.fullmatch(value):
        raise ConfigError(
            f"{place} is in quotes, which became part of its value, as in a file of variables that no shell reads. "
            "Write it without them.",
            name=name,
        )
    try:
        if kind == "Path":
            return settings_file.path_of(value)
        if kind == "int":
            return int(value)
        if kind == "float":
            return float(value)
        if kind == "str":
            return str(value)
        parsed = json.loads(value) if isinstance(value, str) else value
        return {str(key): _text_of(item) for key, item in parsed.items()}
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        if kind not in ("int", "float"):  # the text of a table may have secrets
            raise ConfigError(
                f'{place} is not a table in JSON: {error}. Write {{"name": "value"}}.', name=name
            ) from error
        raise ConfigError(f"{place}={value!r} is not a valid {kind}: {error}.", name=name, value=value) from error
