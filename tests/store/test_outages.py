"""A store that does not answer is told from one that refuses, from whichever library the error comes."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties
from support.s3_options import lake_on, write_options
from support.s3_proxy import CUT, Proxy, s3_proxy
from support.s3_server import S3Server, create_bucket, put_raw

from kappa import clock, properties
from kappa.delta import vacuum
from kappa.delta.access import create_table, is_table, open_table, write
from kappa.delta.append_log import AppendLog
from kappa.errors import (
    BrokerUnreachableError,
    KappaError,
    LakeRefusedError,
    LakeUnreachableError,
    LedgerError,
    Terminal,
    Transient,
)
from kappa.presence.full_disk import is_full
from kappa.store.outages import answers, is_outage, is_refusal
from kappa.store.retries import Retries
from kappa.store.stores import store_of

SCHEMA = pa.schema({"n": pa.int64(), "word": pa.string()})
NUMBERS = pa.schema({"a": pa.int64()})
#: A port on which nobody listens.
NOBODY = "http://127.0.0.1:1"
READINGS = ("get", "head", "open", "read", "files", "folders", "open_table", "is_table", "refresh of a log", "all rows")
CHANGES = (
    "put",
    "create",
    "refresh of a file",
    "delete",
    "delete_folder",
    "discard",
    "create_table",
    "write",
    "append",
)


@dataclass(frozen=True, kw_only=True)
class Lake:
    """A lake with some files, and calls that reach it."""

    url: str
    proxy: Proxy
    calls: dict[str, Callable[[], object]]

    def content(self) -> list[tuple[str, int]]:
        """Paths and sizes of all its files."""
        return sorted((file.path, file.size) for file in store_of(self.url).files(self.url))


def calls_of(url: str) -> dict[str, Callable[[], object]]:
    """Make a file, a table without rows and a log of one row."""
    store, file, table = store_of(url), f"{url}/file", f"{url}/table"
    store.put(file, b"one")
    create_table(table, NUMBERS)
    log = AppendLog(f"{url}/log", SCHEMA)
    log.create()
    log.refresh()
    log.append([{"word": "first"}])
    log.refresh()
    numbers, handle = open_table(table), store.open(file)
    return {
        "get": lambda: store.get(file),
        "head": lambda: store.head(file),
        "open": lambda: store.open(file),
        "read": lambda: (handle.seek(0), handle.read()),
        "files": lambda: list(store.files(url)),
        "folders": lambda: store.folders(url),
        "open_table": lambda: open_table(table),
        "is_table": lambda: is_table(table),
        "refresh of a log": log.refresh,
        "all rows": AppendLog(log.path, SCHEMA).refresh,
        "put": lambda: store.put(file, b"two"),
        "create": lambda: store.create(f"{url}/new", b"two"),
        "refresh of a file": lambda: store.refresh(file, b"two"),
        "delete": lambda: store.delete(file),
        "delete_folder": lambda: store.delete_folder(table),
        "discard": lambda: store.discard(file, clock.now() + timedelta(days=1)),
        "create_table": lambda: create_table(f"{url}/other", NUMBERS),
        "write": lambda: write(numbers, pa.table({"a": [1]}), CommitProperties(max_commit_retries=0)),
        "append": lambda: log.append([{"word": "second"}]),
    }


@pytest.fixture(scope="module")
def lake(s3_process: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """One for all: a call that fails has changed nothing."""
    server, folder = create_bucket(s3_process, "outages"), tmp_path_factory.mktemp("outages")
    with s3_proxy(server) as proxy, lake_on(proxy.server, folder) as url:
        yield Lake(url=url, proxy=proxy, calls=calls_of(url))


# Each call


@pytest.mark.parametrize("call", [*READINGS, *CHANGES])
@pytest.mark.parametrize("status", [pytest.param(503, id="status 503"), pytest.param(CUT, id="cut")])
def test_a_call_without_an_answer_may_succeed_later_and_changes_nothing(
    lake: Lake, call: str, status: int | None
) -> None:
    before = lake.content()
    lake.proxy.refuse(status=status)
    with pytest.raises(LakeUnreachableError, match=rf"^The store does not answer for {lake.url}.*: kappa doctor$") as e:
        lake.calls[call]()
    lake.proxy.clear()
    assert isinstance(e.value, Transient)
    assert (is_outage(e.value), is_refusal(e.value)) == (True, False)
    assert str(e.value).count("does not answer") == 1
    assert {503: "503 Service Unavailable", CUT: "error sending request"}[status] in str(e.value)
    assert lake.content() == before


@pytest.mark.parametrize("call", [*READINGS, *CHANGES])
def test_a_refused_call_says_what_to_do_and_changes_nothing(lake: Lake, call: str) -> None:
    before = lake.content()
    lake.proxy.refuse(status=403)
    with pytest.raises(
        LakeRefusedError, match=rf"^The store refuses {lake.url}.* Check the keys .*: kappa doctor$"
    ) as e:
        lake.calls[call]()
    lake.proxy.clear()
    assert isinstance(e.value, Terminal)
    assert (is_outage(e.value), is_refusal(e.value)) == (False, True)
    assert "403 Forbidden" in str(e.value)
    assert lake.content() == before


def outcomes(lake: Lake, status: int, code: str) -> dict[str, KappaError]:
    """What calls of both clients say to an answer."""
    lake.proxy.refuse(status=status, code=code)
    errors = {call: outcome(lake.calls[call]) for call in ("get", "put", "files", "open_table", "write")}
    lake.proxy.clear()
    return errors


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "KMS.DisabledException"),
        (400, "InvalidRequest"),
        (402, "QuotaExceeded"),
        (405, "MethodNotAllowed"),
        (416, "InvalidRange"),
        (501, "NotImplemented"),
    ],
)
def test_an_answer_that_no_repetition_changes_is_a_refusal_in_the_words_of_the_store(
    lake: Lake, status: int, code: str
) -> None:
    for call, error in outcomes(lake, status, code).items():
        assert isinstance(error, LakeRefusedError), call
        assert (is_outage(error), is_refusal(error)) == (False, True), call
        assert code in str(error) and "Check the keys" not in str(error), call


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "RequestTimeout"),
        (400, "ThrottlingException"),
        (409, "OperationAborted"),
        (429, "TooManyRequests"),
        (503, "SlowDown"),
    ],
)
def test_an_answer_that_asks_for_the_request_again_is_waited_for(lake: Lake, status: int, code: str) -> None:
    for call, error in outcomes(lake, status, code).items():
        assert isinstance(error, LakeUnreachableError), call
        assert (is_outage(error), is_refusal(error)) == (True, False), call


def test_a_clock_that_is_wrong_is_named(lake: Lake) -> None:
    lake.proxy.refuse(status=403, code="RequestTimeTooSkewed")
    error = outcome(lake.calls["get"])
    lake.proxy.clear()
    assert str(error).endswith("Set the clock of this host: timedatectl")


def test_an_answer_without_a_reason_is_said_to_have_none(lake: Lake) -> None:
    lake.proxy.refuse(status=400, code="RequestTimeout")
    error = outcome(lake.calls["head"])
    lake.proxy.clear()
    assert "It gives no reason. Check the keys, which may have expired" in str(error)


@pytest.mark.parametrize(
    ("key", "commands"),
    [
        (
            "lake/table//x",
            {"aws s3api delete-object --bucket {} --key lake/table//x", "aws s3 rm --recursive s3://{}/lake/table//"},
        ),
        (
            "lake/table/./a b",
            {
                "aws s3api delete-object --bucket {} --key 'lake/table/./a b'",
                "aws s3 rm --recursive s3://{}/lake/table/./",
            },
        ),
    ],
)
def test_an_object_that_no_client_can_name_is_shown_with_the_way_to_remove_it(
    s3_lake: str, s3: S3Server, key: str, commands: set[str]
) -> None:
    """A script that joins texts makes such a key. Nothing around it can be listed."""
    create_table(f"{s3_lake}/table", NUMBERS)
    table, store = open_table(f"{s3_lake}/table"), store_of(s3_lake)
    put_raw(s3, key)
    calls = (
        lambda: list(store.files(s3_lake)),
        lambda: store.folders(f"{s3_lake}/table"),
        lambda: store.delete_folder(s3_lake),
        lambda: vacuum.vacuum(f"{s3_lake}/table", lambda: (), age=timedelta(0), check=lambda: None),
    )
    ends = set()
    for call in calls:
        error = outcome(call)
        assert isinstance(error, LakeRefusedError) and error.data["key"] in (key, key.rpartition("/")[0] + "/")
        ends.add(str(error).rpartition("such as ")[2])
    assert ends == {command.format(s3.bucket) for command in commands}
    assert table.version() == 0


class PanicException(BaseException):
    """As PyO3 has it, which gives it no name that a program could import."""


def test_a_client_that_ends_within_is_an_error_that_is_caught() -> None:
    words = r"^A client of the store ended within at s3://b/k: InvalidHeaderValue"
    with pytest.raises(LakeRefusedError, match=words), answers("s3://b/k"):
        raise PanicException("InvalidHeaderValue")


@pytest.mark.parametrize("call", READINGS)
def test_the_same_call_succeeds_after_the_outage(lake: Lake, call: str) -> None:
    lake.proxy.refuse()
    with pytest.raises(LakeUnreachableError):
        lake.calls[call]()
    lake.proxy.clear()
    lake.calls[call]()


def test_a_call_outlives_two_requests_without_an_answer(proxy: Proxy, tmp_path: Path) -> None:
    with lake_on(proxy.server, tmp_path, retries=Retries()) as url:
        for number, call in enumerate((lambda: create_table(url, NUMBERS), lambda: store_of(url).put(f"{url}/f", b""))):
            fault = proxy.refuse(status=503, times=2)
            call()
            assert len(fault.requests) == 2, number
        assert is_table(url)


def test_calls_are_repeated_for_their_time_whatever_the_pauses(proxy: Proxy, tmp_path: Path) -> None:
    with lake_on(proxy.server, tmp_path, retries=Retries()) as url, ThreadPoolExecutor(10) as threads:
        store_of(url).put(f"{url}/file", b"content")
        refused = proxy.refuse(seconds=6.0)
        contents = list(threads.map(lambda _: store_of(url).get(f"{url}/file"), range(10)))
        assert contents == [b"content"] * 10
        assert len(refused.requests) > 10


@pytest.mark.parametrize("status", [pytest.param(500, id="status 500"), pytest.param(CUT, id="cut")])
@pytest.mark.parametrize("retries", [0, 5])
def test_a_file_whose_creation_was_not_acknowledged_is_its_own(
    proxy: Proxy, tmp_path: Path, status: int | None, retries: int
) -> None:
    with lake_on(proxy.server, tmp_path, retries=Retries(retries=retries)) as url:
        lost = proxy.lose_answer("new$", status=status)
        assert store_of(url).create(f"{url}/new", b"one")
        assert lost.answers == [200]
        assert not store_of(url).create(f"{url}/new", b"two")


def test_a_creation_without_an_answer_takes_no_longer_than_another_call(proxy: Proxy, tmp_path: Path) -> None:
    haste = Retries(retries=0, retry_for=timedelta(milliseconds=500), answer=timedelta(seconds=2))
    with lake_on(proxy.server, tmp_path, retries=haste) as url:
        store, held = store_of(url), proxy.hold("new$", times=None)
        calls: tuple[Callable[[str, bytes], object], ...] = (store.put, store.create)
        seconds: list[float] = []
        for call in calls:
            started = time.monotonic()
            with pytest.raises(LakeUnreachableError):
                call(f"{url}/new", b"one")
            seconds.append(time.monotonic() - started)
        assert len(held.requests) > 2, "it is tried again"
        assert seconds[1] < 2 * seconds[0]
        proxy.close()


def test_a_large_file_may_take_longer_to_be_created(proxy: Proxy, tmp_path: Path) -> None:
    """The first entry of a published table after a cutover has tens of megabytes, and goes again as a whole."""
    with lake_on(proxy.server, tmp_path, retries=Retries(retries=0, answer=timedelta(seconds=1))) as url:
        proxy.delay_ms = 3_000.0
        assert store_of(url).create(f"{url}/large", bytes(3 << 20))
        assert proxy.counts() == {"PUT": 1}


def test_a_creation_that_meets_another_one_is_tried_again(proxied_lake: str, proxy: Proxy) -> None:
    """S3 answers 409 to both of two that come at once, and maybe carries out neither."""
    proxy.refuse("new$", "PUT", status=409, times=2)
    assert store_of(proxied_lake).create(f"{proxied_lake}/new", b"one")
    assert proxy.counts()["PUT"] == 3


def test_a_table_whose_creation_meets_another_one_is_created_again(proxied_lake: str, proxy: Proxy) -> None:
    path, entry = f"{proxied_lake}/table", r"table/_delta_log/0+\.json$"
    proxy.refuse(entry, "PUT", status=409, times=2)
    create_table(path, NUMBERS)
    assert open_table(path).version() == 0
    proxy.refuse(entry.replace("table", "other"), "PUT", status=409)
    with pytest.raises(
        LakeUnreachableError, match=r"The first entry of .*/other is refused as present and then missin"
    ):
        create_table(f"{proxied_lake}/other", NUMBERS)


def test_an_outage_within_a_creation_is_said_once(proxied_lake: str, proxy: Proxy) -> None:
    proxy.refuse("new$", "PUT", status=409)
    proxy.refuse("new$", "GET")
    with pytest.raises(LakeUnreachableError) as error:
        store_of(proxied_lake).create(f"{proxied_lake}/new", b"one")
    assert str(error.value).count("does not answer") == 1


def test_a_creation_that_is_refused_as_present_for_ever_is_an_outage(proxied_lake: str, proxy: Proxy) -> None:
    proxy.refuse("new$", "PUT", status=409)
    with pytest.raises(LakeUnreachableError, match=r"new is refused as present and then missing, 5 times"):
        store_of(proxied_lake).create(f"{proxied_lake}/new", b"one")


def test_a_file_that_is_removed_while_it_is_read_is_not_there(proxied_lake: str) -> None:
    store, path = store_of(proxied_lake), f"{proxied_lake}/file"
    store.put(path, bytes(100_000))
    with store.open(path) as file:
        assert file.read(10) == bytes(10)
        store.delete(path)
        with pytest.raises(FileNotFoundError):
            file.read()


# A lake that cannot be reached at all


def outcome(call: Callable[[], object]) -> KappaError:
    with pytest.raises(KappaError) as error:
        call()
    return error.value


@pytest.fixture
def reached_by(s3: S3Server, tmp_path: Path) -> Iterator[Callable[..., list[KappaError]]]:
    """The errors of obstore and of deltalake under a file of these options; None leaves one out."""
    with lake_on(s3, tmp_path) as url:

        def errors(**options: str | None) -> list[KappaError]:
            all_options = {**s3.options, **options}
            file = write_options(s3, tmp_path / "lake.properties")
            file.write_text(properties.written({n: v for n, v in all_options.items() if v is not None}))
            return [
                outcome(lambda: store_of(url).get(f"{url}/f")),
                outcome(lambda: open_table(f"{url}/t")),
                outcome(lambda: create_table(f"{url}/t", NUMBERS)),
            ]

        yield errors


@pytest.mark.parametrize("endpoint", [NOBODY, "http://nowhere.invalid"])
def test_a_store_that_is_not_there_does_not_answer(reached_by: Callable[..., list[KappaError]], endpoint: str) -> None:
    for error in reached_by(aws_endpoint_url=endpoint):
        assert isinstance(error, LakeUnreachableError)
        assert endpoint in str(error) and str(error).endswith("Look at its address and the network: kappa doctor")


def test_without_any_keys_the_file_and_the_environment_are_named(
    reached_by: Callable[..., list[KappaError]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", NOBODY)  # there is no role of a host
    for error in reached_by(aws_access_key_id=None, aws_secret_access_key=None):
        assert isinstance(error, LakeUnreachableError)
        assert is_outage(error)
        assert str(error).endswith("set them in the file of KAPPA_LAKE_CLIENT_FILE, or as AWS_* in the environment.")


def test_a_bucket_that_is_not_there_is_a_refusal(s3: S3Server, tmp_path: Path) -> None:
    with lake_on(replace(s3, bucket="no-bucket"), tmp_path) as url:
        store = store_of(url)
        calls: list[Callable[[], object]] = [
            lambda: store.get(f"{url}/file"),
            lambda: store.put(f"{url}/file", b"one"),
            lambda: store.create(f"{url}/file", b"one"),
            lambda: store.folders(url),
            lambda: is_table(url),
            lambda: open_table(url),
            lambda: create_table(url, NUMBERS),
        ]
        for call in calls:
            error = outcome(call)
            assert isinstance(error, LakeRefusedError)
            assert "NoSuchBucket" in str(error)


# Errors, by their words

S3A = "org.apache.hadoop.fs.s3a"
SDK = "software.amazon.awssdk"


@pytest.mark.parametrize(
    "text",
    [
        "Generic S3 error: Error performing PUT http://h/b/403 in 403.1ms - Server returned non-2xx status code: 503 "
        "Service Unavailable: ",
        "Kernel error -> Generic S3 error\n \x1b[31m\u21b3\x1b[0m Error performing GET http://h in 401ms - HTTP error",
        "Object Store error: Generic S3 error: Error performing GET http://h in 1s - HTTP error: operation timed out",
        f"{S3A}.AWSStatus500Exception: PUT on s3a://b/403: {SDK}.services.s3.model.S3Exception: We encountered an "
        "internal error (Service: S3, Status Code: 500, Request ID: 403)",
        f"{S3A}.AWSServiceThrottledException: getFileStatus on s3a://b/k: Slow Down (Status Code: 503)",
        f"{S3A}.AWSClientIOException: x on b: {SDK}.core.exception.SdkClientException: Unable to execute HTTP request: "
        "Connect to h failed",
        f"java.nio.file.AccessDeniedException: s3a://b/k: {S3A}.auth.NoAuthWithAWSException: No AWS Credentials "
        f"provided by WebIdentityTokenFileCredentialsProvider: {SDK}.core.exception.SdkClientException: x",
    ],
)
def test_words_of_an_outage_are_recognised(text: str) -> None:
    error = RuntimeError("An error occurred while calling o42.save")
    error.__cause__ = OSError(text)
    for one in (error, error.__cause__):
        assert (is_outage(one), is_refusal(one), is_full(one)) == (True, False, False)
    with pytest.raises(LakeUnreachableError) as raised, answers("s3://b/k"):
        raise error
    assert "\x1b" not in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "Generic S3 error: Error performing list request: Error performing GET http://h/b in 503ms - Server returned "
        "non-2xx status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>",
        "Kernel error -> The operation lacked the necessary privileges to complete for path k\n \x1b[31m\u21b3\x1b[0m "
        "Error performing GET http://h/b in 1ms - Server returned non-2xx status code\n  \x1b[31m\u21b3\x1b[0m 403 "
        "Forbidden\n",
        "The operation lacked valid authentication credentials for path k: Error performing GET http://h/b in 1ms - "
        "Server returned non-2xx status code: 401 Unauthorized: ",
        "Generic S3 error: Error performing GET http://h in 1ms - Server returned non-2xx status code: 400 Bad "
        "Request: <Error><Code>ExpiredToken</Code></Error>",
        "Generic S3 error: Error performing HEAD http://h in 1ms - Server returned non-2xx status code: 400 Bad "
        "Request: ",
        "Generic S3 error\n \x1b[31m\u21b3\x1b[0m Error performing HEAD http://h in 1ms - Server returned non-2xx "
        "status code\n  \x1b[31m\u21b3\x1b[0m 400 Bad Request\n",
        "Generic S3 error: Error performing POST REDACTED in 1ms - Server returned non-2xx status code: 400 Bad "
        "Request: <ErrorResponse><Error><Code>InvalidIdentityToken</Code></Error></ErrorResponse>",
        f"{S3A}.AWSBadRequestException: getFileStatus on s3a://b/k: {SDK}.services.s3.model.S3Exception: null "
        "(Service: S3, Status Code: 400, Request ID: 503)",
        f"{S3A}.AWSBadRequestException: PUT 0-byte object on k: {SDK}.services.s3.model.S3Exception: The provided "
        "token has expired. (Service: S3, Status Code: 400, Request ID: 503)",
        "Generic S3 error: Error performing GET https://h in 1ms - Received redirect without LOCATION, this normally "
        "indicates an incorrectly configured region",
        f"java.nio.file.AccessDeniedException: s3a://b/k: getFileStatus on s3a://b/k: {SDK}.services.s3.model."
        "S3Exception: (Service: S3, Status Code: 403, Request ID: 503)",
        f"java.nio.file.AccessDeniedException: b: {S3A}.auth.NoAuthWithAWSException: No AWS Credentials provided by "
        f"WebIdentityTokenFileCredentialsProvider: {SDK}.services.sts.model.InvalidIdentityTokenException: no such "
        "token (Service: Sts, Status Code: 400, Request ID: 503)",
        f"java.nio.file.AccessDeniedException: b: {S3A}.CredentialInitializationException: fs.s3a.kappa.keys.file "
        "names /f, which has no keys any more",
        f"{S3A}.UnknownStoreException: `s3a://b/': {SDK}.services.s3.model.NoSuchBucketException: (Status Code: 404)",
    ],
)
def test_words_of_a_refusal_are_recognised(text: str) -> None:
    error = RuntimeError("An error occurred while calling o42.save")
    error.__cause__ = OSError(text)
    for one in (error, error.__cause__):
        assert (is_outage(one), is_refusal(one), is_full(one)) == (False, True, False)
    with pytest.raises(LakeRefusedError), answers("s3://b/k"):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/srv/lake/503 Service Unavailable"),
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/srv/lake/Generic/403"),
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "s3://lakes/orders/403"),
        PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/srv/lake"),
        TimeoutError("operation timed out"),
        ConnectionError("HTTPConnectionPool(host='registry'): Max retries exceeded with url: /subjects"),
        RuntimeError("The webhook answered 503 Service Unavailable"),
        RuntimeError("The registry answered 403 Forbidden"),
        BrokerUnreachableError("Kafka at kafka:9092 does not answer: Max retries"),
        LedgerError("s3://lakes/orders/log holds 403 rows after number 401."),
        ValueError("s3://lakes/orders/a is not a table"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_are_neither(error: Exception) -> None:
    assert (is_outage(error), is_refusal(error)) == (False, False)
    for path in ("/srv/lake", "s3://lakes/orders"):
        with pytest.raises(type(error)) as raised, answers(path):
            raise error
        assert raised.value is error


def test_an_error_of_a_disk_stays_what_it_is_whatever_it_says() -> None:
    error = OSError("Generic S3 error: Error performing GET http://h in 1ms - error sending request")
    with pytest.raises(OSError) as raised, answers("/srv/lake"):
        raise error
    assert raised.value is error
