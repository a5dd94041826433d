"""Each `kappa` command that a message, a help text or a docstring names is one that the command line takes."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_lines import complaint

INCLUDE = Path(__file__).resolve().parents[2] / "include"
PACKAGES = ("kappa", "kappa_airflow", "kappa_local", "kappa_web")
#: A command in backticks, or after a colon up to the end of its sentence.
COMMAND = re.compile(r"`kappa ([^`]+)`|: kappa ([^`\n]+?)(?=[.;,)]? ?$|[.;,)] )")
#: A command of another program up to a path.
OTHER = re.compile(r"\b(rm|rm -r|rm --recursive|mv|cp|cd|ls|ls -l|edit|chmod \d+|chown \w+|--command-config)( 7)* $")
#: The command that is made with the option that it is about.
UP = ["up", "7", "7"]


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each string, a number in place of what is formatted in."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(one.value) if isinstance(one, ast.Constant) else "7" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value


def objections(source: str) -> list[str]:
    """The objection to each command in the strings of a file; a command that is only named needs no arguments."""
    complaints = []
    for line, text in texts(ast.parse(source)):
        for match in COMMAND.finditer(" ".join(text.split())):
            words = shlex.split(re.sub(r"<[\w-]+>|\{[\w.-]*\}", "7", match.group(1) or match.group(2)))
            words = ["7" if word.isupper() else word for word in words[: (*words, ">").index(">")]]
            is_named = len(words) == 1 or words[1].startswith("-")
            if "..." in words or words == UP or not re.fullmatch(r"[a-z-]+", words[0]):
                continue
            wrong = complaint(words, is_whole=not is_named)
            if wrong and not (is_named and "NoArgsIsHelp" in wrong):
                complaints.append(f"{line}: {wrong}")
    return complaints


def open_paths(source: str) -> list[int]:
    """Lines on which another program gets a path that a shell would take apart at its blanks."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        text = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(part, ast.Constant):
                text += str(part.value)
                continue
            assert isinstance(part, ast.FormattedValue)
            is_quoted = ast.unparse(part.value).startswith(("quote(", "shlex.quote("))
            lines += [part.lineno] if OTHER.search(text) and not is_quoted else []
            text += "7"
    return lines


def test_a_path_in_a_command_of_another_program_is_one_word_of_a_shell() -> None:
    files = [file for package in PACKAGES for file in sorted((INCLUDE / package).rglob("*.py"))]
    places = {file.relative_to(INCLUDE).as_posix(): open_paths(file.read_text()) for file in files}
    assert {file: lines for file, lines in places.items() if lines} == {}


@pytest.mark.parametrize(
    "source", ['f"Remove it: rm -r {path}"', 'f"mv {quote(a)} {b}"', '(f"It is open. "\nf"Run: chmod 600 {path}")']
)
def test_a_path_that_may_become_two_is_noticed(source: str) -> None:
    assert len(open_paths(source)) == 1
    assert open_paths('f"Remove {path}: rm -r {quote(path)}, and look: ls -l {shlex.quote(str(path))}"') == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_command_in_a_text_of_the_platform_is_one(package: str) -> None:
    places = {}
    for file in sorted((INCLUDE / package).rglob("*.py")):
        if wrong := objections(file.read_text()):
            places[file.relative_to(INCLUDE).as_posix()] = wrong
    assert places == {}


@pytest.mark.parametrize(
    "source",
    [
        'f"See `kappa abort {topology}`."',
        '"Look: `kappa offsets --group G --all-topics` shows it."',
        'raise ValueError(f"Start it: kappa begin {topology} --execute")',
        'x = ("Write it: kappa plan <topology> "\n     "--no-such. Then wait.")',
    ],
)
def test_a_command_that_is_none_is_noticed(source: str) -> None:
    assert len(objections(source)) == 1


def test_a_command_that_is_only_named_is_left_alone() -> None:
    assert objections('"`kappa cutover` is refused; see: kappa topologies. Or `kappa status {topology}`."') == []
