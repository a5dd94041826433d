"""The page *Your own repository*, typed: from an empty folder and the wheel to a replayed stream. Then every use of
Kappa from the wheel.

Broker and Airflow are there already. The Airflow is one of its own environment, which gets the wheel by the page's
``pip install``; what the wheel requires is put there before, in place of an index.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support import environments
from support.airflow_stack import AirflowStack, running, wait_for
from support.brokers import watched
from support.processes import QUICK_JVM

from kappa.config import Config
from kappa_local.generators.invoices import Invoices
from kappa_local.kafka import KafkaProcess

pytestmark = [pytest.mark.airflow, pytest.mark.broker, pytest.mark.e2e, pytest.mark.xdist_group("wheel")]

PAGE = (environments.ROOT / "docs" / "your-own-repository.md").read_text()
BROKER = "127.0.0.1:9092"
TOPOLOGY = "retail.spending"
SECONDS = 400.0
LOYALTY = (environments.ROOT / "include" / "topologies" / "versions" / "retail_loyalty_v1.py").read_text()
#: Invoices of all customers; 480 of them a day.
FIRST, A_DAY = datetime(2026, 11, 1, tzinfo=UTC), 480
INVOICES = Invoices(seed=7, start_time=FIRST, time_step=timedelta(minutes=3))
_TYPED = re.compile(r"^```(?:sh unrun: a test types this page[^\n]*|(?P<edit>text))\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(kw_only=True)
class Terminal:
    """A shell in which a page is typed: the folder and the exported variables stay from command to command.

    Attributes:
        folder: the folder that it is in.
        variables: its exported variables.
    """

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def type(self, text: str) -> str:
        """Run commands; what they print. Each ends well."""
        after = f"{text}\npwd > {self.folder}/.after\nenv --null >> {self.folder}/.after\n"
        run = subprocess.run(
            ["bash", "-euc", after],
            cwd=self.folder,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert run.returncode == 0, f"{text}\n{run.stdout[-4000:]}"
        note = self.folder / ".after"
        folder, _, variables = note.read_text().partition("\n")
        note.unlink()
        self.folder = Path(folder)
        self.variables = dict(item.split("=", 1) for item in variables.split("\0") if item)
        return run.stdout


class InstalledAirflow(AirflowStack):
    """An Airflow of an environment of its own, which knows nothing of Kappa."""

    def __init__(self, home: Path, environment: Path) -> None:
        super().__init__(Config.from_env({"KAPPA_HOME": str(home), "KAPPA_SETTINGS": ""}))
        self.python = str(environment / "bin" / "python")
        for name in [name for name in self.environment if name.startswith("KAPPA_")]:
            del self.environment[name]
        self.environment |= {
            "PATH": f"{environment / 'bin'}{os.pathsep}{self.environment['PATH']}",
            "PYTHONPATH": self.environment["PYTHONPATH"].rpartition(os.pathsep)[2],  # how SQLite waits
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.home / "plugins"),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        }
        (self.home / "dags").mkdir()

    def prepare(self) -> None:
        """Make the database, as everybody does."""
        self.command("db", "migrate")


@pytest.fixture
def broker_of_its_own(tmp_path: Path) -> Iterator[str]:
    """A broker without topics; its address."""
    with watched(KafkaProcess.start(tmp_path / "kafka")) as process:
        yield process.bootstrap_servers


def steps() -> list[tuple[bool, str]]:
    """What the page has typed, in order: whether it is an edit, and its text."""
    return [(bool(match["edit"]), match["text"]) for match in _TYPED.finditer(PAGE)]


def edited(file: Path, lines: str) -> None:
    """Replace the lines of a file that begin as these do."""
    text = file.read_text()
    for line in lines.splitlines():
        head = re.escape(re.match(r"\s*\w+\s*[=(]", line)[0].strip())  # type: ignore[index]
        text, count = re.subn(rf"^\s*{head}.*$", lambda _, new=line: new, text, flags=re.MULTILINE)  # type: ignore[misc]
        assert count == 1, f"{file} has {count} lines that begin with {head}"
    file.write_text(text)


def commands(text: str) -> list[str]:
    """The commands of a text; one that is given lines to read counts as one."""
    return [line for line in re.sub(r"<<'(\w+)'\n.*?^\1$", "", text, flags=re.M | re.S).splitlines() if line.strip()]


def test_the_page_is_at_most_twelve_commands_and_twenty_five_edited_lines() -> None:
    typed = [line for is_edit, text in steps() if not is_edit for line in commands(text)]
    changed = [line for is_edit, text in steps() if is_edit for line in text.splitlines()]
    assert 5 < len(typed) <= 12, typed
    assert 0 < len(changed) <= 25, changed


def rows(terminal: Terminal) -> dict[str, str]:
    """Customer -> total, in the live epoch."""
    text = terminal.type(f"kappa query {TOPOLOGY} totals --limit 100 --json")
    answer = json.loads(text, parse_float=str)
    return {row["CustomerCardNo"]: row["Spent"] for row in answer["rows"]}


def company(folder: Path, wheel: Path) -> tuple[InstalledAirflow, Terminal]:
    """An Airflow without Kappa, and a terminal in an empty folder, whose ``pip`` finds the wheel."""
    place, work = folder / "environment", folder / "work"
    work.mkdir()
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    environments.link(place, wheel, ("driver", "airflow"), also=("pytest",))
    stack = InstalledAirflow(folder / "company", place)
    stack.prepare()
    variables = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "PIP_NO_BUILD_ISOLATION": "1"}
    small = {"KAPPA_SPARK_CONF": json.dumps(QUICK_JVM)}
    return stack, Terminal(folder=work, variables=stack.environment | variables | small)


def test_a_team_comes_from_an_empty_folder_to_a_replayed_stream(
    tmp_path: Path, wheel: Path, broker_of_its_own: str
) -> None:
    stack, terminal = company(tmp_path, wheel)
    typed = iter([(is_edit, text.replace(BROKER, broker_of_its_own)) for is_edit, text in steps()])

    def next_step(*, is_edit: bool) -> str:
        kind, text = next(typed)
        assert kind is is_edit, text
        return text

    terminal.type(next_step(is_edit=False))
    repository = terminal.folder
    edited(repository / "kappa.toml", next_step(is_edit=True))
    assert "2 passed" in terminal.type(next_step(is_edit=False))
    terminal.type(next_step(is_edit=False))
    terminal.type(next_step(is_edit=False))
    stack.environment |= {name: terminal.variables[name] for name in ("KAPPA_SETTINGS", "KAPPA_SPARK_CONF")}
    with running(stack):
        stack.await_dag(f"stream__{TOPOLOGY}", SECONDS)
        try:
            terminal.type(next_step(is_edit=False))
            expected = {f"c{n}": f"{9.5 * len(range(n, 1000, 7)):.2f}" for n in range(7)}
            wait_for(lambda: live_epoch(terminal, TOPOLOGY) == 1, SECONDS, "epoch 1 is live")
            wait_for(lambda: rows(terminal) == expected, SECONDS, "all invoices are summed up")

            edited(repository / "include" / "topologies" / "retail_spending.py", next_step(is_edit=True))
            terminal.type(next_step(is_edit=False))
            wait_for(lambda: live_epoch(terminal, TOPOLOGY) == 2, SECONDS, "epoch 2 is live")
            assert next(typed, None) is None, "the page has nothing more to type"
            assert rows(terminal) == {name: total for name, total in expected.items() if name != "c0"}
            assert "complete" in terminal.type(f"kappa certify {TOPOLOGY}")
        finally:
            terminal.type(f"kappa stop {TOPOLOGY} --execute")


def live_epoch(terminal: Terminal, topology: str) -> int | None:
    """The epoch that readers get; None before there is one."""
    listing = json.loads(terminal.type("kappa topologies --json"))
    epochs = {item["name"]: item["live_epoch"] for item in listing["topologies"]}
    epoch: int | None = epochs[topology]
    return epoch


def test_the_form_a_schedule_and_backfills_run_from_the_wheel(
    tmp_path: Path, wheel: Path, broker_of_its_own: str
) -> None:
    stack, terminal = company(tmp_path, wheel)
    terminal.type("pip install 'kappa-replay[driver,airflow]'\nkappa init streams --execute\ncd streams")
    terminal.type('export KAPPA_SETTINGS="$PWD/kappa.toml"')
    repository, name = terminal.folder, "retail.loyalty"
    edited(repository / "kappa.toml", f'bootstrap_servers = "{broker_of_its_own}"\nlake = ".kappa/lake"')

    def deploy(version: int) -> None:
        text = LOYALTY.replace('version="1"', f'version="{version}"').replace("0.02", f"0.0{version + 1}")
        text = text.replace("    step=score,\n", '    step=score,\n    reprocess=Schedule(cron="0 0 1 1 *"),\n')
        file = repository / "include" / "topologies" / "loyalty.py"
        file.write_text(text.replace("import Append,", "import Schedule, Append,"))

    def shares() -> dict[int, set[Decimal]]:
        query = f"SELECT TotalAmount, EarnedLoyaltyPoints, _order_timestamp FROM {name}.notifications"
        own: dict[int, set[Decimal]] = {}
        for row in json.loads(terminal.type(f'kappa sql "{query}" --json'), parse_float=Decimal)["rows"]:
            day = (datetime.fromisoformat(row["_order_timestamp"]) - FIRST).days
            share = Decimal(row["EarnedLoyaltyPoints"]) / Decimal(row["TotalAmount"])
            own.setdefault(day, set()).add(share.normalize())
        return own

    two, three = {Decimal("0.02")}, {Decimal("0.03")}
    deploy(1)
    terminal.type("kappa topics create --all --execute")
    producer = Producer({"bootstrap.servers": broker_of_its_own})
    for key, value, timestamp_ms in INVOICES.records(0, 4 * A_DAY):
        producer.produce("pos", key=key, value=value, timestamp=timestamp_ms)
    assert producer.flush(60) == 0
    terminal.type('cp dags/kappa_dags.py "$AIRFLOW_HOME/dags/"\npython -m kappa_airflow.pools')
    stack.environment |= {one: terminal.variables[one] for one in ("KAPPA_SETTINGS", "KAPPA_SPARK_CONF")}
    with running(stack):
        stack.await_dag(f"stream__{name}", SECONDS)
        try:
            stack.unpause(f"stream__{name}")
            wait_for(lambda: live_epoch(terminal, name) == 1, SECONDS, "epoch 1 is live")
            wait_for(lambda: shares() == dict.fromkeys(range(4), two), SECONDS, "all invoices have points")

            replay, reprocess, backfill = (f"{verb}__{name}" for verb in ("replay", "reprocess", "backfill"))
            run = stack.trigger(replay, {"then": "cut_over", "reason": "the form"})
            assert stack.finish(replay, run, SECONDS) == "success"
            assert live_epoch(terminal, name) == 2

            stack.command("dags", "trigger", reprocess, "--run-id", "scheduled")
            assert stack.finish(reprocess, "scheduled", SECONDS) == "success"
            assert "the same as live epoch 2 and was dropped" in stack.task_log(reprocess, "scheduled", "conclude")

            deploy(2)
            terminal.type(f"kappa upgrade {name} --slices 0 --history-stands --reason 'three percent' --execute")
            days = ("--from-date", "2026-11-01", "--to-date", "2026-11-02")
            stack.command("backfill", "create", "--dag-id", backfill, *days, "--max-active-runs", "1")
            stack.backfilled(backfill, 2)
            assert shares() == {0: three, 1: three, 2: two, 3: two}
            terminal.type(f"kappa backfill {name} --from 2026-11-03 --to 2026-11-04 --zone UTC --execute")
            assert shares() == {0: three, 1: three, 2: three, 3: two}
            assert "complete" in terminal.type(f"kappa certify {name}")
        finally:
            terminal.type(f"kappa stop {name} --execute")
