"""Notices to a webhook: pending decisions, and each move of the live pointer.

Each event on record gives one notice, whichever process wrote the event. A file beside the heartbeat has the last event
that the receiver has answered. If a driver dies before that, the next one posts the rest, and the receiver may get a
notice twice, with the same id.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import structlog

from kappa.config import Config
from kappa.errors import KappaError, first_line
from kappa.names import EpochPaths
from kappa.presence.watchdog import Line
from kappa.record.epoch_record import TopologyRecord
from kappa.record.events import Event
from kappa.record.moves import rollbacks
from kappa.replay import stored
from kappa.replay.proof.verdict import DiffReport, Verdict
from kappa.store.stores import store_of

#: The format that this code writes, and the newest one that it reads.
FORMAT = 1
#: Time for each step of a receiver's answer, and for open notices when a driver ends.
TIMEOUT_SECONDS = 5.0
#: First and longest pause between tries; each is twice the one before.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
#: Answers that refuse the notice itself, not the sender or the moment (RFC 9110, RFC 4918).
REFUSALS = frozenset(f"HTTP {status}" for status in (400, 406, 409, 411, 413, 415, 422, 431))
#: How often a notice that is refused is posted before the next one takes its place.
TRIES = 5

log = structlog.get_logger("kappa.monitoring.notices")


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notice in the form that the receiver gets, as JSON.

    Attributes:
        id: the same for each try; a receiver that already has it may drop the notice.
        event: ``STUCK``, ``FAILED``, ``DIFFERS``, ``APPROVAL``, ``CUTOVER``, ``ROLLBACK`` or ``ENVIRONMENT``.
        message: what happened, for people.
        command: the next command; empty where only an answer in Airflow counts.
        at: when it happened, ISO 8601, UTC.
        verdict: verdict of the epoch's verification, if an answer is pending.
        link: the page for the answer.
        owner: the team or person whom the epoch's code names; empty where it names none.
    """

    id: str
    event: str
    topology: str
    epoch: int
    message: str
    command: str
    at: str
    verdict: str = ""
    link: str = ""
    owner: str = ""


def notice_of(event: Event, lake: str, *, owner: str = "", is_rollback: bool = False) -> Notice | None:
    """The notice of an event; None if there is nothing to decide.

    Args:
        event: an event of the record of epochs.
        lake: id of the lake.
        owner: the team or person whom the epoch's code names.
        is_rollback: whether it is a move back to an earlier epoch: :func:`kappa.record.moves.rollbacks`.
    """
    name, epoch = event.topology, event.epoch
    verdict = link = ""
    match event.event:
        case "stuck":
            kind, command = "STUCK", f"kappa start {name} --epoch {epoch} --execute"
            message = f"Stuck at slice {event.detail.get('seq')}: {event.reason}"
        case "verified":
            report = DiffReport.from_json(event.detail["report"])
            if report.verdict is Verdict.SAME:
                return None
            kind, command = report.verdict.upper(), f"kappa diff {name} {epoch}"
            message = f"Differs from epoch {report.live_epoch}, which is live."
            if report.verdict is Verdict.FAILED:
                message = f"{len(report.failures)} of its checks, thresholds and second runs do not hold."
        case "asked":
            kind = "APPROVAL"
            command = "" if event.detail.get("airflow_only") else f"kappa approve {name} {epoch}"
            verdict, link = event.detail["terms"]["verdict"], event.detail["link"]
            message = _question(event)
        case "moved" if event.detail.get("from") is not None:
            kind, command = "CUTOVER", f"kappa rollback {name}"
            if is_rollback:
                kind, command = "ROLLBACK", f"kappa status {name}"
            message = f"Live now, instead of epoch {event.detail['from']}."
        case _:
            return None
    return Notice(
        id=f"{lake}/{name}/{epoch}/{kind}/{event.n}",
        event=kind,
        topology=name,
        epoch=epoch,
        message=message,
        command=command,
        at=event.at.isoformat(),
        verdict=verdict,
        link=link,
        owner=owner,
    )


def _question(event: Event) -> str:
    """The pending approval, in a sentence or two."""
    request = event.detail
    until = f"{datetime.fromisoformat(request['until']):%Y-%m-%d %H:%M} UTC"
    person = f"Approval {request['nth']} of {request['needed']}. " if request["needed"] > 1 else ""
    return (
        f"Waits for approval to replace epoch {request['terms']['live']}, which is live. Verdict: "
        f"{request['terms']['verdict']}. {person}Without an answer by {until} it is rejected."
    )


