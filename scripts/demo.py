"""The demonstration: the code of a running stream changes from v1 to v2, through Airflow, on real engines.

``make demo`` leaves everything running until Ctrl-C; ``make demo EXIT=1`` stops by itself. Exit code 0 means that every
proof at the end held; each is computed from outside, by means that share nothing with what they check.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from threading import Event, Thread
from typing import Any

from demo_proofs import SOURCE, TOPOLOGY, Reader, proofs

from kappa import control, serving
from kappa.config import Config
from kappa.driver.processes import host
from kappa.errors import KappaError, Transient
from kappa.kafka.broker import Broker
from kappa.record.epochs import epochs_of
from kappa.replay.explain import explain
from kappa.replay.plan import ReplayPlan
from kappa.replay.stages import Stage
from kappa_local import airflow, kafka, supervisor
from kappa_local.generators import generator

ROOT = Path(__file__).resolve().parents[1]
BAD_SHARE = 0.002
DEADLINE_SECONDS = 900.0
RUN = "version-2"


def main() -> int:
    """Run the demonstration; 0 when all proofs held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exit", action="store_true", help="stop everything at the end")
    parser.add_argument("--records", type=int, default=200_000, help="invoices before the stream starts")
    parser.add_argument("--rate", type=float, default=200.0, help="invoices a second while it runs")
    arguments = parser.parse_args()
    home = Path(os.environ.get("KAPPA_HOME", ROOT / ".kappa" / "demo")).absolute()
    clear(home)
    (home / "topologies").mkdir(parents=True)
    environ = {
        "KAPPA_HOME": str(home),
        "KAPPA_TOPOLOGIES": str(home / "topologies"),
        "KAPPA_BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka.free_port()}",
    }
    os.environ.update(environ)
    config = Config.from_env()
    try:
        passed = show(config, arguments)
        if not arguments.exit:
            print(
                "\nEverything stays up. Look around, for example:\n"
                f"  export KAPPA_HOME={home} KAPPA_TOPOLOGIES={home / 'topologies'}\n"
                f"  .venv/bin/kappa status\n  .venv/bin/kappa query {TOPOLOGY} rewards --limit 5\nCtrl-C ends it."
            )
            while True:
                time.sleep(1)
    except KeyboardInterrupt:
        passed = True
    finally:
        headline("Stopping")
        stop(config)
    return 0 if passed else 1


def show(config: Config, arguments: argparse.Namespace) -> bool:
    """Everything up to the proofs; whether all of them held."""
    deploy(config, "versions/retail_loyalty_v1.py")
    headline("1  Kafka and Airflow, on this machine")
    stack = supervisor.up(config, api_port=kafka.free_port(), say=print)
    config = Config.from_env()
    print(
        f"Kafka {stack.bootstrap_servers} · Airflow {stack.url} (user {stack.user}, password "
        f"{stack.password or stack.password_file})"
    )
    call = api(config, stack.api_port or 0)

    headline(f"2  {arguments.records:,} invoices, and the live stream, version 1")
    delivery = generator.produce(config, "retail", records=arguments.records, bad_share=BAD_SHARE, out_of_order=0.02)
    print(f"{delivery.records:,} delivered in {delivery.seconds:.1f} s, {delivery.bad} of them bad on purpose")
    until("Airflow lists the DAGs", lambda: call("GET", f"/dags/stream__{TOPOLOGY}"))
    until("the stream's DAG runs", lambda: call("PATCH", f"/dags/stream__{TOPOLOGY}", {"is_paused": False}))
    first = until("epoch 1 is live", lambda: epochs_of(config.lake).record(TOPOLOGY).live)
    await_caught_up(config, first)
    stopping = Event()
    reader = Reader(config)
    threads = [
        arriving := Watched(lambda: arrive(config, arguments.rate, stopping)),
        reading := Watched(lambda: reader.run(stopping)),
    ]
    for thread in threads:
        thread.start()
    try:
        headline("3  New code: version 2 adds every customer's balance. The replay, through Airflow")
        deploy(config, "retail_loyalty.py")
        second = replay(config, call, stack.url or "")
        headline("4  Rolled back, and forward again")
        for target in (first, second):
            epoch = control.rollback(config, TOPOLOGY, actor="demo", reason="to show the way back")
            assert epoch == target, (epoch, target)
            follow(config, epoch, lambda p: p.is_live or p.is_caught_up)
            control.cut_over(config, TOPOLOGY, epoch, actor="demo", reason="to show the way back")
            follow(config, epoch, lambda p: p.is_live)
            print(f"epoch {epoch} is live")
    finally:
        stopping.set()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
    await_caught_up(config, second)
    headline("5  What happened")
    for event in control.history(config, TOPOLOGY):
        byline = ": ".join(filter(None, (event.actor, event.reason)))  # what a driver does by itself has no reason
        print(f"{event.at:%H:%M:%S}  epoch {event.epoch}  {event.event:<10} {byline}")
    reader.complaints += unproved(reading, "the reader") + unproved(arriving, "the arrival of invoices")
    headline("6  Proofs")
    return proofs(config, reader)


