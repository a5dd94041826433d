"""Plans of :mod:`fake_control`: the real ones, of a log that is always the same."""

from dataclasses import replace
from datetime import UTC, datetime

from kappa.offsets.vector import Offsets
from kappa.replay.building import build_plan
from kappa.replay.facts import ActiveFacts, Facts, LiveFacts, LogFacts, MarkerFacts, SourceFacts, TopologyFacts
from kappa.replay.stages import Stage
from kappa.replay.starts import ToDatetime

SOURCE = "events"
LAST_RECORD = datetime(2026, 1, 1, tzinfo=UTC)


def fake_plan(world, request):
    """The plan that a request gets, one partition with 1,000 records up to 2026."""
    prefix = f"{request.topology}/"
    epochs = {int(key.removeprefix(prefix)): entry for key, entry in world["epochs"].items() if key.startswith(prefix)}
    live = world["live"].get(request.topology)
    active = [
        ActiveFacts(epoch=number, stage=Stage[entry["stage"]], plan=entry["plan"] or "")
        for number, entry in epochs.items()
        if entry["stage"] not in ("CUT_OVER", "RETIRED", "ABORTED")
    ]
    low, high = Offsets({SOURCE: {0: 0}}), Offsets({SOURCE: {0: 1000}})
    first = None
    if isinstance(request.start, ToDatetime):
        first = {(SOURCE, 0): 500 if request.start.at <= LAST_RECORD else None}
    facts = Facts(
        topology=TopologyFacts(
            name=request.topology, version="2", code="c0de", sources=(SourceFacts(topic=SOURCE),), tables=("counts",)
        ),
        log=LogFacts(low=low, high=high, stable=high, topic_ids={SOURCE: "id"}, last_times={(SOURCE, 0): LAST_RECORD}),
        next_epoch=max(epochs, default=0) + 1,
        live=live
        and LiveFacts(epoch=live, seq=9, position=high, origin=low, version="1", code="0ld", topic_ids={SOURCE: "id"}),
        active=active[0] if active else None,
        first_records=first,
    )
    if request.topology in world.get("markers", ()):
        marker = MarkerFacts(epoch=1, seq=4, position=Offsets({SOURCE: {0: 400}}), topic_ids={SOURCE: "id"}, shapes={})
        facts = replace(facts, markers=(marker,))
    return build_plan(request, facts, now=datetime.now(UTC))
