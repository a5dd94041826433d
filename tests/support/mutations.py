"""Patches that each break a guarantee, with the tests that must notice: ``python -m support.mutations``.

A patch of ``tests/mutations`` begins with comment lines: ``# test:`` names a test that must fail (one or more lines),
``# cost:`` is ``fast`` or ``real`` (a broker and Spark), ``# breaks:`` says in a sentence what is broken. A unified
diff against ``include/`` follows.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "mutations"
#: What a copy of the tree needs, for tests of every cost.
_COPIED = ("include", "tests", "jobs", "dags", "docs", "plugins", "scripts", "docker", "benchmarks", ".ci")
_TEST_SECONDS = 400
_RUN_SECONDS = 1500


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """A patch and what it must be noticed by."""

    file: Path
    tests: tuple[str, ...]
    cost: str
    breaks: str

    @property
    def name(self) -> str:
        """The patch's name."""
        return self.file.stem


def mutations() -> list[Mutation]:
    """All patches, by name.

    Raises:
        ValueError: one does not say what it must.
    """
    return [_read(file) for file in sorted(FOLDER.glob("*.patch"))]


def _read(file: Path) -> Mutation:
    headers: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        if match := re.fullmatch(r"# (test|cost|breaks): (.+)", line):
            headers.setdefault(match[1], []).append(match[2].strip())
    tests, cost, breaks = headers.get("test", []), headers.get("cost", []), headers.get("breaks", [])
    if not tests or cost not in (["fast"], ["real"]) or not breaks:
        raise ValueError(
            f"{file} needs '# test:' lines, '# cost: fast' or '# cost: real', and '# breaks:'; it says {headers}."
        )
    return Mutation(file=file, tests=tuple(tests), cost=cost[0], breaks=" ".join(breaks))


def complaint(mutation: Mutation) -> str | None:
    """What is wrong with a mutation: it does not apply, or a named test passes; None when all notice it."""
    with _copy() as tree:
        applied = subprocess.run(
            ["git", "apply", "-C1", "--recount", str(mutation.file)],
            cwd=tree,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if applied.returncode:
            return f"does not apply: {applied.stderr.strip()}"
        return _survived(mutation, tree)


def does_apply(mutation: Mutation) -> str | None:
    """What is wrong with a patch itself, without running a test."""
    missing = [test for test in mutation.tests if not _is_there(test)]
    if missing:
        return f"there is no test {missing}"
    command = ["git", "apply", "--check", "-C1", "--recount", str(mutation.file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    return f"does not apply: {done.stderr.strip()}" if done.returncode else None


def _is_there(test: str) -> bool:
    file, *names = test.partition("[")[0].split("::")
    path = ROOT / file
    return path.is_file() and all(re.search(rf"\b(def|class) {name}\b", path.read_text()) for name in names)


def _survived(mutation: Mutation, tree: Path) -> str | None:
    env = {**os.environ, "PYTHONPATH": str(tree / "include")}
    env = {name: value for name, value in env.items() if not name.startswith(("PYTEST", "KAPPA_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "--timeout", str(_TEST_SECONDS), *mutation.tests],
        cwd=tree,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=_RUN_SECONDS,
    )
    # The id of an instance may hold blanks; a reason is behind it.
    failed = [line[7:].partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    if done.returncode not in (0, 1):
        return f"its tests cannot be run (exit code {done.returncode}): {done.stdout[-2000:]}{done.stderr[-1000:]}"
    unmoved = [test for test in mutation.tests if not any(_is_of(name, test) for name in failed)]
    return f"survives {unmoved}: {done.stdout[-500:]}" if unmoved else None


def _is_of(failed: str, test: str) -> bool:
    """Whether what failed is a test, one of its instances, or in the file that is named."""
    return failed == test or failed.startswith((f"{test}[", f"{test}::"))


@contextmanager
def _copy() -> Iterator[Path]:
    """A copy of the tree outside of any repository: a patch for a folder within one would be skipped in silence."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder)
        for name in _COPIED:
            if (ROOT / name).exists():
                shutil.copytree(
                    ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
                )
        for file in ROOT.iterdir():
            if file.is_file() and not file.name.startswith(".git"):
                shutil.copy(file, tree / file.name)
        (tree / ".venv").symlink_to((ROOT / ".venv").resolve())
        yield tree


def main() -> int:
    """Try mutations; 0 when each is noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="all without")
    parser.add_argument("--cost", choices=["fast", "real"], help="only those")
    arguments = parser.parse_args()
    all_mutations = mutations()
    unknown = set(arguments.names) - {mutation.name for mutation in all_mutations}
    if unknown:
        parser.error(f"there is no {sorted(unknown)}")
    selection = [
        mutation
        for mutation in all_mutations
        if (not arguments.names or mutation.name in arguments.names) and arguments.cost in (None, mutation.cost)
    ]
    wrong = 0
    for mutation in selection:
        objection = complaint(mutation)
        wrong += objection is not None
        print(f"{'SURVIVED' if objection else 'noticed '} {mutation.name}: {mutation.breaks}", flush=True)
        if objection:
            print(f"         {objection}", flush=True)
    print(f"{len(selection) - wrong} of {len(selection)} mutations are noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
