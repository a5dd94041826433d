"""Starts the JVM of a Spark session without showing its settings to other users of the host.

PySpark hands settings to the JVM as ``--conf name=value``, and every user of a host may read command lines. Here
``spark-submit`` reads them from a file that only its owner may read, and that is removed once the JVM runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.errors import KappaError

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
#: Arguments of a start of this process's JVM -> those of the process before; None where it had none.
_before: dict[str, str | None] = {}
#: Classes that PySpark looks up by name for nearly each DataFrame.
_CLASSES = (
    "functions",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "PythonSQLUtils",
    "PythonUtils",
)
#: What decides how a JVM names files, the first that is set: without one of UTF-8 it writes ``?`` for other letters.
LOCALE = "LC_ALL"
_LOCALES = (LOCALE, "LC_CTYPE", "LANG")
UTF_8 = "C.UTF-8"
#: One that it looks up a package at a time.
_METADATA = "org.apache.spark.sql.types.Metadata"


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start this process's JVM with these settings; does nothing when it has one.

    What ``PYSPARK_SUBMIT_ARGS`` and ``spark-defaults.conf`` say counts as before. A crash in the middle leaves the
    file, readable by its owner alone.

    Raises:
        KappaError: the JVM ended before it answered.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        return
    arguments, locale = os.environ.get(_ARGUMENTS), os.environ.get(LOCALE)
    descriptor, name = tempfile.mkstemp(prefix="kappa-spark-", suffix=".properties")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())
        own = f"--properties-file {shlex.quote(name)} --load-spark-defaults {arguments or 'pyspark-shell'}"
        _before[own] = arguments
        os.environ[_ARGUMENTS] = own
        if not re.search(r"utf-?8", next(filter(None, map(os.environ.get, _LOCALES)), ""), re.IGNORECASE):
            os.environ[LOCALE] = UTF_8
        _start()
        _remember_classes(SparkContext._jvm)
    finally:
        for variable, before in ((_ARGUMENTS, arguments), (LOCALE, locale)):
            if before is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = before
        Path(name).unlink(missing_ok=True)


def inherited() -> dict[str, str]:
    """The variables of this process for another one, without what it sets while its own JVM starts.

    PySpark takes those arguments from nowhere else, and the file that they name is gone once the JVM runs: a process
    that inherits them starts no JVM.
    """
    variables = dict(os.environ)
    before = _before.get(variables.get(_ARGUMENTS, ""), variables.get(_ARGUMENTS))
    if before is None:
        variables.pop(_ARGUMENTS, None)
    else:
        variables[_ARGUMENTS] = before
    return variables


def forget_jvm() -> None:
    """End this process's JVM, which does not answer any more, and let the next session start another one. Idempotent.

    PySpark keeps a JVM for as long as its process runs, dead or alive.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    gateway = SparkContext._gateway
    if gateway is not None:
        if (process := getattr(gateway, "proc", None)) is not None:
            process.kill()
            process.wait()
        with contextlib.suppress(Exception):  # it says goodbye to a JVM that is gone
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = SQLContext._instantiatedContext = None


def _start() -> None:
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError

    try:
        SparkContext._ensure_initialized()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise KappaError(
            "Spark's JVM ended before it answered. What it said is in the log of this process, above this line: the "
            "cause is an option, the memory or the name of this host. Look whether a session starts: kappa doctor"
        ) from error


def _remember_classes(jvm: JVMView | None) -> None:
    """Keep the classes that PySpark asks for with every call.

    py4j finds a class anew each time, by searching all jars for its short name in each imported package: for a small
    slice that was a sixth of the processor time of its planning. What the view has as an attribute it does not ask for.
    """
    assert jvm is not None
    for name in _CLASSES:
        setattr(jvm, name, getattr(jvm, name))
    package = jvm
    for name in _METADATA.split("."):
        setattr(package, name, getattr(package, name))
        package = getattr(package, name)


def _escaped(text: str) -> str:
    """Text as ``java.util.Properties`` reads it back, as a name or as a value."""
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    return "".join(escapes.get(c) or (f"\\{c}" if c in " :=#!" else c) for c in text)
