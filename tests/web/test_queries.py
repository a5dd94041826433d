"""Queries over HTTP: what they answer, of which slice, to whom."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from support.slices import TABLE, TOPOLOGY, Epoch, keys, merged
from support.slices import slices as drawn_slices
from support.web_site import Rights, Site

from kappa import clock, serving
from kappa.control.lakes import moving
from kappa.errors import UnknownEpochError, UnknownTopologyError
from kappa.topology import Source, Table, Topology
from kappa_web.app import build
from kappa_web.scans import Cursor

SUMS = "/tables/sums/sums"


class TestRows:
    def test_a_row_is_found_by_all_columns_of_its_key(self, site: Site) -> None:
        answer = site.get(f"{SUMS}/b/1").json()
        assert answer["row"] == {"id": "b", "select": 1, "total": 6}
        assert (answer["snapshot"]["epoch"], answer["snapshot"]["seq"]) == (1, 2)
        assert answer["snapshot"]["position"] == {"pos": {"0": 3}}

    def test_the_newest_change_is_served_before_it_is_merged(self, own_site: Site) -> None:
        own_site.epoch.merge_after(1e9)
        own_site.epoch.slice({("a", 0): 9})
        own_site.epoch.slice({("b", 0): None})
        assert own_site.get(f"{SUMS}/a/0").json()["row"]["total"] == 9
        assert own_site.problem(f"{SUMS}/b/0") == (404, "no-such-key")
        assert own_site.get(f"{SUMS}/b/1").json()["row"]["total"] == 6

    def test_a_key_may_have_any_text(self, own_site: Site) -> None:
        names = ["a/b", "é ✓", "x?y#z", "%2F", "..", "it's", "", " ", '";--']
        own_site.epoch.slice({(name, 7): 1 for name in names})
        answers = [own_site.get(f"{SUMS}/{quote(name, safe='')}/7".replace("..", "%2E%2E")).json() for name in names]
        assert [answer["row"]["id"] for answer in answers] == names

    @pytest.mark.parametrize("key", ["b", "b/1/2", "b/one", "b/99999999999", "%FF/1", "b/1.0"])
    def test_a_key_of_another_type_is_a_malformed_request(self, site: Site, key: str) -> None:
        assert site.problem(f"{SUMS}/{key}") == (400, "malformed")

    @pytest.mark.parametrize(
        ("kind", "key", "others", "wrong"),
        [
            (
                "DECIMAL(38,10)",
                "1234567890123456789012345678.5",
                ["9999999999999999999999999999.9999999999", "-1E+27", "0E-900000", "0E+900000"],
                ["1E+28", "0.00000000001", "1E-900000", "1E+900000", "NaN", "sNaN", "Infinity", "9" * 101],
            ),
            ("DECIMAL(20,2)", "123456789012345678.55", ["1e17", "5.00000"], ["1e18", "0.005"]),
            ("DECIMAL(12)", "123456789012", ["1e11"], ["1e12", "0.5"]),
            ("NUMERIC(5)", "12345", ["1"], ["123456"]),
            ("DECIMAL(38,0)", "10000000000000000000000000000000000001", ["1e37", "5.000"], ["1e38", "0.5"]),
            ("DECIMAL(38,38)", "0.12345678901234567890123456789012345678", ["-0.5"], ["1", "1e-39"]),
        ],
    )
    def test_a_key_may_have_all_digits_of_a_decimal(
        self, tmp_path: Path, kind: str, key: str, others: list[str], wrong: list[str]
    ) -> None:
        table = Table(name="sums", key=["amount"], schema=f"amount {kind} NOT NULL")
        source = Source(topic="pos", schema="id STRING NOT NULL")
        site = Site(tmp_path, Topology(name="sums", version="1", sources=[source], tables=[table], step=lambda _: {}))
        site.epoch.put({"amount": Decimal(key)})
        assert f'"amount":{key}' in site.get(f"{SUMS}/{key}").text
        assert len(site.rows(SUMS, params={"from": key})) == 1
        for text in others:
            assert site.problem(f"{SUMS}/{quote(text)}") == (404, "no-such-key"), text
        for text in wrong:
            assert site.problem(f"{SUMS}/{quote(text)}") == (400, "malformed"), text

    @pytest.mark.parametrize(
        ("kind", "numbers", "texts"),
        [
            ("DATE", [-719_893, 2_932_897], ["-0001-01-01", "+10000-01-01"]),
            (
                "TIMESTAMP",
                [-(2**63), 253_402_300_800_000_000],
                ["-290308-12-21T19:59:05.224192Z", "+10000-01-01T00:00:00.000000Z"],
            ),
        ],
    )
    def test_a_key_is_found_by_the_text_that_it_has_in_an_answer(
        self, tmp_path: Path, kind: str, numbers: list[int], texts: list[str]
    ) -> None:
        table = Table(name="sums", key=["at"], schema=f"at {kind} NOT NULL")
        source = Source(topic="pos", schema="id STRING NOT NULL")
        site = Site(tmp_path, Topology(name="sums", version="1", sources=[source], tables=[table], step=lambda _: {}))
        site.epoch.put(*({"at": number} for number in numbers))
        assert site.rows(SUMS) == [{"at": text} for text in texts]
        assert [site.get(f"{SUMS}/{quote(text)}").json()["row"]["at"] for text in texts] == texts
        assert site.rows(SUMS, params={"from": texts[1]}) == [{"at": texts[1]}]

    @pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_LTZ"])
    def test_a_scan_goes_on_with_its_cursor_for_a_key_of_any_name(self, tmp_path: Path, kind: str) -> None:
        table = Table(name="sums", key=["at"], schema=f"at {kind} NOT NULL")
        source = Source(topic="pos", schema="id STRING NOT NULL")
        site = Site(tmp_path, Topology(name="sums", version="1", sources=[source], tables=[table], step=lambda _: {}))
        times = [datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2)]
        site.epoch.put(*({"at": at} for at in times))
        assert site.get(f"{SUMS}/2026-03-01T00:00:00Z").status_code == 200
        first = site.get(SUMS, params={"from": "2026-01-01T00:00:00Z", "limit": 1}).json()
        rest = site.get(SUMS, params={"from": "2026-01-01T00:00:00Z", "limit": 1, "cursor": first["next"]}).json()
        assert [row["at"][:10] for row in (*first["rows"], *rest["rows"])] == ["2026-03-01", "2026-03-02"]

    def test_a_row_is_served_as_of_an_earlier_slice_or_time(self, own_site: Site) -> None:
        before = datetime.now(UTC)
        own_site.epoch.slice({("b", 1): 60})
        assert own_site.get(f"{SUMS}/b/1").json()["row"]["total"] == 60
        assert own_site.get(f"{SUMS}/b/1", params={"epoch": 1, "seq": 2}).json()["row"]["total"] == 6
        assert own_site.get(f"{SUMS}/b/1", params={"at": before.isoformat()}).json()["row"]["total"] == 6
        assert own_site.problem(f"{SUMS}/b/1", params={"epoch": 1, "seq": 1}) == (404, "no-such-key")
        assert own_site.problem(f"{SUMS}/b/1", params={"at": "2001-01-01T00:00:00Z"}) == (404, "no-such-epoch")

    def test_a_row_says_how_far_it_is_behind(self, site: Site) -> None:
        answer = site.get(f"{SUMS}/a/0")
        assert answer.json()["snapshot"]["stale"]["offsets"] is None, "the broker does not answer"
        assert answer.json()["snapshot"]["stale"]["seconds"] > 0
        assert float(answer.headers["Kappa-Stale-Seconds"]) > 0

    def test_a_row_is_served_when_its_source_topic_is_gone(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        def gone(*_: object) -> None:
            raise UnknownTopologyError("no such topic", name="pos")

        monkeypatch.setattr("kappa.kafka.broker.Broker.stable_offsets", gone)
        answer = TestClient(build(site.config, lambda: site.rights)).get(f"{SUMS}/a/0")
        assert (answer.status_code, answer.json()["snapshot"]["stale"]["offsets"]) == (200, None)

    def test_a_row_is_served_as_of_a_time_after_a_clock_was_set_back(
        self, own_site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begin = datetime.now(UTC)
        for total, minutes in enumerate((50, 30, 60)):
            monkeypatch.setattr(clock, "now", lambda m=minutes: begin + timedelta(minutes=m))
            own_site.epoch.slice({("z", 0): total})
        at = (begin + timedelta(minutes=40)).isoformat()
        assert own_site.get(f"{SUMS}/z/0", params={"at": at}).json()["row"]["total"] == 1


class TestCaching:
    def test_a_cached_answer_is_valid_until_the_next_slice(self, own_site: Site) -> None:
        tag = own_site.get(f"{SUMS}/a/0").headers["ETag"]
        again = own_site.get(f"{SUMS}/a/0", headers={"If-None-Match": f'"x", W/{tag}'})
        assert (again.status_code, again.content) == (304, b"")
        own_site.epoch.slice({("z", 0): 1})
        assert own_site.get(f"{SUMS}/a/0", headers={"If-None-Match": tag}).status_code == 200

    def test_a_copy_of_a_live_epochs_row_is_not_valid_after_the_cutover(self, own_site: Site) -> None:
        pinned = f"{SUMS}/a/0?epoch=1&seq=2"
        copy = own_site.get(pinned)
        Epoch(own_site.base / "lake", epoch=2)
        own_site.tell("planned", "rewound", "seeded", "replayed", "caught_up", "verified", "moved", epoch=2)
        answer = own_site.get(pinned, headers={"If-None-Match": copy.headers["ETag"]})
        assert (copy.json()["snapshot"]["is_live"], answer.json()["snapshot"]["is_live"]) == (True, False)
        assert own_site.get(pinned, headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304


class TestScans:
    def test_a_scan_has_rows_in_the_order_of_their_keys(self, site: Site) -> None:
        assert [(r["id"], r["select"]) for r in site.rows(SUMS)] == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c'", 0)]

    @pytest.mark.parametrize(
        ("params", "totals"),
        [
            ({"key": "a"}, [3, 4]),
            ({"key": ["a", "1"]}, [4]),
            ({"prefix": "c"}, [7]),
            ({"prefix": "c'"}, [7]),
            ({"prefix": ""}, [3, 4, 5, 6, 7]),
            ({"from": "b"}, [5, 6, 7]),
            ({"from": "a", "to": "b"}, [3, 4]),
            ({"key": "b", "from": "1"}, [6]),
            ({"key": "b", "to": "1"}, [5]),
            ({"key": "none"}, []),
        ],
    )
    def test_a_scan_is_limited_by_a_key_a_prefix_or_a_range(
        self, site: Site, params: dict[str, Any], totals: list[int]
    ) -> None:
        assert [row["total"] for row in site.rows(SUMS, params=params)] == totals

    @pytest.mark.parametrize(
        "params",
        [
            {"key": ["a", "1", "2"]},
            {"key": ["a", "1"], "from": "0"},
            {"key": "a", "prefix": "1"},
            {"key": "a", "from": "x"},
            {"window_from": "2026-03-01T00:00:00Z"},
            {"limit": 0},
            {"limit": 10_001},
            {"limit": "many"},
            {"cursor": "none"},
            {"cursor": Cursor(epoch=1, seq=1, scan="0" * 16, after=("a", "0")).text()},
            {"cursor": "WzEsMSwieCIsW11d"},
            {"seq": 1},
            {"epoch": 1, "seq": 1, "at": "2026-03-01T00:00:00Z"},
            {"at": "yesterday"},
            {"at": "2026-03-01T00:00:00"},
            {"epoch": -1},
        ],
    )
    def test_a_scan_with_invalid_parameters_is_a_malformed_request(self, site: Site, params: dict[str, Any]) -> None:
        assert site.problem(SUMS, params=params) == (400, "malformed")

    @pytest.mark.parametrize(
        ("route", "words"),
        [
            (f"{SUMS}?form=b", "There is no parameter 'form' here. Give one of these: at, cursor, epoch, from,"),
            (f"{SUMS}/a/0?epoch=1&sequence=1", "There is no parameter 'sequence' here. Give one of these: at,"),
            (f"{SUMS}/a/0?Seq=1&epoch=1", "There is no parameter 'Seq' here"),
            (f"{SUMS}/a/0?limit=1", "There is no parameter 'limit' here"),
            ("/metadata/sums?seq=1", "There is no parameter 'seq' here. Give one of these: epoch."),
            ("/metadata?topology=sums", "There is no parameter 'topology' here. Give one of these: none."),
            (f"{SUMS}?from=a&from=b", "Parameter 'from' has 2 values. Give it once."),
            (f"{SUMS}/a/0?epoch=1&seq=1&seq=2", "Parameter 'seq' has 2 values."),
            (f"{SUMS}?prefix=%FF", "not text in UTF-8"),
            (f"{SUMS}?key=%C3", "not text in UTF-8"),
            (f"{SUMS}?%FF", "not text in UTF-8"),
        ],
    )
    def test_a_parameter_that_would_be_ignored_is_a_malformed_request(self, site: Site, route: str, words: str) -> None:
        assert site.problem(route) == (400, "malformed")
        assert words in site.get(route).json()["detail"]

    def test_all_pages_of_a_scan_are_of_one_slice(self, own_site: Site) -> None:
        first = own_site.get(SUMS, params={"limit": 2}).json()
        own_site.epoch.slice({("a", 0): None, ("b", 0): 50, ("d", 0): 8})
        second = own_site.get(SUMS, params={"limit": 2, "cursor": first["next"]}).json()
        last = own_site.get(SUMS, params={"limit": 2, "cursor": second["next"]}).json()
        rows = [*first["rows"], *second["rows"], *last["rows"]]
        assert [row["total"] for row in rows] == [3, 4, 5, 6, 7]
        assert (second["snapshot"]["seq"], last["snapshot"]["seq"], last["next"]) == (2, 2, None)
        assert [row["total"] for row in own_site.rows(SUMS)] == [4, 50, 6, 7, 8]

    def test_a_scan_of_a_slice_whose_files_are_gone_begins_again(self, own_site: Site) -> None:
        cursor = own_site.get(SUMS, params={"limit": 2}).json()["next"]
        row = own_site.epoch.slice({("d", 0): 8})
        own_site.epoch.run.ledger.append(replace(row, kind="maintain", detail={"readable_from": 3, "savepoints": []}))
        assert own_site.problem(SUMS, params={"limit": 2, "cursor": cursor}) == (409, "cleaned-up")

    @settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(slices=drawn_slices, limit=st.integers(1, 4), start=keys, is_merged=st.booleans())
    def test_pages_of_a_scan_give_each_row_once(
        self, tmp_path: Path, slices: Any, limit: int, start: tuple[str, int], is_merged: bool
    ) -> None:
        site = _fresh(tmp_path)
        site.epoch.merge_after(0 if is_merged else 1e9)
        rows: dict[tuple[str, int], int] = {}
        for changes in slices:
            site.epoch.slice(changes)
            rows = merged(rows, changes)
        entries, cursor = [], None
        while True:
            params = {"limit": limit, "from": start[0], **({"cursor": cursor} if cursor else {})}
            page = site.get(SUMS, params=params).json()
            assert len(page["rows"]) <= limit
            entries += page["rows"]
            site.epoch.slice({start: 1})  # commits go on
            cursor = page["next"]
            if cursor is None:
                break
        expected_keys = sorted((key for key in rows if key[0] >= start[0]), key=lambda key: (key[0].encode(), key[1]))
        assert [(row["id"], row["select"]) for row in entries] == expected_keys
        assert [row["total"] for row in entries] == [rows[key] for key in expected_keys]


def _fresh(base: Path) -> Site:
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir()
    return Site(base)


class TestWindows:
    @pytest.fixture
    def windows(self, tmp_path: Path) -> Site:
        table = Table(
            name="views",
            key=["page", "window_start"],
            schema="page STRING NOT NULL, window_start TIMESTAMP NOT NULL, views DECIMAL(20,2), card STRING, "
            "raw BINARY",
            masked=["card"],
        )
        source = Source(topic="pos", schema="id STRING NOT NULL")
        site = Site(tmp_path, Topology(name="pages", version="1", sources=[source], tables=[table], step=lambda _: {}))
        site.epoch.put(
            *(
                {
                    "page": page,
                    "window_start": datetime(2026, 3, 1, hour, tzinfo=UTC),
                    "views": 10**17 + hour,
                    "card": "4711",
                    "raw": b"\x00\xff",
                }
                for page in ("a", "b")
                for hour in range(4)
            )
        )
        return site

    def test_windows_are_requested_by_time_and_by_key(self, windows: Site) -> None:
        times = {"window_from": "2026-03-01T01:00:00Z", "window_to": "2026-03-01T04:00:00+01:00"}
        rows = windows.rows("/tables/pages/views", params=times)
        assert [(row["page"], row["window_start"]) for row in rows] == [
            (page, f"2026-03-01T0{hour}:00:00.000000Z") for page in "ab" for hour in (1, 2)
        ]
        rows = windows.rows("/tables/pages/views", params={"key": "b", "from": "2026-03-01T03:00:00Z"})
        assert [row["page"] for row in rows] == ["b"]
        one = windows.get("/tables/pages/views/b/2026-03-01T03:00:00.000000Z")
        assert one.json()["row"] == rows[0]
        assert '"views":100000000000000003.00' in one.text, "a decimal has all its digits"
        assert one.json()["row"]["raw"] == "AP8="

    def test_windows_are_paged_by_time(self, windows: Site) -> None:
        rows, cursor = [], ""
        while cursor is not None:
            page = windows.get("/tables/pages/views", params={"limit": 3, **({"cursor": cursor} if cursor else {})})
            rows += page.json()["rows"]
            cursor = page.json()["next"]
        assert rows == windows.rows("/tables/pages/views")
        assert len(rows) == 8

    def test_masked_values_of_windows_are_for_callers_with_the_right(self, windows: Site) -> None:
        hidden = windows.get("/tables/pages/views")
        assert "4711" not in hidden.text
        assert hidden.json()["withheld"] == ["card"]
        windows.rights.unmasks = True
        visible = windows.get("/tables/pages/views", headers={"If-None-Match": hidden.headers["ETag"]})
        assert visible.status_code == 200, "a copy without the values is none with them"
        assert {row["card"] for row in visible.json()["rows"]} == {"4711"}

    def test_rows_are_not_requested_by_masked_windows_without_the_right(self, tmp_path: Path) -> None:
        schema = "card STRING NOT NULL, window_start TIMESTAMP"
        table = Table(name="births", key=["card"], schema=schema, masked=["window_start"])
        source = Source(topic="pos", schema="id STRING NOT NULL")
        topology = Topology(name="cards", version="1", sources=[source], tables=[table], step=lambda _: {})
        site = Site(tmp_path / "cards", topology)
        site.epoch.put({"card": "4711", "window_start": datetime(1970, 1, 2, tzinfo=UTC)})
        rows = "/tables/cards/births"
        assert site.rows(rows) == [{"card": "4711", "window_start": None}]
        for bound in ("window_from=1970-01-02T00:00:00Z", "window_to=1970-01-03T00:00:00Z"):
            assert site.problem(f"{rows}?{bound}") == (403, "masked-window")
        site.rights.unmasks = True
        assert len(site.rows(f"{rows}?window_from=1970-01-02T00:00:00Z")) == 1

    def test_what_the_live_epoch_masks_is_masked_in_each_epoch(self, own_site: Site) -> None:
        masked = replace(TOPOLOGY, tables=[replace(TABLE, masked=["total"])])
        Epoch(own_site.base / "lake", masked, 2).slice({("a", 0): 4})
        own_site.tell("planned", "rewound", "seeded", "replayed", "caught_up", "verified", epoch=2)
        before = own_site.get(f"{SUMS}/a/0").json()
        assert (before["row"]["total"], before["withheld"]) == (3, [])
        assert own_site.get(f"{SUMS}/a/0?epoch=2").json()["row"]["total"] is None
        own_site.tell("moved", epoch=2)
        for path in (f"{SUMS}/a/0", f"{SUMS}/a/0?epoch=1", f"{SUMS}/a/0?epoch=1&seq=1"):
            answer = own_site.get(path).json()
            assert (answer["row"]["total"], answer["withheld"]) == (None, ["total"]), path
        assert own_site.get("/metadata/sums?epoch=1").json()["tables"]["sums"]["columns"]["total"]["masked"]
        own_site.rights.unmasks = True
        assert own_site.get(f"{SUMS}/a/0?epoch=1").json()["row"]["total"] == 3

    def test_windows_of_a_masked_key_are_for_callers_with_the_right(self, tmp_path: Path) -> None:
        table = Table(name="cards", key=["card"], schema="card STRING NOT NULL", masked=["card"])
        source = Source(topic="pos", schema="id STRING NOT NULL")
        topology = Topology(name="cards", version="1", sources=[source], tables=[table], step=lambda _: {})
        site = Site(tmp_path / "cards", topology)
        site.epoch.put({"card": "4711"})
        assert site.problem("/tables/cards/cards") == (403, "masked-key")
        assert site.problem("/tables/cards/cards/4711") == (403, "masked-key")
        site.rights.unmasks = True
        assert site.rows("/tables/cards/cards") == [{"card": "4711"}]


class TestMissingParts:
    @pytest.mark.parametrize(
        ("path", "problem"),
        [
            ("/tables/nope/sums/a/0", (404, "no-such-topology")),
            ("/tables/sums/nope/a/0", (404, "no-such-table")),
            ("/tables/sums/nope", (404, "no-such-table")),
            (f"{SUMS}/x/0", (404, "no-such-key")),
            (f"{SUMS}?epoch=7", (404, "no-such-epoch")),
            (f"{SUMS}?epoch=1&seq=99", (404, "no-such-epoch")),
            ("/metadata/nope", (404, "no-such-topology")),
        ],
    )
    def test_missing_parts_are_distinguished(self, site: Site, path: str, problem: tuple[int, str]) -> None:
        assert site.problem(path) == problem

    def test_temporarily_missing_parts_ask_for_a_retry(self, own_site: Site) -> None:
        own_site.tell("planned", epoch=2)  # nothing is committed
        assert own_site.problem(f"{SUMS}?epoch=2") == (503, "not-now")
        shutil.move(own_site.config.lake, f"{own_site.config.lake}.away")
        answer = own_site.get(SUMS)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")

    def test_a_removed_epoch_is_not_waited_for(self, own_site: Site) -> None:
        own_site.tell("planned", "rewound", "seeded", epoch=2)
        Epoch(own_site.base / "lake", epoch=2).slice({("a", 0): 1, ("b", 0): 2})
        page = {"epoch": 2, "limit": 1}
        cursor = own_site.get(SUMS, params=page).json()["next"]
        assert own_site.get("/metadata").json()["topologies"][0]["epochs"] == [1, 2]
        own_site.tell("aborted", epoch=2)
        assert own_site.get("/metadata").json()["topologies"][0]["epochs"] == [1]
        for files in ("there for a moment", "gone"):
            for path in (f"{SUMS}?epoch=2", f"{SUMS}/a/0?epoch=2&seq=1", f"{SUMS}?limit=1&cursor={cursor}"):
                assert own_site.problem(path) == (409, "cleaned-up"), files
            assert "Epoch 2 of 'sums' was aborted" in own_site.get("/metadata/sums?epoch=2").json()["detail"]
            with pytest.raises(UnknownEpochError, match="was aborted"):
                serving.snapshot(own_site.config, "sums", epoch=2)
            shutil.rmtree(own_site.base / "lake" / "sums" / "e0002", ignore_errors=True)

    def test_a_lake_that_has_moved_says_where_it_is(self, own_site: Site) -> None:
        assert own_site.get(SUMS).status_code == 200
        moving.copy(own_site.config, address := f"{own_site.config.lake}.moved", actor="ann")
        assert own_site.problem(SUMS) == (503, "not-now")
        assert f"has moved to {address}" in own_site.get(SUMS).text

    def test_callers_without_the_right_learn_nothing(self, site: Site) -> None:
        site.rights.reads = False
        for path in (SUMS, f"{SUMS}/a/0", "/metadata/sums", "/tables/nope/nope", "/metadata/nope"):
            assert site.problem(path) == (403, "forbidden")
        assert site.get("/metadata").json() == {"topologies": []}


class TestMetadata:
    def test_metadata_names_what_serves_a_topology(self, site: Site) -> None:
        assert site.get("/metadata").json() == {"topologies": [{"name": "sums", "live_epoch": 1, "epochs": [1]}]}
        answer = site.get("/metadata/sums").json()
        assert (answer["snapshot"]["epoch"], answer["snapshot"]["seq"], answer["snapshot"]["is_live"]) == (1, 2, True)
        assert answer["writer"]["state"] == "never"
        table = answer["tables"]["sums"]
        assert table["key"] == ["id", "select"]
        assert table["columns"]["total"] == {"type": "BIGINT", "required": False, "masked": False}
        from deltalake import DeltaTable

        assert DeltaTable(table["path"]).version() == table["delta_version"]

    def test_answers_match_the_openapi_document(self, site: Site) -> None:
        from kappa_web import answers

        answers.MetadataAnswer.model_validate(site.get("/metadata/sums").json())
        answers.TopologiesAnswer.model_validate(site.get("/metadata").json())
        answers.PageAnswer.model_validate(site.get(SUMS).json())
        answers.RowAnswer.model_validate(site.get(f"{SUMS}/a/0").json())
        answers.ProblemAnswer.model_validate(site.get(f"{SUMS}/x/0").json())
        described = site.get("/openapi.json").json()["paths"]
        assert set(described) == {
            "/metadata",
            "/metadata/{topology}",
            SUMS.replace("sums", "{}", 1).format("{topology}").replace("/sums", "/{table}"),
            "/tables/{topology}/{table}/{key}",
        }


def test_every_route_checks_the_callers_rights(site: Site) -> None:
    paths: list[str] = []
    app = site.client.app
    routes = [route for route in app.routes if isinstance(route, APIRoute)]  # type: ignore[attr-defined]
    assert len(routes) == len(app.routes), "a route of another kind has no dependencies"  # type: ignore[attr-defined]
    for route in routes:
        calls = [dependency.call for dependency in route.dependant.dependencies]
        paths += [route.path] if any(isinstance(call(), Rights) for call in calls if call) else []
    assert paths == [route.path for route in routes]
