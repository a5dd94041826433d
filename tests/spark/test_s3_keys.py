"""Spark has the keys of a lake on S3 that there are now, and its settings have none."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from conftest_spark import BRIEF
from support.s3_logins import ROLE, Sessions, certificates, token_service
from support.s3_options import NO_KEYS, write_options
from support.s3_proxy import s3_proxy
from support.s3_server import S3Server, s3_server
from support.s3_spark import StatementError, spark_on

from kappa import properties
from kappa.store.outages import is_outage, is_refusal
from kappa_local.logins import write_private

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
            write_options(server, file, **NO_KEYS)
            assert_refused(server, lambda: spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (1)"))
            file.unlink()
            assert_refused(server, lambda: spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (1)"))
            write_options(server, file, aws_secret_access_key=f"{server.secret_key} \n")  # as Python reads it
            spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (2)")
            assert spark.sql(f"SELECT a FROM delta.`{lake}/t`") == [[2]]


def test_a_session_reads_a_profile_again_and_trusts_a_private_authority(s3: S3Server, tmp_path: Path) -> None:
    """moto checks no keys; the proxy in front of it does."""
    certificate, authority = certificates(tmp_path)
    sessions = Sessions(timedelta(hours=1))
    profiles = tmp_path / "profiles"  # Spark shows no value with "credential" in it

    def renew() -> None:
        write_private(profiles, f"[orders]\n{properties.written(sessions.issue())}")

    renew()
    with s3_proxy(s3, certificate=certificate, permits=lambda key: key == sessions.newest) as proxy:
        others = {"aws_ca_bundle": str(authority), "aws_profile": "orders"}
        file = write_options(proxy.server, tmp_path / "lake.properties", **NO_KEYS, **others)
        lake, variables = f"{proxy.server.url}/lake", {"AWS_SHARED_CREDENTIALS_FILE": str(profiles)}
        with spark_on(lake, {}, tmp_path / "spark", BRIEF, file=file, variables=variables) as spark:
            spark.sql(f"CREATE TABLE delta.`{lake}/t` (a INT) USING delta")
            shown = {name: value for name, value in spark.sql("SET") if name.startswith("spark.hadoop.fs.s3a.")}
            assert {str(profiles), "orders"} <= set(shown.values()) and sessions.newest not in shown.values()
            before = profiles.read_text()
            profiles.write_text("")  # a tool is about to write it, the time says
            os.utime(profiles, times=(now := time.time() + 3600, now))
            spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (1)")
            profiles.write_text("[orders]\naws_access_key_id=ASIA1\naws_secret_access_key=next\n")  # its token follows
            os.utime(profiles, times=(now, now))
            spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (1)")
            profiles.write_text("")
            os.utime(profiles, times=(0, 0))
            assert_refused(proxy.server, lambda: spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (0)"))
            profiles.write_text(before)
            profiles.chmod(0o644)
            assert_refused(proxy.server, lambda: spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (0)"))
            profiles.chmod(0o600)
            spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (1)")
            sessions.issue()
            assert_refused(proxy.server, lambda: spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (0)"))
            renew()
            spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (2)")
            assert spark.sql(f"SELECT a FROM delta.`{lake}/t` ORDER BY a") == [[1], [1], [1], [2]]


def test_a_session_has_a_role_for_longer_than_its_keys_are_valid(s3: S3Server, tmp_path: Path) -> None:
    """By the token of a service account; the service has the certificate of a private authority."""
    certificate, authority = certificates(tmp_path)
    sessions, token = Sessions(timedelta(seconds=5)), tmp_path / "token"
    token.write_text("the-token")
    with s3_proxy(s3, certificate=certificate, permits=sessions.permits) as proxy, contextlib.ExitStack() as services:
        service = services.enter_context(token_service(sessions, token.read_text(), certificate))
        variables = {"AWS_ENDPOINT_URL_STS": service, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": ROLE}
        file = write_options(proxy.server, tmp_path / "lake.properties", aws_ca_bundle=str(authority), **NO_KEYS)
        lake = f"{proxy.server.url}/lake"
        with spark_on(lake, {}, tmp_path / "spark", BRIEF, file=file, variables=variables) as spark:
            spark.sql(f"CREATE TABLE delta.`{lake}/t` (a INT) USING delta")
            end, count = time.monotonic() + 3 * sessions.lifetime.total_seconds(), 0
            while time.monotonic() < end:
                spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES ({count})")
                count += 1
            assert spark.sql(f"SELECT count(*) FROM delta.`{lake}/t`") == [[count]]
            assert len(sessions.users) > 3 and proxy.refusals == []
            token.write_text("another")
            time.sleep(sessions.lifetime.total_seconds())  # the keys before are valid still
            assert_refused(proxy.server, lambda: spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (0)"))
            services.close()  # as for Python's clients: nobody refused, and the service may be back
            with pytest.raises(StatementError) as error:
                spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (0)")
            assert is_outage(error.value) and not is_refusal(error.value)
            token.unlink()
            with pytest.raises(StatementError) as error:
                spark.sql(f"INSERT INTO delta.`{lake}/t` VALUES (0)")
            assert is_outage(error.value) and not is_refusal(error.value)
