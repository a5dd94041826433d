"""The first files of a topology and of its test, for a few common shapes. Pure.

They read records that ``kappa generate`` makes, so that they run before any change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from string import Template
from types import ModuleType
from typing import Any

from kappa.errors import TopologyError, visible
from kappa.starters import join, running_total, stateless, window
from kappa.topology import Append, Source, Topic, Topology
from kappa.topology.registry import TAKEN


class StarterShape(StrEnum):
    """The shape of a first topology."""

    STATELESS = "stateless"
    RUNNING_TOTAL = "running-total"
    WINDOW = "window"
    JOIN = "join"


_MODULES: dict[StarterShape, ModuleType] = {
    StarterShape.STATELESS: stateless,
    StarterShape.RUNNING_TOTAL: running_total,
    StarterShape.WINDOW: window,
    StarterShape.JOIN: join,
}
#: The beginning of each test, after the imports of Python's own library.
_HEAD = '''
import pytest
from pyspark.sql import SparkSession

from kappa.testing import Input, TopologyDriver, assert_slice_invariant, local_session
from kappa.topology.registry import load

pytestmark = pytest.mark.spark

NAME = "$name"
FOLDER = "$folder"
topology = load((Path(__file__).resolve().parent / FOLDER).resolve(), NAME)


@pytest.fixture(scope="module")
def session() -> SparkSession:
    """Spark on this machine: it takes seconds to start, so all tests have the same one."""
    return local_session()


'''


@dataclass(frozen=True, kw_only=True)
class Starter:
    """Two files of Python.

    Attributes:
        topology: the topology's file.
        test: the file of its test.
    """

    topology: str
    test: str


def starter(name: str, shape: StarterShape, *, folder: str) -> Starter:
    """The files of a topology of that name.

    Args:
        name: its name.
        shape: its shape.
        folder: path of the folder of the topology's file relative to that of the test's file, with ``/``.

    Raises:
        TopologyError: no topology can have that name.
    """
    _check(name)
    module = _MODULES[shape]
    words = {"name": name, "folder": _literal(folder)}
    needed = ["from decimal import Decimal"] * ("Decimal(" in module.TEST) + ["from pathlib import Path"]
    begins = '"""Records in, rows out: without a broker."""\n\n' + "\n".join(needed) + "\n"
    return Starter(
        topology=Template(module.TOPOLOGY.lstrip()).substitute(words),
        test=Template(begins + _HEAD + module.TEST.lstrip()).substitute(words),
    )


def stem(name: str) -> str:
    """Name of a topology's file, without ``.py``."""
    return name.replace(".", "_")


def _check(name: str) -> None:
    """Refuse a name for which the file would be refused."""
    rows = Append(name="rows", schema="id STRING")
    sources = [Source(topic=read, format="string") for read in ("pos", "payments")]
    parts: dict[str, Any] = {"name": name, "version": "1", "sources": sources, "step": lambda slice: {}}
    Topology(**parts, outputs=[rows])  # before its topic, of which a message would speak
    Topology(**parts, outputs=[rows, Topic(name=name, of="rows", key="id")])
    if stem(name) in TAKEN:
        raise TopologyError(
            f"The file of topology {name!r} would be {stem(name)}.py, which has the name of a module that Python or "
            f"Kappa imports. Choose another name, for example {name}.stream"
        )


def _literal(text: str) -> str:
    """The inside of a string in double quotes."""
    return visible(text.replace("\\", "\\\\").replace('"', '\\"'))
