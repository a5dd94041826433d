"""`kappa tables`: where published tables are, what they show, and how other engines register them."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars
import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from support import live_lake
from support.path_readers import by_duckdb
from typer.testing import CliRunner

from kappa import clock
from kappa.cli import app
from kappa.config import Config
from kappa.control import overview
from kappa.delta import tables
from kappa.delta.damage import entry_of
from kappa.delta.publication import Origin
from kappa.delta.published import PublishedTable
from kappa.errors import DamagedTableError
from kappa.names import EpochPaths
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger
from kappa.serving import snapshot
from kappa.serving.hidden_columns import hidden_in
from kappa.serving.published_tables import ServedTable, published_tables
from kappa.serving.registrations import DIALECTS, Engine, statements
from kappa.slices.merging import merge_between

NAME = live_lake.NAME


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    return live_lake.live_lake(tmp_path, monkeypatch)


def paths_of(config: Config, epoch: int = 1) -> EpochPaths:
    return EpochPaths(lake=config.lake, topology=NAME, epoch=epoch)


def publish(config: Config, place: str = "tables/rewards", *, epoch: int = 1) -> None:
    """What the driver of the epoch does."""
    merge_between(live_lake.open_run(config), is_asked=True)
    paths = paths_of(config)
    name, source = place.partition("/")[2], paths.place(place)
    origin = Origin(
        path=source,
        folder=paths.folder,
        epoch=epoch,
        version=tables.version(source),
        hidden=frozenset({*hidden_in(paths).get(name, ()), tables.SEQ.name}),
    )
    published = PublishedTable(paths.published(name), timedelta(days=7))
    while not published.publish(origin, published.version):
        pass


def run(config: Config, *words: str) -> str:
    answer = CliRunner().invoke(app, list(words), env=config.to_env(), catch_exceptions=False)
    return answer.output


def standings(config: Config) -> dict[str, ServedTable]:
    return {one.name: one for one in published_tables(config, NAME)}


def test_a_table_that_was_never_published_says_so_with_the_command(config: Config) -> None:
    rewards = standings(config)["rewards"]
    assert (rewards.path, rewards.kind, rewards.epoch) == (f"{config.lake}/{NAME}/rewards", "table", None)
    assert rewards.standing == f"not published yet. Its driver does it: kappa start {NAME} --execute"
    assert rewards.standing in run(config, "tables", NAME)
    write_deltalake(rewards.path, pyarrow.table({"id": ["a"]}))
    assert "another program has a Delta table there" in standings(config)["rewards"].standing


def test_a_published_table_that_shows_every_commit_is_not_behind(config: Config) -> None:
    publish(config)
    rewards = standings(config)["rewards"]
    assert (rewards.version, rewards.epoch, rewards.live, rewards.seq) == (0, 1, 1, 2)
    assert (rewards.commits_behind, rewards.seconds_behind, rewards.standing) == (0, 0.0, "has every commit")
    assert rewards.published_at is not None and clock.now() - rewards.published_at < timedelta(minutes=5)
    assert standings(config)["notifications"].kind == "output"


def test_commits_that_are_not_shown_are_counted_from_the_oldest_of_them(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(config)
    live_lake.further_slices(config, 2)
    (first,) = [row for row in Ledger(paths_of(config).ledger).state().commits if row.seq == 3]
    monkeypatch.setattr(clock, "now", lambda: first.at + timedelta(seconds=75))
    rewards = standings(config)["rewards"]
    assert (rewards.seq, rewards.commits_behind, rewards.seconds_behind) == (2, 2, 75.0)
    assert rewards.standing == "2 commits behind, the first for 75 s"
    publish(config)
    assert standings(config)["rewards"].commits_behind == 0


def test_a_table_that_shows_another_epoch_is_behind_since_the_move(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(config, epoch=3)
    moved_at = epochs_of(config.lake).record(NAME).last_move.at  # type: ignore[union-attr]
    monkeypatch.setattr(clock, "now", lambda: moved_at + timedelta(seconds=40))
    rewards = standings(config)["rewards"]
    assert (rewards.epoch, rewards.commits_behind, rewards.seconds_behind) == (3, None, 40.0)
    assert rewards.standing == (
        f"shows epoch 3, live is 1: its driver has not published since the move. Start it: kappa start {NAME} --execute"
    )


def test_a_published_log_that_is_damaged_says_how_it_is_made_again(config: Config) -> None:
    publish(config)
    path = paths_of(config).published("rewards")
    Path(entry_of(path, 0)).write_text("{")
    problem = standings(config)["rewards"].problem
    assert f"{path} is damaged" in problem and problem.endswith(f"then: kappa start {NAME} --execute")
    assert f"remove the folder {path}/_delta_log" in problem


def test_a_published_table_whose_log_was_removed_is_published_anew(config: Config) -> None:
    publish(config)
    path = paths_of(config).published("rewards")
    before = DeltaTable(path).to_pyarrow_table().to_pylist()
    for file in Path(path, "_delta_log").iterdir():
        file.unlink()
    Path(path, "_delta_log").rmdir()
    assert standings(config)["rewards"].epoch is None
    publish(config)
    assert DeltaTable(path).version() == 0 and DeltaTable(path).to_pyarrow_table().to_pylist() == before
    assert standings(config)["rewards"].standing == "has every commit"


def test_status_of_one_topology_says_how_far_tables_are_behind_and_of_all_does_not(config: Config) -> None:
    publish(config)
    line = f"{NAME}, published table rewards: has every commit"
    assert line in run(config, "status", NAME) and line not in run(config, "status")
    (of_one,), (of_all,) = (json.loads(run(config, "status", *words, "--json")) for words in ([NAME], []))
    assert [one["name"] for one in of_one["published"]] == ["rewards", "notifications"]
    assert of_one["published"][0]["seconds_behind"] == 0.0 and of_all["published"] is None


def test_certify_says_how_far_tables_are_behind(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "attested_if_reachable", lambda certificate, *_: certificate)  # Kafka is not asked
    publish(config)
    assert f"{NAME}, published table rewards: has every commit" in run(config, "certify", NAME)
    answer = json.loads(run(config, "certify", NAME, "--json"))
    assert (answer["published"][0]["name"], answer["published"][0]["commits_behind"]) == ("rewards", 0)


def test_the_tables_of_all_live_topologies_are_shown_without_a_name(config: Config) -> None:
    answer = json.loads(run(config, "tables", "--json"))
    assert {name: [one["name"] for one in served] for name, served in answer.items()} == {
        NAME: ["rewards", "notifications"]
    }


def test_a_damaged_ledger_is_a_problem_of_its_topology_and_alone_an_error(config: Config) -> None:
    publish(config)
    tear = Path(entry_of(paths_of(config).ledger, 0))
    tear.write_text("{")
    answer = CliRunner().invoke(app, ["tables"], env=config.to_env())
    assert answer.exit_code == 1 and f"PROBLEM: {NAME}: The Delta table" in answer.output
    of_one = CliRunner().invoke(app, ["tables", NAME], env=config.to_env())
    assert isinstance(of_one.exception, DamagedTableError)


# In other engines


@pytest.mark.parametrize("engine", Engine)
def test_statements_say_whether_a_test_runs_them(config: Config, engine: Engine) -> None:
    first, *rest = run(config, "tables", NAME, "--ddl", engine).splitlines()
    word = "Tests of Kappa run" if DIALECTS[engine].is_run else "No test of Kappa runs"
    assert first[2:].strip().startswith(word)
    assert sum(f"{NAME}/rewards" in line for line in rest) == 1


def test_json_has_the_statements_of_each_table(config: Config) -> None:
    (rewards, _) = json.loads(run(config, "tables", NAME, "--ddl", "trino", "--json"))[NAME]
    assert rewards["table"]["name"] == "rewards"
    assert rewards["statements"][-1] == (
        "CALL delta.system.register_table(schema_name => 'retail_loyalty', table_name => 'rewards', "
        f"table_location => '{rewards['table']['path']}');"
    )


@pytest.mark.parametrize(
    ("engine", "literal"),
    [
        (Engine.SPARK, r"LOCATION 's3a://lakes/o\'n \\e/a.b/c.d';"),
        (Engine.DATABRICKS, r"LOCATION 's3://lakes/o\'n \\e/a.b/c.d';"),
        (Engine.TRINO, r"table_location => 's3://lakes/o''n \e/a.b/c.d');"),
        (Engine.DUCKDB, r"delta_scan('s3://lakes/o''n \e/a.b/c.d');"),
        (Engine.POLARS, r"""pl.scan_delta("s3://lakes/o'n \\e/a.b/c.d")"""),
        (Engine.SNOWFLAKE, r"BASE_LOCATION = 'o\'n \\e/a.b/c.d';"),
    ],
)
def test_a_hostile_path_is_quoted_as_the_engine_does(engine: Engine, literal: str) -> None:
    line = statements(engine, "a.b", {"c.d": r"s3://lakes/o'n \e/a.b/c.d"})[-1]
    assert line.endswith(literal) and re.search(r"(\b|__)c_d\b", line)


def test_json_numbers_a_name_that_two_tables_have_as_the_text_does() -> None:
    paths = {"a.b": "/lake/x/a.b", "a_b": "/lake/x/a_b"}
    of_all = statements(Engine.SPARK, "x", paths)
    of_each = [statements(Engine.SPARK, "x", paths, tables=[name])[-1] for name in paths]
    assert of_all[-2:] == of_each
    assert ["`x`.`a_b_2`" in line for line in of_each] == [True, False], "a name that stays as it is keeps it"
    assert "-- a_b_2 stands for table a.b: table a_b has the name a_b." in of_all


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A lake in a folder with a blank and a quote."""
    config = live_lake.live_lake(tmp_path / "o'n e", monkeypatch)
    publish(config)
    return config


