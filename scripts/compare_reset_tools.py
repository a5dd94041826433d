"""Run Kafka's reset tools and `kappa offsets` on the same cases, on a real broker, and write docs/reset-tools.md.

    PYTHONPATH=include python scripts/compare_reset_tools.py

Each case gets two topics and groups of its own, alike: one for Kafka's tool, one for Kappa. What a tool did is read
from the broker afterwards, not from what it says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kappa.kafka.broker import Broker
from kappa.offsets.vector import Offsets
from kappa_local.kafka import KafkaProcess, tool

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reset-tools.md"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
STREAMS = "org.apache.kafka.tools.StreamsResetter"
#: Ten records in each of two partitions, one an hour from 2026 on; the first three of partition 0 were removed.
RECORDS, LOW, FIRST_MS, HOUR_MS = 10, 3, 1767225600000, 3_600_000
BEFORE = (5, 6)
TOOL_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to ask for.

    Attributes:
        name: what it is, for the page.
        kafka: words for Kafka's tool; POS stands for the topic, FILE for the file.
        kappa: words for `kappa offsets`.
        tool: the class of Kafka's tool.
        group: how the group is called; POS stands for the topic.
        has_offsets: whether its committed offsets are 5 and 6 before.
        has_member: whether it has an active member.
        file: what is in the file.
    """

    name: str
    kafka: str
    kappa: str
    tool: str = GROUPS
    group: str = "POS.reports"
    has_offsets: bool = True
    has_member: bool = False
    file: str = ""


CASES = (
    Case(name="to the beginning, nothing wrong", kafka="--topic POS --to-earliest", kappa="--topic POS --to-earliest"),
    Case(name="an offset that retention removed", kafka="--topic POS --to-offset 1", kappa="--to-offset POS=1"),
    Case(name="an offset after the end", kafka="--topic POS --to-offset 99", kappa="--to-offset POS=99"),
    Case(name="a shift past the beginning", kafka="--topic POS --shift-by -1000", kappa="--topic POS --shift-by -1000"),
    Case(name="a shift past the end", kafka="--topic POS --shift-by 1000", kappa="--topic POS --shift-by 1000"),
    Case(
        name="a time after the last record",
        kafka="--topic POS --to-datetime 2031-01-01T00:00:00.000",
        kappa="--topic POS --to-datetime 2031-01-01T00:00:00Z",
    ),
    Case(
        name="a time whose records retention removed",
        kafka="--topic POS --to-datetime 2026-01-01T01:00:00.000",
        kappa="--topic POS --to-datetime 2026-01-01T01:00:00Z",
    ),
    Case(
        name="a duration without a record",
        kafka="--topic POS --by-duration PT1S",
        kappa="--topic POS --by-duration PT1S",
    ),
    Case(
        name="a topic that does not exist",
        kafka="--topic POS.none --to-earliest",
        kappa="--topic POS.none --to-earliest",
    ),
    Case(
        name="a partition that does not exist", kafka="--topic POS:7 --to-earliest", kappa="--topic POS:7 --to-earliest"
    ),
    Case(
        name="a file with an offset after the end",
        kafka="--from-file FILE",
        kappa="--from-file FILE",
        file="POS,0,99\nPOS,1,4\n",
    ),
    Case(
        name="a file with a malformed line",
        kafka="--from-file FILE",
        kappa="--from-file FILE",
        file="POS,0,4\nPOS,1,four\n",
    ),
    Case(
        name="a file that names a partition twice",
        kafka="--from-file FILE",
        kappa="--from-file FILE",
        file="POS,0,4\nPOS,0,9\n",
    ),
    Case(
        name="a shift of a group without offsets",
        kafka="--topic POS --shift-by 1",
        kappa="--topic POS --shift-by 1",
        has_offsets=False,
    ),
    Case(
        name="`--to-current` of a group without offsets",
        kafka="--topic POS --to-current",
        kappa="--topic POS --to-current",
        has_offsets=False,
    ),
    Case(
        name="a group with an active member",
        kafka="--topic POS --to-latest",
        kappa="--topic POS --to-latest",
        has_member=True,
    ),
    Case(
        name="the group of an epoch of Kappa",
        kafka="--topic POS --to-latest",
        kappa="--topic POS --to-latest",
        group="kappa.POS.e0001",
    ),
    Case(
        name="an application's shift past the beginning",
        tool=STREAMS,
        kafka="--input-topics POS --shift-by -1000",
        kappa="--topic POS --shift-by -1000",
    ),
    Case(
        name="an application's offset after the end",
        tool=STREAMS,
        kafka="--input-topics POS --to-offset 99",
        kappa="--to-offset POS=99",
    ),
    Case(
        name="an application's time after the last record",
        tool=STREAMS,
        kafka="--input-topics POS --to-datetime 2031-01-01T00:00:00.000",
        kappa="--topic POS --to-datetime 2031-01-01T00:00:00Z",
    ),
    Case(
        name="an application's topic that does not exist",
        tool=STREAMS,
        kafka="--input-topics POS.none",
        kappa="--topic POS.none --to-earliest",
    ),
    Case(
        name="an application that runs",
        tool=STREAMS,
        kafka="--input-topics POS",
        kappa="--topic POS --to-earliest",
        has_member=True,
    ),
)


def main() -> None:
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaProcess.start(Path(folder) / "kafka") as process,
        Broker(process.bootstrap_servers) as broker,
    ):
        for number, case in enumerate(CASES, start=1):
            results = [run(case, broker, Path(folder), f"pos{who}{number:02d}", who) for who in ("k", "p")]
            rows.append(f"| {case.name} | {results[0]} | {results[1]} |")
            print(rows[-1], flush=True)
    PAGE.write_text(page(rows))


