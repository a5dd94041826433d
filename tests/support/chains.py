"""A topology that reads another's versioned topic, and what it must hold, computed in plain Python from the root."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from confluent_kafka import Message

from kappa import control
from kappa.offsets.vector import Offsets
from kappa.replay.stages import Stage
from support.epochs import content, lab, read_messages
from support.joint_topologies import Member, output_topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

One = TypeVar("One", bound="Member")
Two = TypeVar("Two", bound="Downstream")
STORY = 'Topic(name="{name}.story", of="moves", key="id", on_replay="versioned")'

READER = '''
"""Scores, version {version}: what the other topology counted counts {factor} times."""

from kappa.operators import running_total
from kappa.topology import Append, Source, Topic, Topology

STORY = Source(topic="{story}", schema="id STRING NOT NULL, {column} BIGINT NOT NULL", of="{of}")
totals = running_total(
    STORY, rows="id STRING, scored BIGINT", key="id", amount="scored", total="score", table="scores"
)

def step(slice):
    """Moves of the other topology with running scores, and the score of each account."""
    counted = "CAST({column} * {factor} AS BIGINT) AS scored"
    read = slice["{story}"].selectExpr("id", counted, "_topic", "_partition", "_offset", "_order_timestamp")
    return {{"seen": totals(slice, read).rows}}


scores = Topology(
    name="{name}",
    version="{version}",
    sources=[STORY],
    operators=[totals],
    outputs=[
        Append(name="seen", schema="id STRING NOT NULL, scored BIGINT, score BIGINT"),
        {output}
    ],
    step=step,
)
'''


@dataclass(kw_only=True)
class Upstream(Member):
    """A topology over the root topic that tells its moves in a topic of each epoch's own."""

    @property
    def story(self) -> str:
        """Its versioned topic output."""
        return f"{self.name}.story"

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        self.outputs = STORY.format(name=self.name)
        super().deploy(version, factor)


@dataclass(kw_only=True)
class Downstream(Member):
    """A topology that reads what another one tells.

    Attributes:
        of: that one, an :class:`Upstream` or another of its kind.
        is_versioned: whether its own output is versioned, so that it can be read in turn.
        column: what it adds up of what the other one tells.
    """

    of: Member
    is_versioned: bool = False
    column: str = "counted"

    @property
    def story(self) -> str:
        """Its topic output."""
        return output_topic(self)

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        how = ', on_replay="versioned"' if self.is_versioned else ""
        output = f'Topic(name="{self.story}", of="seen", key="id"{how}),'
        story = self.of.story  # type: ignore[attr-defined]  # both kinds have one
        text = READER.format(
            version=version,
            factor=factor or version,
            name=self.name,
            story=story,
            of=self.of.name,
            output=output,
            column=self.column,
        )
        (self.config.topologies / f"{self.name.replace('.', '_')}.py").write_text(text)

    def scores(self, epoch: int | None = None) -> dict[str, int]:
        """The served table."""
        from kappa import serving

        rows = serving.snapshot(self.config, self.name, epoch=epoch).rows("scores").to_pylist()
        return {row["id"]: row["score"] for row in rows}

    def scored(self) -> list[tuple[str, int]]:
        """What an independent consumer reads of its output topic, committed records only."""
        return [(row["id"], row["scored"]) for row in map(orjson.loads, self.sent_values())]


@contextmanager
def chain_of(
    above: type[One], below: type[Two], base: Path, kafka: Broker, session: SparkSession, source: str, **settings: Any
) -> Iterator[tuple[One, Two]]:
    """Two topologies in one lake, deployed: the second reads the first one's versioned topic. Closed at the end.

    Args:
        above: the kind of the first.
        below: that of the second.
        base: a folder for both.
        kafka: the broker.
        session: computes them.
        source: the root topic.
        settings: as :class:`kappa.config.Config` has them.
    """
    with ExitStack() as stack:
        new_lab = stack.enter_context(lab(base, kafka, session, source, **settings))
        same: dict[str, Any] = {"config": new_lab.config, "kafka": kafka, "topic": source, "session": session}
        name = f"lab.{source.replace('.', '_')}"
        one = above(name=f"{name}_a", **same)
        two = below(name=f"{name}_b", of=one, **same)
        for member in (one, two):
            member.deploy(1)
            stack.callback(member.close)
        yield one, two


def raw(member: Member) -> list[Message]:
    """The records of the root topic, by a plain consumer."""
    return list(read_messages(member.config.bootstrap_servers, member.topic))


def expected_scores(messages: Sequence[Message], factor: int) -> dict[str, int]:
    """Account -> score when each amount counts so many times, in plain Python."""
    scores: Counter[str] = Counter()
    for message in messages:
        row = orjson.loads(content(message))
        scores[row["id"]] += row["amount"] * factor
    return dict(scores)


def expected_sent(messages: Sequence[Message], cuts: Sequence[tuple[Offsets, int]]) -> Iterator[tuple[str, int]]:
    """What the output topic holds: each root record once, counted by the epoch that was live at its offset.

    Args:
        messages: records of the root topic.
        cuts: from which root offsets on which factor counts, oldest first.
    """
    for message in messages:
        row = orjson.loads(content(message))
        topic, partition = message.topic(), message.partition()
        assert topic is not None and partition is not None
        offset = message.offset() or 0
        factors = [factor for at, factor in cuts if offset >= (at.get(topic, partition) or 0)]
        yield row["id"], row["amount"] * factors[-1]


def cuts(member: Member, factors: Mapping[int, int]) -> list[tuple[Offsets, int]]:
    """Where in the root topic each move of its pointer was, with the factor of the epoch that it went to."""
    return [(Offsets.from_json(move.detail["at"]), factors[move.epoch]) for move in member.record().moves]


def prove(member: Downstream, factors: Mapping[int, int]) -> None:
    """Hold what a topology serves and sent against the root topic.

    Args:
        member: the topology.
        factors: epoch -> how many times an amount of the root topic counts in it.
    """
    messages = raw(member)
    live = member.record().live
    assert member.scores() == expected_scores(messages, factors[live])
    assert sorted(member.scored()) == sorted(expected_sent(messages, cuts(member, factors)))
    certificate = control.certify(member.config, member.name)
    assert certificate.complete, certificate.problems
    ends = {(proof.topic, proof.partition): proof.spans[-1].end for proof in certificate.partitions if proof.spans}
    assert {topic for topic, _ in ends} == {member.topic}
    assert dict(member.kafka.stable_offsets([member.topic]).items()).items() >= ends.items()


def verified(member: Member, version: int, **request: Any) -> int:
    """A candidate of a version that is verified."""
    member.deploy(version)
    epoch = member.plan_replay(**request)
    member.run(epoch)
    member.await_stage(epoch, Stage.VERIFIED)
    return epoch
