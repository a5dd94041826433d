"""Logins of a lake on S3 that expire: keys that are valid for a time, and a service that gives some for a token."""

from __future__ import annotations

import contextlib
import threading
import time
import xml.sax.saxutils
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kappa_local.kafka import HOST
from kappa_local.logins import make
from support.s3_proxy import encrypted

ROLE = "arn:aws:iam::123456789012:role/kappa"
_ANSWER = """\
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleWithWebIdentityResult>
    <SubjectFromWebIdentityToken>kappa</SubjectFromWebIdentityToken>
    <Audience>sts</Audience>
    <AssumedRoleUser><Arn>{arn}/kappa</Arn><AssumedRoleId>kappa</AssumedRoleId></AssumedRoleUser>
    <Credentials>
      <AccessKeyId>{key}</AccessKeyId>
      <SecretAccessKey>secret-of-{key}</SecretAccessKey>
      <SessionToken>token-of-{key}</SessionToken>
      <Expiration>{expiry}</Expiration>
    </Credentials>
    <Provider>test</Provider>
  </AssumeRoleWithWebIdentityResult>
  <ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>
</AssumeRoleWithWebIdentityResponse>
"""
_REFUSAL = """\
<ErrorResponse><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code><Message>no such token</Message></Error>
</ErrorResponse>
"""


class Sessions:
    """Access keys, each of which is permitted for a time.

    Attributes:
        lifetime: how long.
        newest: the last key.
        users: the keys that were used while they were permitted.
    """

    def __init__(self, lifetime: timedelta) -> None:
        self.lifetime = lifetime
        self.users: set[str] = set()
        self.newest = ""
        self._ends: dict[str, float] = {}
        self._lock = threading.Lock()

    def issue(self) -> dict[str, str]:
        """A new login, in the names of a client file."""
        with self._lock:
            key = self.newest = f"ASIA{len(self._ends):08}"
            self._ends[key] = time.monotonic() + self.lifetime.total_seconds()
        return {
            "aws_access_key_id": key,
            "aws_secret_access_key": f"secret-of-{key}",
            "aws_session_token": f"token-of-{key}",
        }

    def permits(self, key: str) -> bool:
        """Whether a key may be used now."""
        if time.monotonic() >= self._ends.get(key, 0.0):
            return False
        self.users.add(key)
        return True

    @property
    def count(self) -> int:
        """How many logins were issued."""
        return len(self._ends)


class _Handler(BaseHTTPRequestHandler):
    sessions: Sessions
    token: str

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        # object_store sends the parameters in the address, the AWS SDK in the body.
        words = parse_qs(body) | parse_qs(urlsplit(self.path).query)
        is_valid = words.get("WebIdentityToken") == [self.token] and words.get("RoleArn") == [ROLE]
        login = self.sessions.issue() if is_valid else {}
        expiry = datetime.now(UTC) + self.sessions.lifetime
        text = _REFUSAL
        if login:
            text = _ANSWER.format(
                arn=xml.sax.saxutils.escape(ROLE),
                key=login["aws_access_key_id"],
                expiry=expiry.strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
        self.send_response(200 if login else 400)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def token_service(sessions: Sessions, token: str, certificate: Path) -> Iterator[str]:
    """Within, a service gives logins to whoever shows a token; its URL."""
    handler = type("_BoundHandler", (_Handler,), {"sessions": sessions, "token": token})
    listener = ThreadingHTTPServer((HOST, 0), handler)
    listener.socket = encrypted(listener.socket, certificate)
    threading.Thread(target=listener.serve_forever, args=(0.05,), name="token-service", daemon=True).start()
    try:
        yield f"https://{HOST}:{listener.server_port}"
    finally:
        listener.shutdown()
        listener.server_close()


def certificates(folder: Path) -> tuple[Path, Path]:
    """A server's certificate with its key, for this host's loopback, and the private authority that signed it."""
    make(folder)
    return folder / "logins" / "broker.pem", folder / "logins" / "ca.pem"
