"""Unix sockets between Spark and its Python workers, where both run on this host.

A TCP connection of this host can stand still when both sides send more than the other has room for: Linux drops what
goes beyond the other side's window, acknowledgements with it (docs: "Python workers are reached by Unix sockets").
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
#: Bytes of a temporary folder's path that leave room for a folder and a socket below it: macOS takes 103 in all.
_LONGEST = 45


def reach_workers(session: SparkSession) -> None:
    """Let Spark exchange rows with the Python workers of this session over Unix sockets; call it before one starts.

    Results that come to the driver stay on TCP: they go one way, and Spark keeps the path of each Unix socket that it
    made for one until its JVM ends. It decides once in a JVM how results come, so that is asked for first.
    """
    context = session.sparkContext
    gateway, jvm = context._gateway, context._jvm
    assert gateway is not None and jvm is not None
    results = getattr(getattr(jvm, "org.apache.spark.api.python.PythonRDD$"), "MODULE$")
    decided = results.getClass().getDeclaredMethod("authHelper", gateway.new_array(jvm.java.lang.Class, 0))
    decided.setAccessible(True)
    decided.invoke(results, gateway.new_array(jvm.java.lang.Object, 0))
    conf = context._jsc.sc().conf()
    conf.set(FOLDER, private_folder())
    conf.set(ENABLED, "true")


def private_folder() -> str:
    """A folder for the sockets of this process: its owner alone may enter it, and it is removed when the process ends.

    Spark asks for no password at a Unix socket.
    """
    return _made_folder().name


@cache
def _made_folder() -> tempfile.TemporaryDirectory[str]:
    parent = tempfile.gettempdir()
    short = parent if len(os.fsencode(parent)) <= _LONGEST else "/tmp"  # noqa: S108
    return tempfile.TemporaryDirectory(prefix="kappa-", dir=short, ignore_cleanup_errors=True)
