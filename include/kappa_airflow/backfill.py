"""The task of ``backfill__*``: it computes an interval of the live epoch's append outputs again and replaces it.

Safe to clear.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kappa.errors import UsageError
from kappa.offsets.notation import local_time
from kappa_airflow.drivers import actor, terminal_errors_fail
from kappa_airflow.forms import lines_of
from kappa_airflow.tasks import TopologyTask, filled_form, reason_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import Context

#: Longest silence in the task's log.
SAYS_EVERY_SECONDS = 10.0


class BackfillInterval(TopologyTask):
    """Computes the run's data interval again beside the live stream, and lets the live epoch's driver replace its rows.

    If the form names a zone, the interval is that of the local days with the same dates.

    Idempotent: after a crash it continues with what it has computed. A cleared task computes the interval again and
    replaces the same rows.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Return what was replaced: ``epoch``, ``seq``, and for each output ``rows``, ``before`` and ``same``.

        Raises:
            AirflowFailException: a finding refuses it, or the live epoch has changed meanwhile.
        """
        from kappa.control.backfills import backfill, backfill_plan
        from kappa.spark.session import LazySession

        begin, end = _interval(context)
        with (
            terminal_errors_fail(),
            saying(self.log.info) as say,
            LazySession(config=self._config(), name=f"kappa backfill {self.topology}") as spark,
        ):
            form = filled_form(context)
            if zone := (form.get("zone") or "").strip():
                begin, end = local_days(begin, end, zone)
            outputs = lines_of(form, "outputs")
            proposal = backfill_plan.propose(spark.config, spark, self.topology, begin, end, outputs)
            for line in proposal.render():
                tell = self.log.warning if line.strip().startswith(("warning", "REFUSED")) else self.log.info
                tell("%s", line)
            if proposal.refusals:
                raise AirflowFailException(
                    f"The backfill of {self.topology} is refused; nothing was changed. "
                    f"{' '.join(map(str, proposal.refusals))}"
                )
            computed = backfill.compute(spark.config, spark, proposal, say)
            for line in computed.render():
                self.log.info("%s", line)
            request = backfill.request(
                spark.config, proposal, computed, actor=actor(context), reason=reason_in(context)
            )
            replacement = backfill.await_replaced(spark.config, request, progress=say)
        for line in backfill.summary(replacement):
            self.log.info("%s", line)
        replaced = {
            name: {key: each[key] for key in ("rows", "before", "same")}
            for name, each in replacement.detail["outputs"].items()
        }
        return {"epoch": replacement.epoch, "seq": replacement.detail["seq"], "outputs": replaced}


@contextmanager
def saying(log: Callable[..., None]) -> Iterator[Callable[[str], None]]:
    """A function that logs the present work; its last message is repeated while there is no other.

    Args:
        log: logs a message.
    """
    doing, is_over, lock = ["starting"], threading.Event(), threading.Lock()

    def say(message: str) -> None:
        with lock:
            doing[0] = message
        log("%s", message)

    def repeat() -> None:
        while not is_over.wait(SAYS_EVERY_SECONDS):
            with lock:
                message = doing[0]
            log("%s ...", message)

    thread = threading.Thread(target=repeat, name="progress", daemon=True)
    thread.start()
    try:
        yield say
    finally:
        is_over.set()
        thread.join()


def local_days(begin: datetime, end: datetime, zone: str) -> tuple[datetime, datetime]:
    """The interval of a zone's local days that have the dates of these days in UTC.

    Args:
        begin: the beginning of a day in UTC.
        end: another one.
        zone: name of the zone.

    Raises:
        UsageError: the zone does not exist, or the times are not midnights.
    """
    midnights = (begin.astimezone(UTC), end.astimezone(UTC))
    if any(at.time() != time() for at in midnights):
        raise UsageError(
            f"The run covers {begin.isoformat()} to {end.isoformat()}, which are not whole days, and its form names "
            f"zone {zone!r}. Omit the zone, or create runs of days: airflow backfill create."
        )
    first, last = (local_time(f"{at:%Y-%m-%d}", zone) for at in midnights)
    return first, last


def _interval(context: Context) -> tuple[datetime, datetime]:
    """The data interval of a run.

    Raises:
        AirflowFailException: the run has none.
    """
    begin, end = context.get("data_interval_start"), context.get("data_interval_end")
    if not isinstance(begin, datetime) or not isinstance(end, datetime) or begin >= end:
        raise AirflowFailException(
            "The run has no data interval. Create it with: airflow backfill create --dag-id "
            f"{context['dag'].dag_id} --from-date FIRST --to-date LAST"
        )
    # Airflow's times have a class of their own, whose differences cannot be divided by a timedelta.
    return datetime.fromisoformat(begin.isoformat()), datetime.fromisoformat(end.isoformat())
