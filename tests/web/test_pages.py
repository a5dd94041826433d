"""Pages as a browser gets them, over lakes made by hand: content, rights, errors, and nothing that runs or leaks."""

from __future__ import annotations

import gc
import re
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient
from support import live_lake
from support.epoch_record import FIRST, empty_lake, empty_plan, tell
from support.page_lake import CANDIDATE, TopologyStory, demo, report, steady, turned

from kappa import clock, control
from kappa.config import Config
from kappa.errors import BrokerUnreachableError, LakeUnreachableError, UnknownTopologyError
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record import epochs as record_of_epochs
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.replay.proof.verdict import CheckResult, DiffReport, Sample
from kappa.verify.certificate import certificate_of
from kappa_web.access import LoginNeeded
from kappa_web.app import build
from kappa_web.lake import Lake
from kappa_web.pages import routes
from kappa_web.pages.board import Board, rates
from kappa_web.pages.lags import STEPS, Lags
from kappa_web.pages.topology import actions, anatomy, timeline

NAME = "retail.loyalty"
EVIL = '<script>alert("x")</script>'
DEADLINE = 30.0


@dataclass
class Caller:
    """A caller with these rights."""

    name: str = "ann"
    has_forms: bool = True
    unmasks: bool = False
    denied: tuple[str, ...] = ()

    def may_read(self, topology: str) -> bool:
        return topology not in self.denied

    def may_unmask(self, topology: str) -> bool:
        return self.unmasks


