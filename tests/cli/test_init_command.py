"""`kappa init` lays out a repository in which commands, tests and containers work, and overwrites nothing."""

from __future__ import annotations

import errno
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from support.command_lines import command_lines, complaint
from support.compose import compose_tool, copied, permitted
from typer.testing import CliRunner

import kappa
from kappa.cli import app
from kappa.config import Config, settings
from kappa.errors import RefusedError, TopologyError, UsageError
from kappa.starters import StarterShape
from kappa.starters.neighbours import beside
from kappa.starters.repository import repository
from kappa.topology import registry

ROOT = Path(__file__).resolve().parents[2]
FILES = repository("retail.spending", StarterShape.RUNNING_TOTAL, version=kappa.__version__)
COMPOSE: dict[str, Any] = yaml.safe_load(FILES["docker-compose.yaml"])
WORKFLOW: dict[str, Any] = yaml.safe_load(FILES[".github/workflows/kappa.yaml"])
VARIABLES = re.findall(r"^(\w+)=$", FILES["env.example"], re.MULTILINE)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def written(folder: Path) -> dict[str, str]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_names_every_file_and_writes_none(tmp_path: Path) -> None:
    result = run("init", "streams")
    assert result.output.splitlines() == [
        *(f"Would write streams/{path}." for path in FILES),
        "Nothing was changed. To do it: kappa init streams --execute",
    ]
    assert not list(tmp_path.iterdir())


def test_it_writes_every_file_once(tmp_path: Path) -> None:
    result = run("init", "streams", "--execute")
    assert result.output.splitlines() == [
        f"Wrote {len(FILES)} files into streams. Its README.md says what is where.",
        "Run the tests: cd streams && python -m pytest",
    ]
    assert written(tmp_path / "streams") == FILES
    assert run("init", "streams", "--execute").output == "Nothing to do: every file is in streams.\n"


def test_a_second_call_writes_what_a_crash_has_left_out(tmp_path: Path) -> None:
    run("init", "streams", "--execute")
    (tmp_path / "streams" / "kappa.toml").unlink()
    (tmp_path / "streams" / "include" / "topologies" / "retail_spending.py").unlink()
    (tmp_path / "streams" / ".kappa.toml.partial").write_text("# Settings of ev")
    assert run("init", "streams", "--execute").output.startswith("Wrote 2 files into streams.")
    assert written(tmp_path / "streams") == FILES


def test_a_process_that_dies_at_any_write_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    """SIGKILL in the middle of the n-th text, for each n: what is there is whole, and the next call goes on."""
    program = """
import os, signal, sys
from pathlib import Path
real, left = Path.write_text, [int(sys.argv[1])]
def write_text(path, text, **how):
    left[0] -= 1
    if left[0] == 0:
        real(path, text[: len(text) // 2], **how)
        os.kill(os.getpid(), signal.SIGKILL)
    return real(path, text, **how)
Path.write_text = write_text
sys.argv[1:] = ["init", "streams", "--execute"]
from kappa.cli import main
main()
"""
    for number in (1, 8, len(FILES)):
        command = [sys.executable, "-c", program, str(number)]
        child = subprocess.run(command, env={"PYTHONPATH": str(ROOT / "include")}, check=False, cwd=tmp_path)
        assert child.returncode < 0
        partial = [path for path in written(tmp_path / "streams") if path.endswith(".partial")]
        texts = {path: text for path, text in written(tmp_path / "streams").items() if path not in partial}
        assert texts.items() <= FILES.items() and len(partial) == 1
        assert run("init", "streams", "--execute").exit_code == 0
        assert written(tmp_path / "streams") == FILES
        for path in FILES:
            (tmp_path / "streams" / path).unlink()


def test_a_file_that_was_edited_is_left_as_it_is_and_what_is_missing_written(tmp_path: Path) -> None:
    """The edit that the page asks for, and then a lost file."""
    run("init", "streams", "--execute")
    settings_file, job = tmp_path / "streams" / "kappa.toml", tmp_path / "streams" / "jobs" / "run_epoch.py"
    settings_file.write_text('lake = "s3://lakes/orders"')
    left = "streams/kappa.toml is there with other content: left as it is."
    assert run("init", "streams").output.splitlines() == [left, "Nothing to do: every file is in streams."]
    job.unlink()
    assert run("init", "streams").output.splitlines()[:2] == [left, "Would write streams/jobs/run_epoch.py."]
    assert run("init", "streams", "--execute").output.splitlines()[:2] == [
        left,
        "Wrote 1 file into streams. Its README.md says what is where.",
    ]
    assert written(tmp_path / "streams") == {**FILES, "kappa.toml": 'lake = "s3://lakes/orders"'}


