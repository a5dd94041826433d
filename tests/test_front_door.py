"""What a user imports: the words of a topology, without a JVM, and nothing that is not meant for users."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kappa
from kappa import control, topology


def test_the_front_door_has_the_words_of_a_topology() -> None:
    from kappa import Append, Check, Effects, Schedule, Slice, Source, Table, Threshold, Topic, Topology

    words = (Append, Check, Effects, Schedule, Slice, Source, Table, Threshold, Topic, Topology)
    assert words == tuple(getattr(topology, name) for name in kappa.__all__)


def test_another_word_is_not_an_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Tabel'"):
        _ = kappa.Tabel  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", ["kappa", "kappa.topology", "kappa.operators", "kappa.serving"])
def test_importing_it_loads_no_engine(module: str) -> None:
    probe = (
        f"import sys, {module}; print(sorted({{'pyspark', 'py4j', 'deltalake', 'confluent_kafka', 'pyarrow', "
        "'airflow', 'polars', 'duckdb'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_function_of_the_control_room_is_found_whatever_was_imported_before() -> None:
    probe = (
        "import importlib, pkgutil; from kappa import control\n"
        "for module in pkgutil.iter_modules(control.__path__, 'kappa.control.'): importlib.import_module(module.name)\n"
        "print(*[getattr(control, name).__name__ for name in control.__all__])"
    )
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.split() == control.__all__
