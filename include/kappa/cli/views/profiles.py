"""The command that shows where the time of slices goes."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.cli.options import Json, Topology, config_of, say, say_json, table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(profile)


def profile(
    topology: Topology,
    epoch: Annotated[
        int | None, typer.Argument(help="The epoch; by default the one being built, or the live one.")
    ] = None,
    slices: Annotated[
        int, typer.Option("--slices", min=1, max=10_000, help="Show at most this many of the last slices.")
    ] = 100,
    json: Json = False,
) -> None:
    """Show where the time of the last slices went, by line of the protocol.

    effects: records are read and parsed, the step is computed, its rows are written. send: the Kafka transaction.
    apply: changes are merged into tables. commit: the slice is put on record. between: from the previous commit to the
    plan; a live stream waits for records here.
    """
    from kappa.control.profile import profile as profile_of

    settings = config_of(topology)
    profile = profile_of(settings, topology, epoch, slices=slices)
    if json:
        say_json(profile)
        return
    if not profile.slices:
        say(
            f"No slice of {topology} epoch {profile.epoch} on record was timed. Drivers time the slices that they "
            f"make: kappa status {topology}"
        )
        return
    first, last = profile.slices[0], profile.slices[-1]
    rate = f", {profile.records_per_second:,.0f} records/s" if profile.records_per_second else ""
    records = sum(one.records for one in profile.slices)
    say(f"{topology} epoch {profile.epoch}, slices {first.seq} to {last.seq}: {records:,} records{rate}")
    table(
        [
            [
                line,
                f"{times.middle:.3f}",
                f"{times.high:.3f}",
                "-" if line == "between" else f"{100 * times.share:.0f} %",
            ]
            for line, times in profile.lines.items()
        ],
        ["line", "p50, s", "p95, s", "share"],
    )
