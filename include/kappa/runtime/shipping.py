"""The platform's code on its way to Spark's executors: those of a cluster have packages installed, but not what this driver runs."""

from __future__ import annotations

import hashlib
import io
import uuid
import zipfile
from pathlib import Path

#: The earliest time that a zip can name: equal content is an equal file.
_EPOCH_OF_ZIP = (1980, 1, 1, 0, 0, 0)


def shipped(source: Path, folder: Path) -> Path:
    """A package of the driver as a zip that Python can import from; idempotent, safe when several make it at once.

    Args:
        source: the package's folder, unpacked from the stored code that was held against its hash.
        folder: where the zip is kept.

    Returns:
        The zip, named by its content.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(source.rglob("*.py")):
            archive.writestr(zipfile.ZipInfo(str(file.relative_to(source.parent)), _EPOCH_OF_ZIP), file.read_bytes())
    content = buffer.getvalue()
    path = folder / f"{source.name}-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        temporary.write_bytes(content)
        temporary.replace(path)
    return path
