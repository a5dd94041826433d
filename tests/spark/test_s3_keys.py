"""Spark has the keys that the client file of a lake on S3 has now, and its settings have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest_spark import BRIEF
from support.s3_options import write_options
from support.s3_server import S3Server, s3_server
from support.s3_spark import StatementError, spark_on

from kappa.store.outages import is_refusal

pytestmark = pytest.mark.spark


def assert_refused(server: S3Server, call: Callable[[], object]) -> None:
    """Hold that a call ends as a refusal, and that its error has no secret."""
    with pytest.raises(StatementError) as error:
        call()
    assert is_refusal(error.value) and server.secret_key not in str(error.value)


def test_a_session_lives_on_when_keys_are_replaced(tmp_path: Path) -> None:
    """By a server that checks signatures: it is built once, in two minutes."""
    with s3_server(tmp_path / "s3", kind="versitygw") as server:
        file, lake = write_options(server, tmp_path / "lake.properties"), f"{server.url}/lake"
        with spark_on(lake, server.options, tmp_path / "spark", BRIEF, file=file) as spark:
            spark.sql(f"CREATE TABLE delta.`{lake}/t` (a INT) USING delta")
            shown = {name: value for name, value in spark.sql("SET") if name.startswith("spark.hadoop.fs.s3a.")}
            assert str(file) in shown.values() and not {server.access_key, server.secret_key} & set(shown.values())
            wrong = replace(server, secret_key="an0ther-secret")
            write_options(wrong, file)
            assert_refused(wrong, lambda: spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (1)"))
            write_options(server, file, aws_access_key_id="", aws_secret_access_key="")
            assert_refused(server, lambda: spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (1)"))
            file.unlink()
            assert_refused(server, lambda: spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (1)"))
            write_options(server, file)
            spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (2)")
            assert spark.sql(f"SELECT a FROM delta.`{lake}/t`") == [[2]]
