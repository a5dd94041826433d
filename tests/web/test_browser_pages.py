"""Pages in a real browser: they update themselves, keep the focus, fit, and say when nothing answers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support.page_lake import TopologyStory, demo

from kappa import clock
from kappa.config import Config

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

NAME = "retail.loyalty"
PATIENCE_MS = 60_000
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
PATHS = ("/", f"/topologies/{NAME}", f"/topologies/{NAME}/3", f"/topologies/{NAME}/certificate", "/history", "/nope")
#: As Airflow frames a view of its navigation.
SANDBOX = "allow-scripts allow-same-origin allow-forms allow-downloads"
FRAME = f'<html class="dark"><body><iframe sandbox="{SANDBOX}" src="/" width="1200" height="700"></iframe>'


@contextmanager
def served(folder: Path) -> Iterator[tuple[Config, str, subprocess.Popen[str]]]:
    """``kappa ui`` over the lake of the pages, in a process of its own."""
    words = {"KAPPA_HOME": str(folder), "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "KAPPA_STALE_SECONDS": "100000"}
    config = Config.from_env(words)
    Path(config.lake).mkdir(parents=True)
    demo(config)
    command = [sys.executable, "-m", "kappa", "ui", "--port", "0"]
    with subprocess.Popen(command, env={**os.environ, **words}, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            match = re.search(r"http://\S+", process.stdout.readline())
            assert match, "kappa ui says where it is"
            yield config, match[0], process
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert path, "There is no browser. Install one: scripts/bootstrap browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield browser
        browser.close()


def watched(page: Page) -> list[str]:
    """Messages on the page's console, and requests to other servers."""
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: None if "127.0.0.1" in request.url else messages.append(request.url))
    return messages


def test_pages_fit_update_themselves_keep_the_focus_and_say_when_nothing_answers(
    tmp_path: Path, browser: Browser
) -> None:
    with served(tmp_path) as (config, url, process):
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 320)):
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
            messages = watched(page)
            for path in PATHS:
                page.goto(url + path)
                expect(page.locator("[data-part=loading]")).to_have_count(0, timeout=PATIENCE_MS)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} fits {width} px"
                back = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
                assert (back == "rgb(255, 255, 255)") is (scheme == "light")
            assert [line for line in messages if "404" not in line] == []
            page.close()

        page = browser.new_page()
        messages = watched(page)
        page.goto(f"{url}/topologies/{NAME}")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.focus("#e2")
        story = TopologyStory(config=config, name=NAME)
        story.tell(3, "approved", clock.now(), actor="bob", reason="looked at it")
        expect(page.get_by_text("looked at it")).to_be_visible(timeout=PATIENCE_MS)
        assert page.evaluate("document.activeElement.id") == "e2", "what had the focus has it still"
        expect(page.locator("#fresh")).to_contain_text("Updated")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#fresh")).to_have_text("Paused")
        page.get_by_role("button", name="Resume").click()
        assert messages == []
        process.terminate()
        process.wait()
        expect(page.locator("#fresh")).to_contain_text("The server has not answered since", timeout=PATIENCE_MS)
        expect(page.get_by_role("heading", name=NAME)).to_be_visible()
        page.close()


def test_pages_in_airflows_frame_take_its_theme_and_open_forms_outside(tmp_path: Path, browser: Browser) -> None:
    with framed(tmp_path) as url:
        page = browser.new_page(color_scheme="light")
        page.goto(f"{url}/outer")
        frame = page.frame_locator("iframe")
        expect(frame.locator("html")).to_have_attribute("data-theme", "dark", timeout=PATIENCE_MS)
        page.evaluate("document.documentElement.className = 'light'")
        expect(frame.locator("html")).to_have_attribute("data-theme", "light", timeout=PATIENCE_MS)
        frame.get_by_role("link", name=NAME, exact=True).last.click()
        frame.get_by_role("link", name="Cut over to epoch 3").click()
        page.wait_for_url(f"{url}/dags/cutover__{NAME}")
        assert page.evaluate("window.top === window"), "the form has the whole window"
        page.close()


@contextmanager
def framed(folder: Path) -> Iterator[str]:
    """A server with the pages, a page that frames them as Airflow does, and something where Airflow's DAGs are."""
    from starlette.testclient import TestClient

    from kappa_web.access import Loopback
    from kappa_web.app import build

    class WithForms(Loopback):
        has_forms = True

    config = Config.from_env(
        {"KAPPA_HOME": str(folder), "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "KAPPA_STALE_SECONDS": "100000"}
    )
    Path(config.lake).mkdir(parents=True)
    demo(config)
    asking = TestClient(build(config, lambda: WithForms()))  # noqa: PLW0108  # a class would be asked for parameters

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/outer" or self.path.startswith("/dags/"):
                status, headers = 200, {"Content-Type": "text/html"}
                content = (FRAME if self.path == "/outer" else "a form").encode()
            else:
                answer = asking.get(self.path)
                status, headers, content = answer.status_code, dict(answer.headers), answer.content
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() != "content-length":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a test prints no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
