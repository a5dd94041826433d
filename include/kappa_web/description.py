"""The OpenAPI document of the queries: FastAPI's document of the routes, with the true answers."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI

_JSON, _PROBLEM = "application/json", "application/problem+json"


def described(app: FastAPI, base: str) -> dict[str, Any]:
    """The document: problems have a media type of their own, and a malformed request gets 400.

    Args:
        base: path that the application is mounted at.
    """
    document: dict[str, Any] = deepcopy(app.openapi())
    document["servers"] = [{"url": base or "/"}]
    for path in document["paths"].values():
        for operation in path.values():
            answers = operation["responses"]
            answers.pop("422", None)  # FastAPI's own answer to a malformed request, for which ours is 400
            for status, answer in answers.items():
                if status >= "400" and _JSON in answer.get("content", {}):
                    answer["content"] = {_PROBLEM: answer["content"][_JSON]}
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    return document
