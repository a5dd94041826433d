"""What an expression of PromQL reads: its selectors and the labels that it names. Prometheus' own tool parses it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>[0-9.]+(?:e[+-]?[0-9]+)?(?:ms|[smhdwy])?|\$__\w+)
    | (?P<name>[a-zA-Z_:][\w:]*)
    | (?P<mark>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){}\[\],:])
    )""",
    re.VERBOSE,
)
#: Words before a list of labels.
_LISTS = frozenset(["by", "without", "on", "ignoring", "group_left", "group_right"])
_WORDS = frozenset(["and", "or", "unless", "bool", "offset", "inf", "nan"])


@dataclass(frozen=True, kw_only=True)
class Selector:
    """A selector of series.

    Attributes:
        name: the metric.
        matchers: label, operator and value, in order.
    """

    name: str
    matchers: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Expression:
    """An expression.

    Attributes:
        selectors: what it reads, in order.
        lists: labels of each `by`, `on` and their like.
        functions: functions and aggregations that it calls.
    """

    selectors: tuple[Selector, ...]
    lists: tuple[tuple[str, ...], ...]
    functions: frozenset[str]


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each token.

    Raises:
        ValueError: a part is not one.
    """
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"no token of PromQL at {text[at:]!r}")
        yield match.lastgroup, match[match.lastgroup]
        at = match.end()


def expression(text: str) -> Expression:
    """What an expression reads."""
    words = list(tokens(text))
    selectors, lists, functions = [], [], set()
    at = 0
    while at < len(words):
        kind, word = words[at]
        after = words[at + 1][1] if at + 1 < len(words) else ""
        if kind != "name" or word in _WORDS:
            at += 1
        elif word in _LISTS:
            labels, at = _list(words, at + 1) if after == "(" else ((), at + 1)
            lists.append(labels)
        elif after == "(" or after in _LISTS:
            functions.add(word)
            at += 1
        else:
            matchers, at = _matchers(words, at + 1) if after == "{" else ((), at + 1)
            selectors.append(Selector(name=word, matchers=matchers))
    return Expression(selectors=tuple(selectors), lists=tuple(lists), functions=frozenset(functions))


def _list(words: Sequence[tuple[str, str]], at: int) -> tuple[tuple[str, ...], int]:
    """Labels between parentheses, and the place after them."""
    end = words.index(("mark", ")"), at)
    return tuple(word for kind, word in words[at:end] if kind == "name"), end + 1


def _matchers(words: Sequence[tuple[str, str]], at: int) -> tuple[tuple[tuple[str, str, str], ...], int]:
    """Matchers between braces, and the place after them."""
    end = words.index(("mark", "}"), at)
    inner = [token for token in words[at + 1 : end] if token != ("mark", ",")]
    triples = [tuple(word for _, word in inner[n : n + 3]) for n in range(0, len(inner), 3)]
    return tuple((label, operator, value[1:-1]) for label, operator, value in triples), end + 1
