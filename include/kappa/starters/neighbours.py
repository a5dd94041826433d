"""What files that are in a team's repository already mean for those that are laid out beside them. Pure."""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Callable, Mapping
from functools import partial

#: Files that decide what is written beside them.
CONFIGURED = (
    *("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"),
    *("Dockerfile", ".dockerignore", ".gitignore"),
)


def beside(files: Mapping[str, str], present: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The files that may be written, and what a person has to know of the others.

    Args:
        files: path below the root -> text, as they are laid out in an empty folder.
        present: those of ``CONFIGURED`` that are there.
    """
    left, notes = dict(files), list[str]()
    if "pytest.ini" not in present and (reason := _reason_against_pytest_ini(present)):
        left.pop("pytest.ini")
        notes.append(reason)
    if ".dockerignore" not in present and present.get("Dockerfile", files["Dockerfile"]) != files["Dockerfile"]:
        left.pop(".dockerignore")
        notes.append(
            "Dockerfile is there with other content, so that no .dockerignore is written. The workflow builds an image "
            "from that file: `kappa init` in an empty folder shows what an image needs."
        )
    patterns = {line.rstrip() for line in present.get(".gitignore", files[".gitignore"]).splitlines()}
    if missing := [line for line in files[".gitignore"].splitlines() if line not in patterns]:
        notes.append(f".gitignore lacks lines that keep secrets and the lake out of commits. Add: {' '.join(missing)}")
    return left, notes


def _reason_against_pytest_ini(present: Mapping[str, str]) -> str:
    """Why another file than ``pytest.ini`` is to stay in force; empty if none is."""
    for name, configures in _PYTEST_FILES.items():
        try:
            if name in present and configures(present[name]):
                return (
                    f"{name} configures pytest, so that no pytest.ini is written. Add to it: testpaths tests, and the "
                    "marker spark."
                )
        except (ValueError, RecursionError, configparser.Error):
            return (
                f"{name} does not parse and may configure pytest, so that no pytest.ini is written. Correct it, and "
                "run the command again."
            )
    return ""


def _has_section(name: str, text: str) -> bool:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)
    return parser.has_section(name)


def _has_tool(text: str) -> bool:
    tools = tomllib.loads(text).get("tool")
    return isinstance(tools, dict) and "pytest" in tools


#: Files that pytest reads, in its order -> whether a text of them configures it.
_PYTEST_FILES: Mapping[str, Callable[[str], bool]] = {
    **dict.fromkeys(("pytest.toml", ".pytest.toml", ".pytest.ini"), lambda _: True),
    "pyproject.toml": _has_tool,
    "tox.ini": partial(_has_section, "pytest"),
    "setup.cfg": partial(_has_section, "tool:pytest"),
}
