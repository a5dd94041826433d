"""Code by content hash: the topology's own files and the platform's, zipped into the lake.

A driver runs the code that its epoch recorded, not what happens to be deployed, so that a restart or a rollback runs
what ran before.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pyarrow import fs

from kappa import registry
from kappa.errors import CodeError, UnknownTopologyError
from kappa.lake import code_file
from kappa.runtime.dry_run import about_to

_INCLUDE = Path(__file__).resolve().parents[2]
_JOBS = _INCLUDE.parent / "jobs"
_EPOCH_OF_ZIP = (1980, 1, 1, 0, 0, 0)


def snapshot(folder: Path, topology: str) -> tuple[str, bytes]:
    """Content hash and zip of what runs a topology.

    Holds the file that declares it, the other Python files of the folder that declare no topology (they may be imported
    by it), the platform and its job files. Equal content gives an equal hash.

    Raises:
        UnknownTopologyError: no file declares the topology.
    """
    digest = hashlib.sha256()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(_content(folder, topology)):
            content = path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
            archive.writestr(zipfile.ZipInfo(name, _EPOCH_OF_ZIP), content)
    return digest.hexdigest()[:32], buffer.getvalue()


def store(lake: str, folder: Path, topology: str) -> str:
    """Store what runs a topology; idempotent. Returns its content hash."""
    code, content = snapshot(folder, topology)
    about_to(f"store code {code[:12]} of {topology}")
    filesystem, path = fs.FileSystem.from_uri(_uri(code_file(lake, code)))
    if filesystem.get_file_info(path).type == fs.FileType.NotFound:
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"  # by threads, and by hosts that share the lake
        with filesystem.open_output_stream(temporary) as stream:
            stream.write(content)
        filesystem.move(temporary, path)
    elif isinstance(filesystem, fs.LocalFileSystem):
        _touch(Path(path))
    return code


def extract(lake: str, code: str, home: Path) -> Path:
    """Unpack stored code under ``<home>/code/<hash>``; idempotent, safe when two do it at once.

    Returns:
        Folder with ``include/``, ``jobs/`` and ``topologies/``.

    Raises:
        CodeError: the lake does not hold that code.
    """
    target = home / "code" / code
    if target.is_dir() and _touch(target):
        return target
    filesystem, path = fs.FileSystem.from_uri(_uri(code_file(lake, code)))
    if filesystem.get_file_info(path).type == fs.FileType.NotFound:
        raise CodeError(f"Code {code} is not in the lake ({code_file(lake, code)}).", code=code)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent))
    with filesystem.open_input_file(path) as stream, zipfile.ZipFile(stream) as archive:
        archive.extractall(temporary)
    try:
        temporary.rename(target)
    except OSError:
        shutil.rmtree(temporary)  # somebody else unpacked the same content first
    return target


def holds(lake: str, code: str, name: str) -> bool:
    """Whether stored code has a file of that name, as ``include/kappa/driver.py``; without unpacking it.

    Raises:
        CodeError: the lake does not hold that code.
    """
    filesystem, path = fs.FileSystem.from_uri(_uri(code_file(lake, code)))
    if filesystem.get_file_info(path).type == fs.FileType.NotFound:
        raise CodeError(f"Code {code} is not in the lake ({code_file(lake, code)}).", code=code)
    with filesystem.open_input_file(path) as stream, zipfile.ZipFile(stream) as archive:
        return name in archive.namelist()


def _touch(path: Path) -> bool:
    """Say that it is needed: housekeeping leaves alone what was touched a moment ago. Whether it is there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _content(folder: Path, topology: str) -> Iterator[tuple[str, Path]]:
    known = {item.name: item.file for item in registry.declared(folder)}
    if topology not in known:
        raise UnknownTopologyError(f"No file in {folder} declares topology {topology!r}.", name=topology)
    others = set(known.values()) - {known[topology]}
    for path in folder.rglob("*.py"):
        declares = registry.declared(path.parent) if path.parent != folder else ()
        if path not in others and path not in {item.file for item in declares}:
            yield f"topologies/{path.relative_to(folder).as_posix()}", path
    for path in (_INCLUDE / "kappa").rglob("*.py"):
        yield f"include/{path.relative_to(_INCLUDE).as_posix()}", path
    for path in _JOBS.glob("*.py"):
        yield f"jobs/{path.name}", path


def _uri(path: str) -> str:
    return path if "://" in path else Path(path).absolute().as_uri()
