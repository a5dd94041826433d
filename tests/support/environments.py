"""Environments that have Kappa by its wheel, and of other packages just those that its requirements name.

They link to the packages of the environment that runs the tests: nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
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


def wheel(folder: Path, version: str = "") -> Path:
    """The wheel of this checkout, built in a copy of what git has, so that no earlier build is in it.

    Args:
        folder: where it is built.
        version: its version; empty for that of the checkout.
    """
    source = folder / "source"
    source.mkdir(parents=True)
    for name in tracked("include", "pyproject.toml", "README.md", "LICENSE"):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    if version:
        place = source / "include" / "kappa" / "__init__.py"
        place.write_text(re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', place.read_text(), flags=re.M))
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source, folder=folder)
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
    distributions = link(folder, built, extras)
    install(folder, built)
    return Environment(folder=folder, distributions=distributions)


def install(folder: Path, *built: Path) -> None:
    """Install wheels into a virtual environment, and nothing that they require.

    Args:
        folder: the virtual environment.
        *built: the wheels.
    """
    _pip("--python", folder / "bin" / "python", "install", "--no-deps", "--no-index", *built, folder=folder)


def library(folder: Path, name: str, version: str, source: str) -> Path:
    """A wheel of one module, written by hand.

    Args:
        folder: where it is written.
        name: of the distribution and of its module.
        version: its version.
        source: the module.
    """
    folder.mkdir(parents=True, exist_ok=True)
    metadata = f"{name}-{version}.dist-info"
    parts = {
        f"{name}.py": source,
        f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{metadata}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{part},,\n" for part in (*parts, f"{metadata}/RECORD"))
    built = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(built, "w") as archive:
        for part, text in {**parts, f"{metadata}/RECORD": record}.items():
            archive.writestr(part, text)
    return built


def link(folder: Path, built: Path, extras: Collection[str] = (), also: Collection[str] = ()) -> frozenset[str]:
    """Put what a wheel requires into a virtual environment, and nothing else; names of these packages.

    Args:
        folder: the virtual environment.
        built: the wheel.
        extras: names of its extras.
        also: names of further packages, with what they require.
    """
    (packages,) = folder.glob("lib/python*/site-packages")
    metadata = PathDistribution(zipfile.Path(built, f"{'-'.join(built.name.split('-')[:2])}.dist-info/"))
    seen: set[tuple[str, frozenset[str]]] = set()
    required = {item.metadata["Name"]: item for item in _required(metadata, frozenset(extras), seen)}
    for name in also:
        others = (distribution(name), *_required(distribution(name), frozenset(), seen))
        required |= {item.metadata["Name"]: item for item in others}
    for item in required.values():
        for name in {file.parts[0] for file in item.files or () if file.parts[0] not in ("..", "__pycache__")}:
            place = packages / name
            if not place.exists():
                place.symlink_to(Path(str(item.locate_file(name))))
        for entry in item.entry_points.select(group="console_scripts"):
            script = folder / "bin" / entry.name
            if not script.exists():
                call = f"import sys\nfrom {entry.module} import {entry.attr}\nsys.exit({entry.attr}())\n"
                script.write_text(f"#!{folder}/bin/python\n{call}")
                script.chmod(0o755)
    return frozenset(required)


def call(*words: str | Path, folder: Path, **variables: str) -> str:
    """What a program prints, which gets no path to this checkout and none of its settings; its exit code is 0.

    Args:
        *words: the program and its arguments.
        folder: where it runs.
        **variables: further variables.
    """
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KAPPA_SETTINGS")}
    run = subprocess.run(
        words,
        cwd=folder,
        env=environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, f"{words}: {run.stdout[-6000:]}"
    return run.stdout


def _required(
    item: Distribution, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]
) -> Iterator[Distribution]:
    """The distributions that one requires with these extras, directly or through others."""
    for line in item.requires or ():
        requirement = Requirement(line)
        marker, part = requirement.marker, (requirement.name, frozenset(requirement.extras))
        if part in seen or not (marker is None or any(marker.evaluate({"extra": one}) for one in ("", *extras))):
            continue
        seen.add(part)
        if requirement.name == NAME:  # extras that name others
            yield from _required(item, part[1], seen)
            continue
        other = distribution(requirement.name)
        assert other.version in requirement.specifier, f"{other.version} is not {line}"
        yield other
        yield from _required(other, part[1], seen)


def _pip(*words: str | Path, folder: Path) -> None:
    call(sys.executable, "-m", "pip", *words, folder=folder)
