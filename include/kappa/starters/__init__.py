"""The first files of a topology and of its test, for a few common shapes. Pure.

They read the invoices of ``kappa generate retail``, so that they run before any change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from string import Template
from types import ModuleType

from kappa.errors import visible
from kappa.starters import join, running_total, stateless, window
from kappa.topology import Append, Source, Topic, Topology


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
    topic = Topic(name=name, of="rows", key="id")
    sources = [Source(topic=read, format="string") for read in ("pos", "payments")]
    Topology(name=name, version="1", sources=sources, outputs=[rows, topic], step=lambda slice: {})


def _literal(text: str) -> str:
    """The inside of a string in double quotes."""
    return visible(text.replace("\\", "\\\\").replace('"', '\\"'))
