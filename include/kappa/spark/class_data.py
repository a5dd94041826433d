"""Archives of loaded classes: a JVM that has one reads its classes as they once were loaded, not from their jars.

A third of a driver's start goes into loading and checking 20,000 classes. Bootstrap starts one driver that writes what
it loaded to the cache (:mod:`kappa_local.class_data`), and every later one on this machine reads that. An archive fits
one Java and one class path: its name is a hash of both, and without one that fits a driver starts as before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from kappa.spark.jars import java_home, spark_home

#: Options that choose an archive. A JVM that has one of them in its settings gets none from here.
_CHOSEN = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare")


def archive(cache: Path, jars: Iterable[Path]) -> Path:
    """Where the archive for this Java and these jars beside pyspark's own is; it need not be there."""
    java = java_home()
    release = java / "release"
    parts = [str(java), release.read_text() if release.is_file() else ""]
    for jar in [*sorted(jars), *sorted((spark_home() / "jars").glob("*.jar"))]:
        stat = jar.stat()  # the JVM compares both too
        parts.append(f"{jar} {stat.st_size} {stat.st_mtime_ns}")
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache / "class-data" / f"{name}.jsa"


def reading(options: str, cache: Path, jars: Iterable[Path]) -> str:
    """Options of a JVM, with the archive that fits it where there is one.

    Examples:
        >>> from pathlib import Path
        >>> reading("-Xmn512m", Path("/nowhere"), [])
        '-Xmn512m'
    """
    if any(option.startswith(_CHOSEN) for option in options.split()):
        return options
    file = archive(cache, jars)
    if not file.is_file() or any(mark in str(file) for mark in " \"'\\"):
        return options
    # A JVM that finds its class path changed takes the classes from the jars, and would tell so on its output.
    return f"{options} -XX:SharedArchiveFile={file} -Xlog:cds*=off -Xlog:class+path=off".strip()


def writing(options: str, file: Path) -> str:
    """Options of a JVM that writes the archive when it ends."""
    return f"{options} -XX:ArchiveClassesAtExit={file} -Xlog:cds*=off".strip()