class Notices:
    """Posts the notices of one epoch from a thread of its own, oldest first, until each is taken.

    One that the receiver refuses for itself several times is logged and skipped: it must not hold back later ones.

    Without ``config.webhook_url`` and ``config.webhook_url_file`` nothing is posted.

    Args:
        owner: the team or person whom the epoch's code names; empty where it names none.
    """

    def __init__(self, config: Config, paths: EpochPaths, owner: str = "") -> None:
        self._config, self._paths, self._owner = config, paths, owner
        self._log = log.bind(topology=paths.topology, epoch=paths.epoch)
        self._last: int | None = None
        self._lake = ""
        self._waiting: list[tuple[int | None, Notice]] = []
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_on = bool(config.webhook_url or config.webhook_url_file)

    def open(self, record: TopologyRecord, lake: str) -> None:
        """Begin after the last event of the bookmark; the first driver begins after the present ones.

        Args:
            record: the record of the topology.
            lake: id of the lake.
        """
        if not self._is_on:
            return
        try:
            last = self._bookmark()
            self._lake = lake
            self._last = last if last is not None else max((event.n for event in record.events), default=0)
            if last is None:
                self._set_bookmark(self._last)
        except Exception as error:  # a bookmark of whatever content: notices end no driver
            self._is_on = False
            self._log.error("no notices", error=f"{type(error).__name__}: {error}")
            return
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._thread.start()

    def look(self, record: TopologyRecord) -> None:
        """Queue the new events of the epoch, out of the record of the topology."""
        if self._thread is None or self._last is None:
            return
        events = record.events  # with those of the past: only where somebody gets the notices
        if not events or events[-1].n <= self._last:
            return
        new = [event for event in events if event.n > self._last]
        self._last = new[-1].n
        back = rollbacks(events)
        notices = [
            (e.n, notice_of(e, self._lake, owner=self._owner, is_rollback=e.n in back))
            for e in new
            if e.epoch == self._paths.epoch
        ]
        self._add([(n, notice) for n, notice in notices if notice is not None])

    def hangs(self, line: Line, seq: int, at: str) -> None:
        """Queue a notice that a line of the driver takes too long, which is not on record."""
        if line.level == "stuck":
            self._queue("STUCK", f"{seq}/{line.name}/{at}", line.message, at)

    def strays(self, description: str, environment: str, at: str) -> None:
        """Queue a notice that the epoch runs in another environment than its own, which is not an event.

        Args:
            description: both environments, and how they differ.
            environment: id of the one in which it runs.
            at: since when.
        """
        self._queue("ENVIRONMENT", environment[:12], f"Runs in {description}.", at)

    def _queue(self, event: str, own_id: str, message: str, at: str) -> None:
        """Queue a notice of what is not on record, where there is a receiver."""
        if self._thread is None:
            return
        name, epoch = self._paths.topology, self._paths.epoch
        notice = Notice(
            id=f"{self._lake}/{name}/{epoch}/{event}/{own_id}",
            event=event,
            topology=name,
            epoch=epoch,
            message=message,
            command=f"kappa status {name}",
            at=at,
            owner=self._owner,
        )
        self._add([(None, notice)])

    def close(self) -> None:
        """Wait a little for notices on their way; the next driver posts the rest."""
        if self._thread is None:
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, TIMEOUT_SECONDS)
            rest = [notice.id for _, notice in self._waiting]
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(TIMEOUT_SECONDS)
        if rest:
            self._log.error("notices left", ids=rest)

    def _add(self, notices: Sequence[tuple[int | None, Notice]]) -> None:
        if notices:
            with self._changed:
                self._waiting.extend(notices)
                self._changed.notify_all()

    def _run(self) -> None:
        pause, refusals, skipped = FIRST_PAUSE_SECONDS, 0, 0
        while not self._closing.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing.is_set())
                if self._closing.is_set():
                    return
                n, notice = self._waiting[0]
            refused = self._post(notice)
            refusals = refusals + 1 if refused in REFUSALS else 0
            if refusals == TRIES:
                skipped += 1
                self._log.error("notice skipped", id=notice.id, error=refused, tries=TRIES, skipped=skipped)
            elif refused:
                self._log.warning("notice not taken", id=notice.id, error=refused, pause_seconds=pause)
                self._closing.wait(pause)
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
                continue
            else:
                self._log.info("notice", id=notice.id, event_kind=notice.event)
            pause, refusals = FIRST_PAUSE_SECONDS, 0
            self._done(n)

    def _done(self, n: int | None) -> None:
        if n is not None:
            try:
                self._set_bookmark(n)
            except (OSError, KappaError) as error:  # the epoch was removed meanwhile, for example
                self._log.warning("notice told, not kept", error=f"{type(error).__name__}: {first_line(error)}")
        with self._changed:
            self._waiting.pop(0)
            self._changed.notify_all()

    def _post(self, notice: Notice) -> str:
        """Why the receiver did not accept it; empty if it did. The URL is a secret, so no message contains it."""
        import httpx2

        try:
            url = self._url()
            headers = {"Idempotency-Key": notice.id}
            with httpx2.stream("POST", url, json=asdict(notice), headers=headers, timeout=TIMEOUT_SECONDS) as answer:
                return "" if answer.is_success else f"HTTP {answer.status_code}"
        except Exception as error:  # also a malformed URL, and a missing file
            return type(error).__name__

    def _url(self) -> str:
        """The URL; a file with it is read each time, so that it may be replaced."""
        if self._config.webhook_url_file:
            return Path(self._config.webhook_url_file).read_text().strip()
        return self._config.webhook_url

    def _bookmark(self) -> int | None:
        """Number of the last event whose notice was answered; None before the first driver."""
        content = store_of(self._paths.notices).get(self._paths.notices)
        if content is None:
            return None
        values = json.loads(content)
        stored.check_format(values.get("format"), FORMAT, what="file of notices", where=self._paths.notices)
        return int(values["told"])

    def _set_bookmark(self, n: int) -> None:
        path = self._paths.notices
        store_of(path).put(path, json.dumps({"format": FORMAT, "told": n}).encode())