def test_polars_reads_the_table_by_its_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = live_lake.live_lake(tmp_path / "o'n", monkeypatch)  # it finds no files below a path with a blank
    publish(config)
    names: dict[str, Any] = {}
    exec("\n".join(statements(Engine.POLARS, NAME, {"rewards": paths_of(config).published("rewards")})), names)
    rows = names["retail_loyalty__rewards"].collect()
    assert isinstance(rows, polars.DataFrame) and sorted(rows["CustomerCardNo"]) == ["c1", "c2"]


def test_a_snapshot_for_polars_reads_a_lake_whose_statement_has_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = live_lake.live_lake(tmp_path / "50 % é#", monkeypatch)
    publish(config)
    path = paths_of(config).published("rewards")
    assert f"polars 2.1 finds no files below {path}" in run(config, "tables", NAME, "--ddl", "polars")
    frame = snapshot(config, NAME).polars("rewards").collect()
    assert isinstance(frame, polars.DataFrame) and sorted(frame["CustomerCardNo"]) == ["c1", "c2"]


def test_duckdb_reads_the_table_by_its_statements(hostile: Config) -> None:
    lines = statements(Engine.DUCKDB, NAME, {"rewards": paths_of(hostile).published("rewards")})
    own = [line for line in lines if not line.startswith(("--", "INSTALL", "LOAD"))]  # they come in packages
    assert by_duckdb(*own, 'SELECT "CustomerCardNo" FROM retail_loyalty.rewards ORDER BY 1') == [["c1"], ["c2"]]


@pytest.mark.spark
def test_spark_reads_the_table_by_its_statements_also_after_a_new_version(hostile: Config, spark: Any) -> None:
    path = paths_of(hostile).published("rewards")
    lines = [one for one in statements(Engine.SPARK, NAME, {"rewards": path}) if not one.startswith("--")]
    try:
        for line in lines:
            spark.sql(line.removesuffix(";"))
        table = "retail_loyalty.rewards"
        assert {row.CustomerCardNo for row in spark.sql(f"SELECT * FROM {table}").collect()} == {"c1", "c2"}
        live_lake.further_slices(hostile, 1)
        publish(hostile)
        assert {row.CustomerCardNo for row in spark.sql(f"SELECT * FROM {table}").collect()} == {"c1", "c2", "c3"}
        for statement in (f"VACUUM {table}", f"OPTIMIZE {table}", f"DELETE FROM {table}"):
            with pytest.raises(Exception, match="kappaPublished"):
                spark.sql(statement)
    finally:
        spark.sql("DROP SCHEMA IF EXISTS retail_loyalty CASCADE")
    assert DeltaTable(path).version() == 1
