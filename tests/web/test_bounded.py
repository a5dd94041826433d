"""Slow callers occupy no thread of the server that includes the application."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio.to_thread
import pytest
import uvicorn
from fastapi import FastAPI
from support.web_site import Site

from kappa import serving
from kappa_web.bounded import Bounded
from kappa_web.problems import Problem

#: Threads of the server that the application is a part of; fewer than its queries have.
SERVER_THREADS = 4
SCANS = 60


@contextmanager
def airflow_like(site: Site) -> Iterator[str]:
    """The address of a server with a route of its own, a plain function, and the application below ``/kappa``."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        anyio.to_thread.current_default_thread_limiter().total_tokens = SERVER_THREADS
        yield

    whole = FastAPI(lifespan=lifespan)

    @whole.get("/heartbeat")
    def heartbeat() -> str:
        return "alive"

    whole.mount("/kappa", site.client.app)
    server = uvicorn.Server(uvicorn.Config(whole, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def answer_of(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_full_scans_do_not_block_other_routes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    released, running = threading.Event(), threading.Semaphore(0)
    rows = serving.Snapshot.rows

    def slow(*arguments: Any, **named: Any) -> Any:
        running.release()
        released.wait()
        return rows(*arguments, **named)

    monkeypatch.setattr(serving.Snapshot, "rows", slow)
    with airflow_like(site) as url, ThreadPoolExecutor(SCANS + 2) as callers:
        address = f"{url}/kappa/tables/sums/sums"
        scans: set[Future[tuple[int, Any]]] = {callers.submit(answer_of, address) for _ in range(SCANS)}
        try:
            for _ in range(SERVER_THREADS):
                running.acquire()
            assert answer_of(f"{url}/heartbeat") == (200, "alive")
            refused, _ = wait(scans, return_when=FIRST_COMPLETED)
            codes = {(status, body["type"].rpartition(":")[2]) for status, body in (one.result() for one in refused)}
            assert codes == {(503, "busy")}, "what is too much is refused, and nothing was answered as too slow yet"
        finally:
            released.set()
        answers = [one.result() for one in scans]
    statuses = [status for status, _ in answers]
    assert statuses.count(200) >= 8 and set(statuses) == {200, 503}


def test_calls_beyond_the_queue_are_refused_at_once_and_places_are_released() -> None:
    async def scenario() -> None:
        bounded = Bounded(2, waiting=1, wait_seconds=600, seconds=600)
        released = threading.Event()
        open_calls = [asyncio.ensure_future(bounded.run(released.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="Too many queries are running and waiting"):
            await bounded.run(lambda: None)
        released.set()
        await asyncio.gather(*open_calls)
        assert await bounded.run(lambda: "free again") == "free again"

    asyncio.run(scenario())


def test_waiting_and_running_too_long_are_different_problems_and_release_the_place() -> None:
    async def scenario() -> None:
        bounded = Bounded(1, waiting=1, wait_seconds=0.01, seconds=0.01)
        released = threading.Event()
        first = asyncio.ensure_future(bounded.run(released.wait))
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="Too many queries are running"):
            await bounded.run(lambda: None)
        with pytest.raises(Problem, match="takes longer than"):
            await first
        released.set()

    asyncio.run(scenario())


def test_an_error_of_a_call_reaches_its_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(Bounded().run(lambda: 1 // 0))
