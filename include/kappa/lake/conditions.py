"""SQL that a user types: one condition, or one order, over the columns of a table, and nothing else."""

from __future__ import annotations

from kappa.errors import UsageError


def condition(text: str) -> str:
    """An SQL condition that is one expression over columns; safe to stand behind ``WHERE``.

    Raises:
        UsageError: the text is no expression, has something behind it, or reads another relation.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        found = sqlglot.condition(text)
    except SqlglotError as error:
        raise UsageError(
            f"Condition {text!r} is not one SQL expression. Write a condition over columns, for example "
            "\"CustomerCardNo = 'C-17'\"."
        ) from error
    if found.find(exp.Query):
        raise UsageError(
            f"Condition {text!r} holds a query of its own; only the columns of the one table can be named. Leave the "
            "subquery out."
        )
    return f"({text}\n)"  # a comment at the end of the text ends at the line break


def ordering(text: str) -> str:
    """An SQL order, terms over columns with ``ASC`` or ``DESC``; safe to stand behind ``ORDER BY``.

    Raises:
        UsageError: the text is no order, or has something behind it.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    refused = UsageError(
        f'Order {text!r} is not a list of SQL terms. Write columns, for example "CustomerCardNo, TotalPoints DESC".'
    )
    try:
        found = sqlglot.parse(f"SELECT 1 ORDER BY {text}")
    except SqlglotError as error:
        raise refused from error
    given = {name for name, value in found[0].args.items() if value} if len(found) == 1 and found[0] else set()
    if given != {"expressions", "order"} or len(list(found[0].find_all(exp.Query))) != 1:  # type: ignore[union-attr]  # there is one
        raise refused
    return f"{text}\n"
