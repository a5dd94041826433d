"""Values of a store's options, as its clients take them.

``object_store`` passes one that makes no header or no address to libraries that end the thread over it, and no
``except Exception`` catches that. So each value is checked before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from kappa.errors import ConfigError

#: Options that are on or off.
_SWITCHES = ("aws_allow_http", "aws_virtual_hosted_style_request")
_TRUE = ("1", "true", "on", "yes", "y")
_FALSE = ("0", "false", "off", "no", "n")
#: What is around a value by mistake, and what Java trims.
BLANKS = "".join(map(chr, range(33)))
_VISIBLE = re.compile(r"[!-~]*")
_REGION = re.compile(r"[A-Za-z0-9._-]+")
#: What may not be in an address: a login would be in errors, and each client drops something else of the rest.
_NO_ADDRESS = {"@": "a login", "?": "a query", "#": "a fragment"}
_ADDRESS = re.compile(r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~%/-]*)?")


def is_true(value: str) -> bool:
    """Whether an option is on, as ``object_store`` reads it."""
    return value.strip().lower() in _TRUE


def stripped(values: Mapping[str, str]) -> dict[str, str]:
    """Values without the blanks and line feeds around them; an empty one counts as absent.

    Examples:
        >>> stripped({"aws_region": "us-east-1 ", "aws_session_token": "\\n"})
        {'aws_region': 'us-east-1'}
    """
    return {name: text for name, value in values.items() if (text := clean(value))}


def clean(value: str) -> str:
    """A value without the blanks and line feeds around it."""
    return value.strip(BLANKS)


def check(options: Mapping[str, str]) -> None:
    """Hold that each value is one that all clients take. No message has a value that may be a secret.

    Raises:
        ConfigError: one is not.
    """
    for name, value in options.items():
        _check_text(name, value)
    for name in _SWITCHES:
        if (switch := options.get(name)) is not None and switch.lower() not in (*_TRUE, *_FALSE):
            raise _refusal(name, f"is {switch!r}, which is neither on nor off", "Set it to true or false.")
    if (region := options.get("aws_region")) is not None and not _REGION.fullmatch(region):
        raise _refusal("aws_region", f"is {region!r}, which is not the name of a region", "Set it to one.")
    if (endpoint := options.get("aws_endpoint_url")) is not None:
        _check_address(endpoint, may_be_plain=is_true(options.get("aws_allow_http", "")))


def _check_text(name: str, value: str) -> None:
    visible = _VISIBLE.match(value)
    assert visible is not None
    if (end := visible.end()) < len(value):
        what = "a blank" if value[end] in BLANKS else "a character that is not ASCII"
        raise _refusal(
            name, f"has {what} at position {end + 1}", "It ends with its line: a comment has a line of its own."
        )
    if value[:1] in ("'", '"') and value[0] == value[-1]:
        raise _refusal(name, "is in quotes, which would be a part of it", "Remove them.")


def _check_address(endpoint: str, *, may_be_plain: bool) -> None:
    if part := next((part for sign, part in _NO_ADDRESS.items() if sign in endpoint), None):
        raise _refusal(
            "aws_endpoint_url", f"has {part}, which belongs to no store's address", "Keep https://host:port of it."
        )
    if not _ADDRESS.fullmatch(endpoint) or not _has_port(endpoint):
        raise ConfigError(
            f"The store's address {endpoint!r} is not a URL. Write aws_endpoint_url as https://host or "
            "https://host:port, with a port up to 65535.",
            value=endpoint,
        )
    if endpoint.startswith("http://") and not may_be_plain:
        raise ConfigError(
            f"The store's address {endpoint} is not encrypted, which deltalake refuses unless that is allowed. "
            "Take https, or set aws_allow_http=true for a store on this host.",
            value=endpoint,
        )


def _has_port(endpoint: str) -> bool:
    """Whether the port is one, where there is any."""
    try:
        return urlsplit(endpoint).port != 0
    except ValueError:
        return False


def _refusal(name: str, reason: str, advice: str) -> ConfigError:
    return ConfigError(
        f"The lake's option {name} {reason}. {advice} It is in the client file of the lake, in a profile, or in the "
        f"environment as {name.upper()}.",
        name=name,
    )
