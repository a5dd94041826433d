"""Commands that only read."""

from __future__ import annotations

from collections.abc import Mapping
from json import loads as json_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappa import control
from kappa.cli.options import Json, Topology, completed, config, config_of, say, say_json, table, write_file
from kappa.cli.views import published
from kappa.control.deployed import deployed
from kappa.environments import files
from kappa.errors import DamagedTableError, LedgerError, UsageError
from kappa.names import EpochPaths
from kappa.offsets.notation import parsed_time
from kappa.offsets.vector import Offsets
from kappa.replay.findings import Finding
from kappa.replay.rules.cutover import rest_of_group
from kappa.replay.rules.log import recreated_topics, vector_beyond_log
from kappa.verify.report import Format

if TYPE_CHECKING:
    from kappa.driver.processes.process import DriverStatus
    from kappa.serving.history import Entry


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (topologies, status, lag, diff, certify, history, path):
        app.command()(command)


def topologies(json: Json = False) -> None:
    """List the deployed topologies, and the broken files with their errors."""
    from kappa.record.epochs import epochs_of
    from kappa.topology import registry

    settings = config()
    registry.check_folder(settings.topologies)
    good, broken = deployed(settings.topologies)
    epochs = epochs_of(settings.lake)
    rows = [
        {
            "name": topology.name,
            "version": topology.version,
            "owner": topology.owner,
            "live_epoch": epochs.record(topology.name).live,
            "sources": list(topology.sources),
            "tables": list(topology.tables),
            "outputs": list(topology.outputs),
        }
        for topology in good.values()
    ]
    if json:
        say_json({"topologies": rows, "broken": {str(file): str(error) for file, error in broken.items()}})
    else:
        table(
            [[", ".join(v) if isinstance(v, list) else v for v in row.values()] for row in rows],
            ["topology", "version", "owner", "live epoch", "reads", "keeps", "emits"],
        )
        say(f"broken: {error}" for error in broken.values())
    if broken:
        raise typer.Exit(1)


def status(
    topology: Annotated[
        str | None, typer.Argument(help="Name of the topology; by default all.", autocompletion=completed)
    ] = None,
    json: Json = False,
) -> None:
    """Show the epochs of a topology, how far they are, and their drivers; of one topology its published tables too."""
    from kappa.record.epochs import epochs_of

    settings = config()
    if topology:
        control.check_name(settings, topology)
    names = [topology] if topology else epochs_of(settings.lake).topologies()
    statuses = [control.status(settings, name, has_tables=topology is not None) for name in names]
    problems = [f"{s.topology} epoch {p.epoch}: {p.problem}" for s in statuses for p in s.epochs if p.problem]
    if json:
        say_json(statuses)
        raise typer.Exit(1 if problems else 0)
    rows = [
        [
            s.topology,
            p.epoch,
            "live" if p.is_live else p.stage,
            p.verdict,
            p.driver.state,
            p.driver.seq,
            p.driver.heartbeat_at and f"{p.driver.heartbeat_at:%H:%M:%S}",
            p.driver.message,
        ]
        for s in statuses
        for p in s.epochs
    ]
    table(rows, ["topology", "epoch", "stage", "verdict", "driver", "slice", "heartbeat", "doing"])
    for one in statuses:
        if one.moving_with:
            say(f"{one.topology} waits to go live together with {rest_of_group(one.moving_with, one.topology)}.")
        if one.moved_with:
            others = rest_of_group(one.moved_with, one.topology)
            say(f"{one.topology} epoch {one.live} went live together with {others}.")
    say(f"{s.topology} epoch {p.epoch}, replayed: {p.outcome}" for s in statuses for p in s.epochs if p.outcome)
    say(
        f"{s.topology} epoch {p.epoch}: {p.event_time}{_late(p.rows_late)}"
        for s in statuses
        for p in s.epochs
        if p.event_time
    )
    say(
        f"{s.topology} epoch {p.epoch}, {p.last_slice}"
        for s in statuses
        for p in s.epochs
        if p.last_slice and p.is_wanted
    )
    say(
        f"{s.topology} epoch {p.epoch} {'runs' if p.driver.is_running else 'ran'} in "
        f"{_environment(settings.lake, p.driver)}"
        for s in statuses
        for p in s.epochs
        if p.driver.environment and not p.stage.is_ended
    )
    say(f"{s.topology}: {name} is now {own}" for s in statuses for name, own in s.topics.items())
    say(f"{s.topology} epoch {epoch} reads {', '.join(topics)}" for s in statuses for epoch, topics in s.reads.items())
    say(line for s in statuses for line in published.lines(s.topology, s.published or ()))
    if not rows:
        say(f"No epoch on record. Start one: kappa start {topology or '<topology>'} --execute")
    say(f"PROBLEM: {problem}" for problem in problems)
    if problems:
        raise typer.Exit(1)


