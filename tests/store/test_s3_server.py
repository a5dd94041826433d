"""What obstore and deltalake do on S3, and what a proxy does to them: tests of the lake on S3 stand on both."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import obstore
import psutil
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError
from support.s3_proxy import CUT, Proxy, request_of, s3_proxy
from support.s3_server import VERSITYGW, S3Server, ensure_built, objects, s3_server

from kappa.errors import ConfigError

LOST = [pytest.param(500, id="status 500"), pytest.param(CUT, id="cut")]


def append(server: S3Server, value: int, retries: int | None = None) -> int:
    """Append a row to the table `t`, whose version is read first; the version afterwards."""
    table = DeltaTable(f"{server.url}/t", storage_options=server.options)
    properties = None if retries is None else CommitProperties(max_commit_retries=retries)
    write_deltalake(table, pa.table({"a": [value]}), mode="append", commit_properties=properties)
    return table.version()


def contents(server: S3Server) -> tuple[int, list[int]]:
    """Version and rows of the table `t`."""
    table = DeltaTable(f"{server.url}/t", storage_options=server.options)
    return table.version(), sorted(table.to_pyarrow_table()["a"].to_pylist())


@pytest.fixture
def table(s3: S3Server) -> S3Server:
    """A table `t` of one row, 0, at version 0."""
    write_deltalake(f"{s3.url}/t", pa.table({"a": [0]}), storage_options=s3.options)
    return s3


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """A thread for a client that has to wait."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@contextlib.contextmanager
def recorded_upstream() -> Iterator[tuple[S3Server, list[bytes]]]:
    """A server that answers one request, which ends with a trailer of THE END; and the bytes that it got."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                while not b"".join(received).endswith(b"THE END\r\n\r\n"):
                    received.append(client.recv(1 << 16))
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        port = listener.getsockname()[1]
        yield (
            S3Server(endpoint=f"http://127.0.0.1:{port}", bucket="b", access_key="", secret_key="", pid=0, folder=None),
            received,
        )
        answering.join(30)


# The server


def test_the_server_ends_with_its_context(tmp_path: Path) -> None:
    with s3_server(tmp_path) as server:
        assert psutil.pid_exists(server.pid)
    assert not psutil.pid_exists(server.pid)


def test_a_server_that_cannot_be_built_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^Go, which builds .*versitygw@v1.8.0, was not found"):
        ensure_built(tmp_path / "cache", VERSITYGW)
    assert list(tmp_path.rglob("versitygw")) == []


def test_a_create_is_refused_the_second_time(proxy: Proxy) -> None:
    store = objects(proxy.server)
    obstore.put(store, "key", b"one", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "key", b"two", mode="create")
    assert bytes(obstore.get(store, "key").bytes()) == b"one"


def test_one_of_eight_threads_creates_a_key(proxy: Proxy) -> None:
    store, start = objects(proxy.server), threading.Barrier(8)

    def is_winner(number: int) -> bool:
        start.wait(30)
        try:
            obstore.put(store, "key", str(number).encode(), mode="create")
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number, won in enumerate(pool.map(is_winner, range(8))) if won]
    assert [str(number).encode() for number in winners] == [bytes(obstore.get(store, "key").bytes())]
    assert proxy.counts() == {"PUT": 8, "GET": 1}


# Two writers of a table


def test_a_held_append_goes_on_at_the_next_version(table: S3Server, proxy: Proxy, thread: ThreadPoolExecutor) -> None:
    held = proxy.hold(r"_delta_log/0+1\.json$")
    appended = thread.submit(append, proxy.server, 1)
    held.await_arrival()
    assert append(table, 2) == 1
    held.release()
    assert appended.result(60) == 2
    assert held.answers == [412]
    assert contents(table) == (2, [0, 1, 2])


def test_a_held_append_without_retries_fails(table: S3Server, proxy: Proxy, thread: ThreadPoolExecutor) -> None:
    held = proxy.hold(r"_delta_log/0+1\.json$")
    appended = thread.submit(append, proxy.server, 1, 0)
    held.await_arrival()
    append(table, 2)
    held.release()
    with pytest.raises(CommitFailedError):
        appended.result(60)
    assert contents(table) == (1, [0, 2])


@pytest.mark.parametrize("status", LOST)
def test_an_append_whose_answer_is_lost_takes_two_versions_for_its_row(
    status: int | None, table: S3Server, proxy: Proxy
) -> None:
    lost = proxy.lose_answer(r"_delta_log/0+1\.json$", status=status)
    assert append(proxy.server, 1) == 2
    assert lost.answers == [200]
    assert contents(table) == (2, [0, 1])


@pytest.mark.parametrize("status", LOST)
def test_an_append_without_retries_fails_after_its_commit_when_the_answer_is_lost(
    status: int | None, table: S3Server, proxy: Proxy
) -> None:
    proxy.lose_answer(r"_delta_log/0+1\.json$", status=status)
    with pytest.raises(CommitFailedError):
        append(proxy.server, 1, retries=0)
    assert contents(table) == (1, [0, 1])


# Faults, as obstore sees them


@pytest.mark.parametrize("status", LOST)
def test_a_create_whose_answer_is_lost_is_refused_by_its_own_object(status: int | None, proxy: Proxy) -> None:
    store, lost = objects(proxy.server), proxy.lose_answer("^key$", status=status)
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "key", b"one", mode="create")
    assert lost.answers == [200]
    assert bytes(obstore.get(store, "key").bytes()) == b"one"
    assert proxy.counts() == {"PUT": 2, "GET": 1}


def test_a_create_that_meets_a_conflict_is_refused_without_an_object(proxy: Proxy) -> None:
    store = objects(proxy.server)
    proxy.refuse("^key$", "PUT", status=409, times=1)
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "key", b"one", mode="create")
    with pytest.raises(FileNotFoundError):
        obstore.head(store, "key")


@pytest.mark.parametrize("status", [pytest.param(503, id="status 503"), pytest.param(CUT, id="cut")])
def test_a_put_outlives_two_refusals(status: int | None, proxy: Proxy) -> None:
    refused = proxy.refuse(status=status, times=2)
    obstore.put(objects(proxy.server), "key", b"one")
    assert len(refused.requests) == 2
    assert proxy.counts() == {"PUT": 3}


def test_a_put_waits_for_the_end_of_an_outage(proxy: Proxy, thread: ThreadPoolExecutor) -> None:
    outage = proxy.refuse()
    put = thread.submit(obstore.put, objects(proxy.server), "key", b"one")
    outage.await_arrival(2)
    assert not put.done()
    outage.release()
    put.result(60)
    assert len(outage.requests) == proxy.counts()["PUT"] - 1


def test_an_outage_of_some_time_ends_by_itself(proxy: Proxy) -> None:
    outage = proxy.refuse(seconds=0.15)
    obstore.put(objects(proxy.server), "key", b"one")
    assert len(outage.requests) == proxy.counts()["PUT"] - 1 >= 1


def test_a_fault_happens_to_the_nth_matching_request(proxy: Proxy) -> None:
    store, refused = objects(proxy.server), proxy.refuse("^b", "PUT", status=403, nth=2, times=1)
    for key in ("a", "b1"):
        obstore.put(store, key, b"")
    with pytest.raises(PermissionDeniedError):
        obstore.put(store, "b2", b"")
    obstore.put(store, "b3", b"")
    assert [request.key for request in refused.requests] == ["b2"]


def test_a_held_answer_is_of_a_request_that_was_carried_out(
    s3: S3Server, proxy: Proxy, thread: ThreadPoolExecutor
) -> None:
    held = proxy.hold_answer("^key$")
    put = thread.submit(obstore.put, objects(proxy.server), "key", b"one")
    held.await_answer()
    assert bytes(obstore.get(objects(s3), "key").bytes()) == b"one"
    assert not put.done()
    held.release()
    put.result(60)


def test_a_held_request_is_carried_out_after_its_client_died(s3: S3Server, proxy: Proxy) -> None:
    held = proxy.hold("^key$")
    with socket.create_connection(("127.0.0.1", int(proxy.server.endpoint.rpartition(":")[2]))) as client:
        client.sendall(f"PUT /{s3.bucket}/key HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\none".encode())
        held.await_arrival()
    held.release()
    held.await_answer()
    assert bytes(obstore.get(objects(s3), "key").bytes()) == b"one"


def test_a_request_that_is_held_to_the_end_is_never_carried_out(s3: S3Server) -> None:
    with s3_proxy(s3) as proxy, ThreadPoolExecutor(1) as pool:
        held = proxy.hold("^key$")
        put = pool.submit(obstore.put, objects(proxy.server, retries=0), "key", b"one", mode="create")
        held.await_arrival()
        proxy.close()
        assert put.exception(60) is not None
    with pytest.raises(FileNotFoundError):
        obstore.head(objects(s3), "key")


def test_a_delay_is_added_to_each_request(proxy: Proxy) -> None:
    store = objects(proxy.server)
    obstore.put(store, "key", b"one")
    proxy.delay_ms = 60
    begin = time.monotonic()
    obstore.head(store, "key")
    assert time.monotonic() - begin >= 0.06


# Counts


def test_requests_are_counted_by_kind_and_by_method(proxy: Proxy) -> None:
    store = objects(proxy.server)
    obstore.put(store, "a/key", b"one")
    obstore.get(store, "a/key")
    obstore.head(store, "a/key")
    obstore.list(store, "a").collect()
    obstore.list_with_delimiter(store)
    before = len(proxy.requests)
    obstore.delete(store, ["a/key"])
    assert proxy.counts() == {"PUT": 1, "GET": 1, "HEAD": 1, "LIST": 2, "DELETE": 1}
    assert proxy.counts(before) == {"DELETE": 1}
    assert proxy.methods() == {"PUT": 1, "GET": 3, "HEAD": 1, "POST": 1}


def test_an_append_is_two_puts(table: S3Server, proxy: Proxy) -> None:
    append(proxy.server, 1)
    assert proxy.counts()["PUT"] == 2
    assert [request.key.rpartition(".")[2] for request in proxy.requests if request.kind == "PUT"] == [
        "parquet",
        "json",
    ]


@pytest.mark.parametrize(
    ("method", "target", "kind", "key"),
    [
        ("GET", "/b?list-type=2&prefix=a%2Fb%20c", "LIST", "a/b c"),
        ("GET", "/b/?delimiter=%2F", "LIST", ""),
        ("GET", "/b", "LIST", ""),
        ("GET", "/b?location", "GET", ""),
        ("GET", "/b/a?prefix=x", "GET", "a"),
        ("GET", "/b//a/%C3%A9", "GET", "/a/é"),
        ("POST", "/b?delete", "DELETE", ""),
        ("POST", "/b/a?uploads", "POST", "a"),
        ("DELETE", "/b/a", "DELETE", "a"),
    ],
)
def test_a_request_has_a_kind_and_a_key(method: str, target: str, kind: str, key: str) -> None:
    request = request_of(method, target)
    assert (request.kind, request.key) == (kind, key)


# Bytes


def test_objects_of_some_megabytes_are_the_same_after_the_proxy(s3: S3Server, proxy: Proxy) -> None:
    content = bytes(range(256)) * (3 << 14)
    obstore.put(objects(proxy.server), "key", content, use_multipart=False)
    assert bytes(obstore.get(objects(s3), "key").bytes()) == content
    assert bytes(obstore.get(objects(proxy.server), "key").bytes()) == content
    assert proxy.counts() == {"PUT": 1, "GET": 1}


def test_a_request_reaches_the_server_byte_for_byte() -> None:
    head = (
        b"PUT //b/a%2Fb//c?x=%20&y HTTP/1.1\r\nHost: s3.example:9\r\nExpect: 100-continue\r\n"
        b"Content-Encoding: aws-chunked\r\nx-amz-decoded-content-length: 3\r\nAccept-Encoding: identity\r\n"
        b"Transfer-Encoding: chunked\r\nAuthorization: AWS4-HMAC-SHA256 Credential=a/b, Signature=c\r\n\r\n"
    )
    body = b"16\r\n3;chunk-signature=0\r\n1\r\n0\r\nx-amz-trailer: THE END\r\n\r\n"
    with recorded_upstream() as (upstream, received), s3_proxy(upstream) as proxy:
        port = int(proxy.server.endpoint.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(head)
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
            client.sendall(body)
            assert client.makefile("rb").read(40).endswith(b"\r\n\r\nok")
    assert b"".join(received) == head + body


def test_a_connection_serves_several_requests(s3: S3Server, proxy: Proxy) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(proxy.server.endpoint.rpartition(":")[2]), timeout=30)
    connections = set()
    with contextlib.closing(connection):
        for number in range(3):
            connection.request("PUT", f"/{s3.bucket}/{number}", body=iter([b"o", b"ne"]), encode_chunked=True)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
            connections.add(connection.sock)
    assert len(connections) == 1 and None not in connections
    assert bytes(obstore.get(objects(s3), "2").bytes()) == b"one"


def test_a_client_sees_a_cut_when_the_server_is_gone(tmp_path: Path) -> None:
    with s3_server(tmp_path) as server, s3_proxy(server) as proxy:
        process = psutil.Process(server.pid)
        process.kill()
        process.wait(30)
        with pytest.raises(BaseError):
            obstore.head(objects(proxy.server, retries=0), "key")


# A server that checks signatures: it is built once, in two minutes.


def test_versitygw_takes_signatures_through_the_proxy(tmp_path: Path) -> None:
    with s3_server(tmp_path, kind="versitygw") as server, s3_proxy(server) as proxy:
        obstore.put(objects(proxy.server), "a key", b"one", mode="create")
        with pytest.raises(AlreadyExistsError):
            obstore.put(objects(proxy.server), "a key", b"two", mode="create")
        with pytest.raises(PermissionDeniedError):
            obstore.get(objects(replace(proxy.server, secret_key="another")), "a key")
        write_deltalake(f"{server.url}/t", pa.table({"a": [0]}), storage_options=proxy.server.options)
        assert append(proxy.server, 1) == 1
        assert contents(proxy.server) == (1, [0, 1])
        assert (tmp_path / "data" / "lake" / "a key").read_bytes() == b"one"