def run(case: Case, broker: Broker, folder: Path, topic: str, who: str) -> str:
    """What one tool did, as a cell of the table."""
    group = case.group.replace("POS", topic)
    prepare(broker, topic)
    if case.has_offsets:
        broker.set_group_offsets(group, Offsets({topic: dict(enumerate(BEFORE))}))
    file = folder / f"{topic}.csv"
    file.write_text(case.file.replace("POS", topic))
    words = [
        word.replace("POS", topic).replace("FILE", str(file))
        for word in (case.kafka if who == "k" else case.kappa).split()
    ]
    member = join(broker, topic, group) if case.has_member else None
    try:
        command = kafka_command(case, broker, group, words) if who == "k" else kappa_command(group, words)
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_SECONDS,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                "KAPPA_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
                "KAPPA_HOME": str(folder),
                "TZ": "UTC",
            },
        )
        after = broker.group_offsets(group)
    finally:
        if member is not None:
            member.close()
    shown = case.group.replace("POS", "pos").replace("pos.reports", "reports")
    call = case.kafka if who == "k" else f"kappa offsets --group {shown} {case.kappa}"
    call = call.replace("POS", "pos").replace("FILE", "offsets.csv")
    output = words_of(result.stdout + "\n" + result.stderr)
    for name, plain in ((group, shown), (str(file), "offsets.csv"), (topic, "pos")):
        output = output.replace(name, plain)
    did = f"`{call}`: **{deed(case, after, topic)}**, exit code **{result.returncode}**"
    return f"{did}; “{output}”" if output else did


def kafka_command(case: Case, broker: Broker, group: str, words: Sequence[str]) -> list[str]:
    if case.tool == STREAMS:
        return tool(STREAMS, "--bootstrap-server", broker.bootstrap_servers, "--application-id", group, *words)
    return tool(
        GROUPS, "--bootstrap-server", broker.bootstrap_servers, "--group", group, "--reset-offsets", *words, "--execute"
    )


def kappa_command(group: str, words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "kappa", "offsets", "--group", group, *words, "--execute"]


def prepare(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 2, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in (0, 1):
        for number in range(RECORDS):
            producer.produce(topic, b"v", b"k", partition=partition, timestamp=FIRST_MS + number * HOUR_MS)
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for answer in admin.delete_records([TopicPartition(topic, 0, LOW)]).values():
        answer.result()


def join(broker: Broker, topic: str, group: str) -> Consumer:
    """A member of the group, which has its partitions and commits nothing."""
    member = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False})
    member.subscribe([topic])
    deadline = time.monotonic() + 60
    while not member.assignment():
        member.poll(0.1)
        assert time.monotonic() < deadline, "the member got no partitions"
    return member


def deed(case: Case, after: Offsets, topic: str) -> str:
    """What happened to the group, by the broker."""
    offsets = tuple(after.get(topic, partition) for partition in (0, 1))
    if offsets == (BEFORE if case.has_offsets else (None, None)):
        others = [name for name in after.topics if name != topic]
        return f"set offsets of {others}" if others else "left the group as it was"
    return "set it to " + " and ".join("nothing" if offset is None else str(offset) for offset in offsets)


def words_of(output: str) -> str:
    """What the tool said of the case: the first line that warns, refuses or fails."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    lines = [line.strip() for line in plain.splitlines() if not re.search(r"SLF4J|StatusLogger|^\s*at ", line)]
    telling = [
        line
        for line in lines
        if re.search(r"warn|error|exception|refused|cannot|not exist|not found|invalid", line, re.IGNORECASE)
    ]
    first = re.sub(r"^\[?[\d :,-]+\]? ", "", telling[0]) if telling else ""
    first = re.sub(r": \[\(memberId.*", "", first)
    first = re.sub(r"\s+", " ", first).replace("|", "/").replace("`", "'").replace("<", "&lt;")
    return first if len(first) <= 400 else first[:397] + "..."


def page(rows: Sequence[str]) -> str:
    return f"""# Kafka's reset tools and `kappa offsets`

This page compares Kafka's reset tools with `kappa offsets`, for one plain request and for requests that cannot be met
as asked. `scripts/compare_reset_tools.py` writes it. The script runs `kafka-consumer-groups --reset-offsets --execute`
and `kafka-streams-application-reset` of Kafka 4.2.0 (their classes, `{GROUPS.rpartition(".")[2]}` and
`{STREAMS.rpartition(".")[2]}`) and `kappa offsets --group reports --execute` on one broker, each case on its own topic
and group:

```sh unrun: it starts a broker and dozens of processes, which takes minutes; this page is what it writes
PYTHONPATH=include python scripts/compare_reset_tools.py
```

Topic `pos` has two partitions with ten records each, one an hour from 2026-01-01T00:00Z on. Retention removed the first
three records of partition 0, so the offsets 3 to 10 and 0 to 10 can be set. The committed offsets of the group are 5
and 6, unless the case says otherwise. The result of a tool is read from the broker afterwards, not from the tool's
output. The rows of applications are those of `kafka-streams-application-reset`; the others are those of
`kafka-consumer-groups`.

| case | Kafka's tool | Kappa |
|---|---|---|
{chr(10).join(rows)}

The codes in brackets are [findings](findings.md#a-consumer-group). The state of a topology has no reset at all: a
[replay](operations.md#where-a-replay-starts) builds a new epoch beside the live one, under the same rules.
"""


if __name__ == "__main__":
    main()
