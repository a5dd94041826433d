"""Queries over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kappa_web.lake import Lake

if TYPE_CHECKING:
    from fastapi import APIRouter


def router(lake: Lake, access: Callable[..., Any]) -> APIRouter:
    """Routes of the queries."""
    from fastapi import APIRouter

    return APIRouter()
