"""Finds topologies in a folder of Python files.

:func:`declared` reads the files without running them. :func:`load` and :func:`topologies` import them, so that a file
that never ends blocks the caller. :mod:`kappa.control.deployed` imports them in a process of their own, which makes a
:func:`report`.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from shlex import quote
from types import CodeType
from typing import Any

from kappa.errors import CodeError, UnknownTopologyError, UsageError
from kappa.topology import Topology
from kappa.topology.earlier_code import earlier_code, refuse
from kappa.topology.objections import approvals_objection, is_owner, name_objection
from kappa.topology.undeclared import undeclared_reads

#: Names that no module beside topologies may have: their folder comes first while they are imported.
TAKEN = sys.stdlib_module_names | {
    *("kappa", "kappa_airflow", "kappa_local", "kappa_web", "airflow", "confluent_kafka", "delta", "deltalake"),
    *("numpy", "obstore", "orjson", "pandas", "py4j", "pyarrow", "pyspark", "sqlglot", "structlog", "typer"),
}


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A topology in the declaration of its file.

    Attributes:
        name: the topology's name.
        version: its version.
        file: the file that declares it.
        reprocess: the literals of its schedule for reprocessing, ``cron``, ``savepoint`` and ``zone``; None for none.
        approvals: how many people must approve an epoch of it; 1 if the file computes the number. An import refuses
            another one.
        owner: the team or person whom its DAGs name; empty if there is none, or the file computes it.
        call: the call that declares it, from the file.
        values: name -> its expression at the top level of the file.
    """

    name: str
    version: str
    file: Path
    reprocess: Mapping[str, str] | None = None
    approvals: int = 0
    owner: str = ""
    call: ast.Call | None = field(default=None, repr=False, compare=False)
    values: Mapping[str, ast.expr] = field(default_factory=dict, repr=False, compare=False)

    @property
    def objection(self) -> str:
        """Why the import of its file refuses it, as far as its text tells; empty if nothing does."""
        return name_objection(self.name) or approvals_objection(self.name, self.approvals)


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """A topology that a file defines.

    Attributes:
        version: its version.
        owner: the team or person whom it names; empty for none.
        sources: topics that it reads.
        tables: tables that it keeps.
        outputs: append outputs, then topics.
    """

    name: str
    version: str
    owner: str
    sources: tuple[str, ...]
    tables: tuple[str, ...]
    outputs: tuple[str, ...]


