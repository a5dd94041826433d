"""What is installed for the interpreter that runs this file; it prints that as JSON where it is run by its path.

Interpreters of other environments run it by its path, so it imports the standard library only. Folders of metadata are
read by their names: an interpreter with hundreds of distributions answers in the time that it takes to start.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_METADATA = re.compile(r"(?P<name>[^-]+?)(-(?P<version>[^-]+))?(-py[\d.]+)?\.(dist|egg)-info$")


def installed(path: Iterable[str]) -> dict[str, Any]:
    """Python's version, and the distributions in the folders of an import path, as values for JSON.

    Of a distribution that is there twice, the first one counts, as in an import.

    Args:
        path: the folders, ``sys.path``.

    Returns:
        ``python``; ``distributions``, name -> version; ``unversioned``, names of those whose version says nothing of
        their content, since they are folders that may change; ``folders``, folder -> time of its last change.
    """
    distributions: dict[str, str] = {}
    unversioned: set[str] = set()
    folders: dict[str, int] = {}
    for folder in dict.fromkeys(Path(one).resolve() for one in path):
        try:
            entries = sorted(folder.iterdir())
            folders[str(folder)] = folder.stat().st_mtime_ns
        except OSError:  # a zip of the standard library, or a folder that is not there
            continue
        for name, version, is_folder in _distributions(entries):
            if name not in distributions:
                distributions[name] = version
                unversioned |= {name} if is_folder else set()
    return {
        "python": platform.python_version(),
        "distributions": distributions,
        "unversioned": sorted(unversioned),
        "folders": folders,
    }


def _distributions(entries: Iterable[Path]) -> Iterator[tuple[str, str, bool]]:
    """Names and versions among the entries of a folder, and whether each is installed from a folder of its own."""
    for entry in entries:
        match = _METADATA.match(entry.name)
        if match is None or entry.name.startswith("~"):  # what an interrupted uninstallation left
            continue
        origin = _origin(entry)
        commit = (origin.get("vcs_info") or {}).get("commit_id", "")
        version = match["version"] or _version(entry)
        # Beside its own sources, which setuptools leaves without a record of files, it is a folder on the path.
        is_loose = "dir_info" in origin or (entry.suffix == ".egg-info" and match["version"] is None)
        yield _normal(match["name"]), f"{version} at {commit[:12]}" if commit else version, is_loose


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _origin(metadata: Path) -> dict[str, Any]:
    """Where a distribution was installed from, where that is not an index."""
    try:
        values = json.loads((metadata / "direct_url.json").read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _version(metadata: Path) -> str:
    try:
        text = (metadata / "PKG-INFO" if metadata.is_dir() else metadata).read_text(errors="replace")
    except OSError:
        return "?"
    match = re.search(r"^Version: (.+)$", text, re.MULTILINE)
    return match[1].strip() if match else "?"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(installed(sys.path)))