def replay(config: Config, call: Callable[..., Any], url: str) -> int:
    """Trigger the replay's DAG, show each stage as it happens, answer what it asks; the new epoch."""
    run = until("the replay's DAG runs", lambda: triggered(call))
    print(f"DAG replay__{TOPOLOGY}, run {run['dag_run_id']}")
    candidate = until("the plan is on record", lambda: epochs_of(config.lake).record(TOPOLOGY).candidate)
    print("\n".join(explain(ReplayPlan.from_json(candidate.planned.detail["plan"]))))
    follow(config, candidate.epoch, lambda p: p.stage is Stage.VERIFIED)
    path = f"/dags/replay__{TOPOLOGY}/dagRuns/{run['dag_run_id']}"
    details = until("the approval is asked for", lambda: question(call, path))
    print(
        f"\nAirflow asks: {details['subject']}\n{details['body']}\nThe report: "
        f"{url}/kappa/topologies/{TOPOLOGY}/{candidate.epoch}"
    )
    stage = until("the answer is taken", lambda: approved(config, call, path, candidate.epoch))
    print(f"The answer is taken: epoch {candidate.epoch} is {stage}\n")
    follow(config, candidate.epoch, lambda p: p.is_live)
    print("\n".join(control.diff(config, TOPOLOGY, candidate.epoch).render()))
    print("\n".join(control.certify(config, TOPOLOGY).render()))
    state = until(
        "the DAG run ends", lambda: (run_state := call("GET", path)["state"]) in ("success", "failed") and run_state
    )
    tasks = call("GET", f"{path}/taskInstances")["task_instances"]
    print("DAG run: " + state + " (" + ", ".join(f"{task['task_id']} {task['state']}" for task in tasks) + ")")
    if state != "success":
        raise KappaError("The replay's DAG run did not succeed.")
    return int(candidate.epoch)


def triggered(call: Callable[..., Any]) -> Any:
    """The DAG run of the replay: a new one, or the one that is there where Airflow's answer did not come in time."""
    path = f"/dags/replay__{TOPOLOGY}/dagRuns"
    try:
        body = {"dag_run_id": RUN, "logical_date": None, "conf": {"reason": "version 2: balances"}}
        return call("POST", path, body)
    except Transient as error:
        if error.data.get("status") != HTTPStatus.CONFLICT:
            raise
        return call("GET", f"{path}/{RUN}")


def question(call: Callable[..., Any], run: str) -> Any:
    """What the task ``approve`` of a DAG run asks and waits for; None if it does not."""
    path = f"{run}/taskInstances/approve"
    if call("GET", path)["state"] != "awaiting_input":
        return None
    details = call("GET", f"{path}/-1/hitlDetails")
    return None if details["response_received"] else details


