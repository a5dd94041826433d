"""Commands for the topics that topologies read and write."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kappa.acts import Act
from kappa.cli.options import Execute, Json, config, say, say_json, show, table
from kappa.errors import UsageError
from kappa.offsets.notation import duration_text, parsed_duration
from kappa.topology import registry

group = typer.Typer(name="topics", help="List the topics on the broker, and create one to read.", no_args_is_help=True)

Names = Annotated[list[str] | None, typer.Argument(help="Kafka topics, for example pos.")]
Partitions = Annotated[int, typer.Option(min=1, help="Number of partitions; a keyed topic keeps it for good.")]
Retention = Annotated[
    str, typer.Option(help="How long records are kept, by their timestamps: forever, or a duration like P30D.")
]
Setting = Annotated[
    list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A setting by Kafka's name; may be repeated.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(group)


@group.command("list")
def list_(json: Json = False) -> None:
    """List the topics on the broker without those of epochs: partitions, offsets, retention, and what reads and writes
    them.
    """
    from kappa.control import topics as on_broker
    from kappa.kafka.broker import Broker

    settings = config()
    with Broker(settings.bootstrap_servers) as broker:
        topics = on_broker.topics(broker, list(registry.topologies(settings.topologies)[0].values()))
    if json:
        say_json(topics)
        return
    rows = [
        [
            t.name,
            t.partitions,
            t.offsets,
            t.cleanup_policy,
            duration_text(t.retention) if t.retention is not None else "forever",
            ", ".join(t.read_by) or None,
            ", ".join(t.written_by) or None,
        ]
        for t in topics
    ]
    table(rows, ["topic", "partitions", "offsets", "cleanup", "retention", "read by", "written by"])
    if not rows:
        say("The broker has no topic. Create one: kappa topics create <topic> --execute")


@group.command()
def create(
    names: Names = None,
    every: Annotated[
        bool, typer.Option("--all", help="Create all missing topics that deployed topologies read or send to.")
    ] = False,
    partitions: Partitions = 3,
    retention: Retention = "forever",
    setting: Setting = None,
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Create topics. A topic that exists with the same settings is left as it is; one with other settings is refused.

    Retention removes records by their timestamps, not by when they were sent: in a topic that keeps a week, events of
    last year are gone minutes after they arrive.
    """
    from kappa.control import topics as on_broker
    from kappa.kafka.broker import Broker

    duration = None if retention == "forever" else parsed_duration(retention)
    topic_settings = dict(map(_setting, setting or ()))
    settings = config()
    if bool(names) == every:
        raise UsageError("Name the topics, or all that topologies need: kappa topics create --all")
    topologies, errors = registry.topologies(settings.topologies)
    outputs = on_broker.outputs(list(topologies.values()))
    with Broker(settings.bootstrap_servers) as broker:
        if every:
            for error in errors.values():
                raise error
            names = on_broker.missing(broker, list(topologies.values()))

        create = partial(
            on_broker.create.planned, broker, partitions=partitions, retention=duration, settings=topic_settings
        )
        acts = {name: create(name, output=outputs.get(name)) for name in names or ()}
        missing = [name for name, act in acts.items() if act.effects]
        act = Act(effects=tuple(e for act in acts.values() for e in act.effects), outcome=lambda: missing)
        if execute:
            act.make()
    there = f"{', '.join(names)} exists" if names else "every topic of a topology exists"
    if not execute or not (missing or json):
        show(act, otherwise=there, json=json, created=missing)
    elif json:
        say_json({"executed": execute, "created": missing})
    else:
        say(f"Created {name} with {partitions} partitions, retention {retention}." for name in missing)


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise UsageError(f"--config {text!r} is not KEY=VALUE, for example cleanup.policy=compact.")
    return name, value
