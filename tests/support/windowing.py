"""Operators on windows, led through histories and compared with plain Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kappa.operators import agg
from kappa.operators.bound import FinalOperator
from kappa.operators.timed.windowed import Windowed
from kappa.testing import TopologyDriver
from kappa.topology import Append, Source, Topology
from support.oracle_windows import EPOCH, TICK, TOPIC, OperatorResult, Tick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What :func:`support.oracle_windows.summary` computes.
SUMMARY = {"trades": agg.count(), "volume": agg.sum("amount"), "low": agg.min("amount"), "close": agg.last("amount")}


#: An operator on windows without its source and its table: a driver of :func:`led` has those.
Windows = Callable[..., FinalOperator[Windowed]]


def led(spark: SparkSession, operators: Mapping[str, Windows], *, grace: str, partitions: int = 2) -> TopologyDriver:
    """A driver of a topology that has, for each operator, its table and an output ``<name>_final``.

    Args:
        operators: by the name of their table, for example ``partial(session_window, key="symbol", gap="2 seconds",
            aggregates=SUMMARY)``.
    """
    source = Source(topic=TOPIC, schema=TICK, time="at", grace=grace)
    bound = {name: windows(source, table=name) for name, windows in operators.items()}
    return TopologyDriver(finals_of(source, bound), spark, partitions={TOPIC: partitions})


def finals_of(source: Source, operators: Mapping[str, FinalOperator[Windowed]]) -> Topology:
    """A topology of operators on a source, each with an output ``<name>_final``."""
    return Topology(
        name="stocks.windows",
        version="1",
        sources=[source],
        operators=list(operators.values()),
        outputs=[Append(name=f"{name}_final", of=operator.final) for name, operator in operators.items()],
    )


def tick(symbol: str | None, at: int, amount: int | None = 1, *, partition: int = 0, sent: int = 0) -> Tick:
    """A record with its event time in milliseconds."""
    return Tick(symbol=symbol, amount=amount, at=at, partition=partition, sent=sent)


def pipe(driver: TopologyDriver, *ticks: Tick) -> None:
    """Run a slice of these."""
    driver.pipe(one.input for one in ticks)


def ms(time: datetime) -> int:
    """A time as epoch milliseconds."""
    return round((time - EPOCH).total_seconds() * 1000)


def rows(driver: TopologyDriver, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table or output, some of their columns, times in milliseconds, sorted."""
    values = [tuple(plain(row[column]) for column in columns) for row in driver.rows(name)]
    return sorted(values, key=repr)


def late(driver: TopologyDriver) -> list[tuple[str, str, int]]:
    """Operator, reason and offset of late records, sorted."""
    return sorted((row["operator"], row["reason"], row["_offset"]) for row in driver.rows_in_order("late_records"))


def plain(value: Any) -> Any:
    """A value as both sides can be compared: times as milliseconds."""
    if isinstance(value, datetime):
        return ms(value)
    return {name: plain(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def assert_as_expected(
    driver: TopologyDriver, slices: Sequence[Sequence[Tick]], expected: Mapping[str, OperatorResult], *, label: str
) -> None:
    """Run a history; assert that states, final rows and late records are what plain Python found.

    Args:
        expected: by the name that the operator has in the driver.
        label: the seed, for the message.
    """
    for number, batch in enumerate(slices):
        pipe(driver, *batch)
        for name, result in expected.items():
            table = result.tables[number] if result.tables else None
            if table is not None:
                columns = list(table[0]) if table else []
                state = [{column: row[column] for column in columns} for row in driver.state(name)]
                assert _sorted(state) == _sorted(table), f"{label}: {name} after slice {number + 1}"
    for name, result in expected.items():
        assert _sorted(driver.rows_in_order(f"{name}_final")) == _sorted(result.final), f"{label}: final rows of {name}"
    refused = [(row["reason"], row["_partition"], row["_offset"]) for row in driver.rows_in_order("late_records")]
    assert sorted(refused) == sorted(entry for result in expected.values() for entry in result.late), f"{label}: late"


def _sorted(records: Iterable[Mapping[str, Any]]) -> list[Any]:
    return sorted(
        (plain(dict(row)) for row in records), key=lambda row: repr(sorted(row.items(), key=lambda item: item[0]))
    )