def test_files_that_git_checked_out_with_other_line_ends_are_those_that_were_written(tmp_path: Path) -> None:
    run("init", "streams", "--execute")
    for path in FILES:
        file = tmp_path / "streams" / path
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    before = {path: (tmp_path / "streams" / path).read_bytes() for path in FILES}
    assert run("init", "streams", "--execute").output == "Nothing to do: every file is in streams.\n"
    assert {path: (tmp_path / "streams" / path).read_bytes() for path in FILES} == before


def test_a_clone_with_files_of_its_own_keeps_them_and_each_is_named(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "README.md").write_text("mine")
    (tmp_path / "streams" / ".gitignore").symlink_to("nowhere")
    assert run("init", "streams", "--execute").output.splitlines() == [
        "streams/.gitignore is there with other content: left as it is.",
        "streams/README.md is there with other content: left as it is.",
        f"Wrote {len(FILES) - 2} files into streams.",
        "Run the tests: cd streams && python -m pytest",
    ]
    files = {path: text for path, text in FILES.items() if path != ".gitignore"}
    assert written(tmp_path / "streams") == {**files, "README.md": "mine"}


@pytest.mark.parametrize("words", [[], ["--execute"]])
@pytest.mark.parametrize("path", list(FILES)[-2:])
def test_another_topology_of_the_name_or_its_test_is_refused_and_named(
    tmp_path: Path, path: str, words: list[str]
) -> None:
    file = tmp_path / "streams" / path
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    result = run("init", "streams", *words)
    assert isinstance(result.exception, RefusedError)
    assert str(result.exception).startswith(f"No file is overwritten, and streams/{path} would be.")
    assert written(tmp_path / "streams") == {path: "mine"}


def test_a_name_or_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    assert isinstance(run("init", "streams", "--topology", "Refunds").exception, TopologyError)
    (tmp_path / "file").write_text("")
    assert run("init", "file").exit_code == 2
    assert isinstance(run("init", "file/streams", "--execute").exception, UsageError)


def test_commands_in_the_repository_have_its_settings_and_new_writes_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "streams"
    run("init", "streams", "--topology", "team.orders", "--shape", "stateless", "--execute")
    monkeypatch.chdir(root / "dags")
    config = Config.from_env({})
    assert (config.lake, config.home, config.topologies) == (
        str(root / ".kappa" / "lake"),
        root / ".kappa",
        root / "include" / "topologies",
    )
    assert run("new", "team.refunds", "--shape", "join", "--execute").exit_code == 0
    assert [item.name for item in registry.declared(config.topologies)] == ["team.orders", "team.refunds"]
    assert {path.name for path in (root / "tests" / "topologies").iterdir()} == {
        "test_team_orders.py",
        "test_team_refunds.py",
    }


