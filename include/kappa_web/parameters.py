"""Parameters of a query, as its URL has them: an answer takes account of each, or there is none."""

from __future__ import annotations

from collections import Counter
from typing import get_origin
from urllib.parse import parse_qsl

from fastapi import Request

from kappa_web.problems import Problem


async def check(request: Request) -> None:
    """Refuse what FastAPI ignores or replaces: the answer would be of other rows, or of another slice.

    Raises:
        Problem: 400, a parameter is not one of the route, is given twice, or is not text in UTF-8.
    """
    fields = request.scope["route"].dependant.query_params
    is_list = {field.alias: get_origin(field.field_info.annotation) is list for field in fields}
    try:
        pairs = parse_qsl(request.scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as error:
        raise Problem(400, "malformed", "The parameters are not text in UTF-8, encoded as in a URL.") from error
    for name, count in Counter(name for name, _ in pairs).items():
        if name not in is_list:
            names = ", ".join(sorted(is_list)) or "none"
            raise Problem(400, "malformed", f"There is no parameter {name!r} here. Give one of these: {names}.")
        if count > 1 and not is_list[name]:
            raise Problem(400, "malformed", f"Parameter {name!r} has {count} values. Give it once.")