def lag(topology: Topology, json: Json = False) -> None:
    """Show for each partition how far the live epoch is behind the log, and what open transactions hold back."""
    from kappa import serving
    from kappa.record.ledger import Ledger

    settings = config_of(topology)
    epoch = serving.resolve(settings, topology)
    state = Ledger(EpochPaths(lake=settings.lake, topology=topology, epoch=epoch).ledger).begun()
    rows, others = _lag(settings.bootstrap_servers, state.position, state.commits[0].detail["topic_ids"])
    unknown = sum(row["lag"] is None for row in rows)
    behind, held = (sum(row[name] or 0 for row in rows) for name in ("lag", "held"))
    if json:
        sums = {"lag": None, "held": None} if unknown else {"lag": behind, "held": held}
        answer = {"topology": topology, "epoch": epoch, "partitions": rows, **sums}
        codes = {"recreated": "recreated-topic", "beyond": "stored-vector-beyond-end"}
        say_json(answer | {name: [o.as_dict() for o in others if o.code == code] for name, code in codes.items()})
        return
    names = ["topic", "partition", "committed", "stable end", "high watermark", "lag", "held"]
    table([list(row.values()) for row in rows], names)
    rest = f"{behind:,} offsets behind the stable end"
    say(f"epoch {epoch}: {f'the lag of {unknown} partitions is not known, the rest is {rest}' if unknown else rest}")
    say(str(finding) for finding in others)
    if held:
        say(
            f"{held:,} more offsets wait behind an open transaction of a producer: readers of committed records do not "
            "get them before it ends. Kafka ends an abandoned one after the producer's transaction.timeout.ms."
        )


def diff(
    topology: Topology,
    epoch: Annotated[
        int | None, typer.Argument(help="The candidate; by default the one being built, or the live one.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="Format to write.")] = Format.TEXT,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write to this file, and replace it.", dir_okay=False)
    ] = None,
    json: Json = False,
) -> None:
    """Show how a candidate differs from the live epoch at equal offsets. Exit code 1 when its verdict is failed."""
    from kappa.verify.report import rendered

    settings = config_of(topology)
    report = control.diff(settings, topology, epoch)
    text = rendered(report, Format.JSON if json else format)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_file(output, text, "report")
        say(f"Wrote {output}: {report.verdict}.")
    if report.verdict == "failed":
        raise typer.Exit(1)


def certify(
    topology: Topology,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Recount every commit and file of the live epoch's Delta tables, its changelogs and topics."
        ),
    ] = False,
    epoch: Annotated[int | None, typer.Option(help="With --deep: recount this epoch; by default the live one.")] = None,
    json: Json = False,
) -> None:
    """Prove which offsets the served tables contain, and that exactly one epoch sent each of them."""
    from kappa import serving
    from kappa.kafka.broker import Broker
    from kappa.record.epochs import epochs_of
    from kappa.serving.published_tables import published_tables
    from kappa.verify.recount import recount

    settings = config_of(topology)
    report, certificate = None, None
    if not deep:
        certificate = control.certify(settings, topology)
    else:
        from kappa.verify.topic_recount import recount_topics

        def tell(what: str) -> None:
            typer.echo(f"reading {what}", err=True)

        number = epoch if epoch is not None else serving.resolve(settings, topology)
        epochs_of(settings.lake).record(topology).epoch(number)  # refuses an unknown number
        paths = EpochPaths(lake=settings.lake, topology=topology, epoch=number)
        with Broker(settings.bootstrap_servers) as broker:
            report = recount(paths, tell).with_more(recount_topics(settings, paths, broker, tell))
        try:
            certificate = control.certify(settings, topology)
        except (DamagedTableError, LedgerError):
            if not report.problems:
                raise
            certificate = None  # the ledger cannot be read, or contradicts itself: the recount says so
    if epoch is not None and not deep:
        raise UsageError("--epoch selects the epoch to recount: give it with --deep.")
    served = () if certificate is None else published_tables(settings, topology)
    if json:
        proof = None if certificate is None else json_of(certificate.to_json())
        if report is not None:
            say_json({"certificate": proof, "recount": report, "published": served})
        elif proof is not None:
            say_json({**proof, "published": served})
    elif certificate is not None:
        say(certificate.render())
        say(published.lines(topology, served))
    if report is not None and not json:
        say(f"Read: {what}" for what in report.read)
        say(f"Not read: {what}" for what in report.unread)
        say(f"Noticed: {what}" for what in report.noticed)
        say(f"PROBLEM: {problem}" for problem in report.problems)
        say("" if report.problems else f"Epoch {report.epoch} is as its ledger says.")
    if certificate is None or not certificate.complete or (report is not None and report.problems):
        raise typer.Exit(1)


