"""JSON values as they are written: what an oracle reads by the table of types, and a topic gets as bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

#: A field's name and value come in the order in which they are written; one name may come twice.
Token: TypeAlias = "Number | str | bool | list[Token] | Fields | None"


@dataclass(frozen=True)
class Number:
    """A number, by its digits."""

    text: str


@dataclass(frozen=True)
class Fields:
    """An object."""

    pairs: tuple[tuple[str, Token], ...]

    def last(self) -> dict[str, Token]:
        """Each name with its last value, at the place of its first."""
        return dict(self.pairs)


def written(token: Token, random: Random, *, blanks: float = 0.1, escapes: float = 0.1) -> str:
    """A token's JSON text, with blanks between its parts and letters escaped at random."""

    def blank() -> str:
        return "".join(random.choices(" \t\n\r", k=random.randint(1, 3))) if random.random() < blanks else ""

    def text(letters: str) -> str:
        return f'"{"".join(letter(one) for one in letters)}"'

    def letter(one: str) -> str:
        if 0xD800 <= ord(one) <= 0xDFFF or (ord(one) <= 0xFFFF and random.random() < escapes):
            return f"\\u{ord(one):04x}" if random.random() < 0.5 else f"\\u{ord(one):04X}"
        if ord(one) > 0xFFFF and random.random() < escapes:
            return json.dumps(one)[1:-1]
        return json.dumps(one, ensure_ascii=False)[1:-1]

    def part(one: Token) -> str:
        if isinstance(one, Number):
            return one.text
        if isinstance(one, str):
            return text(one)
        if isinstance(one, list):
            return f"[{blank()}{','.join(f'{blank()}{part(item)}{blank()}' for item in one)}]"
        if isinstance(one, Fields):
            inner = (f"{blank()}{text(name)}{blank()}:{blank()}{part(item)}{blank()}" for name, item in one.pairs)
            return f"{{{blank()}{','.join(inner)}}}"
        return json.dumps(one)

    return f"{blank()}{part(token)}{blank()}"


def compact(token: Token) -> str:
    """A token's JSON text without blanks: numbers as written, each name once, no letter escaped that need not be."""
    if isinstance(token, Number):
        return token.text
    if isinstance(token, list):
        return f"[{','.join(map(compact, token))}]"
    if isinstance(token, Fields):
        return f"{{{','.join(f'{compact(name)}:{compact(item)}' for name, item in token.last().items())}}}"
    return json.dumps(token, ensure_ascii=False)
