"""A replay from its form to its undoing, by clicks in a browser, on a whole Airflow over real drivers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import ConsoleMessage, Page, expect, sync_playwright
from support.airflow_stack import AirflowStack, running, wait_for
from support.processes import rig, rows

from kappa.replay.stages import Stage
from kappa_local import airflow

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.browser, pytest.mark.timeout(1800)]

PATIENCE = 600
#: A browser that asks nothing of the network but the page.
_QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _is_ours(message: ConsoleMessage) -> bool:
    return message.type == "error" and "/kappa/" in message.location["url"]


class Person:
    """Somebody who is logged in and clicks."""

    def __init__(self, page: Page, stack: AirflowStack) -> None:
        self.page = page
        self.url = f"http://127.0.0.1:{stack.port}"
        self.stack = stack

    def log_in(self) -> None:
        self.page.goto(f"{self.url}/")
        self.page.fill("input[name=username]", airflow.USER)
        self.page.fill("input[name=password]", airflow.ensure_secrets(self.stack.config).password)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(f"{self.url}/")

    def trigger(self, dag_id: str) -> str:
        """Trigger a DAG by its form as it opens; the run."""
        self.page.goto(f"{self.url}/dags/{dag_id}")
        self.page.get_by_role("button", name="Trigger").first.click()
        form = self.page.get_by_role("dialog")
        button = form.get_by_role("button", name="Trigger", exact=True)
        expect(button).to_be_enabled(timeout=60_000)
        assert form.locator("[aria-invalid=true]").count() == 0, "the form opens without errors"
        before = {run["dag_run_id"] for run in self.stack.runs(dag_id)}
        button.click()

        def new_run() -> str:
            return next((run["dag_run_id"] for run in self.stack.runs(dag_id) if run["dag_run_id"] not in before), "")

        run = wait_for(new_run, PATIENCE, f"{dag_id} runs")
        self.page.goto("about:blank")  # a page that is looked at asks Airflow all the time
        return run

    def answer(self, dag_id: str, run: str, task: str, option: str) -> str:
        """Wait until a task asks, read the question, click an option; the text of the page."""
        self.stack.question(dag_id, run, task, PATIENCE)
        self.page.goto(f"{self.url}/dags/{dag_id}/runs/{run}/tasks/{task}/required_actions")
        button = self.page.get_by_role("button", name=option, exact=True)
        button.wait_for(timeout=60_000)
        text = self.page.locator("body").inner_text()
        button.click()
        wait_for(lambda: self.stack.task_state(dag_id, run, task) != "awaiting_input", PATIENCE, "the answer is taken")
        return text

    def report(self, dag_id: str, run: str) -> str:
        """Open the report by the link of task ``verified``; its text."""
        self.page.goto(f"{self.url}/dags/{dag_id}/runs/{run}/tasks/verified/details")
        link = self.page.get_by_role("link", name="Report")
        link.wait_for(timeout=60_000)
        self.page.goto(self.url + str(link.get_attribute("href")).removeprefix(self.url))
        return self.page.locator("body").inner_text()

    def look_at(self, topology: str) -> str:
        """Open the pages by Airflow's navigation, go to a topology, and from there to a form; the text of the pages."""
        errors: list[str] = []
        # Of type error: the browser itself warns of the sandbox that Airflow gives its frames.
        self.page.on("console", lambda message: errors.append(message.text) if _is_ours(message) else None)
        self.page.goto(f"{self.url}/")
        self.page.get_by_role("link", name="Kappa", exact=True).click()
        frame = self.page.frame_locator("iframe[title=Kappa]")
        frame.get_by_role("link", name=topology, exact=True).last.click(timeout=60_000)
        expect(frame.get_by_role("heading", name=topology)).to_be_visible(timeout=60_000)
        text = frame.locator("main").inner_text()
        frame.get_by_role("link", name="Roll back").focus()
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(f"{self.url}/dags/rollback__{topology}**")
        assert errors == [], "the pages say nothing on the console"
        return text


@contextmanager
def person(stack: AirflowStack) -> Iterator[Person]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert path, "There is no browser. Install one: scripts/bootstrap browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_QUIET)
        try:
            somebody = Person(browser.new_page(viewport={"width": 1400, "height": 1000}), stack)
            somebody.log_in()
            yield somebody
        finally:
            browser.close()


def test_a_browser_triggers_reads_approves_and_undoes_a_replay_and_rejects_another(
    tmp_path: Path, kafka: Broker, topic: TopicFactory
) -> None:
    with rig(tmp_path, kafka, topic(partitions=2), slice_records=20, handover_seconds=600.0) as machine:
        machine.produce(rows(50))
        with running(AirflowStack(machine.config)) as stack:
            replay, back = f"replay__{machine.name}", f"rollback__{machine.name}"
            for dag in (replay, back):
                stack.await_dag(dag)
            machine.start_live()
            machine.deploy(2)
            with person(stack) as ann:
                run = ann.trigger(replay)
                machine.started.add(2)
                wait_for(lambda: stack.task_state(replay, run, "verified") == "success", PATIENCE, "it is verified")
                report = ann.report(replay, run)
                assert "DIFFERS" in report and "Keys changed" in report and "account-0" in report
                text = ann.answer(replay, run, "approve", "Approve")
                assert f"Move readers of {machine.name} from epoch 1 to epoch 2?" in text
                assert "Verdict: differs" in text and "7 changed" in text
                assert stack.finish(replay, run, PATIENCE) == "success"
                record = machine.record()
                assert record.live == 2 and record.epoch(2).approved is not None
                assert record.epoch(2).approved.actor == f"airflow:{airflow.USER}"

                run = ann.trigger(back)
                text = ann.answer(back, run, "confirm", "Approve")
                assert f"Readers of {machine.name} go back from epoch 2 to epoch 1." in text
                assert stack.finish(back, run, PATIENCE) == "success"
                assert machine.record().live == 1

                run = ann.trigger(replay)
                machine.started.add(3)
                text = ann.answer(replay, run, "approve", "Reject")
                assert "from epoch 1 to epoch 3?" in text
                assert stack.finish(replay, run, PATIENCE) == "success"
                assert stack.task_state(replay, run, "cut_over") == "skipped"
                assert f"The change was rejected (airflow:{airflow.USER})" in stack.task_log(replay, run, "cut_over")
                record = machine.record()
                assert record.live == 1 and record.candidate is None and record.epoch(3).rejected is not None
                machine.await_end(3)
                assert machine.paths(3).root and Path(machine.paths(3).root).is_dir(), "its tables stay"

                text = ann.look_at(machine.name)
                assert "Epoch 1 is live" in text and "rejected" in text and f"airflow:{airflow.USER}" in text
                ann.page.context.clear_cookies()
                ann.page.goto(f"{ann.url}/kappa/topologies/{machine.name}/2")
                expect(ann.page.locator("input[name=username]")).to_be_visible(timeout=60_000)
            machine.produce(rows(12, first=100), start_ms=1_700_000_100_000)
            machine.settle(1)
            assert machine.record().epoch(2).stage is Stage.RETIRED
            assert machine.prove({1: 1, 2: 2}) == 62