@pytest.mark.spark
def test_the_tests_of_a_new_repository_pass(tmp_path: Path) -> None:
    run("init", "streams", "--execute")
    # Production's: a cluster, a lake and logins that are out of reach here.
    settings_file = tmp_path / "streams" / "kappa.toml"
    kept_lines = [line for line in settings_file.read_text().splitlines() if not line.startswith("lake =")]
    production = [
        'lake = "s3://lakes/orders"',
        'lake_client_file = "secrets/lake.properties"',
        'kafka_client_file = "secrets/kafka.properties"',
        'spark_master = "spark://spark-master:7077"',
        'spark_conf = {"spark.pyspark.python" = "/opt/kappa/bin/python"}',
    ]
    settings_file.write_text("\n".join([*kept_lines, *production]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider"]
    tests = subprocess.run(command, cwd=tmp_path / "streams", capture_output=True, text=True, check=False)
    assert tests.returncode == 0, tests.stdout
    assert "2 passed" in tests.stdout and "warning" not in tests.stdout


@pytest.mark.parametrize("version", ["0.1.0", "12.0.1"])
def test_the_version_that_wrote_the_repository_is_pinned(version: str) -> None:
    files = repository("a.b", StarterShape.JOIN, version=version)
    assert files["requirements.txt"] == f"kappa-replay[driver,airflow]=={version}\n"
    assert not [path for path, text in files.items() if re.search(r"%\w", text.replace("%s", ""))]


def test_written_python_is_formatted_and_lint_clean(tmp_path: Path) -> None:
    run("init", "streams", "--execute")
    for words in (["format", "--check"], ["check", "--ignore", "E501,S101"]):
        ruff = [sys.executable, "-m", "ruff", *words, "--no-cache", "--config", str(ROOT / "pyproject.toml")]
        command = [*ruff, str(tmp_path / "streams")]
        check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert check.returncode == 0, check.stdout + check.stderr


def scripts() -> Iterator[str]:
    """What shells run of the written files."""
    for job in WORKFLOW["jobs"].values():
        yield from (step["run"] for step in job["steps"] if "run" in step)
    yield from re.findall(r"^```sh\n(.*?)^```", FILES["README.md"], re.MULTILINE | re.DOTALL)
    yield "\n".join(line.removeprefix("#") for line in FILES["docker-compose.yaml"].splitlines() if line[:1] == "#")
    for service in COMPOSE["services"].values():
        words = [*service.get("entrypoint", []), *map(str, service.get("command", []))]
        yield words[-1] if "bash" in words else shlex.join(words)
        yield shlex.join(map(str, service.get("healthcheck", {}).get("test", [])))


def test_each_kappa_command_of_a_written_file_is_one_of_the_command_line() -> None:
    commands = [(words, True) for script in scripts() for words in command_lines(script)]
    named = [shlex.split(text) for page in FILES.values() for text in re.findall(r"`kappa ([^`\n]+)`", page)]
    assert {"plan", "explain", "drivers", "replay", "status", "topologies"} <= {words[0] for words, _ in commands}
    complaints = [complaint(words, is_whole=whole) for words, whole in [*commands, *((n, False) for n in named)]]
    assert not [text for text in complaints if text]


def test_a_change_is_planned_with_a_readers_login_and_nothing_is_executed() -> None:
    plan = WORKFLOW["jobs"]["plan"]
    assert "head.repo.full_name == github.repository" in plan["if"]
    assert plan["permissions"] == {"contents": "read", "pull-requests": "write"}
    for name, job in WORKFLOW["jobs"].items():
        for step in job["steps"]:
            assert "--execute" not in step.get("run", "")
            assert "${{" not in step.get("run", ""), f"{name}: an expression in a script is code of whoever wrote it"
    assert WORKFLOW["jobs"]["deployment"]["needs"] == "image" and WORKFLOW["jobs"]["image"]["needs"] == "tests"


@pytest.mark.parametrize("script", [s for s in scripts() if "\n" in s])
def test_a_script_parses(script: str) -> None:
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert checked.returncode == 0 and not checked.stderr


def environment(*without: str) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "COMPOSE_PROFILES": "tools"} | {
        name: "value" for name in VARIABLES if name not in without
    }


def composed(folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    run("init", "streams", "--execute")
    command = [compose_tool(), "--file", str(folder / "streams" / "docker-compose.yaml"), "config"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_the_compose_tool_accepts_the_file_and_kappa_its_settings(tmp_path: Path) -> None:
    answer = composed(tmp_path, environment())
    assert answer.returncode == 0, answer.stderr
    services = yaml.safe_load(answer.stdout)["services"]
    assert services.keys() == COMPOSE["services"].keys()
    names = {f"KAPPA_{item.name.upper()}" for item in settings()} | {Config.SETTINGS}
    for name, service in services.items():
        variables = {key for key in service["environment"] if key.startswith("KAPPA_")}
        assert variables <= names and (not variables or service["environment"]["KAPPA_LAKE"] == "value"), name
        assert service["mem_limit"] and re.search(r":v?\d+\.\d+", service["image"])
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))


def test_each_stack_of_a_host_has_volumes_of_its_own(tmp_path: Path) -> None:
    answer = composed(tmp_path, {**environment(), "COMPOSE_PROJECT_NAME": "orders"})
    volumes = yaml.safe_load(answer.stdout)["volumes"]
    assert volumes.keys() == COMPOSE["volumes"].keys()
    assert {name: volume["name"] for name, volume in volumes.items()} == {name: f"orders_{name}" for name in volumes}


def test_a_clone_has_the_folder_of_logins_and_none_of_its_files(tmp_path: Path) -> None:
    run("init", "streams", "--execute")
    (tmp_path / "streams" / "logins" / "kafka.properties").write_text("sasl.password=x")
    for words in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *words], cwd=tmp_path / "streams", check=True)
    listing = subprocess.run(["git", "ls-files"], cwd=tmp_path / "streams", capture_output=True, text=True, check=True)
    assert sorted(listing.stdout.split()) == sorted(FILES) and "logins/.gitkeep" in FILES


@pytest.mark.parametrize("variable", VARIABLES)
def test_nothing_starts_while_a_line_of_the_example_is_empty(tmp_path: Path, variable: str) -> None:
    answer = composed(tmp_path, environment(variable))
    assert answer.returncode != 0 and variable in answer.stderr


def test_the_builder_gets_every_file_that_the_image_copies() -> None:
    names = permitted(FILES[".dockerignore"])
    assert copied(FILES["Dockerfile"]) == names
    assert all(any(path == name or path.startswith(f"{name}/") for path in FILES) for name in names)