def history(
    topology: Annotated[str | None, typer.Argument(help="Name of the topology; by default all.")] = None,
    epoch: Annotated[int | None, typer.Option(help="Show only epochs with this number.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Show only what happened from this time on, for example 2026-03-01T00:00:00Z.", metavar="TIME"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show every move and decision on record: who, when, why, offsets, verdict.

    With --json also plans, reports and certificates.
    """
    from kappa.serving.history import vector

    settings, begin = config(), parsed_time(since) if since else None
    if topology:
        control.check_name(settings, topology)
        if epoch is not None:
            control.record(settings, topology).epoch(epoch)
    entries = control.chronicle(settings, topology, epoch=epoch, since=begin)
    if json:
        say_json(entries)
        return
    is_joint = any(e.together for e in entries)  # a column that is shown only when it has values
    table(
        [
            [
                e.n,
                f"{e.at:%Y-%m-%d %H:%M:%S}",
                e.topology,
                e.epoch,
                e.event,
                e.actor,
                e.plan_id,
                e.offsets and vector(e.offsets),
                e.verdict,
                None if e.is_complete is None else "complete" if e.is_complete else "NOT COMPLETE",
                _remark(e),
                *([rest_of_group(e.together, e.topology) or None] if is_joint else []),
            ]
            for e in entries
        ],
        [
            "n",
            "at",
            "topology",
            "epoch",
            "event",
            "actor",
            "plan",
            "offsets",
            "verdict",
            "certificate",
            "reason",
            *(["together with"] if is_joint else []),
        ],
    )
    if not entries:
        say("Nothing on record.")


def path(
    topology: Topology,
    name: Annotated[str, typer.Argument(help="A table, an append output or a topic.")],
    topic: Annotated[
        bool, typer.Option("--topic", help="Print the topic, where a table or output has the same name.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the present path of the live epoch's own Delta table, or the topic that the live epoch sends to.

    Another epoch has another path: a reader that keeps a path takes that of `kappa tables`, which never changes. The
    table of the epoch is at most KAPPA_MERGE_SECONDS behind `kappa query`, since the changes of small slices are
    merged into it together. Once the stream stands still it has everything. With --json the output also has the slice
    that the table has reached, `merged`, at the given Delta version.

    For a topic, --json also shows its turns: which epoch's topic holds the records for readers, and in which range.
    """
    from kappa import serving
    from kappa.record.epochs import epochs_of

    settings = config_of(topology)
    snapshot = serving.snapshot(settings, topology)
    if topic or not snapshot.has(name):
        # A name that is neither is refused with the list of tables, which is the longer one; with --topic, with that of
        # topics.
        if not topic and name not in epochs_of(settings.lake).record(topology).epoch(snapshot.epoch).sends_to:
            snapshot.place(name)
        topic_name = serving.topic(settings, topology, name)
        turns = serving.turns(settings, topology, name)
        say_json({"topic": topic_name, "epoch": snapshot.epoch, "turns": turns}) if json else say(topic_name)
        return
    place, version = snapshot.place(name)
    if json:
        say_json(
            {
                "path": place,
                "delta_version": version,
                "epoch": snapshot.epoch,
                "seq": snapshot.seq,
                "merged": snapshot.merged(name),
            }
        )
    else:
        say(place)


def _remark(entry: Entry) -> str:
    """The reason and the outcome."""
    parts = [
        entry.reason or entry.outcome,
        *(f"({more})" for more in (entry.reconciled, entry.interval, entry.set_aside, entry.environment) if more),
    ]
    return " ".join(filter(None, parts))


def _environment(lake: str, driver: DriverStatus) -> str:
    paths = EpochPaths(lake=lake, topology=driver.topology, epoch=driver.epoch)
    return files.described(paths, driver.environment, driver.instead_of)


def _late(rows: int) -> str:
    return f", {rows:,} late records" if rows else ""


def _lag(
    bootstrap_servers: str, position: Offsets, topic_ids: Mapping[str, str]
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Each partition, and why some have no lag: their topic was recreated since it was read, or ends before that."""
    from kappa.kafka.broker import Broker
    from kappa.slices.places import recorded

    with Broker(bootstrap_servers) as broker:
        with recorded(topic_ids):
            stable, high = broker.stable_offsets(position.topics), broker.high_watermarks(position.topics)
        findings = recreated_topics(topic_ids, broker.topic_ids(position.topics), "the epoch")
    others = {finding.numbers["topic"] for finding in findings}
    findings += vector_beyond_log(position.only({*position.topics} - others), high, "the epoch")
    beyond = {(finding.numbers["topic"], finding.numbers.get("partition")) for finding in findings}
    return [
        {
            "topic": topic,
            "partition": partition,
            "committed": position.get(topic, partition) or 0,
            "stable_end": end,
            "high_watermark": high.get(topic, partition),
            "lag": None if is_other else end - (position.get(topic, partition) or 0),
            "held": None if is_other else (high.get(topic, partition) or end) - end,
        }
        for (topic, partition), end in stable.items()
        for is_other in (topic in others or (topic, partition) in beyond,)
    ], findings
