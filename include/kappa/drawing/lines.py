"""Lines of a drawing: their width, and wrapped texts."""

from __future__ import annotations

from unicodedata import combining, east_asian_width


def width(text: str) -> int:
    """Number of columns of a text in a monospaced font."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def wrapped(text: str, most: int) -> list[str]:
    """Lines of at most this many columns, broken at spaces, or within a word that is longer than a line.

    Args:
        text: visible text.
        most: largest number of columns, at least 2.
    """
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if width(joined) <= most:
            lines[-1] = joined
            continue
        pieces = _pieces(word, most)
        lines += pieces if lines[-1] else pieces[1:]
        if lines[0] == "":
            lines[0] = pieces[0]
    return lines


def _pieces(word: str, most: int) -> list[str]:
    pieces = [""]
    for c in word:
        if width(pieces[-1] + c) > most:
            pieces.append("")
        pieces[-1] += c
    return pieces
