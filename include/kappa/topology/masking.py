"""Substitutes in the lake for values that may not be in it, and fingerprints of keys."""

from __future__ import annotations

import hashlib
import hmac

from kappa.errors import TopologyError

#: Shortest key; a shorter one could be found by trying.
SHORTEST = 16


def fingerprint(key: str) -> str:
    """A text that distinguishes one key from another and reveals nothing else about it.

    Raises:
        TopologyError: the key is too short; the message does not contain it.
    """
    check(key)
    return hmac.new(key.encode(), b"kappa mask key", hashlib.sha256).hexdigest()[:16]


def withheld(value: bytes | None, key: str) -> bytes | None:
    """The substitute for a value: its length and a keyed hash, by which equal values can be found."""
    if value is None:
        return None
    digest = hmac.new(key.encode(), value, hashlib.sha256).hexdigest()
    return f"withheld: {len(value)} bytes, hmac-sha256 {digest}".encode()


def check(key: str) -> None:
    """Raise unless a key is long enough.

    Raises:
        TopologyError: it is too short, or not set; the message does not contain it.
    """
    if len(key) < SHORTEST:
        raise TopologyError(
            f"The key of masked values has {len(key)} characters. Set KAPPA_MASK_KEY to at least {SHORTEST} characters "
            "where drivers run: a short key can be found by trying."
        )