# Beside what is there


def test_a_file_that_configures_pytest_stays_in_force(tmp_path: Path) -> None:
    for name, text in (
        ("pyproject.toml", '[tool.pytest.ini_options]\ntestpaths = ["own"]\n'),
        ("setup.cfg", "[tool:pytest]\ntestpaths = own\n"),
        ("tox.ini", "[pytest]\ntestpaths = own\n"),
        (".pytest.ini", "[pytest]\n"),
    ):
        folder = tmp_path / ("with" + name.replace(".", "-"))
        folder.mkdir()
        (folder / name).write_text(text)
        output = run("init", folder.name, "--execute").output
        assert f"{name} configures pytest, so that no pytest.ini is written." in output
        assert not (folder / "pytest.ini").exists() and (folder / "kappa.toml").is_file()
        assert f"{name} configures pytest" in run("init", folder.name).output
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "pyproject.toml").write_text('[project]\nname = "plain"\n')
    assert "pytest.ini" not in run("init", "plain", "--execute").output
    assert (tmp_path / "plain" / "pytest.ini").is_file()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, "") for name in ("pytest.toml", ".pytest.toml", ".pytest.ini")),
        ("pyproject.toml", "[tool.pytest]\ntestpaths = ['own']\n"),
        ("tox.ini", "[tox]\n[pytest]\n"),
    ],
)
def test_each_file_that_pytest_would_pass_over_for_another_one_stays_in_force(name: str, text: str) -> None:
    files, (note,) = beside(FILES, {name: text})
    assert "pytest.ini" not in files and note.startswith(f"{name} configures pytest, so that no pytest.ini is written")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("pyproject.toml", text) for text in ("[tool.pytest", f"a = {'9' * 5000}", f"a = {'[' * 5000}", "\ufffdt")),
        *(("setup.cfg", text) for text in ("[tool:pytest]\nx", "x = 1", "\ufeff[tool:pytest]\n", "[tool:pytest")),
        ("tox.ini", "pytest"),
    ],
)
def test_a_file_that_does_not_parse_may_configure_pytest(name: str, text: str) -> None:
    files, (note,) = beside(FILES, {name: text})
    assert "pytest.ini" not in files and note.startswith(f"{name} does not parse and may configure pytest")


@pytest.mark.parametrize(
    "text", ["tool = 3", "tool = true", "tool = 'pytest'", "tool = ['pytest']", "[[tool]]\npytest = 1"]
)
def test_a_tool_that_is_not_a_table_configures_nothing(text: str) -> None:
    assert beside(FILES, {"pyproject.toml": text}) == (FILES, [])


def test_this_folder_is_named_by_its_path(tmp_path: Path) -> None:
    lines = run("init", ".", "--execute").output.splitlines()
    assert lines[-2].startswith(f"Wrote {len(FILES)} files into {tmp_path}. ")
    assert lines[-1] == f"Run the tests: cd {tmp_path} && python -m pytest"


def test_an_image_of_the_team_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "Dockerfile").write_text("FROM scratch\nCOPY src src\n")
    output = run("init", "streams", "--execute").output
    assert "Dockerfile is there with other content, so that no .dockerignore is written." in output
    assert not (tmp_path / "streams" / ".dockerignore").exists()


def test_lines_that_a_gitignore_lacks_are_named(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / ".gitignore").write_text("*.pyc\n.venv/ \r\n# logins/* and .env are safe\n!.kappa/ .env\n")
    output = run("init", "streams", "--execute").output
    assert ".gitignore lacks lines that keep secrets and the lake out of commits." in output
    assert "Add: .env .kappa/ __pycache__/ logins/* !logins/.gitkeep" in output


def test_a_folder_within_a_repository_is_told_where_github_reads_workflows(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    output = run("init", "services/streams", "--execute").output
    assert f"GitHub reads workflows of {tmp_path} only: move services/streams/.github/workflows/kappa.yaml" in output
    assert "GitHub" not in run("init", ".", "--execute").output


def test_a_file_system_without_hard_links_gets_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    assert run("init", "streams", "--execute").exit_code == 0
    assert written(tmp_path / "streams") == FILES


@pytest.mark.parametrize("name", ["calendar", "numbers", "pyspark", "numpy"])
def test_a_topology_is_refused_whose_file_other_code_would_import(name: str, tmp_path: Path) -> None:
    result = run("init", "streams", "--topology", name, "--execute")
    assert f"would be {name}.py, which has the name of a module that Python or Kappa imports." in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_a_refused_name_is_that_of_a_topology() -> None:
    assert "opic 'Retail" not in str(run("init", "x", "--topology", "Retail.Späti").exception).replace("opology", "")
