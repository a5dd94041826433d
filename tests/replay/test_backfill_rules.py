"""Which outputs and intervals can be computed again by themselves, and what is said of those that cannot."""

from __future__ import annotations

from kappa.offsets.vector import Offsets
from kappa.replay.findings import Severity
from kappa.replay.rules import backfill as backfill_rules


def at(*offsets: int) -> Offsets:
    return Offsets({"pos": dict(enumerate(offsets))})


def test_an_output_is_named_or_the_ones_that_there_are() -> None:
    assert backfill_rules.no_such_output("a.b", ["moves"], ["moves", "other"]) == []
    (found,) = backfill_rules.no_such_output("a.b", ["movse"], ["moves", "other"])
    assert "'movse'" in found.message and "moves, other" in found.remedy
    (found,) = backfill_rules.no_such_output("a.b", [], [])
    assert found.code == "backfill-without-outputs" and "kappa replay a.b" in found.remedy
    assert "running totals" not in found.message, "tables of windows and joins are none"


def test_what_is_cumulative_names_why_and_the_replay_that_does_it() -> None:
    found = backfill_rules.cumulative("a.b", {"moves": (), "totals": ("reads table 'balances'", "joins rows")})
    assert [f.code for f in found] == ["backfill-cumulative"]
    assert "the step reads table 'balances' and joins rows" in found[0].message
    assert "`kappa replay a.b`" in found[0].remedy and "--from-savepoint" in found[0].remedy


def test_an_interval_may_not_begin_before_the_epoch_has_rows() -> None:
    assert backfill_rules.begins_before_epoch("a.b", at(5, 9), at(5, 9)) == []
    (found,) = backfill_rules.begins_before_epoch("a.b", at(4, 9), at(5, 9))
    assert "offset 4 of pos[0]" in found.message and "begins at 5" in found.message


def test_an_interval_that_begins_with_the_log_is_refused_when_records_may_have_gone() -> None:
    assert backfill_rules.log_is_gone(at(8, 9), at(7, 0), at(0, 0)) == []
    assert backfill_rules.log_is_gone(at(7, 9), at(7, 0), at(7, 0)) == []  # the epoch begins there too
    (found,) = backfill_rules.log_is_gone(at(7, 9), at(7, 0), at(0, 0))
    assert "pos[0] can be read from offset 7 on" in found.message and "kappa archive pos" in found.remedy


def test_what_the_live_epoch_has_not_read_is_left_to_it() -> None:
    assert backfill_rules.unread_yet(at(5, 5), at(5, 6)) == []
    (found,) = backfill_rules.unread_yet(at(9, 5), at(5, 6))
    assert (found.severity, found.numbers["offsets"]) == (Severity.WARN, 4)


def test_topics_versioned_ones_and_chains_are_told() -> None:
    (held,) = backfill_rules.holds_topics({"moves": "sent"})
    (versioned,) = backfill_rules.versioned_topic("a.b", {"moves": "sent"})
    (chain,) = backfill_rules.reads_upstream("a.b", {"c.d"})
    (unknown,) = backfill_rules.not_inspected("ValueError: no")
    assert held.severity is Severity.WARN
    assert {f.severity for f in (versioned, chain, unknown)} == {Severity.REFUSE}
    assert backfill_rules.reads_upstream("a.b", ()) == []
    assert "c.d" in chain.message and "ValueError: no" in unknown.message


def test_what_belongs_to_no_interval_names_the_declaration_and_the_replay() -> None:
    (found,) = backfill_rules.without_time("a.b", {"paid": ["lefts", "rights"]})
    assert "table 'lefts' and 'rights'" in found.message
    assert "Append(name='paid', ..., time=COLUMN)" in found.remedy and "`kappa replay a.b`" in found.remedy


def test_an_edge_off_the_grid_names_the_nearest_two() -> None:
    (found,) = backfill_rules.off_grid("hours", "--from", "00:30", "1 hour", ("00:00", "01:00"))
    assert "--from 00:30 lies within a window of 'hours': windows begin every 1 hour" in found.message
    assert found.remedy.startswith("Choose 00:00 or 01:00.") and "`kappa backfill`" in found.remedy


def test_rows_that_are_not_final_name_how_far_event_time_has_come() -> None:
    (found,) = backfill_rules.still_open("hours", "day 2", "01:00", "00:59")
    assert "has passed 01:00" in found.message and "reached 00:59" in found.message


def test_state_from_before_the_interval_is_needed_where_rows_reach_back_without_bound() -> None:
    (one,) = backfill_rules.state_is_gone("a.b", "hours", "day 2", "day 1", is_bounded=True)
    (other,) = backfill_rules.state_is_gone("a.b", "hours", "day 2", "day 1", is_bounded=False)
    assert "to begin with." in one.message and "of the same code" in other.message
    assert "kappa replay a.b" in one.remedy


def test_other_parameters_are_told() -> None:
    assert backfill_rules.other_parameters("a.b", []) == []
    (found,) = backfill_rules.other_parameters("a.b", ["grace was 1", "ahead was 2"])
    assert "grace was 1; ahead was 2" in found.message and "kappa replay a.b" in found.remedy


def test_records_that_are_read_for_an_interval_must_be_there() -> None:
    assert backfill_rules.records_are_gone(at(5, 9), at(8, 9), at(5, 99)) == []  # of one partition nothing is read
    (found,) = backfill_rules.records_are_gone(at(5, 3), at(8, 9), at(5, 4))
    assert "pos[1] can be read from offset 4 on" in found.message


def test_tables_beside_an_output_are_named_with_it_and_a_replay_is_the_way() -> None:
    (found,) = backfill_rules.leaves_tables("a.b", {"hours": ["days", "totals"], "pairs": ["paid"], "moves": []})
    assert (found.code, found.severity) == ("backfill-leaves-tables", Severity.WARN)
    assert "'days' and 'totals' are made from the same rows as 'hours'; 'paid' is made" in found.message
    assert found.numbers == {"tables": {"hours": ["days", "totals"], "pairs": ["paid"]}}
    assert "kappa replay a.b" in found.remedy
    assert backfill_rules.leaves_tables("a.b", {"moves": []}) == []