def check_folder(folder: Path) -> None:
    """Refuse a folder of topologies that is not there: a process that has no settings would see no topology.

    Raises:
        UsageError: there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(
            f"There is no folder {folder}, in which topologies would be. Work in a repository, or name its settings "
            "file: export KAPPA_SETTINGS=<path>/kappa.toml",
            folder=str(folder),
        )


def declared(folder: Path) -> tuple[Declared, ...]:
    """Topologies that the files of a folder declare, without running the files, each name once.

    A declaration that an import refuses is none here, nor is the second of one name; :func:`topologies` names both.
    """
    names: dict[str, Declared] = {}
    for item in declarations(folder):
        if not item.objection:
            names.setdefault(item.name, item)
    return tuple(names.values())


def declaration(folder: Path, name: str) -> Declared:
    """The declaration of one topology.

    Raises:
        UnknownTopologyError: no file declares it; the message names the nearest.
        CodeError: two files declare it.
    """
    every = declarations(folder)
    own = [item for item in every if item.name == name]
    if not own:
        raise unknown(folder, name, {item.name for item in every})
    for other in own[1:]:
        if other.file != own[0].file:
            raise defined_twice(other.file, name)
    return own[0]


def declarations(folder: Path) -> tuple[Declared, ...]:
    """All declarations in the files of a folder, also those that an import refuses, by name.

    A file that does not parse declares nothing here; :func:`topologies` names it. Only files directly in the folder
    count.
    """
    topologies = [item for file, text in _texts(folder) for item in declared_in(file, text) or ()]
    return tuple(sorted(topologies, key=lambda item: item.name))


def load(folder: Path, name: str) -> Topology:
    """The topology of that name.

    Raises:
        UnknownTopologyError: no file declares it; the message names the nearest.
        CodeError: its file does not import, or another one declares it too; the message says why.
    """
    file = declaration(folder, name).file
    for topology in import_file(file):
        if topology.name == name:
            return topology
    raise UnknownTopologyError(f"{file} declares topology {name!r} but does not define it when imported.", name=name)


def unknown(folder: Path, name: str, names: Collection[str]) -> UnknownTopologyError:
    """The complaint about a name that no file declares, with the nearest of those that are declared."""
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" Deployed: {sorted(names)}."
    return UnknownTopologyError(f"No file in {folder} declares topology {name!r}.{hint}", name=name)


def is_in_broken_file(folder: Path, name: str) -> bool:
    """Whether a file that does not parse has the name in its text: its declaration may be there."""
    return any(name.encode() in text for text in broken_files(folder).values())


def broken_files(folder: Path) -> dict[Path, bytes]:
    """Files of a folder that do not parse, with their texts."""
    return {file: text for file, text in _texts(folder) if declared_in(file, text) is None}


def load_apart(folder: Path, name: str, *, copied_from: Path | None = None) -> Topology:
    """The topology of that name when this process has another version of its code; the modules beside the file are
    loaded anew too.

    Args:
        folder: its folder.
        copied_from: the folder of which that is a part, whose modules are not there either.

    Raises:
        UnknownTopologyError: no file declares it.
        CodeError: its file does not import.
    """
    paths = [*folder.iterdir(), *(copied_from.iterdir() if copied_from is not None else ())]
    beside = {path.stem for path in paths if path.suffix == ".py" or _is_package(path)}
    names = {module for module in sys.modules if module.partition(".")[0] in beside}
    others = {module: sys.modules.pop(module) for module in names}
    try:
        return load(folder, name)
    finally:
        for module in [module for module in sys.modules if module.partition(".")[0] in beside]:
            del sys.modules[module]
        sys.modules.update(others)


def _is_package(path: Path) -> bool:
    """Whether a folder beside topologies is what its name imports; without ``__init__.py`` installed packages win."""
    is_namespace = path.is_dir() and getattr(sys.modules.get(path.name), "__file__", None) is None
    return is_namespace or (path / "__init__.py").is_file()


def load_stored(folder: Path, name: str) -> Topology:
    """The topology of that name in code that an epoch ran, as :func:`load_apart` loads it.

    Raises:
        UnknownTopologyError: no file declares it.
        CodeError: its file does not import.
    """
    with earlier_code():
        return load_apart(folder, name)


def topologies(folder: Path) -> tuple[dict[str, Topology], dict[Path, CodeError]]:
    """All topologies that import, and why the other files do not.

    A broken file is reported and does not affect the others. A name that two files define is an error of the second
    file.
    """
    good: dict[str, Topology] = {}
    broken: dict[Path, CodeError] = {}
    for file in files(folder):
        try:
            for topology in import_file(file):
                if topology.name in good:
                    raise defined_twice(file, topology.name)
                good[topology.name] = topology
        except CodeError as error:
            broken[file] = error
    return good, broken


def defined_twice(file: Path, name: str) -> CodeError:
    """The complaint about a second file that defines a topology."""
    return CodeError(
        f"{file} defines topology {name!r}, which another file of the folder defines too. Remove one of the two, or "
        "give it another name.",
        file=str(file),
    )


def files(folder: Path) -> list[Path]:
    """Files of a folder that may declare topologies, sorted."""
    return sorted(path for path in folder.glob("*.py") if may_declare(path))


def may_declare(file: Path) -> bool:
    """Whether a file directly in a folder of topologies is one that may declare some."""
    return file.suffix == ".py" and not file.name.startswith(("_", "."))


def is_text(path: Path) -> bool:
    """Whether a path is text in UTF-8: no import finds a file of another name."""
    return str(path).encode(errors="ignore").decode() == str(path)


def _texts(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Files that may declare topologies, without those that cannot be read."""
    for file in files(folder):
        try:
            text = file.read_bytes()
        except OSError:
            continue
        yield file, text


@lru_cache(maxsize=1024)
def declared_in(file: Path, text: bytes) -> tuple[Declared, ...] | None:
    """The topologies in a file, decoded as Python decodes it; None if it does not parse.

    Each text is parsed once, because a plan reads all files of a folder repeatedly.
    """
    try:
        return tuple(_declarations(ast.parse(text), file))
    except Exception:  # a text that nests too deep is a RecursionError; whatever it raises is that file's error
        return None


def _declarations(tree: ast.Module, file: Path) -> Iterator[Declared]:
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None)) == "Topology":
            words = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            if isinstance(words.get("name"), str):
                yield Declared(
                    name=str(words["name"]),
                    version=str(words.get("version", "")),
                    file=file,
                    reprocess=_schedule(node),
                    approvals=_approvals(node),
                    owner=_owner(words.get("owner")),
                    call=node,
                    values=values,
                )


