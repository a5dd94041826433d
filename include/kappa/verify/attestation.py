"""The markers of an epoch on the broker, checked against its ledger in the lake.

A marker vouches for a slice by number, end and the hash of its plan. A lake that was put back from a copy, or that lost
its last commits, has fewer slices than were sent, and would give their numbers to others: nothing may be sent from it.
"""

from __future__ import annotations

from dataclasses import replace

from kappa.config import Config
from kappa.delta import tables
from kappa.errors import DisagreementError, KappaError
from kappa.kafka import markers
from kappa.kafka.broker import Broker
from kappa.kafka.markers import Marker
from kappa.names import EpochPaths
from kappa.offsets.vector import ranges_end
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow, plan_hash
from kappa.record.ledger_state import LedgerState, begun
from kappa.replay.findings import Finding
from kappa.replay.proof.certificate import Certificate
from kappa.replay.rules.log import recreated_topics
from kappa.slices.topics.turns import last_live_marker


def way_out(topology: str) -> str:
    """The way out where broker and lake have different slices, for people."""
    return (
        "put the newest copy of the lake back, or go on from the broker's last marker with an empty lake: "
        f"KAPPA_LAKE=<new folder> kappa rebuild {topology} --from-changelog --execute (append outputs begin anew)"
    )


def unknown_to_ledger(marker: Marker | None, state: LedgerState) -> str:
    """The claim of a marker that is not in the ledger, in words; empty where the ledger explains the marker.

    A state that is newer than the marker explains it too.
    """
    if marker is None:
        return ""
    plan = state.open_plan
    if plan is not None and plan.seq == marker.seq and marker.plan is not None:
        return _other_plan(marker, plan)
    commit = next((row for row in reversed(state.commits) if row.seq <= marker.seq), None)
    if commit is None or marker.seq > state.seq:
        return f"its last marker is of slice {marker.seq}, the ledger's last slice is {state.seq}"
    if marker.plan is None:  # of a baseline, or of going live: no slice comes with it
        end = ranges_end(commit.ranges)
        is_there = marker.end == end
        difference = f"its marker of slice {marker.seq} is at {marker.end.to_json()}, the ledger at {end.to_json()}"
        return "" if is_there else difference
    if commit.seq != marker.seq:
        return f"its last marker is of slice {marker.seq}, which the ledger abandoned"
    return _other_plan(marker, commit)


def unknown_to_broker(marker: Marker | None, state: LedgerState) -> str:
    """The slice that was sent by the ledger and has no marker, in words; empty where the marker is at least as far.

    The marker must be newer than the state.
    """
    committed = state.committed
    vouched = committed.seq if committed is not None and committed.logged else state.baseline_seq
    if vouched is None or (marker is not None and marker.seq >= vouched):
        return ""
    last = "there is no marker" if marker is None else f"the last marker is of slice {marker.seq}"
    return f"the ledger says that slice {vouched} was sent, {last}"


def check(epoch: EpochPaths, marker: Marker | None, state: LedgerState, *, is_settled: bool) -> None:
    """Raise unless the broker and an epoch's ledger have the same slices.

    Args:
        marker: its last marker.
        state: the state of its ledger.
        is_settled: whether the marker of every transaction that ended is readable: its writer is fenced.

    Raises:
        DisagreementError: one of them is older than the other.
    """
    ahead = unknown_to_ledger(marker, state)
    behind = unknown_to_broker(marker, state) if is_settled else ""
    if ahead or behind:
        older = "lake is older than the broker" if ahead else "broker is older than the lake"
        raise DisagreementError(
            f"The {older}: of epoch {epoch.epoch} {ahead or behind}. Nothing is sent. Way out: "
            f"{way_out(epoch.topology)}",
            seq=state.seq,
            marker=None if marker is None else marker.seq,
        )


def check_tables(epoch: EpochPaths, state: LedgerState) -> None:
    """Raise unless an epoch's Delta tables agree with its ledger, by their newest versions and slices.

    Raises:
        DisagreementError: a table lacks versions that the ledger names, or holds slices that are not in it.
    """
    rows = [row for row in (state.committed, state.open_effects) if row is not None]
    for place, version in {place: v for row in rows for place, v in row.delta_versions.items()}.items():
        path = epoch.place(place)
        newest, seq = tables.merged(path) if tables.exists(path) else (-1, None)
        if newest < version:
            disagreement = (
                f"table is older than the ledger: {path} is at version {newest}, slice {state.seq} names version "
                f"{version}"
            )
        elif seq is not None and seq > state.seq:
            disagreement = (
                f"ledger is older than its tables: {path} holds slice {seq}, the ledger's last slice is {state.seq}"
            )
        else:
            continue
        raise DisagreementError(
            f"The {disagreement}. Nothing is sent. Way out: {way_out(epoch.topology)}", path=path, seq=state.seq
        )


