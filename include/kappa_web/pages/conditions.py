"""The states of topologies and epochs, as a word, a sentence and a colour. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kappa.control.overview import percent
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.events import Event
from kappa.replay.stages import Stage
from kappa_web.pages.board import BoardFacts


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A state.

    Attributes:
        word: its name.
        kind: its colour: ``good``, ``busy``, ``warn``, ``bad`` or ``off``.
        detail: a sentence; empty if the word is enough.
    """

    word: str
    kind: str
    detail: str = ""


#: State of a driver that should run -> word and colour.
_DRIVERS = {
    "running": ("running", "good"),
    "slow": ("slow", "warn"),
    "stuck": ("stuck", "bad"),
    "dead": ("driver died", "bad"),
    "stopped": ("stopped", "warn"),
    "never": ("not started", "warn"),
    "unconfirmed": ("unconfirmed", "off"),
    "unreadable": ("not readable", "warn"),
}
_VERDICTS = {"same": "good", "differs": "warn", "failed": "bad"}


def verdict(word: str | None) -> Condition | None:
    """The condition of a verification."""
    return None if word is None else Condition(word=word, kind=_VERDICTS.get(word, "off"))


def role(record: TopologyRecord, epoch: EpochRecord) -> Condition:
    """The role of an epoch in its topology."""
    if epoch.epoch == record.live:
        return Condition(word="live", kind="good")
    if epoch.stage.is_ended:
        return Condition(word=epoch.stage.lower(), kind="off")
    if epoch.rejected is not None:
        return Condition(word="rejected", kind="off")
    if epoch.is_recalled:
        return Condition(word="coming back", kind="busy")
    if epoch.stage is Stage.RETIRED:
        return Condition(word="retired", kind="off")
    return Condition(word="candidate", kind="busy")


def driver(facts: BoardFacts) -> Condition:
    """The driver of an epoch."""
    if facts.problem:
        return Condition(word="not readable", kind="bad", detail=facts.problem)
    if not facts.epoch.is_wanted and not facts.driver.is_running:
        return Condition(word="stopped" if facts.driver.state != "never" else "not started", kind="off")
    word, kind = _DRIVERS.get(facts.driver.state, (facts.driver.state, "off"))
    return Condition(word=word, kind=kind, detail=facts.driver.message)


def of_topology(live: BoardFacts | None, candidate: BoardFacts | None) -> Condition:
    """The condition of a topology: that of its live epoch, or of its first one while that is built."""
    if live is not None:
        return driver(live)
    if candidate is not None:
        condition = driver(candidate)
        return (
            condition if condition.kind != "good" else Condition(word="starting", kind="busy", detail=condition.detail)
        )
    return Condition(word="nothing live", kind="off")


def owner(live: BoardFacts | None, candidate: BoardFacts | None) -> str:
    """The team or person whom the running code names, as its alerts do; empty for none."""
    facts = live or candidate
    return facts.driver.owner if facts is not None else ""


def progress(facts: BoardFacts) -> str:
    """How far a candidate is, in a few words."""
    epoch = facts.epoch
    if epoch.is_recalled:
        return f"epoch {epoch.epoch} comes back"
    if epoch.stage is Stage.SEEDED and facts.done < facts.total:
        return f"epoch {epoch.epoch} replays, {percent(facts.done, facts.total)} %"
    if epoch.stage in (Stage.VERIFIED, Stage.APPROVED) and epoch.verified is not None:
        word = str(epoch.verified.detail["verdict"])
        return f"epoch {epoch.epoch} {epoch.stage.lower()}: {'the same' if word == 'same' else word}"
    return f"epoch {epoch.epoch} {str(epoch.stage).lower().replace('_', ' ')}"


def attention(
    record: TopologyRecord, live: BoardFacts | None, candidate: BoardFacts | None
) -> Iterable[tuple[str, str, int]]:
    """What a person should look at: a colour, a sentence, and the epoch."""
    for facts in filter(None, (live, candidate)):
        condition = driver(facts)
        if condition.kind in ("bad", "warn") and facts.driver.state != "never":
            whose = "live epoch" if facts is live else "epoch"
            detail = f" {condition.detail.removeprefix(f'{facts.driver.state}: ')}" if condition.detail else ""
            yield (
                condition.kind,
                f"The driver of {whose} {facts.epoch.epoch} {_IS.get(facts.driver.state, 'is down')}.{detail}",
                facts.epoch.epoch,
            )
    verified = candidate.epoch.verified if candidate is not None else None
    if candidate is None or verified is None or candidate.epoch.is_recalled:
        return
    number, stage = candidate.epoch.epoch, candidate.epoch.stage
    if stage is Stage.VERIFIED and record.handover is None:
        advice = _ASKS[str(verified.detail["verdict"])]
        yield verdict_kind(verified), f"Epoch {number} {advice}", number


def verdict_kind(verified: Event) -> str:
    """The colour of an epoch's verdict, by the event ``verified``."""
    return _VERDICTS.get(str(verified.detail["verdict"]), "off")


_IS = {
    "unconfirmed": "cannot be confirmed",
    "unreadable": "has a heartbeat that cannot be read",
    "slow": "is slow",
    "stuck": "is stuck",
    "dead": "died",
    "stopped": "has stopped",
}
_ASKS = {
    "same": "is verified and the same as the live one: cut over, or abort.",
    "differs": "is verified and differs from the live one: read the difference, then cut over or abort.",
    "failed": "failed its verification: read the difference, then abort.",
}
