"""What files that are in a team's repository already mean for those that are laid out beside them. Pure."""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Mapping

#: Files that decide what is written beside them.
CONFIGURED = (
    *("pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini", ".pytest.ini"),
    *("Dockerfile", ".dockerignore", ".gitignore"),
)


def beside(files: Mapping[str, str], present: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The files that may be written, and what a person has to know of the others.

    Args:
        files: path below the root -> text, as they are laid out in an empty folder.
        present: those of ``CONFIGURED`` that are there.
    """
    left, notes = dict(files), list[str]()
    if "pytest.ini" not in present and (where := _configures_pytest(present)):
        left.pop("pytest.ini")
        notes.append(
            f"{where} configures pytest, so that no pytest.ini is written. Add to it: testpaths tests, and the marker "
            "spark."
        )
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


def _configures_pytest(present: Mapping[str, str]) -> str:
    """The file that does; empty for none."""
    try:
        if "pytest" in tomllib.loads(present.get("pyproject.toml", "")).get("tool", {}):
            return "pyproject.toml"
    except tomllib.TOMLDecodeError:
        return "pyproject.toml"  # what it says is for its author to see first
    for name, section in (("setup.cfg", "tool:pytest"), ("tox.ini", "pytest"), (".pytest.ini", "pytest")):
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(present.get(name, ""))
        except configparser.Error:
            continue
        if parser.has_section(section):
            return name
    return ""
