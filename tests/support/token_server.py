"""A server of tokens beside a broker that takes nothing else, and who fetched how many of them."""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from kappa.config import Servers
from kappa.kafka.client_file import login
from kappa.properties import written
from kappa_local import kafka, logins
from support.brokers import started_with

CLIENT, SECRET, AUDIENCE = "kappa-client", "a client's secret", "kafka"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="


@dataclass(kw_only=True)
class TokenServer:
    """Signs tokens for one client.

    Attributes:
        seconds: how long a token counts.
        fetched: how many tokens went to clients of Java and of librdkafka.
        refusals: how many requests had other credentials.
        is_out: whether it answers none.
    """

    seconds: float
    fetched: Counter[str] = field(default_factory=Counter)
    refusals: int = 0
    is_out: bool = False
    _key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """Its address."""
        assert self._server is not None
        return f"http://{kafka.HOST}:{self._server.server_port}"

    def token(self) -> str:
        """A signed token for the client."""
        now = time.time()
        claims = {
            "sub": CLIENT,
            "aud": AUDIENCE,
            "iss": "tests",
            "iat": int(now),
            "exp": int(now + self.seconds),
            "jti": uuid.uuid4().hex,
            "scope": "kafka",
        }
        parts = (_text(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT", "kid": "one"}, claims))
        signed = ".".join(parts)
        return f"{signed}.{_text(self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256()))}"

    def keys(self) -> dict[str, Any]:
        """Its public key, as brokers ask for it."""
        numbers = self._key.public_key().public_numbers()
        modulus = numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one", "e": "AQAB", "n": _text(modulus)}]}

    @contextmanager
    def serving(self) -> Iterator[TokenServer]:
        """Answer at a free port of loopback."""
        tokens = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
                if tokens.is_out:  # it hangs up
                    self.close_connection = True
                    return
                if self.headers.get("Authorization") != f"Basic {basic}":
                    tokens.refusals += 1
                    self.answer(401, {"error": "invalid_client"})
                    return
                agent = self.headers.get("User-Agent", "")
                tokens.fetched["java" if "java" in agent.lower() else "librdkafka"] += 1
                answer = {"access_token": tokens.token(), "token_type": "Bearer", "expires_in": tokens.seconds}
                self.answer(200, answer)

            def do_GET(self) -> None:
                self.answer(200, tokens.keys())

            def answer(self, status: int, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer((kafka.HOST, 0), Answers) as server:
            self._server = server
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield self
            finally:
                server.shutdown()

    def client_file(self, path: Path) -> None:
        """Write the file by which the client logs in."""
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"{self.url}/token",
            "sasl.oauthbearer.client.credentials.client.id": CLIENT,
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        }
        logins.write_private(path, written(settings))


@dataclass(kw_only=True)
class TokenBroker:
    """A broker with a listener of its own for clients with tokens.

    Attributes:
        process: the broker; its other listener asks for no login.
        port: of the listener for clients with tokens.
    """

    process: kafka.KafkaProcess
    port: int

    def servers(self, client_file: Path) -> Servers:
        """Its address for clients with tokens."""
        return Servers(f"{kafka.HOST}:{self.port}", str(client_file))


def started(folder: Path, tokens: TokenServer) -> TokenBroker:
    """A broker that takes tokens of this server, and closes connections that go on with old ones."""
    port = kafka.free_port()
    own = f"TOKENS://{kafka.HOST}:{port}"
    module = login("OAuthBearerLoginModule", {}).replace("required ;", "required;")

    def settings(plain: Mapping[str, str]) -> dict[str, str]:
        return {
            "listeners": f"{plain['listeners']},{own}",
            "advertised.listeners": f"{plain['advertised.listeners']},{own}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.tokens.oauthbearer.sasl.jaas.config": module,
            "listener.name.tokens.oauthbearer.sasl.server.callback.handler.class": (
                f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
            ),
            "listener.name.tokens.oauthbearer.connections.max.reauth.ms": str(round(tokens.seconds * 1000)),
            "sasl.oauthbearer.jwks.endpoint.url": f"{tokens.url}/keys",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }

    process = started_with(folder / "kafka", settings, options=[f"{_ALLOWED}{tokens.url}/keys"])
    return TokenBroker(process=process, port=port)


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