def approved(config: Config, call: Callable[..., Any], run: str, epoch: int) -> Stage | None:
    """Approve what a DAG run asks; the stage of the epoch once the approval is on record.

    An answer can be lost: Airflow takes a task for failed that was answered before its scheduler saw it park, and the
    task asks again. docs/airflow.md has more.
    """
    stage = control.progress(config, TOPOLOGY, epoch).stage
    if stage is not Stage.VERIFIED:
        return stage
    if question(call, run) is not None:
        time.sleep(5)  # as long as a person takes to click
        call(
            "PATCH", f"{run}/taskInstances/approve/-1/hitlDetails", {"chosen_options": ["Approve"], "params_input": {}}
        )
        print("Answered: Approve", flush=True)
    return None


class Watched(Thread):
    """A thread that keeps the error with which it ended: what it was to prove is then not proved."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.errors: list[BaseException] = []

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.errors.append(error)


def unproved(thread: Watched, name: str) -> list[str]:
    """Objections to a proof that rests on a thread: it ended by an error, or did not end."""
    return [f"{name} ended: {error!r}" for error in thread.errors] + [f"{name} did not end"] * thread.is_alive()


def arrive(config: Config, rate: float, stopping: Event) -> None:
    """New invoices, all the while."""
    while not stopping.is_set():
        generator.produce(config, "retail", records=int(rate), rate=rate, bad_share=BAD_SHARE, out_of_order=0.02)


def await_caught_up(config: Config, epoch: int) -> None:
    """Wait until an epoch has committed all that is in the topic now."""
    with Broker(config.bootstrap_servers) as broker:
        end = broker.stable_offsets([SOURCE])

    def is_there() -> bool:
        try:
            return serving.snapshot(config, TOPOLOGY, epoch=epoch).position.dominates(end)
        except KappaError:
            return False

    follow(config, epoch, lambda p: p.is_live and is_there())


def follow(config: Config, epoch: int, condition: Callable[[control.Progress], bool]) -> None:
    """Print an epoch's progress, as it changes, until a condition holds."""
    shown, deadline = "", time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        progress = control.progress(config, TOPOLOGY, epoch)
        line = f"epoch {epoch}  {progress.stage:<10} {progress.driver.message}"
        if line != shown:
            shown = line
            rate = f"  {progress.records_per_second:,.0f} records/s" if progress.records_per_second else ""
            print(f"  {time.strftime('%H:%M:%S')}  {line}{rate}", flush=True)
        if condition(progress):
            return
        time.sleep(0.3)
    raise KappaError(
        f"Epoch {epoch} did not get there within {DEADLINE_SECONDS:.0f} s; its log is in {config.home / 'logs'}."
    )


def until(what: str, look: Callable[[], Any]) -> Any:
    """The first truthy answer of ``look``; errors on the way count as not yet."""
    deadline, last = time.monotonic() + DEADLINE_SECONDS, None
    while time.monotonic() < deadline:
        try:
            if answer := look():
                return answer
        except KappaError as error:
            last = error
        time.sleep(0.5)
    raise KappaError(f"{what}: not within {DEADLINE_SECONDS:.0f} s. {last or ''}")


def api(config: Config, port: int) -> Callable[..., Any]:
    """Airflow's REST API."""
    return lambda method, path, body=None: airflow.call(config, port, method, path, body)


def deploy(config: Config, file: str) -> None:
    """Change the file in the topologies folder, as a user does."""
    source = ROOT / "include" / "topologies" / file
    shutil.copy(source, config.topologies / "retail_loyalty.py")
    print(f"deployed {source.relative_to(ROOT)}")


def clear(home: Path) -> None:
    """Remove what an earlier demonstration left; one that still runs is ended first."""
    if home.exists():
        stop(Config.from_env({"KAPPA_HOME": str(home)}))
        shutil.rmtree(home)


def stop(config: Config) -> None:
    """End everything: drivers at a slice boundary, the stack, then drivers that Airflow started again meanwhile."""
    host.end_local(config)
    supervisor.down(config)
    host.end_local(config)


def headline(text: str) -> None:
    """Print a headline."""
    print(f"\n── {text} " + "─" * max(0, 100 - len(text)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