def check_others(config: Config, broker: Broker, record: TopologyRecord, state: LedgerState) -> None:
    """Raise where another epoch sent beyond the live one's position, or went live after it: the record of epochs is
    older than the broker.

    Args:
        state: the state of the live epoch's ledger.

    Raises:
        DisagreementError: one did; the record would let the live epoch send the same again.
    """
    act = _later(config, broker, record, state)
    if act:
        raise DisagreementError(
            f"The lake is older than the broker: {act}. Nothing is sent. Way out: {way_out(record.topology)}",
            live=record.live,
        )


def attested(certificate: Certificate, config: Config, topology: str) -> Certificate:
    """A certificate with the broker's word on the live epoch: it is complete only where they agree.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    record = epochs_of(config.lake).record(topology)
    if record.live is None:
        return certificate  # the first epoch, about to go live: nothing was ever sent
    paths = EpochPaths(lake=config.lake, topology=topology, epoch=record.live)
    with Broker(config.bootstrap_servers) as broker:
        statement, problems = _attestation(config, broker, record, paths)
    if problems:
        return replace(certificate, complete=False, problems=(*certificate.problems, *problems))
    return replace(certificate, attested=statement)


def attested_if_reachable(certificate: Certificate, config: Config, topology: str) -> Certificate:
    """As :func:`attested`; where Kafka does not answer the certificate says so, and is not complete."""
    try:
        return attested(certificate, config, topology)
    except KappaError as error:
        problem = f"Kafka was not asked whether it has what the ledgers say: {error}"
        return replace(certificate, complete=False, problems=(*certificate.problems, problem))


def _attestation(config: Config, broker: Broker, record: TopologyRecord, paths: EpochPaths) -> tuple[str, list[str]]:
    """The broker's statement, and its problems. The stream goes on: a marker is read before and after."""
    before = markers.read(broker, paths)
    state = Ledger(paths.ledger).state()
    missing = unknown_to_broker(markers.read(broker, paths), state)
    if missing:  # Kafka writes the end of a transaction after it has answered
        broker.settled_ends([paths.markers] if broker.has_topic(paths.markers) else [])
        missing = unknown_to_broker(markers.read(broker, paths), state)
    problems = [
        f"The {older}: of epoch {paths.epoch} {difference}. Way out: {way_out(paths.topology)}"
        for older, difference in (
            ("lake is older than the broker", unknown_to_ledger(before, state)),
            ("broker is older than the lake", missing),
        )
        if difference
    ]
    later = _later(config, broker, record, state)
    if later and epochs_of(config.lake).record(record.topology).live == record.live:  # no cutover came in between
        problems.append(f"The lake is older than the broker: {later}. Way out: {way_out(paths.topology)}")
    problems += [str(finding) for finding in _recreated(broker, state)]
    if before is None:
        return f"epoch {paths.epoch} has no marker yet, and its ledger has sent nothing", problems
    return f"the last marker of epoch {paths.epoch} is of slice {before.seq}, as its ledger says", problems


def _recreated(broker: Broker, state: LedgerState) -> list[Finding]:
    """Sources whose topic is another one than the epoch read; a missing topic is not a problem of the past."""
    ids: dict[str, str] = state.commits[0].detail.get("topic_ids", {}) if state.commits else {}
    return recreated_topics(ids, broker.topic_ids(set(ids) & set(broker.topics())), "the epoch")


def _later(config: Config, broker: Broker, record: TopologyRecord, state: LedgerState) -> str:
    """The act of another epoch after the live one, by its marker, in words; empty where there is none."""
    last = last_live_marker(config, broker, record.topology)
    if last is None or last[0] == record.live:
        return ""
    epoch, marker = last
    standing = begun(state).standing
    theirs = marker.standing.only(set(marker.standing.topics) & set(standing.topics))
    live = f"and the record says that epoch {record.live} is live, which has read up to {standing.to_json()}"
    if not standing.dominates(theirs):
        return f"epoch {epoch} has sent up to {theirs.to_json()}, {live}"
    # An epoch that has yielded is about to begin a turn of its own. One that sends has yielded before another begins.
    if marker.turn and not state.is_yielded:
        return f"epoch {epoch} went live last, at {theirs.to_json()}, {live}"
    return ""


def _other_plan(marker: Marker, row: LedgerRow) -> str:
    if marker.plan == plan_hash(row):
        return ""
    return (
        f"its last marker closes slice {marker.seq} at {marker.end.to_json()}, by the ledger that slice ends at "
        f"{ranges_end(row.ranges).to_json()} (plan {marker.plan}, not {plan_hash(row)})"
    )
