"""Commands for the topics that topologies read and write."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kappa import topic_overrides
from kappa.acts import Act
from kappa.cli.options import Execute, Json, completed, config, say, say_json, show, table
from kappa.errors import UsageError
from kappa.offsets.notation import duration_text, parsed_duration
from kappa.topology import registry

if TYPE_CHECKING:
    from kappa.control.topics import TopicFacts

group = typer.Typer(
    name="topics",
    help="List the topics on the broker, create those to read, and print the commands that make those of epochs.",
    no_args_is_help=True,
)

Names = Annotated[list[str] | None, typer.Argument(help="Kafka topics, for example pos.")]
Partitions = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of partitions, 3 by default; a keyed topic keeps it for good.", show_default=False
    ),
]
Retention = Annotated[
    str | None,
    typer.Option(
        help="How long records are kept, by their timestamps: forever, the default, or a duration like P30D.",
        show_default=False,
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="KEY=VALUE",
        help="A setting by Kafka's name, empty to leave it to the brokers; may be repeated.",
    ),
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
            _kept(t),
            ", ".join(t.read_by) or None,
            ", ".join(t.written_by) or None,
        ]
        for t in topics
    ]
    table(rows, ["topic", "partitions", "offsets", "cleanup", "retention", "read by", "written by"])
    if not rows:
        say("The broker has no topic. Create one: kappa topics create <topic> --execute")


def _kept(topic: TopicFacts) -> str:
    """How long records of a topic are kept, in a few words."""
    time = duration_text(topic.retention) if topic.retention is not None else "forever"
    return time if topic.retention_bytes is None else f"{time}, {topic.retention_bytes:,} bytes per partition"


@group.command()
def create(
    names: Names = None,
    every: Annotated[
        bool, typer.Option("--all", help="Create all missing topics that deployed topologies read or send to.")
    ] = False,
    partitions: Partitions = None,
    retention: Retention = None,
    setting: Setting = None,
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Create topics. A topic that exists with the same settings is left as it is; one with other settings is refused.

    Retention removes records by their timestamps, not by when they were sent: in a topic that keeps a week, events of
    last year are gone minutes after they arrive. KAPPA_TOPIC_SETTINGS changes the defaults.
    """
    from kappa.control import topics as on_broker
    from kappa.kafka.broker import Broker

    topic_settings = {**_retention(retention), **dict(map(_setting, setting or ()))}
    settings = config()
    if bool(names) == every:
        raise UsageError("Name the topics, or all that topologies need: kappa topics create --all")
    topologies, errors = registry.topologies(settings.topologies)
    outputs = on_broker.outputs(list(topologies.values()))
    with Broker(settings.bootstrap_servers, topic_settings=settings.topic_settings) as broker:
        if every:
            for error in errors.values():
                raise error
            names = on_broker.missing(broker, list(topologies.values()))

        create = partial(on_broker.create.planned, broker, partitions=partitions, settings=topic_settings)
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
        say(f"Created{effect.what.removeprefix('create')}." for effect in act.effects)


@group.command()
def commands(
    topologies: Annotated[
        list[str], typer.Argument(help="Names of topologies, for example retail.loyalty.", autocompletion=completed)
    ],
    epochs: Annotated[
        int, typer.Option(min=1, help="How many epochs ahead; each start, replay and rebuild takes one.")
    ] = 1,
    json: Json = False,
) -> None:
    """Print the commands of Kafka's own tool that make the missing topics of the next epochs, for whoever may create
    topics.
    """
    from kappa.control.new_topics import missing_topics
    from kappa.kafka.client_file import creator_options
    from kappa.replay.epoch_topics import creation

    settings = config()
    topics = {topic.name: topic for name in topologies for topic in missing_topics(settings, name, epochs)}
    options = creator_options(settings.bootstrap_servers)
    if json:
        say_json([{**asdict(topic), "command": creation(topic, options)} for topic in topics.values()])
    elif topics:
        say(creation(topic, options) for topic in topics.values())
    else:
        say("Every topic is there. See them: kafka-topics.sh " + f"{options} --list")


def _retention(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    limit = timedelta(milliseconds=-1) if text == "forever" else parsed_duration(text)
    return {"retention.ms": str(limit // timedelta(milliseconds=1))}


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise UsageError(f"--config {text!r} is not KEY=VALUE, for example cleanup.policy=compact.")
    if why := topic_overrides.objection(name, value):
        raise UsageError(f"--config {text} {why}. Write a number, or nothing after = to leave it to the brokers.")
    return name, value
