"""What the steps of a written workflow do, run by the shell that GitHub starts for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.s3_server import ensure_built

import kappa
from kappa.config import Config
from kappa.starters import StarterShape, starter, stem
from kappa.starters.repository import repository

FILES = repository("retail.spending", StarterShape.RUNNING_TOTAL, version=kappa.__version__)
STEPS = {
    step["name"]: step["run"]
    for step in yaml.safe_load(FILES[".github/workflows/kappa.yaml"])["jobs"]["plan"]["steps"]
    if "name" in step
}
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
BOT = "github-actions[bot]"
MARK = "<!-- kappa-plan -->\n"

#: GitHub's client, as far as it reads and writes the comments of change 7: a file has them. Of jq it knows conditions.
_GH = r"""
import json, re, sys
from pathlib import Path

file = Path(__file__).parent / "comments.json"
comments = json.loads(file.read_text())
command, *words = sys.argv[1:]
options = dict(zip(words, words[1:]))
address = next(word for word in words if word.startswith("repos/"))
assert command == "api" and address.startswith("repos/team/streams/issues/"), words
if "--jq" in options:
    assert "--paginate" in words and address.endswith("/issues/7/comments"), words
    first, *conditions, last = (part.strip() for part in re.split(r"\| (?=select|\.id)", options["--jq"]))
    login, beginning = (re.search(r'"(.*)"', condition)[1] for condition in conditions)
    assert (first, last) == (".[]", ".id") and "startswith" in conditions[1], options
    chosen = [c["id"] for c in comments if c["user"]["login"] == login and c["body"].startswith(beginning)]
    print(*chosen, sep="\n", end="\n" if chosen else "")
else:
    name, _, path = options["--field"].partition("=@")
    text = Path(path).read_text()
    if options["--method"] == "PATCH":
        (comment,) = (c for c in comments if address.endswith(f"/issues/comments/{c['id']}"))
        comment[name] = text
    else:
        assert options["--method"] == "POST" and address.endswith("/issues/7/comments"), words
        comments.append({"id": len(comments) + 1, "user": {"login": "github-actions[bot]"}, name: text})
    file.write_text(json.dumps(comments))
"""


def program(folder: Path, name: str, text: str) -> None:
    """A program in Python on the path of the steps."""
    (folder / name).write_text(f"#!{sys.executable}\n{text}")
    (folder / name).chmod(0o755)


def run(folder: Path, step: str, **variables: str) -> str:
    """Run a step as GitHub does; what is printed to its log."""
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {"HOME": str(folder), "PATH": path, "RUNNER_TEMP": str(folder), **variables}
    (folder / "step.sh").write_text(STEPS[step])
    command = ["bash", "-e", str(folder / "step.sh")]
    shell = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)
    assert shell.returncode == 0, shell.stdout + shell.stderr
    return shell.stdout


def commented(folder: Path, before: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Authors and texts of all comments after the step."""
    program(folder, "gh", _GH)
    (folder / "comments.json").write_text(json.dumps(before))
    (folder / "plan.md").write_text("the plan\n")
    run(folder, "Comment", GITHUB_REPOSITORY="team/streams", NUMBER="7")
    return [(c["user"]["login"], c["body"]) for c in json.loads((folder / "comments.json").read_text())]


def comment(number: int, login: str, body: str) -> dict[str, Any]:
    return {"id": number, "user": {"login": login}, "body": body}


def test_the_comment_of_a_plan_is_edited_and_no_other_of_the_same_bot(tmp_path: Path) -> None:
    before = [comment(1, BOT, f"{MARK}an earlier plan"), comment(2, BOT, "coverage of another workflow")]
    assert commented(tmp_path, before) == [(BOT, f"{MARK}the plan\n"), (BOT, "coverage of another workflow")]


@pytest.mark.parametrize(
    "before",
    [
        [],
        [comment(1, BOT, "coverage of another workflow")],
        [comment(1, "somebody", f"{MARK}a copy"), comment(2, BOT, f"> {MARK}a quotation")],
    ],
    ids=["none", "another", "copies"],
)
def test_a_comment_is_made_where_none_is_of_the_plan(tmp_path: Path, before: list[dict[str, Any]]) -> None:
    others = [(one["user"]["login"], one["body"]) for one in before]
    assert commented(tmp_path, before) == [*others, (BOT, f"{MARK}the plan\n")]


def test_a_topology_that_can_be_neither_explained_nor_planned_is_shown_with_the_reasons(tmp_path: Path) -> None:
    """One file that `explain` cannot load, one that nobody can, and no broker."""
    deployed = tmp_path / "include" / "topologies"
    deployed.mkdir(parents=True)
    refusal = "import sys\nif 'explain' in sys.argv: raise RuntimeError('no currency')\n"
    for name, more in (("a.partial", refusal), ("b.broken", "raise RuntimeError('no rate')\n")):
        text = starter(name, StarterShape.STATELESS, folder="").topology
        (deployed / f"{stem(name)}.py").write_text(text + more)
    program(tmp_path, "kappa", "from kappa.cli import main\nmain()\n")
    closed = {"KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1", "PYTHONPATH": str(Path(kappa.__file__).parents[1])}
    log = run(tmp_path, "Plan a replay of each topology", **closed)
    assert (tmp_path / "plan.md").read_text() == log
    listed, partial = log.split("\n### ")
    assert "a.partial" in listed and "b_broken.py does not import: RuntimeError: no rate" in listed
    assert partial.startswith("a.partial\n\n```text\n") and partial.endswith("\n```\n")
    assert "RuntimeError: no currency" in partial and "BrokerUnreachableError: " in partial


@pytest.mark.parametrize("text", ["from kappa.cli import main\nmain()\n", "raise SystemExit('killed')\n"])
def test_topologies_that_cannot_be_listed_at_all_are_shown_with_the_reason(tmp_path: Path, text: str) -> None:
    program(tmp_path, "kappa", text)
    log = run(tmp_path, "Plan a replay of each topology", PYTHONPATH=str(Path(kappa.__file__).parents[1]))
    assert (tmp_path / "plan.md").read_text() == log
    assert log.startswith("```text\n") and log.endswith("```\n") and ("There is no folder" in log or "killed" in log)


def test_a_linter_of_workflows_has_no_objection_and_would_have_one(tmp_path: Path) -> None:
    actionlint, file = ensure_built(Config.from_env({}).cache, ACTIONLINT), tmp_path / "kappa.yaml"

    def objections(text: str) -> str:
        file.write_text(text)
        return subprocess.run([actionlint, file], capture_output=True, text=True, check=False).stdout

    text = FILES[".github/workflows/kappa.yaml"]
    assert objections(text) == ""
    assert 'needs job "images" which does not exist' in objections(text.replace("needs: image", "needs: images"))
