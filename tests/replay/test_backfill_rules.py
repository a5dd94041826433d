"""Which outputs and intervals can be computed again by themselves, and the findings about the others."""

from __future__ import annotations

from kappa.offsets.coverage import without
from kappa.offsets.vector import Offsets
from kappa.replay.findings import Severity
from kappa.replay.rules import backfill as backfill_rules


def at(*offsets: int) -> Offsets:
    return Offsets({"pos": dict(enumerate(offsets))})


def test_an_unknown_output_is_answered_with_the_existing_ones() -> None:
    assert backfill_rules.no_such_output("a.b", ["moves"], ["moves", "other"]) == []
    (finding,) = backfill_rules.no_such_output("a.b", ["movse"], ["moves", "other"])
    assert "'movse'" in finding.message and "moves, other" in finding.remedy
    (finding,) = backfill_rules.no_such_output("a.b", [], [])
    assert finding.code == "backfill-without-outputs" and "kappa replay a.b" in finding.remedy
    assert "running totals" not in finding.message, "tables of windows and joins are none"


def test_cumulative_outputs_are_refused_with_the_reason_and_a_replay() -> None:
    findings = backfill_rules.cumulative("a.b", {"moves": (), "totals": ("reads table 'balances'", "joins rows")})
    assert [f.code for f in findings] == ["backfill-cumulative"]
    assert "the step reads table 'balances' and joins rows" in findings[0].message
    assert "`kappa replay a.b`" in findings[0].remedy and "--from-savepoint" in findings[0].remedy


def test_an_interval_may_not_begin_before_the_epoch_has_rows() -> None:
    assert backfill_rules.begins_before_epoch("a.b", at(5, 9), at(5, 9)) == []
    (finding,) = backfill_rules.begins_before_epoch("a.b", at(4, 9), at(5, 9))
    assert "offset 4 of pos[0]" in finding.message and "begins at 5" in finding.message


def test_an_interval_from_the_start_of_the_log_is_refused_if_records_are_gone() -> None:
    assert backfill_rules.log_is_gone(at(8, 9), at(7, 0), at(0, 0)) == []
    assert backfill_rules.log_is_gone(at(7, 9), at(7, 0), at(7, 0)) == []  # the epoch begins there too
    (finding,) = backfill_rules.log_is_gone(at(7, 9), at(7, 0), at(0, 0))
    assert "pos[0] can be read from offset 7 on" in finding.message and "kappa archive start pos" in finding.remedy


def test_records_unread_by_the_live_epoch_are_left_to_it() -> None:
    assert backfill_rules.unread_yet(at(5, 5), at(5, 6)) == []
    (finding,) = backfill_rules.unread_yet(at(9, 5), at(5, 6))
    assert (finding.severity, finding.numbers["offsets"]) == (Severity.WARN, 4)


def test_topics_versioned_topics_and_chains_are_reported() -> None:
    (held,) = backfill_rules.holds_topics({"moves": "sent"})
    (versioned,) = backfill_rules.versioned_topic("a.b", {"moves": "sent"})
    (chain,) = backfill_rules.reads_upstream("a.b", {"c.d"})
    (unknown,) = backfill_rules.not_inspected("ValueError: no")
    assert held.severity is Severity.WARN
    assert {f.severity for f in (versioned, chain, unknown)} == {Severity.REFUSE}
    assert backfill_rules.reads_upstream("a.b", ()) == []
    assert "c.d" in chain.message and "ValueError: no" in unknown.message


def test_rows_without_time_are_refused_with_a_declaration_and_a_replay() -> None:
    (finding,) = backfill_rules.without_time("a.b", {"paid": ["lefts", "rights"]})
    assert "table 'lefts' and 'rights'" in finding.message
    assert "Append(name='paid', ..., time=COLUMN)" in finding.remedy and "`kappa replay a.b`" in finding.remedy


def test_an_edge_off_the_grid_is_answered_with_the_nearest_two() -> None:
    (finding,) = backfill_rules.off_grid("hours", "--from", "00:30", "1 hour", ("00:00", "01:00"))
    assert "--from 00:30 lies within a window of 'hours': windows begin every 1 hour" in finding.message
    assert finding.remedy.startswith("Choose 00:00 or 01:00.") and "`kappa backfill`" in finding.remedy


def test_open_windows_are_refused_with_the_event_time_reached() -> None:
    (finding,) = backfill_rules.still_open("hours", "day 2", "01:00", "00:59")
    assert "has passed 01:00" in finding.message and "reached 00:59" in finding.message


def test_unbounded_rows_need_state_from_before_the_interval() -> None:
    (one,) = backfill_rules.state_is_gone("a.b", "hours", "day 2", "day 1", is_bounded=True)
    (other,) = backfill_rules.state_is_gone("a.b", "hours", "day 2", "day 1", is_bounded=False)
    assert "to begin with." in one.message and "by the same code" in other.message
    assert "kappa replay a.b" in one.remedy


def test_other_parameters_are_reported() -> None:
    assert backfill_rules.other_parameters("a.b", []) == []
    (finding,) = backfill_rules.other_parameters("a.b", ["grace was 1", "ahead was 2"])
    assert "grace was 1; ahead was 2" in finding.message and "kappa replay a.b" in finding.remedy


def test_records_of_an_interval_must_still_exist() -> None:
    reads = without(at(5, 3).span_to(at(8, 9)), ())
    assert backfill_rules.records_are_gone(reads, at(5, 3)) == []
    (finding,) = backfill_rules.records_are_gone(reads, at(5, 4))
    assert "pos[1] can be read from offset 4 on" in finding.message
    archived = without(reads, at(5, 3).span_to(at(8, 6)))  # of the archive, which does not reach the log
    (finding,) = backfill_rules.records_are_gone(archived, at(8, 7))
    assert "pos[1] can be read from offset 7 on" in finding.message
    assert backfill_rules.records_are_gone(without(reads, reads), at(99, 99)) == []


def test_tables_made_with_an_output_are_named_and_a_replay_is_suggested() -> None:
    (finding,) = backfill_rules.leaves_tables("a.b", {"hours": ["days", "totals"], "pairs": ["paid"], "moves": []})
    assert (finding.code, finding.severity) == ("backfill-leaves-tables", Severity.WARN)
    assert "'days' and 'totals' are made from the same rows as 'hours'; 'paid' is made" in finding.message
    assert finding.numbers == {"tables": {"hours": ["days", "totals"], "pairs": ["paid"]}}
    assert "kappa replay a.b" in finding.remedy
    assert backfill_rules.leaves_tables("a.b", {"moves": []}) == []
