"""Environments that have Kappa by its wheel, and of other packages just those that its requirements name.

They link to the packages of the environment that runs the tests: nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
NAME = "kappa-replay"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment with Kappa.

    Attributes:
        folder: where it is.
        distributions: names of the other packages.
    """

    folder: Path
    distributions: frozenset[str]

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        """Its ``kappa``."""
        return self.folder / "bin" / "kappa"


def wheel(folder: Path) -> Path:
    """The wheel of this checkout, built in a copy of what git has, so that no earlier build is in it."""
    source = folder / "source"
    source.mkdir(parents=True)
    for name in tracked("include", "pyproject.toml", "README.md", "LICENSE"):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    (built,) = folder.glob("*.whl")
    return built


def tracked(*paths: str) -> list[str]:
    """Files of this checkout, without what git ignores."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *paths]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in names.split("\0") if name and (ROOT / name).is_file()]


def environment(folder: Path, built: Path, extras: Collection[str] = ()) -> Environment:
    """A virtual environment with a wheel, and with what it requires for these extras.

    Args:
        folder: where it is made.
        built: the wheel.
        extras: names of extras.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    _pip("--python", str(folder / "bin" / "python"), "install", "--no-deps", "--no-index", str(built))
    (packages,) = folder.glob("lib/python*/site-packages")
    (metadata,) = packages.glob("kappa_replay-*.dist-info")
    required = {item.metadata["Name"]: item for item in _required(Distribution.at(metadata), frozenset(extras), set())}
    for item in required.values():
        for name in {file.parts[0] for file in item.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = packages / name
            if not link.exists():
                link.symlink_to(Path(str(item.locate_file(name))))
    return Environment(folder=folder, distributions=frozenset(required))


def _required(item: Distribution, extras: frozenset[str], seen: set[tuple[str, str]]) -> Iterator[Distribution]:
    """The distributions that one requires, directly or through others; each of its extras once."""
    for line in item.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        for extra in ("", *extras):
            if (requirement.name, extra) in seen or (marker and not marker.evaluate({"extra": extra})):
                continue
            if marker is None and extra:
                continue
            seen.add((requirement.name, extra))
            if requirement.name == NAME:  # extras that name others
                yield from _required(item, frozenset(requirement.extras), seen)
                continue
            other = distribution(requirement.name)
            assert other.version in requirement.specifier, f"{other.version} is not {line}"
            yield other
            yield from _required(other, frozenset(requirement.extras), seen)


def _pip(*words: str) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it has Kappa too
    command = [sys.executable, "-m", "pip", *words]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
