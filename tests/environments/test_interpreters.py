"""Interpreters that a setting names: which programs its patterns fit, and what each says of its environment."""

from __future__ import annotations

import os
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from kappa.config import Config
from kappa.environments import interpreters
from kappa.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Settings of a host whose interpreters are below a folder."""
    return Config.from_env({"KAPPA_HOME": str(tmp_path / "home"), "KAPPA_ENVIRONMENTS": f"{tmp_path}/*/bin/python"})


def program(path: Path, text: str = "#!/bin/sh\nexit 1\n") -> Path:
    """A file that can be run."""
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_patterns_name_programs_each_once_and_in_order(tmp_path: Path) -> None:
    a, b, other = (program(tmp_path / name / "bin" / "python") for name in ("a", "b", "other"))
    (tmp_path / "file" / "bin").mkdir(parents=True)
    (tmp_path / "file" / "bin" / "python").touch()  # cannot be run
    (tmp_path / "folder" / "bin" / "python").mkdir(parents=True)
    assert interpreters.matches(f"{other}, {tmp_path}/*/bin/python,{tmp_path}/none/*") == (str(other), str(a), str(b))
    assert interpreters.matches("") == ()


@pytest.mark.parametrize("pattern", ["/", "//", "/opt/**x/bin/python", "/opt/[", "/opt/[]/x", "/opt/\0", "/opt/***/x"])
def test_a_pattern_that_fits_nothing_names_nothing(pattern: str, tmp_path: Path) -> None:
    one = program(tmp_path / ".hidden" / "deep" / "bin" / "python")
    assert interpreters.matches(f"{pattern}, {tmp_path}/**/bin/python") == (str(one),)


def test_a_relative_path_is_refused_with_a_way() -> None:
    with pytest.raises(ConfigError, match=r"names 'venvs/\*/bin/python'.* Write it from the root: /opt/kappa"):
        Config.from_env({"KAPPA_ENVIRONMENTS": "/opt/x/bin/python, venvs/*/bin/python"})


def test_an_interpreter_says_what_is_installed_for_it_and_a_broken_one_is_left_out(
    config: Config, tmp_path: Path
) -> None:
    program(tmp_path / "broken" / "bin" / "python")
    venv.create(tmp_path / "mine", symlinks=True, with_pip=False)
    (packages,) = (tmp_path / "mine").glob("lib/python*/site-packages")
    (packages / "lib-1.0.dist-info").mkdir()
    (one,) = interpreters.others(config)
    assert one.path == str(tmp_path / "mine" / "bin" / "python"), "not the program that it links to"
    assert one.environment.distributions["lib"] == "1.0"
    assert interpreters.python_of(config, one.environment.id) == one.path
    assert interpreters.python_of(config, "another") is None

    (packages / "lib-1.0.dist-info").rename(packages / "lib-2.0.dist-info")
    assert interpreters.others(config)[0].environment.distributions["lib"] == "2.0", "it is asked again"


def test_one_that_does_not_answer_is_left_alone_for_some_minutes_and_logged_once(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "broken" / "bin" / "python"
    program(path, f"#!/bin/sh\necho >> {tmp_path}/calls\nexit 1\n")
    assert interpreters.others(config) == interpreters.others(config) == ()
    assert (tmp_path / "calls").read_text() == "\n"
    monkeypatch.setattr(interpreters, "FAILURE_SECONDS", 0.0)
    assert interpreters.others(config) == ()
    assert (tmp_path / "calls").read_text() == "\n\n"
    (message,) = caplog.messages
    assert message.endswith(f"Look at it: {path} -V")


def test_a_hanging_one_is_ended(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreters, "ANSWER_SECONDS", 0.1)
    program(tmp_path / "hanging" / "bin" / "python", "#!/bin/sh\nexec sleep 600\n")
    assert interpreters.others(config) == ()


def test_a_driver_of_this_interpreter_has_its_environment(config: Config) -> None:
    assert interpreters.python_of(config, interpreters.own(config).environment.id) == sys.executable


def test_what_a_library_adds_to_the_path_of_this_process_does_not_count(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = interpreters.own(config).environment
    (tmp_path / "vendor" / "more-1.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "vendor")])
    assert interpreters.own(config).environment == before
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "broken" / "bin" / "python")))
    assert "more" not in interpreters.own(config).environment.distributions, "it does not answer"


def test_the_image_is_part_of_the_environment(config: Config) -> None:
    image = replace(config, image="orders:7")
    assert interpreters.own(image).environment.image == "orders:7"
    assert interpreters.own(image).environment.id != interpreters.own(config).environment.id


def test_the_platform_is_not_among_the_unversioned(config: Config, tmp_path: Path) -> None:
    place = tmp_path / "path" / "kappa_replay.egg-info"
    place.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{place.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        assert interpreters.own(config).unversioned == ()
