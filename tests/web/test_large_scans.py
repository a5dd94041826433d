"""Scans of tables that are too large for them: what is refused, and what the refusal names."""

from __future__ import annotations

import pytest
from support.web_site import Site

from kappa.delta import table_files, tables
from kappa_web import queries

SUMS = "/tables/sums/sums"


def test_a_scan_of_a_whole_large_table_is_refused_with_the_way_to_read_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = site.epoch.paths.table("sums")
    size = table_files.size_bytes(path, tables.version(path))
    monkeypatch.setattr(queries, "SCAN_BYTES", size)
    assert len(site.rows(SUMS)) == 5
    monkeypatch.setattr(queries, "SCAN_BYTES", size - 1)
    refusal = site.get(SUMS).json()
    assert (refusal["status"], refusal["type"]) == (400, "urn:kappa:problem:too-large")
    assert refusal["detail"].startswith("Each page of this scan would read all of table 'sums'")
    command = f"spark.read.option('versionAsOf', {tables.version(path)}).format('delta').load({path!r})"
    assert refusal["detail"].endswith(command)
    assert site.problem(f"{SUMS}?prefix=") == (400, "too-large")
    assert [row["total"] for row in site.rows(SUMS, params={"key": "a"})] == [3, 4]


def test_a_refused_scan_of_an_earlier_slice_gives_the_delta_version_of_that_slice(
    own_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {}
    for seq, seconds in ((3, 0.0), (4, 1e9), (5, 0.0)):
        own_site.epoch.merge_after(seconds)
        own_site.epoch.slice({("a", 0): seq})
        versions[seq] = tables.version(own_site.epoch.paths.table("sums"))
    assert versions[3] == versions[4] < versions[5]
    monkeypatch.setattr(queries, "SCAN_BYTES", -1)
    for seq, rows in ((3, "3"), (4, "3 and not the changes after it, up to slice 4"), (5, "5")):
        text = f"Delta version {versions[seq]} of its path, which has the rows up to slice {rows}: spark"
        assert text in own_site.get(SUMS, params={"epoch": 1, "seq": seq}).json()["detail"]


def test_a_copy_of_a_large_scan_that_is_still_valid_is_not_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = site.get(SUMS).headers["ETag"]
    monkeypatch.setattr(queries, "SCAN_BYTES", -1)
    assert site.get(SUMS, headers={"If-None-Match": tag}).status_code == 304
    assert site.get(SUMS, headers={"If-None-Match": '"x"'}).status_code == 400
