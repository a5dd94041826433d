"""The platform's code on its way to Spark's executors: a cluster has packages, but not what this driver runs."""

from __future__ import annotations

import uuid
from pathlib import Path

from kappa.topology.code_zip import digest, zipped


def shipped(source: Path, folder: Path) -> Path:
    """A package of the driver as a zip that Python can import from; idempotent, safe when several make it at once.

    Args:
        source: the package's folder, unpacked from the stored code that was checked against its hash.
        folder: where the zip is kept.

    Returns:
        The zip, named by its content.
    """
    content = {str(file.relative_to(source.parent)): file.read_bytes() for file in source.rglob("*.py")}
    path = folder / f"{source.name}-{digest(content)}.zip"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        temporary.write_bytes(zipped(content))
        temporary.replace(path)
    return path