def _schedule(topology: ast.Call) -> Mapping[str, str] | None:
    for keyword in topology.keywords:
        if keyword.arg == "reprocess" and isinstance(keyword.value, ast.Call):
            # A value that is not a literal is not ignored: otherwise the zone would be another one.
            return {
                str(word.arg): str(word.value.value) if isinstance(word.value, ast.Constant) else ""
                for word in keyword.value.keywords
            }
    return None


def _approvals(topology: ast.Call) -> int:
    """The number of approvals that it needs; a number that cannot be read counts as one, also one in ``**``."""
    words = {keyword.arg: keyword.value for keyword in topology.keywords}
    match words.get("approvals", words.get(None)):
        case None:
            return 0
        case ast.Constant(value=int(number)):
            return number
        case _:
            return 1


def _owner(value: object) -> str:
    """The owner that a file declares; one that its import refuses is not passed on."""
    return value if isinstance(value, str) and is_owner(value) else ""


class _SourceLoader(SourceFileLoader):
    """Compiles the present text of a file: Python's cache compares only its second and size, and an edit may change
    neither.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def import_file(file: Path) -> list[Topology]:
    """Import a file in this process, and return the topologies that it defines.

    Raises:
        CodeError: it does not import, would end the process, has the name of a module that other code imports, or has
            a step that reads something undeclared.
    """
    _check_names(file.parent)
    if not is_text(file):
        raise CodeError(f"The path {str(file)!r} is not text in UTF-8. Rename it.", file=str(file))
    name = f"kappa_topology_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    loader = _SourceLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look the module up by name
    folder = str(file.parent)
    sys.path.insert(0, folder)  # a topology may import the modules beside it
    try:
        with redirect_stdout(sys.stderr):  # the output of a command is its answer, which may be JSON
            loader.exec_module(module)
        topologies = [value for value in vars(module).values() if isinstance(value, Topology)]
        _check_approvals(declared_in(file, loader.get_data(str(file))), topologies)
    except (Exception, SystemExit) as error:  # whatever a user's file raises is that file's error
        sys.modules.pop(name, None)
        raise CodeError(f"{file} does not import: {type(error).__name__}: {error}", file=str(file)) from error
    finally:
        sys.path.remove(folder)
    for topology in topologies:
        for wrong in undeclared_reads(topology):
            raise CodeError(
                f"{file}: the step of {topology.name!r} {wrong}. Declare it in the topology, or correct the name.",
                file=str(file),
            )
    return topologies


def _check_approvals(texts: Sequence[Declared] | None, topologies: Sequence[Topology]) -> None:
    """Refuse a number of approvals other than the one that whoever does not run the file reads in it."""
    for topology in topologies:
        for read in texts or ():
            if read.name == topology.name and read.approvals != topology.approvals:
                refuse(
                    f"Topology {topology.name!r} asks for {topology.approvals} approvals, but cutovers and DAGs, which "
                    f"do not run its file, read {read.approvals} in it. Write the number in its call: "
                    f"approvals={topology.approvals}"
                )


def _check_names(folder: Path) -> None:
    """Refuse a module beside topologies that other code would import instead of its own."""
    for path in sorted(folder.iterdir()):
        if path.stem in TAKEN and (path.suffix == ".py" or (path / "__init__.py").is_file()):
            raise CodeError(
                f"{path} has the name of a module that Python or Kappa imports, and would be imported instead of it. "
                f"Rename it: mv {quote(str(path))} {quote(str(path.with_name(f'my_{path.name}')))}",
                file=str(path),
            )


def report(descriptor: int, files: Sequence[str]) -> None:
    """In a process of its own: import each file, and write a line before and a line after it."""
    with os.fdopen(descriptor, "w", buffering=1) as out:
        for file in files:
            out.write(json.dumps({"begins": file}) + "\n")
            try:
                content: Any = [asdict(_deployed(topology)) for topology in import_file(Path(file))]
            except CodeError as error:
                content = str(error)
            out.write(json.dumps({"found": content}) + "\n")


def _deployed(topology: Topology) -> Deployed:
    return Deployed(
        name=topology.name,
        version=topology.version,
        owner=topology.owner,
        sources=tuple(source.topic for source in topology.sources),
        tables=tuple(table.name for table in topology.tables),
        outputs=(*(append.name for append in topology.appends), *(topic.name for topic in topology.topics)),
    )
