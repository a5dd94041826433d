"""Files beside topologies, by what is odd about their text."""

from __future__ import annotations

#: What is wrong -> a text that Python does not parse, or parses only where its tree is not looked at.
UNPARSED = {
    "half-written": b"def broken(:\n",
    "another coding": "X = 'Müller'\n".encode("latin-1"),
    "an unknown coding": b"# -*- coding: nothing -*-\n",
    "a null byte": b"X = 1\0\n",
    "a generated schema": b"X = " + b" + ".join(b"'c INT, '" for _ in range(3000)) + b"\n",
    "unmatched brackets": b"X = " + b"[" * 300,
}

#: What is odd -> what comes before the text of a file that Python imports, and the coding of that text.
PARSED = {
    "a mark": (b"\xef\xbb\xbf", "utf-8"),
    "a coding of its own": (b"# -*- coding: latin-1 -*-\n", "latin-1"),
    "lines of Windows": (b"\r\n", "utf-8"),
}
