"""Events that need a decision are posted to the webhook until it accepts them, and nothing waits for that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.receivers import HANG, Receiver, receiver

from kappa.config import Config
from kappa.errors import ConfigError
from kappa.monitoring import notices
from kappa.monitoring.notices import Notices, notice_of
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.presence.watchdog import Line
from kappa.record.epoch_record import TopologyRecord, WholeRecord
from kappa.record.events import Event
from kappa.replay.proof.verdict import CheckResult, DiffReport, OutputDiff

AT = datetime(2026, 3, 1, tzinfo=UTC)


def event(n: int, kind: Any, epoch: int = 8, **detail: Any) -> Event:
    return Event(
        n=n, topology="shop.sums", epoch=epoch, event=kind, at=AT, actor="driver", reason="no room", detail=detail
    )


def verified(n: int, *, rows: int = 0, ok: bool = True) -> Event:
    report = DiffReport(
        topology="shop.sums",
        live_epoch=7,
        live_seq=3,
        candidate_epoch=8,
        candidate_seq=2,
        at=Offsets({"orders": {0: 5}}),
        outputs=(OutputDiff(name="sums", rows_live=5, rows_candidate=5 + rows, rows_added=rows),),
        checks=(CheckResult(name="no sum is lost", ok=ok, detail="c1"),),
    )
    return event(n, "verified", report=report.to_json(), verdict=report.verdict)


def test_an_event_that_needs_a_decision_has_a_notice_with_a_command() -> None:
    events = [
        event(1, "stuck", seq=4),
        verified(2, ok=False),
        verified(3, rows=1),
        event(4, "moved", **{"from": 7}),
        event(5, "moved", 7, **{"from": 8}),
    ]
    contents = [
        (one.event, one.message, one.command) for e in events if (one := notice_of(e, "lake-1", is_rollback=e.n == 5))
    ]
    assert contents == [
        ("STUCK", "Stuck at slice 4: no room", "kappa start shop.sums --epoch 8 --execute"),
        ("FAILED", "1 of its checks, thresholds and second runs do not hold.", "kappa diff shop.sums 8"),
        ("DIFFERS", "Differs from epoch 7, which is live.", "kappa diff shop.sums 8"),
        ("CUTOVER", "Live now, instead of epoch 7.", "kappa rollback shop.sums"),
        ("ROLLBACK", "Live now, instead of epoch 8.", "kappa status shop.sums"),
    ]
    one = notice_of(events[0], "lake-1")
    assert one is not None
    assert (one.id, one.at) == ("lake-1/shop.sums/8/STUCK/1", "2026-03-01T00:00:00+00:00")


def test_an_event_that_needs_no_decision_has_no_notice() -> None:
    quiet = [verified(1), event(2, "moved", **{"from": None}), event(3, "caught_up"), event(4, "start")]
    assert [notice_of(one, "lake-1") for one in quiet] == [None] * 4


def recorded(*events: Event) -> TopologyRecord:
    """A record with events of the past alone."""
    return TopologyRecord(
        topology="shop.sums",
        live=None,
        recent={},
        recent_events=(),
        handover=None,
        standing=None,
        last_move=None,
        savepoints={},
        make_whole=lambda: WholeRecord(epochs={}, moves=(), events=events),
    )


class Posts:
    """Opens notices of one epoch, as its drivers do."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.paths = EpochPaths(lake=config.lake, topology="shop.sums", epoch=8)
        Path(self.paths.root).mkdir(parents=True)
        self.opened: list[Notices] = []

    def __call__(self, *events: Event) -> Notices:
        outbox = Notices(self.config, self.paths, "team-a")
        outbox.open(recorded(*events), "lake-1")
        self.opened.append(outbox)
        return outbox