def settings(folder: Path) -> Config:
    config = Config.from_env({"KAPPA_HOME": str(folder), "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    Path(config.lake).mkdir(parents=True, exist_ok=True)
    return replace(config, stale_seconds=1e6)


def client(config: Config, caller: Caller | Callable[[], Any] | None = None) -> TestClient:
    identity = caller or Caller()
    return TestClient(build(config, identity if not isinstance(identity, Caller) else lambda: identity))


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Config:
    config = settings(tmp_path_factory.mktemp("pages"))
    demo(config)
    return config


@pytest.fixture
def empty(tmp_path: Path) -> Config:
    return settings(tmp_path)


def text_of(html: str) -> str:
    """The visible text, with single blanks."""
    words: list[str] = []

    class Reader(HTMLParser):
        def handle_data(self, data: str) -> None:
            words.append(data)

    Reader().feed(html)
    return re.sub(r"\s+", " ", " ".join(words))


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"it did not happen within {DEADLINE} s")


def page(config: Config, path: str, caller: Caller | None = None) -> str:
    """The visible text of a page, once the lake is read."""
    asking = client(config, caller)

    def read() -> str:
        answer = asking.get(path)
        assert answer.status_code == 200, answer.text
        return "" if "Reading the lake" in answer.text else text_of(answer.text)

    return str(until(read))


def test_the_first_page_shows_each_topology_with_its_state_and_concerns(full: Config) -> None:
    text = page(full, "/")
    for part in (
        "retail.loyalty team-loyalty running epoch 2 version 2",
        "retail.refunds stuck",
        "epoch 2 replays, 44 %",
        "The driver of live epoch 1 is stuck. slice 61 failed 3 times",
        "Epoch 3 is verified and differs from the live one",
        "Epoch 2 failed its verification",
        "retail.baskets starting none",
    ):
        assert part in text


def test_a_topology_shows_its_epochs_its_replay_and_what_each_button_will_change(full: Config) -> None:
    answer = client(full).get(f"/topologies/{NAME}")
    text = text_of(answer.text)
    assert "Owner: team-loyalty" in text and "Owner" not in page(full, "/topologies/retail.refunds")
    assert "Readers move from epoch 2 to epoch 3 in one step" in text
    assert "Epoch 3 is removed for good, with its tables, topics and consumer group. Readers keep epoch 2." in text
    assert f'href="/dags/cutover__{NAME}" target="_top"' in answer.text
    assert "100 % of the plan’s range: 124,000 of 124,000 offsets" in text
    assert "waiting" in text and "reading and computing" in text and "Of the last" in text
    assert answer.text.count('class="live"') >= 4, "each turn of an epoch is a bar of the timeline"
    assert "it was the other way round" in text


def test_the_timeline_has_the_live_epoch_however_many_came_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = empty_lake(tmp_path, monkeypatch)
    details = {"planned": {"plan_id": "p"}, "moved": {"from": None, "at": {}}}
    tell(config, NAME, 1, *FIRST, by_event=details)
    for epoch in range(2, 15):  # nights of reprocessing
        tell(config, NAME, epoch, "planned", "aborted", by_event=details)
    drawing = timeline(Epochs(config.lake).record(NAME), clock.now())
    assert "epoch 1<" in drawing and 'class="live"' in drawing
    assert "epoch 14<" in drawing and "epoch 2<" not in drawing


def test_a_topology_shows_the_paths_of_its_published_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(live_lake.live_lake(tmp_path, monkeypatch), bootstrap_servers="127.0.0.1:1")
    text, folder = page(config, f"/topologies/{live_lake.NAME}"), f"{config.lake}/{live_lake.NAME}"
    assert f"notifications {folder}/notifications rewards {folder}/rewards" in text
    assert f"How far each is behind: kappa tables {live_lake.NAME}" in text


def test_without_forms_a_command_replaces_the_button(full: Config) -> None:
    html = client(full, Caller(has_forms=False)).get(f"/topologies/{NAME}").text
    assert f"kappa cutover {NAME} --execute" in html and f"kappa abort {NAME} 3 --execute" in html
    assert "/dags/" not in html


def test_available_actions_follow_from_the_record(empty: Config) -> None:
    story, now = TopologyStory(config=empty, name=NAME), clock.now()
    board = Board(Lake(empty))

    def labels() -> list[str]:
        return [action.label for action in actions(board.lake.records()[NAME])]

    story.begin(1, now)
    assert labels() == ["Abort epoch 1"]
    story.move(1, None, 0, now)
    assert labels() == ["Replay"]
    story.begin(2, now, live=1, stages=CANDIDATE, report=report())
    assert labels() == ["Cut over to epoch 2", "Abort epoch 2"]
    story.move(2, 1, 10, now)
    assert labels() == ["Replay", "Roll back to epoch 1"]
    story.tell(1, "recalled", now)
    assert labels() == ["Replay", "Leave epoch 1"]
    story.tell(1, "released", now)
    story.begin(3, now, live=2, stages=CANDIDATE, report=report(checks=(CheckResult(name="adds up", ok=False),)))
    assert labels() == ["Abort epoch 3"], "a failed verdict is accepted on the command line only"


def test_what_is_known_of_an_epoch_goes_when_it_ends_and_not_before(empty: Config) -> None:
    story, now = TopologyStory(config=empty, name=NAME), clock.now()
    board = Board(Lake(empty))
    story.begin(1, now)
    story.move(1, None, 0, now)
    story.begin(2, now, live=1, stages=CANDIDATE, report=report())
    for epoch in (1, 2):
        story.ledger(epoch, steady(now - timedelta(minutes=20), 3))
    record = board.lake.records()[NAME]
    live, candidate = (weakref.ref(board.facts(record, epoch).state) for epoch in (1, 2))
    others = [EpochPaths(lake=empty.lake, topology=NAME, epoch=epoch) for epoch in range(3, 1_000)]
    assert [board.lake.opened(paths) for paths in others] and board.lake.records()
    gc.collect()
    assert live() is board.facts(record, 1).state and candidate() is not None
    story.tell(2, "aborted", now)
    assert board.lake.records()[NAME].candidate is None and board.unread([(NAME, 1)]) == 0
    gc.collect()
    assert live() is not None and candidate() is None


def test_an_epoch_shows_plan_findings_stages_and_difference_with_samples(full: Config) -> None:
    text = page(full, f"/topologies/{NAME}/3")
    for part in (
        "The live epoch is 12,400 offsets behind its topics.",
        "Keys changed 6,310",
        "TotalLoyaltyPoints 6,310 13.1 %",
        "8,120,333.5 8,407,112",
        "C0451882 changed silver gold 1204.5000 1324.5000",
        "C0733001 added",
        "C0000017 removed",
        "LastVisit added",
        "holds no customer is lost",
        "kept rewards.keys_removed: found 12, allowed 50",
        "compare rewards, notifications at the same commit as epoch 2",
    ):
        assert part in text, part
    failed = page(full, "/topologies/market.prices/2")
    assert "exceeded rewards.keys_removed: found 12, allowed 5" in failed and "The cutover is refused." in failed


def test_a_certificate_is_drawn_by_partition_and_says_that_kafka_was_not_asked(full: Config) -> None:
    html = client(full).get(f"/topologies/{NAME}/certificate").text
    text = text_of(html)
    assert "complete By the ledgers, each offset was sent by exactly one epoch. Epoch 2 is live." in text
    assert "Kafka was not asked" in text and f"kappa certify {NAME}" in text
    assert "epoch 1: offsets 0 to 16,000" in text and "epoch 2: offsets 16,000 to 22,000" in text
    assert html.count('class="bar"') == 4


def test_a_certificate_with_a_gap_is_not_complete_and_names_it(empty: Config) -> None:
    story, now = TopologyStory(config=empty, name=NAME, partitions=1), clock.now()
    story.begin(1, now)
    story.move(1, None, 0, now)
    slices = turned(steady(now, 20), [(500, "live"), (700, "held"), (900, "live")])
    story.ledger(1, slices)
    text = page(empty, f"/topologies/{NAME}/certificate")
    assert "not complete" in text and "pos[0] 500..700: no epoch has sent it." in text


def test_a_brief_certificate_says_the_same_of_each_offset(full: Config, empty: Config) -> None:
    story, now = TopologyStory(config=empty, name=NAME, partitions=2), clock.now()
    story.begin(1, now)
    story.move(1, None, 0, now)
    story.ledger(1, turned(steady(now, 60), [(3_000, "live"), (4_000, "held"), (9_000, "live")]))
    for config, is_complete in ((full, True), (empty, False)):
        record = Epochs(config.lake).record(NAME)
        whole, brief = (certificate_of(config.lake, record, is_brief=is_brief) for is_brief in (False, True))
        assert whole.complete is brief.complete is is_complete
        assert (whole.at, whole.rows_read) == (brief.at, brief.rows_read)
        # A slice that reads nothing is in no span, or with those before it: the last number may differ, no offset does.
        spans, shorter = (
            [(p.topic, p.partition, [(s.epoch, s.seq_first, s.start, s.end) for s in p.spans]) for p in c.partitions]
            for c in (whole, brief)
        )
        assert spans == shorter


def test_the_history_is_paged_and_has_only_what_the_caller_may_read(full: Config) -> None:
    assert "points of returns were counted twice" in page(full, "/history")
    caller = Caller(denied=(NAME,))
    text = page(full, "/history", caller)
    assert NAME not in text and "windows of an hour" in text
    assert "Nothing earlier is on record" in page(full, "/history?before=1")
    assert "3 went live" not in page(full, f"/topologies/{NAME}/history")


@pytest.mark.parametrize("path", ["", "/3", "/certificate", "/history"])
def test_a_forbidden_topology_is_refused_with_a_page_and_named_nowhere(full: Config, path: str) -> None:
    caller = Caller(denied=(NAME,))
    answer = client(full, caller).get(f"/topologies/{NAME}{path}")
    assert answer.status_code == 403 and "You may not read this" in answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert NAME not in client(full, caller).get("/").text


def test_each_route_checks_the_rights_of_its_caller(full: Config) -> None:
    def nobody() -> None:
        raise LoginNeeded("/login?next=x")

    app = build(full, nobody)
    paths = [route.path for route in routes_of(app.routes)]
    assert {"/", "/history", "/topologies/{name}", "/static/{file}"} <= set(paths)
    asking = TestClient(app, follow_redirects=False)
    for path in paths:
        url = re.sub(r"\{[^}]*\}", "1", path)
        answer = asking.get(url)
        assert answer.status_code == 401, f"{path} answers {answer.status_code} without a login"
        if not path.startswith("/tables") and "metadata" not in path and "openapi" not in path:
            answer = asking.get(url, headers={"accept": "text/html"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=x")
            assert asking.get(f"{url}?part=1", headers={"accept": "text/html"}).status_code == 401


def routes_of(routes: Iterable[Any]) -> Iterable[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        else:
            yield from routes_of(getattr(route, "routes", ()))


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/topologies/nope", 404, "No epoch of topology 'nope' is on record"),
        (f"/topologies/{NAME}/99", 404, "has no epoch 99"),
        (f"/topologies/{NAME}/three", 400, "valid integer"),
        ("/history?before=x", 400, "valid integer"),
        ("/topologies/<script>alert(1)", 404, "&lt;script&gt;alert(1)"),
        ("/nope/1", 404, "There is no page nope/1"),
        ("/static/passwd", 404, "There is no file"),
    ],
)
def test_an_error_is_a_page_that_says_what_to_do(full: Config, path: str, status: int, words: str) -> None:
    answer = client(full).get(path, headers={"accept": "text/html,*/*"})
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html") and "All topologies" in answer.text
    assert words in answer.text.replace("&#39;", "'") and "<script>alert" not in answer.text


def test_a_client_that_accepts_json_gets_a_problem_body(full: Config) -> None:
    answer = client(full).get("/nope/1", headers={"accept": "application/json"})
    assert answer.status_code == 404 and answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("place", ["/", "/history", "/topologies/a.a/history"])
def test_an_absent_lake_gives_a_page_that_retries(tmp_path: Path, place: str) -> None:
    config = replace(settings(tmp_path), lake=str(tmp_path / "unmounted"))
    answer = client(config).get(place)
    assert answer.status_code == 503 and "Not available now" in answer.text and "unmounted" in answer.text
    assert answer.headers["retry-after"] and 'data-refresh="5"' in answer.text


def test_a_page_says_that_the_lake_is_still_being_read_and_refreshes_soon(
    full: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    asking = client(full)
    opened = Lake.opened

    def slow(lake: Lake, paths: EpochPaths) -> Ledger:
        assert released.wait(DEADLINE)
        return opened(lake, paths)

    monkeypatch.setattr(Lake, "opened", slow)
    html = asking.get("/").text
    assert "Reading the lake" in html and "0 of 9 ledgers are read" in text_of(html) and 'data-refresh="1"' in html
    released.set()
    assert "retail.loyalty team-loyalty running" in until(
        lambda: "All topologies" in (answer := asking.get("/").text) and text_of(answer)
    )


def test_an_unreadable_ledger_is_an_error_and_not_an_endless_wait(
    full: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(lake: Lake, paths: EpochPaths) -> Ledger:
        raise LakeUnreachableError("The storage does not answer.", path=paths.ledger)

    monkeypatch.setattr(Lake, "opened", broken)
    asking = client(full)
    assert until(
        lambda: (answer := asking.get("/")).status_code == 503 and "The storage does not answer." in answer.text
    )


def test_a_slow_ledger_does_not_delay_the_page_of_all_topologies(
    empty: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    story, now = TopologyStory(config=empty, name=NAME), clock.now()
    story.begin(1, now)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now - timedelta(minutes=20), 3))
    asking = client(empty)
    assert "20 min ago" in until(lambda: "All topologies" in (text := text_of(asking.get("/").text)) and text)
    released = threading.Event()
    opened = Lake.opened

    def slow(lake: Lake, paths: EpochPaths) -> Ledger:
        assert released.wait(DEADLINE)
        return opened(lake, paths)

    monkeypatch.setattr(Lake, "opened", slow)
    story.grow(1)
    assert "20 min ago" in text_of(asking.get("/").text), "what was known before"
    released.set()
    assert until(lambda: "20 min ago" not in text_of(asking.get("/").text))


def test_a_topology_written_by_newer_code_hides_no_other(empty: Config) -> None:
    now = clock.now()
    for name in (NAME, "retail.other"):
        story = TopologyStory(config=empty, name=name)
        story.begin(1, now)
        story.move(1, None, 0, now)
        story.ledger(1, steady(now, 3))
        story.beat(1)
    beat = Path(story.paths(1).heartbeat)
    beat.write_text(beat.read_text().replace('"format": 1', '"format": 99'))
    text = page(empty, "/")
    assert "retail.other not readable epoch 1" in text and f"{NAME} running epoch 1" in text
    assert "not readable" in page(empty, "/topologies/retail.other")


def test_an_empty_lake_says_how_to_begin(empty: Config) -> None:
    text = page(empty, "/")
    assert "No topology is on record" in text and "kappa start retail.loyalty --execute" in text
    assert "Nothing is on record" in page(empty, "/history")


def test_a_planned_epoch_has_pages(empty: Config) -> None:
    TopologyStory(config=empty, name=NAME).begin(1, clock.now(), stages=("planned",))
    assert "nothing live" not in page(empty, f"/topologies/{NAME}")
    assert "No epoch is live yet." in page(empty, f"/topologies/{NAME}")
    assert "There is nothing to certify yet" in page(empty, f"/topologies/{NAME}/certificate")
    assert "under way" in page(empty, f"/topologies/{NAME}/1")


def hostile(config: Config) -> DiffReport:
    """A topology whose words all try to become markup."""
    story, now = TopologyStory(config=config, name="evil<b>"), clock.now()
    story.begin(1, now, reason=EVIL, actor=EVIL, topology_version=EVIL)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    diff = report("evil<b>")
    table = replace(
        diff.tables[0],
        name=EVIL,
        changed_columns={EVIL: 3},
        samples=(Sample(key={"k": EVIL}, live={"v": EVIL}, candidate={"v": f"{EVIL}2"}),),
    )
    diff = replace(diff, tables=(table,), notes=(EVIL,))
    story.begin(2, now, live=1, upto=10, stages=CANDIDATE, report=diff, reason=EVIL)
    story.beat(1, message=EVIL, owner=EVIL)
    return diff


def test_hostile_words_stay_text_on_every_page(empty: Config) -> None:
    hostile(empty)
    asking = client(empty)
    until(lambda: "Reading the lake" not in asking.get("/").text)
    for path in ("/", "/history", *(f"/topologies/evil%3Cb%3E{end}" for end in ("", "/2", "/certificate", "/history"))):
        answer = asking.get(path)
        assert answer.status_code == 200, path
        assert "<script>alert" not in answer.text and "evil<b>" not in answer.text, path
        assert "evil&lt;b&gt;" in answer.text, path
    assert "&lt;script&gt;alert" in asking.get("/topologies/evil%3Cb%3E/2").text


def test_pages_load_two_files_of_their_own_and_name_no_other_server(full: Config) -> None:
    asking = client(full)
    for path in ("/", f"/topologies/{NAME}", f"/topologies/{NAME}/3", f"/topologies/{NAME}/certificate", "/history"):
        answer = asking.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'self'" in policy
        assert answer.headers["cache-control"] == "no-store"
        loaded = re.findall(r'(?:src|href)="([^"]*)"', answer.text)
        assert loaded and not [url for url in loaded if "//" in url or url.startswith(("data:", "javascript:"))]
        assert not re.findall(r"<[^>]*\s(?:style|on\w+)=", answer.text), "a policy without unsafe-inline refuses these"
        scripts = re.findall(r"<script[^>]*>(.*?)</script>", answer.text, re.DOTALL)
        assert scripts == [""], "the script is a file"
    for name in ("kappa.css", "kappa.js", "kappa.svg"):
        content = asking.get(f"/static/{name}")
        assert content.status_code == 200 and not re.search(r"https?://(?!www\.w3\.org/2000/svg)", content.text)


def test_a_part_is_the_page_without_its_frame(full: Config) -> None:
    whole, part = (client(full).get(f"/topologies/{NAME}{query}").text for query in ("", "?part=1"))
    assert "<html" in whole and "<html" not in part
    assert re.findall(r'data-part="(\w+)"', whole) == re.findall(r'data-part="(\w+)"', part)


def test_addresses_follow_the_mount_point_of_the_application(full: Config) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    caller = Caller()
    app = Starlette(routes=[Mount("/kappa", app=build(full, lambda: caller))])
    html = TestClient(app).get(f"/kappa/topologies/{NAME}").text
    assert 'src="/kappa/static/kappa.js' in html and f'href="/kappa/topologies/{NAME}/3"' in html
    assert f'href="/dags/cutover__{NAME}"' in html, "Airflow's own pages are beside the mount"


def masked_candidate(config: Config, now: datetime) -> TopologyStory:
    """A live epoch and a candidate with its report, both with masked columns."""
    masked = {"tables/rewards": ("TotalLoyaltyPoints", "CustomerCardNo")}
    story = TopologyStory(config=config, name=NAME, masked=masked)
    story.begin(1, now)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    story.begin(2, now, live=1, stages=CANDIDATE, report=report())
    story.ledger(2, steady(now, 3))
    return story


def test_values_of_masked_columns_need_a_separate_right(empty: Config) -> None:
    masked_candidate(empty, clock.now())
    secrets = ("1324.5000", "C0451882", "8,407,112")
    text = page(empty, f"/topologies/{NAME}/2")
    assert not [value for value in secrets if value in text], "columns that were declared after the report was made"
    assert "Values of masked columns are withheld." in text and "gold" in text
    whole = page(empty, f"/topologies/{NAME}/2", Caller(unmasks=True))
    assert all(value in whole for value in secrets) and "withheld" not in whole


@pytest.mark.parametrize("loss", ["the epochs of the report", "the ledger of the live epoch"])
def test_masked_values_stay_withheld_when_the_epochs_of_a_report_are_gone(empty: Config, loss: str) -> None:
    now = clock.now()
    story = masked_candidate(empty, now)
    secrets: tuple[str, ...] = ("1324.5000", "C0451882", "8,407,112")
    if loss == "the ledger of the live epoch":
        shutil.rmtree(story.paths(1).ledger)
        secrets += ("gold",)
    else:
        story.tell(2, "aborted", now)
        story.begin(3, now, live=1, stages=CANDIDATE, report=report(candidate=3))
        story.ledger(3, steady(now, 3))
        story.move(3, 1, 0, now)
        story.tell(1, "dropped", now)
    text = page(empty, f"/topologies/{NAME}/2")
    assert not [value for value in secrets if value in text]
    assert "Values of masked columns are withheld." in text


def test_dead_letters_are_shown_by_reason_and_their_values_with_the_right(empty: Config) -> None:
    story, now = TopologyStory(config=empty, name=NAME, masked={"tables/rewards": ("CustomerCardNo",)}), clock.now()
    story.begin(1, now)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    assert "Dead letters of epoch" not in page(empty, f"/topologies/{NAME}")
    story.dead_letters(1, {"not a JSON object": b"<b>C0451882", "set aside by decision 9: bad deploy": None})
    text = page(empty, f"/topologies/{NAME}")
    assert "Dead letters of epoch 1, by reason" in text and "set aside by decision 9: bad deploy" in text
    assert "C0451882" not in text and "11 bytes" in text and "Values are withheld." in text
    whole = page(empty, f"/topologies/{NAME}", Caller(unmasks=True))
    assert "<b>C0451882" in whole and "withheld" not in whole


def test_dead_letters_hide_no_page_whatever_their_times_and_files_are(empty: Config) -> None:
    story, now = TopologyStory(config=empty, name=NAME), clock.now()
    story.begin(1, now)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    story.dead_letters(1, {"not a JSON object": b"x"}, micros=1_772_323_200_000_000_000)
    assert "+58132-09-08T00:00:00.000000Z" in page(empty, f"/topologies/{NAME}")
    for file in Path(story.paths(1).dead_letters).rglob("*.parquet"):
        file.unlink()
    text = page(empty, f"/topologies/{NAME}")
    assert "Dead letters of epoch 1" in text and "They cannot be read: " in text


class Ends:
    """A broker that is only asked for ends."""

    def __init__(self, answer: Callable[[set[str]], Offsets]) -> None:
        self._answer = answer

    def stable_offsets(self, topics: Iterable[str]) -> Offsets:
        return self._answer(set(topics))


POSITIONS = {"one": Offsets({"a": {0: 5, 1: 7}}), "two": Offsets({"b": {0: 1}})}


def test_the_lag_of_all_topologies_takes_one_request() -> None:
    requests: list[set[str]] = []

    def ends(topics: set[str]) -> Offsets:
        requests.append(topics)
        return Offsets({"a": {0: 9, 1: 7, 2: 3}, "b": {0: 1}})

    lags = Lags(lambda: Ends(ends))
    offsets = until(lambda: lags.now(POSITIONS).offsets)
    assert offsets == {"one": 7, "two": 0} and requests == [{"a", "b"}], "a new partition counts from its beginning"
    assert lags.charted("one", clock.now())[-1] == 7.0


def test_the_page_of_one_topology_removes_no_lag_from_the_page_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kappa_web.pages.lags.LAG_SECONDS", 0.0)
    requests: list[set[str]] = []

    def ends(topics: set[str]) -> Offsets:
        requests.append(topics)
        return Offsets({"a": {0: 9, 1: 7, 2: 3}, "b": {0: 1}})

    lags = Lags(lambda: Ends(ends))
    until(lambda: lags.now(POSITIONS).offsets)
    answered, one = len(requests), {"one": POSITIONS["one"]}
    until(lambda: bool(lags.now(one)) and len(requests) > answered + 1)  # one more is answered, whole
    assert lags.now(one).offsets == {"one": 7, "two": 0}


def test_a_missing_topic_hides_no_lag_of_others() -> None:
    def ends(topics: set[str]) -> Offsets:
        if "a" in topics:
            raise UnknownTopologyError("no such topic", name="a")
        return Offsets({"b": {0: 4}})

    lags = Lags(lambda: Ends(ends))
    assert until(lambda: lags.now(POSITIONS).offsets) == {"two": 3}


def test_no_page_waits_for_a_hanging_broker() -> None:
    released = threading.Event()

    def hangs(topics: set[str]) -> Offsets:
        assert released.wait(DEADLINE)
        raise BrokerUnreachableError("it is down")

    lags = Lags(lambda: Ends(hangs))
    assert lags.now(POSITIONS).offsets == {}, "it returned while the question was under way"
    assert not lags.now(POSITIONS).problem
    released.set()
    assert until(lambda: lags.now(POSITIONS).problem) == "Kafka does not answer."


def test_the_page_says_that_the_broker_does_not_answer(empty: Config) -> None:
    story, now = TopologyStory(config=empty, name=NAME), clock.now()
    story.begin(1, now)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 3))
    asking = client(empty)
    assert "Kafka does not answer. The lag is not known." in until(
        lambda: text if "Kafka does not" in (text := text_of(asking.get("/").text)) else ""
    )


def test_rates_are_records_over_time_with_gaps_before_the_first_row() -> None:
    now = clock.now()
    rows = [
        LedgerRow(kind="commit", seq=1, writer="d", at=now - timedelta(minutes=15), rows_read=600),
        LedgerRow(kind="commit", seq=2, writer="d", at=now, rows_read=300),
    ]
    points = rates(reversed(rows), now)
    assert len(points) == STEPS and points[0] is None
    assert points[STEPS // 2] == 20.0 and points[-1] == 10.0 and points[STEPS // 2 + 1] == 0.0


def test_the_time_of_a_slice_is_split_by_its_protocol_rows(empty: Config) -> None:
    story, now = TopologyStory(config=empty, name=NAME), clock.now()
    story.ledger(1, steady(now, 5, seconds=10), take=4)
    rows = Ledger(story.paths(1).ledger).newest(9)
    assert [row.kind for row in rows] == ["plan", "effects", "commit"] * 3
    breakdown = anatomy(rows)
    assert breakdown is not None and breakdown["slices"] == 3
    assert [(part, middle) for part, _, _, middle, _, _ in breakdown["table"]] == [
        ("wait", "6 s"),
        ("compute", "2.6 s"),
        ("finish", "1.4 s"),
    ]
    assert anatomy([]) is None


def test_a_refused_login_is_a_page(full: Config) -> None:
    def refused() -> None:
        raise HTTPException(403, "Invalid JWT token")

    answer = client(full, refused).get("/")
    assert answer.status_code == 403 and "Invalid JWT token" in answer.text


def test_an_epoch_that_was_rolled_up_has_its_page_and_its_events(
    empty: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_of_epochs, "ROLL_UP_EVENTS", 1)
    epochs, real = record_of_epochs.epochs_of(empty.lake), clock.now
    for epoch, days in ((1, 9), (2, 3)):
        with monkeypatch.context() as patch:
            patch.setattr(clock, "now", lambda days=days: real() - timedelta(days=days))
            plan = empty_plan("a.a", epoch, Offsets({"moves": {0: 4711}}))
            detail = {"plan": plan.to_json(), "plan_id": plan.id, "code": "c", "version": "1"}
            epochs.add("a.a", epoch, "planned", actor="test", reason="a first try", **detail)
            epochs.add("a.a", epoch, "rewound", actor="driver")
            epochs.add("a.a", epoch, "aborted", actor="test", reason="given up")
    record = epochs.record("a.a")
    assert record.epoch(1).rolled_up and not record.epoch(2).rolled_up
    assert [event.event for event in record.events if event.epoch == 1] == ["planned", "aborted"]
    for number in (1, 2):
        assert "4,711" in page(empty, f"/topologies/a.a/{number}")
    for history in ("/topologies/a.a/history", "/history"):
        for place in (history, f"{history}?before=4"):
            assert "a first try" in page(empty, place) and "consumer group rewound" in page(empty, place)
    monkeypatch.setattr(routes, "EVENTS", 3)
    for history in ("/topologies/a.a/history", "/history"):
        assert "a first try" in page(empty, f"{history}?before=4")
        assert "Earlier entries" in page(empty, history) and "Earlier entries" not in page(empty, f"{history}?before=4")
    assert [event.event for event in control.history(empty, "a.a")] == ["planned", "rewound", "aborted"] * 2
    shown = [one.epoch for one in control.status(empty, "a.a").epochs]
    assert shown == [2]
