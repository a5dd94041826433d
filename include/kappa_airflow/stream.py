"""The task that watches a live stream."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from kappa import clock
from kappa_airflow.connections import DEFAULT_SPARK_CONNECTION, config_with_spark
from kappa_airflow.drivers import actor, attach, record

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kappa.config import Config

#: Retries of a watch. Its DAG is scheduled continuously, so that a failed run is followed by the next within seconds:
#: the pauses are here, between the tries of one run, and no error skips them.
WATCH_RETRIES: dict[str, Any] = {
    "retries": 6,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=10),
}


class WatchStream(BaseOperator):
    """Makes sure that the driver of a topology's live epoch runs, and watches it from a trigger for some hours.

    A topology that never ran is started at the beginning of its sources, unless its lake was lost. The watch attaches
    to a driver that runs already, however it was started. A driver that died is restarted, each time after a longer
    pause. A driver that a person stopped (``kappa stop``) stays stopped until a person starts it. After a cutover or
    rollback the watch moves on to the new live epoch. The watch ends on its own, and the next run of a ``@continuous``
    DAG attaches again.

    It never stops a driver: the stream continues when the DAG is paused, the task is cleared or failed, or the worker
    or the triggerer is lost.

    Crash window: none. The watched driver is written to the task's state store before it is started, starting is
    idempotent, and drivers are found through the lake. A stuck driver fails the try, so that alerts fire, and is
    checked again after the retry's pause.

    Args:
        watch_for: how long one run watches.
        spark_conn_id: Airflow connection of the Spark cluster that drivers use.
        poll_seconds: time between two looks.
    """

    ui_color = "#dff0d8"

    def __init__(
        self,
        *,
        topology: str,
        watch_for: timedelta = timedelta(hours=6),
        spark_conn_id: str = DEFAULT_SPARK_CONNECTION,
        poll_seconds: float = 2.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{**WATCH_RETRIES, **kwargs})
        self.topology = topology
        self.watch_for = watch_for
        self.spark_conn_id = spark_conn_id
        self.poll_seconds = poll_seconds

    def execute(self, context: Context) -> None:
        """Attach to the live epoch's driver, starting what is missing, and defer.

        Raises:
            LedgerError: the lake was lost.
            KappaError: the driver cannot be started now.
        """
        until = clock.now() + self.watch_for
        self._watch(context, config_with_spark(self.spark_conn_id), restarts=0, until=until)

    def resume(self, context: Context, event: dict[str, Any], until: str) -> None:
        """Act on the event of the trigger, and defer again unless the watch is over.

        Raises:
            StuckError: the driver waits for a decision.
        """
        from kappa.errors import StuckError

        kind, epoch = event["event"], event["epoch"]
        if kind == "ended":
            self.log.info(
                "This watch is over; the driver of epoch %s continues, and the next run attaches to it.", epoch
            )
            return
        if kind == "stuck":
            raise StuckError(
                f"{self.topology} epoch {epoch} is stuck. {event['message']} Remove the cause and run `kappa start "
                f"{self.topology} --execute`, or replay with other code and cut over.",
                topology=self.topology,
                epoch=epoch,
            )
        restarts = 0
        if kind == "dead":
            restarts = event["restarts"] + 1
            self.log.warning(
                "The driver of epoch %s is dead; request %s in a row for another. %s", epoch, restarts, event["message"]
            )
        elif kind == "moved":
            self.log.info("Epoch %s is live now instead of %s.", event["live"], epoch)
        config = config_with_spark(self.spark_conn_id)
        self._watch(context, config, restarts=restarts, until=datetime.fromisoformat(until))

    def _watch(self, context: Context, config: Config, *, restarts: int, until: datetime) -> None:
        from kappa_airflow.triggers import StreamTrigger

        topology_record = record(config, self.topology)
        # A first epoch that is not live yet counts as the stream: it goes live automatically.
        first = topology_record.candidate.epoch if topology_record.candidate else None
        epoch = topology_record.live if topology_record.live is not None else first
        if epoch is None:
            epoch = self._start(context, config)
        attach(context, config, self.topology, epoch)
        trigger = StreamTrigger(
            topology=self.topology,
            epoch=epoch,
            restarts=restarts,
            until=until.isoformat(),
            poll_seconds=self.poll_seconds,
        )
        self.defer(trigger=trigger, method_name="resume", kwargs={"until": until.isoformat()})

    def _start(self, context: Context, config: Config) -> int:
        from kappa import control
        from kappa.errors import LedgerError, UnknownEpochError

        who, why = actor(context), f"first run, {context['run_id']}"
        try:
            lost = control.rebuild_request(config, self.topology, actor=who, reason=why)
        except UnknownEpochError:
            self.log.info("%s has no epoch yet: starting it at the beginning of its sources.", self.topology)
            return control.start(config, self.topology, actor=who, reason=why)
        # A new first epoch would send everything a second time.
        raise LedgerError(
            f"The lake has no record of {self.topology}, but Kafka has the marker of an epoch that sent: the lake was "
            f"lost, or this is another one. `kappa rebuild {self.topology} --from-changelog --execute` brings it back.",
            topology=self.topology,
            start=lost.start,
        )
