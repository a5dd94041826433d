from datetime import UTC, datetime, timedelta

from kappa_airflow.patience import FIRST_PAUSE, HEALTHY_AFTER, LONGEST_PAUSE, Patience

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)


def test_a_driver_is_started_again_only_after_it_was_dead_for_the_whole_pause() -> None:
    patience = Patience().after_dead(NOW)
    assert not patience.is_over(NOW + FIRST_PAUSE - TICK)
    assert patience.after_dead(NOW + FIRST_PAUSE).is_over(NOW + FIRST_PAUSE)


def test_the_pause_doubles_with_every_restart_that_did_not_hold_up_to_a_bound() -> None:
    pauses = [Patience(restarts=n).pause for n in range(4)]
    assert pauses == [FIRST_PAUSE * 2**n for n in range(4)]
    assert Patience(restarts=10_000).pause == LONGEST_PAUSE


def test_a_driver_seen_running_in_between_has_not_been_dead_all_the_time() -> None:
    patience = Patience().after_dead(NOW).after_well(NOW + TICK).after_dead(NOW + 2 * TICK)
    assert not patience.is_over(NOW + FIRST_PAUSE + TICK)


def test_what_could_not_be_seen_does_not_count_as_dead() -> None:
    patience = Patience().after_dead(NOW).after_unknown()
    assert not patience.is_over(NOW + LONGEST_PAUSE)


def test_a_driver_that_held_for_long_begins_with_the_first_pause_again() -> None:
    patience = Patience(restarts=5).after_well(NOW)
    assert patience.after_well(NOW + HEALTHY_AFTER - TICK).restarts == 5
    assert patience.after_well(NOW + HEALTHY_AFTER).restarts == 0
