"""Where a query of Structured Streaming stood, from the files of its query checkpoint. Pure.

A batch writes ``offsets/<batch>`` before it runs, and ``commits/<batch>`` after its sink has taken its rows.
``offsets/<batch>`` has a line with its format, one with the query's settings, and one for each source: its end offsets
(``v1``), or its name, a colon and these (``v2``); a source that had none has a dash.

Source: Spark's ``OffsetSeqLog``, ``CommitLog`` and ``KafkaSourceOffset``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kappa.errors import RefusedError, UsageError
from kappa.offsets.vector import Offsets, TopicPartition

_FORMATS = ("v1", "v2")
#: The name of a source of format v2.
_NAME = re.compile(r"[^{\s]*?:(?=[{-])")


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The batches that a query checkpoint has files of.

    Attributes:
        path: the query checkpoint.
        query: the query's id, by which a Delta table names the batches that it holds.
        first: the oldest batch that it still has.
        last: the last batch that was begun.
        committed: the last one whose sink took its rows; None where there is none.
    """

    path: str
    query: str
    first: int
    last: int
    committed: int | None


def batches_of(path: str, metadata: bytes | None, offsets: Iterable[str], commits: Iterable[str]) -> Batches:
    """The batches of a query checkpoint.

    Args:
        path: where it is, for messages.
        metadata: the content of its file ``metadata``.
        offsets: names of the files in its folder ``offsets``.
        commits: names of those in ``commits``.

    Raises:
        UsageError: it is not a query checkpoint.
        RefusedError: it is not whole.
    """
    begun, done = _numbers(offsets), _numbers(commits)
    if metadata is None or not begun:
        missing = "file metadata" if metadata is None else "file in its folder offsets"
        raise UsageError(
            f"{path} is not the query checkpoint of a query that ran: it has no {missing}. Name the folder that the "
            "job has as checkpointLocation.",
            path=path,
        )
    try:
        query = str(json.loads(metadata)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise RefusedError(
            f"{path}/metadata is torn: it does not name a query. {_ELSE}", path=path, findings=()
        ) from error
    last, committed = max(begun), max(done, default=None)
    if committed is not None and committed > last:
        raise RefusedError(
            f"{path} is not whole: batch {committed} is committed, and the last one with offsets is {last}. {_ELSE}",
            path=path,
            findings=(),
        )
    if last - (-1 if committed is None else committed) > 1:
        raise RefusedError(
            f"{path} does not say where the job stood: batch {last} was begun, and the last that is committed is "
            f"{committed}. Its query tracks its progress asynchronously, or files are gone. {_ELSE}",
            path=path,
            findings=(),
        )
    return Batches(path=path, query=query, first=min(begun), last=last, committed=committed)


_ELSE = "If you know where the job stood, write it to a file: --from-file."


def batch_held(batches: Batches, held: Mapping[str, int | None], *, is_newest: bool) -> int:
    """The last batch whose rows the tables hold.

    Args:
        batches: those of the query checkpoint.
        held: version of a table, as ADDRESS@VERSION -> the last batch of the query that its log names; None where it
            names none, as after ``foreachBatch``.
        is_newest: whether these are the newest versions of the tables.

    Raises:
        RefusedError: neither the query checkpoint nor the tables say it, or they contradict each other.
    """
    named = {version: batch for version, batch in held.items() if batch is not None}
    shown = ", ".join(f"{version} batch {batch}" for version, batch in sorted(named.items()))
    if len(set(named.values())) > 1:
        raise RefusedError(
            f"The tables hold different batches of query {batches.query}: {shown}. Name versions of one batch: "
            "--table NAME=ADDRESS@VERSION.",
            findings=(),
        )
    is_decided = batches.committed == batches.last
    if not named:
        if is_decided and is_newest:
            return batches.last
        why = (
            f"batch {batches.last} was begun and not committed"
            if is_newest
            else "a version is named that is not the newest"
        )
        raise RefusedError(
            f"{batches.path} does not say whether the tables hold batch {batches.last}: {why}, and their logs name no "
            "batch of it. Start the old job once more, stop it after a batch, and adopt the newest versions. If you "
            "know where the job stood: --from-file.",
            batch=batches.last,
            findings=(),
        )
    batch = next(iter(named.values()))
    if len(named) < len(held) and not (is_decided and is_newest and batch == batches.last):
        rest = ", ".join(sorted(held.keys() - named.keys()))
        raise RefusedError(
            f"{shown} is known by its log, and that of {rest} does not say whether it holds that batch. Start the old "
            "job once more, stop it after a batch, and adopt the newest versions.",
            batch=batch,
            findings=(),
        )
    if batch > batches.last or (is_newest and batch < (batches.committed or 0)):
        raise RefusedError(
            f"The tables do not belong to {batches.path}: they hold {shown}, and the last batch there is "
            f"{batches.last}, committed {batches.committed}. Name the query checkpoint of the job that wrote them.",
            batch=batch,
            findings=(),
        )
    return batch


def end_offsets(file: str, content: bytes | None) -> Offsets:
    """Where a batch ended: the content of ``offsets/<batch>``.

    Raises:
        RefusedError: the file is gone or torn, is in another format, or has a source that is not Kafka.
    """
    if content is None:
        raise RefusedError(
            f"{file} is gone: the query checkpoint keeps the last batches only. Adopt a newer version.",
            file=file,
            findings=(),
        )
    lines = content.decode(errors="replace").splitlines()
    if not lines or lines[0] not in _FORMATS:
        first = lines[0][:20] if lines else ""
        raise RefusedError(
            f"{file} begins with {first!r}, and Kappa reads the formats {', '.join(_FORMATS)} of Spark: it is torn, or "
            f"of another version. {_ELSE}",
            file=file,
            findings=(),
        )
    ends: dict[TopicPartition, int] = {}
    for line in lines[2:]:
        text = line if lines[0] == "v1" else _NAME.sub("", line, count=1)
        if text.strip() == "-":
            continue
        for at, offset in _of_kafka(file, text).items():
            if ends.setdefault(at, offset) != offset:
                raise RefusedError(
                    f"{file} has two sources that read {at[0]}[{at[1]}], one up to {ends[at]} and one up to {offset}: "
                    f"there is no one place to go on from. Start the old job once more with no new records. {_ELSE}",
                    file=file,
                    findings=(),
                )
    if not ends:
        raise RefusedError(
            f"{file} names no offset: it is torn, or the job has read nothing. {_ELSE}", file=file, findings=()
        )
    return Offsets.of(ends.items())


def _of_kafka(file: str, text: str) -> dict[TopicPartition, int]:
    """The end offsets of a source."""
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise RefusedError(f"{file} is torn: {text[:60]!r} is not JSON. {_ELSE}", file=file, findings=()) from error
    try:
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, ValueError, TypeError) as error:
        raise RefusedError(
            f"{file} has a source that is not Kafka: {text[:60]!r}. A stream of Kappa reads topics only, so it cannot "
            "go on from there. Have that source's records sent to a topic, and start from the log: kappa start.",
            file=file,
            findings=(),
        ) from error


def _numbers(names: Iterable[str]) -> list[int]:
    """Batches by the names of their files; temporary files and check sums are not batches."""
    return [int(name) for name in names if re.fullmatch(r"\d+", name, re.ASCII)]