@pytest.fixture
def posts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Posts]:
    monkeypatch.setattr(notices, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(notices, "TIMEOUT_SECONDS", 0.5)
    posts = Posts(Config.from_env({"KAPPA_HOME": str(tmp_path)}))
    yield posts
    for one in posts.opened:
        one.close()


def wait(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ids(requests: list[dict[str, Any]]) -> list[str]:
    return [one["id"].rpartition("STUCK/")[2] for one in requests]


def at(posts: Posts, hook: Receiver) -> None:
    posts.config = replace(posts.config, webhook_url=hook.url)


def test_a_notice_is_posted_until_the_receiver_accepts_it_and_then_the_next(posts: Posts) -> None:
    with receiver(500, HANG, 302, 429) as hook:
        at(posts, hook)
        with capture_logs() as logs:
            one = posts()
            one.look(recorded(event(1, "stuck", seq=4)))
            one.look(recorded(event(1, "stuck", seq=4), event(2, "start"), event(3, "stuck", seq=4)))
            assert hook.taken == []  # the driver went on before the receiver took anything
            wait(lambda: len(hook.taken) == 2)
        assert ids(hook.taken) == ["1", "3"] and ids(hook.requests) == ["1", "1", "1", "1", "1", "3"]
        assert hook.taken[0] == {
            "id": "lake-1/shop.sums/8/STUCK/1",
            "event": "STUCK",
            "topology": "shop.sums",
            "epoch": 8,
            "message": "Stuck at slice 4: no room",
            "command": "kappa start shop.sums --epoch 8 --execute",
            "at": "2026-03-01T00:00:00+00:00",
            "verdict": "",
            "link": "",
            "owner": "team-a",
        }
    refused = [entry["error"] for entry in logs if entry["event"] == "notice not taken"]
    assert refused == ["HTTP 500", "ReadTimeout", "HTTP 302", "HTTP 429"]
    assert "s3cret" not in str(logs)


def test_a_notice_that_is_refused_for_itself_holds_back_no_later_one(posts: Posts) -> None:
    with receiver(400, 500, *[422] * notices.TRIES) as hook:
        at(posts, hook)
        with capture_logs() as logs:
            one = posts()
            first, second = event(1, "stuck", seq=4), event(3, "stuck", seq=4)
            one.look(recorded(first, event(2, "start"), second))
            wait(lambda: len(hook.taken) == 1)
            one.close()
        assert ids(hook.taken) == ["3"] and ids(hook.requests) == ["1"] * (notices.TRIES + 2) + ["3"]
        posts().look(recorded(first, event(2, "start"), second, event(4, "stuck", seq=5)))
        wait(lambda: len(hook.taken) == 2)
        assert ids(hook.taken) == ["3", "4"], "the next driver does not post what was skipped"
    (entry,) = [entry for entry in logs if entry["event"] == "notice skipped"]
    assert (entry["error"], entry["log_level"], entry["skipped"]) == ("HTTP 422", "error", 1)
    assert entry["id"].endswith("/STUCK/1")


@pytest.mark.parametrize("status", [401, 403, 404, 408, 410, 429])
def test_a_notice_waits_where_the_receiver_refuses_the_sender_or_the_moment(posts: Posts, status: int) -> None:
    with receiver(*[status] * (notices.TRIES + 1)) as hook:
        at(posts, hook)
        posts().look(recorded(event(1, "stuck", seq=4)))
        wait(lambda: len(hook.taken) == 1)
        assert ids(hook.taken) == ["1"]


def test_the_next_driver_posts_unposted_notices_and_repeats_none(posts: Posts) -> None:
    with receiver(204) as hook:
        at(posts, hook)
        hook.later = 503
        one = posts(event(1, "stuck", seq=2))
        record = [event(n, "stuck", seq=n) for n in (1, 2, 3)]
        one.look(recorded(*record))
        wait(lambda: ids(hook.requests)[:2] == ["2", "3"])
        one.close()
        hook.later = 204
        second = posts(*record)
        second.look(recorded(*record))
        wait(lambda: ids(hook.taken) == ["2", "3"])
        second.close()
        third = posts(*record)
        third.look(recorded(*record))
        third.close()
        assert ids(hook.taken) == ["2", "3"]


@pytest.mark.parametrize(
    "content",
    [
        *("", "x", "[]", "{}", '{"format": 1}', '{"format": 1, "told": null}', '{"format": 1, "told": 1e999}'),
        *('{"format": "1", "told": 2}', '{"format": 99, "told": 2}', '"9"', "null", "\xff"),
    ],
)
def test_a_file_that_is_not_a_bookmark_ends_no_driver(posts: Posts, content: str) -> None:
    with receiver() as hook, capture_logs() as logs:
        at(posts, hook)
        Path(posts.paths.notices).write_bytes(content.encode("latin-1"))
        one = posts(event(1, "stuck", seq=1))
        one.look(recorded(event(1, "stuck", seq=1), event(2, "stuck", seq=2)))
        one.close()
    assert hook.requests == [] and "no notices" in str(logs)


def test_events_of_other_epochs_and_before_the_first_driver_are_not_posted(posts: Posts) -> None:
    with receiver() as hook:
        at(posts, hook)
        record = [event(1, "stuck", seq=1), event(2, "stuck", 7, seq=1)]
        one = posts(record[0])
        one.look(recorded(*record))
        one.look(recorded(*record, event(3, "stuck", seq=3)))
        wait(lambda: hook.taken)
        one.close()
        assert ids(hook.requests) == ["3"]


def test_a_hanging_line_is_posted_and_a_slow_one_is_not(posts: Posts) -> None:
    with receiver() as hook:
        at(posts, hook)
        one = posts()
        one.hangs(Line(name="effects of slice 4", seconds=301, level="slow"), 3, "2026-03-01")
        one.hangs(Line(name="effects of slice 4", seconds=1201, level="stuck"), 3, "2026-03-01")
        wait(lambda: hook.taken)
        one.close()
        (request,) = hook.requests
        assert request["id"] == "lake-1/shop.sums/8/STUCK/3/effects of slice 4/2026-03-01"
        assert request["owner"] == "team-a"
        assert request["message"] == "stuck: 'effects of slice 4' has not ended for 20.0 min"


def test_a_line_that_hangs_again_is_another_notice(posts: Posts) -> None:
    line = Line(name="effects of slice 4", seconds=1201, level="stuck")
    with receiver() as hook:
        at(posts, hook)
        for time in ("2026-03-01T00:00:00+00:00", "2026-03-01T08:00:00+00:00"):  # each a driver of its own
            one = posts()
            one.hangs(line, 3, time)
            one.close()
        assert len({request["id"] for request in hook.requests}) == 2


def test_a_driver_in_another_environment_is_posted(posts: Posts) -> None:
    with receiver() as hook:
        at(posts, hook)
        one = posts()
        one.strays("environment e2 instead of its own, e1: lib was 1, and is 2 now", "e2", "2026-03-01")
        wait(lambda: hook.taken)
        one.close()
        (request,) = hook.requests
        assert (request["id"], request["event"]) == ("lake-1/shop.sums/8/ENVIRONMENT/e2", "ENVIRONMENT")
        assert request["message"] == "Runs in environment e2 instead of its own, e1: lib was 1, and is 2 now."


def test_an_absent_receiver_is_logged_without_its_url_and_a_driver_ends_in_time(posts: Posts) -> None:
    posts.config = replace(posts.config, webhook_url="http://127.0.0.1:1/hooks/s3cret")
    with capture_logs() as logs:
        one = posts()
        one.look(recorded(event(1, "stuck", seq=1)))
        wait(lambda: any(entry["event"] == "notice not taken" for entry in logs))
        one.close()
    assert {"event": "notices left", "ids": ["lake-1/shop.sums/8/STUCK/1"]}.items() <= logs[-1].items()
    assert "s3cret" not in str(logs)


def test_the_url_may_be_in_a_file_that_is_read_at_each_attempt(posts: Posts, tmp_path: Path) -> None:
    file = tmp_path / "url"
    posts.config = replace(posts.config, webhook_url_file=str(file))
    with receiver() as hook, capture_logs() as logs:
        one = posts()
        one.look(recorded(event(1, "stuck", seq=1)))
        wait(lambda: any(entry["event"] == "notice not taken" for entry in logs))
        file.write_text(f"{hook.url}\n")
        wait(lambda: ids(hook.taken) == ["1"])


def test_without_a_url_nothing_is_posted_and_no_file_is_written(posts: Posts) -> None:
    posts().look(recorded(event(1, "stuck", seq=1)))
    assert not Path(posts.paths.notices).exists()


def test_without_a_url_a_driver_does_not_read_the_past(posts: Posts) -> None:
    def read() -> WholeRecord:
        raise AssertionError("the whole record was made")

    record = replace(recorded(), make_whole=read)
    one = Notices(posts.config, posts.paths)
    one.open(record, "lake-1")
    one.look(record)
    with receiver() as hook:
        at(posts, hook)
        with capture_logs() as logs:
            Notices(posts.config, posts.paths).open(record, "lake-1")
    assert "the whole record was made" in str(logs)


def test_an_invalid_url_or_one_beside_a_file_is_refused_without_being_shown(tmp_path: Path) -> None:
    for values in (
        {"KAPPA_WEBHOOK_URL": "s3cret"},
        {"KAPPA_WEBHOOK_URL": "http://s3cret", "KAPPA_WEBHOOK_URL_FILE": "f"},
    ):
        with pytest.raises(ConfigError, match="WEBHOOK_URL") as error:
            Config.from_env({"KAPPA_HOME": str(tmp_path), **values})
        assert "s3cret" not in str(error.value) and "s3cret" not in str(error.value.data)
    assert "s3cret" not in repr(Config.from_env({"KAPPA_WEBHOOK_URL": "http://s3cret"}))
