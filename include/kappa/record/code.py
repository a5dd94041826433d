"""Code by content hash: the topology's own files and the platform's, zipped into the lake.

A driver runs the code that its epoch recorded, not what happens to be deployed, so that a restart or a rollback runs
the same code. Stored and unpacked files are checked against the hash before they run: that detects files that were
cut short or altered. It does not keep out a writer of the lake, who may record another hash as well.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from kappa.errors import CodeError
from kappa.names import code_file
from kappa.store.stores import store_of
from kappa.topology import Topology, registry
from kappa.topology.code_zip import digest, zipped

#: Folder of the package that runs here: of a clone, or of an environment.
_INSTALLED = Path(__file__).resolve().parents[2]
#: Folder of the author's files in stored code.
_OWN = "topologies"


def code_hash(folder: Path, topology: str) -> str:
    """Content hash of the code that runs a topology.

    It covers the file that declares it, the other Python files of the folder that declare no topology (it may import
    them), and the platform. Equal content gives an equal hash. Installed packages are not part of it, nor
    are the folder's files that are not Python: a step that reads one does not find it in its driver.

    Raises:
        UnknownTopologyError: no file declares the topology.
    """
    return digest(_content(folder, topology, _INSTALLED))


def load(folder: Path, topology: str) -> Topology:
    """The topology in a folder, if it imports from the files alone that are stored with an epoch.

    Raises:
        UnknownTopologyError: no file declares it.
        CodeError: it does not import, in its folder or from a copy of those files.
    """
    loaded = registry.load_apart(folder, topology)
    with tempfile.TemporaryDirectory(prefix="kappa-code-") as scratch:
        for name, path in _own_files(folder, topology):
            copy = Path(scratch, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        try:
            registry.load_apart(Path(scratch, _OWN), topology, copied_from=folder)
        except CodeError as error:
            cause = error.__cause__ or error
            why = f"{type(cause).__name__}: {cause}".replace(f"{scratch}/{_OWN}/", "")
            raise CodeError(
                f"{registry.declaration(folder, topology).file} imports in its folder, and not from what an epoch "
                f"stores of that, which is this file and the Python files that declare no topology: {why}. Move what "
                "it needs into such a file, or into an installed library.",
                topology=topology,
            ) from error
    return loaded


def changed_files(lake: str, code: str, folder: Path, topology: str) -> tuple[str, ...]:
    """Names of the files in which stored code differs from what is deployed and from the platform that runs here.

    Those of the platform begin with ``include/``, those of the author with ``topologies/``.

    Raises:
        CodeError: the lake does not hold that code, or holds something else under its name.
        UnknownTopologyError: no file declares the topology.
    """
    deployed, stored = _content(folder, topology, _INSTALLED), _stored(lake, code)
    return tuple(sorted(name for name in deployed.keys() | stored.keys() if deployed.get(name) != stored.get(name)))


def store(lake: str, folder: Path, topology: str, *, platform: Path = _INSTALLED) -> str:
    """Store the code that runs a topology; idempotent. Returns its content hash.

    A stored file that is torn or altered is replaced, since the same content is at hand.

    Args:
        lake: where it is stored.
        folder: of the files that declare topologies.
        topology: whose code it is.
        platform: folder with the package ``kappa`` that runs it.
    """
    content = _content(folder, topology, platform)
    code = digest(content)
    path = code_file(lake, code)
    files = store_of(path)
    data = files.get(path)
    if data is not None and _is_whole(data, code):
        files.refresh(path, data)
    else:
        files.make_folder(path.rpartition("/")[0])
        files.put(path, zipped(content), is_durable=True)
    return code


def store_again(lake: str, folder: Path, topology: str, code: str) -> None:
    """Look for code after a record names it, and store it again where a removal took it before it saw that record.

    Idempotent.

    Raises:
        CodeError: it is gone, and the folder has other code by now.
    """
    path = code_file(lake, code)
    data = store_of(path).get(path)
    if data is None or not _is_whole(data, code):
        store(lake, folder, topology)
        check(lake, code)


def discard(lake: str, code: str, remove: Callable[[str], bool], is_named: Callable[[], bool]) -> bool:
    """Remove code that no record names; put it back where one names it afterwards. Whether it is gone.

    Whoever names code looks for it after that (:func:`store_again`): one of the two sees the other. A crash in between
    leaves no code, and the driver that misses it says how to store it again.

    Args:
        remove: removes the file at a path; whether it is gone.
        is_named: whether a record names the code, read now.
    """
    path = code_file(lake, code)
    store = store_of(path)
    data = store.get(path)
    if not remove(path):
        return False
    if data is not None and is_named():
        store.put(path, data, is_durable=True)
        return False
    return True


def extract(lake: str, code: str, home: Path) -> Path:
    """Unpack stored code under ``<home>/code/<hash>``; idempotent, safe when several do it at once.

    Files that are there are checked against the hash, and unpacked again where they differ.

    Returns:
        Folder with ``include/``, of the platform, and ``topologies/``.

    Raises:
        CodeError: the lake does not hold that code, or holds something else under its name.
    """
    target = home / "code" / code
    if target.is_dir() and _touch(target) and _is_unpacked(target, code):
        return target
    content = _stored(lake, code)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (home / "code.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir() and _is_unpacked(target, code):  # another process was first
            return target
        temporary = Path(tempfile.mkdtemp(dir=target.parent))
        for name, data in content.items():
            file = temporary / "new" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        if target.exists():
            target.rename(temporary / "old")
        (temporary / "new").rename(target)
        shutil.rmtree(temporary)
    return target


def approvals(lake: str, code: str, topology: str) -> int:
    """How many people have to approve an epoch, by the file of its topology in stored code; 1 if that is not read here.

    0 where the lake does not hold that code: no driver runs such an epoch.
    """
    try:
        return _approvals(lake, code, topology)
    except CodeError:
        return 0


@lru_cache(maxsize=64)
def _approvals(lake: str, code: str, topology: str) -> int:
    stored = [(Path(name), text) for name, text in _stored(lake, code).items()]
    files = [one for one in stored if one[0].parent == Path(_OWN) and registry.may_declare(one[0])]
    read = [registry.declared_in(file, text) for file, text in files]
    numbers = [item.approvals for items in read for item in items or () if item.name == topology]
    return max(numbers, default=1 if None in read else 0)


def check(lake: str, code: str) -> None:
    """Check stored code against its hash, without unpacking it.

    Raises:
        CodeError: the lake does not hold that code, or holds something else under its name.
    """
    _stored(lake, code)


def _stored(lake: str, code: str) -> dict[str, bytes]:
    """Stored code by file name, checked against its hash."""
    place = code_file(lake, code)
    data = store_of(place).get(place)
    if data is None:
        raise CodeError(f"Code {code} is not in the lake ({place}).", code=code)
    content = _unzipped(data)
    other = None if content is None else digest(content)
    if content is None or other != code:
        what = "is not a zip file, or a torn one" if other is None else f"holds code {other}"
        raise CodeError(
            f"Stored code {code} {what}: {place} was cut short or altered, and nothing of it is run. Put that file "
            "back from a backup, or deploy the files that it was made of again; the next kappa start, replay or "
            "upgrade then replaces it.",
            code=code,
            found=other,
            path=place,
        )
    return content


def _is_whole(data: bytes, code: str) -> bool:
    content = _unzipped(data)
    return content is not None and digest(content) == code


def _unzipped(data: bytes) -> dict[str, bytes] | None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        return None


def _is_unpacked(target: Path, code: str) -> bool:
    """Whether a folder holds that code and nothing else; bytecode that Python put there aside."""
    try:
        content = {
            path.relative_to(target).as_posix(): path.read_bytes()
            for path in target.rglob("*")
            if not path.is_dir() and path.parent.name != "__pycache__"
        }
    except OSError:
        return False
    return digest(content) == code


def _touch(path: Path) -> bool:
    """Mark a path as needed, so that housekeeping leaves it alone for now; whether it exists."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _content(folder: Path, topology: str, platform: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in _files(folder, topology, platform)}


def _files(folder: Path, topology: str, platform: Path) -> Iterator[tuple[str, Path]]:
    yield from _own_files(folder, topology)
    for path in _below(platform / "kappa", (".py", ".java")):
        yield f"include/{path.relative_to(platform).as_posix()}", path


def _own_files(folder: Path, topology: str) -> Iterator[tuple[str, Path]]:
    own = registry.declaration(folder, topology).file
    paths = list(_below(folder, (".py",)))
    others = {item.file for one in {path.parent for path in paths} for item in registry.declarations(one)} - {own}
    for path in paths:
        if path not in others and registry.is_text(path.relative_to(folder)):
            yield f"{_OWN}/{path.relative_to(folder).as_posix()}", path


def _below(folder: Path, suffixes: tuple[str, ...], above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Files below a folder, also through links, as an import finds them; a link to a folder above it ends there."""
    here = folder.resolve()
    for path in folder.iterdir() if here not in above else ():
        if path.is_dir():
            yield from _below(path, suffixes, above | {here})
        elif path.suffix in suffixes and path.is_file():
            yield path
