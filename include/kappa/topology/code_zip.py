"""Files as a zip that is the same for the same files, and their hash."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping

_EPOCH_OF_ZIP = (1980, 1, 1, 0, 0, 0)


def zipped(content: Mapping[str, bytes]) -> bytes:
    """Files by name as a zip; equal files give an equal zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(content):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH_OF_ZIP), content[name])
    return buffer.getvalue()


def digest(content: Mapping[str, bytes]) -> str:
    """Content hash of files by name."""
    hasher = hashlib.sha256()
    for name in sorted(content):
        hasher.update(f"{name}\0{len(content[name])}\0".encode() + content[name])
    return hasher.hexdigest()[:32]
