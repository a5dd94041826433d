"""Cases of the campaign through real drivers: live, from the archive in large slices, and by backfill."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.campaign import drawn_case, hold
from support.campaign_lab import CampaignLab
from support.epochs import lab

from kappa.delta.queries import quoted_name
from kappa.replay.stages import Stage
from kappa.slices.input.reading import archived_ranges

if TYPE_CHECKING:
    from conftest_spark import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

NoteCase = Callable[[str, str], None]

pytestmark = [pytest.mark.spark, pytest.mark.broker]

#: Cases of one topology, and the first seed.
SIDE_BY_SIDE, FIRST = 3, 20261200


@pytest.fixture
def campaign(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[CampaignLab]:
    with lab(tmp_path / "lab", kafka, spark, topic(), kind=CampaignLab) as stream:
        yield stream


def run(campaign: CampaignLab, number: int) -> int:
    """Hold each way of the cases of a topology against plain Python; how many values were compared."""
    begin, chance = FIRST + number * SIDE_BY_SIDE, random.Random(number)
    seeds = range(begin, begin + SIDE_BY_SIDE)
    campaign.deploy_cases([drawn_case(seed, is_wide=seed == begin) for seed in seeds])  # one of every type
    cases, cut = campaign.cases, chance.random()
    campaign.send(0, cut)
    live = campaign.start()
    campaign.await_live(live)
    campaign.settle(live, campaign.topics)
    campaign.send(cut, 1)
    campaign.settle(live, campaign.topics)
    compared = hold(cases, campaign.seen(live), f"topology {number}, live")
    for place, one in enumerate(cases):
        sent = campaign.sent_of(one)
        assert [row.get(one.key) for row in sent] == [row[one.key] for row in one.good], one.schema
        assert all(set(row) <= set(one.columns) for row in sent)
        newest = {row[one.key]: row for row in one.good}
        for key in list(newest)[:1]:
            where = f"{quoted_name(one.key)} = '{key}'"
            answer = campaign.output_of("query", campaign.name, f"newest_{place}", "--where", where, "--json")
            assert [row[one.key] for row in json.loads(answer)["rows"]] == [key]

    campaign.archive_topics()
    campaign.config = replace(campaign.config, small_slice=0, arrow_rows=chance.choice([0, 500_000]))
    replayed = campaign.plan_replay()
    campaign.run(replayed)
    campaign.await_stage(replayed, Stage.VERIFIED)
    assert campaign.record().epoch(replayed).verified.detail["verdict"] == "same"
    slices = [row for row in campaign.ledger(replayed).state().commits if row.seq]
    assert all(archived_ranges(row) for row in slices)
    assert campaign.stop(replayed) == []
    compared += hold(cases, campaign.seen(replayed), f"topology {number}, from the archive, large")

    outputs = campaign.backfill_all(live)
    assert len(outputs) == SIDE_BY_SIDE
    compared += hold(cases, campaign.seen(live), f"topology {number}, by backfill")
    return compared


def note(case: NoteCase) -> None:
    """Count the cases in the summary of the run."""
    for _ in range(SIDE_BY_SIDE):
        case("campaign", "by drivers, archive and backfill")


@pytest.mark.parametrize("number", range(2))
def test_drivers_archive_and_backfill_match_plain_python(campaign: CampaignLab, number: int, case: NoteCase) -> None:
    assert run(campaign, number) > 150
    note(case)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(2, 169))
def test_five_hundred_cases_match_plain_python_through_drivers(
    campaign: CampaignLab, number: int, case: NoteCase
) -> None:
    run(campaign, number)
    note(case)
