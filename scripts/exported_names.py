"""Writes tests/recorded/exported_names.txt: every name that other repositories, programs and people rely on.

docs/compatibility.md says what may change of them. A line is a name, two blanks, and what belongs to it.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import typer.core
import typer.main
import yaml

import kappa
from kappa import errors, names, operators, serving, testing
from kappa.cli import app
from kappa.config import Config, settings
from kappa.monitoring.metrics import Metrics
from kappa.monitoring.notices import Notice
from kappa.offsets.vector import Offsets
from kappa.replay.catalogue import ALLOWABLE, DECLARED
from kappa.setting_layers import PREFIX
from kappa.topology import Append, Slice, Source, Topology, registry
from kappa.topology.operator import Operator
from kappa_web.app import build

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "recorded" / "exported_names.txt"

#: What a topology may use of any operator beside what the kind of operator adds.
_OF_OPERATORS = frozenset(["schema", "tables"])
_INNER = frozenset([*dir(Operator), *(item.name for item in fields(Operator))]) - _OF_OPERATORS
#: What a step may use of its slice beside `slice["topic"]`.
_OF_SLICES = frozenset(["__getitem__", "frontier", "mask_key", "seq", "table"])
Line = tuple[str, str]


def lines() -> Iterator[str]:
    """The lines of the file."""
    for section, entries in SECTIONS.items():
        yield f"# {section}"
        yield from (f"{name}  {rest}".rstrip() for name, rest in sorted(set(entries())))


def python() -> Iterator[Line]:
    """What topologies, their tests and readers import."""
    for module in (kappa, operators, testing, serving):
        for name in module.__all__:
            yield from exported(f"{module.__name__}.{name}", getattr(module, name))
    for name, value in vars(operators.agg).items():
        if name[0] != "_" and inspect.isfunction(value) and value.__annotations__.get("return") == "Aggregate":
            yield f"kappa.operators.agg.{name}", signature(value)
    yield from exported("kappa.config.Config.from_env", Config.from_env)
    yield from exported("kappa.topology.registry.load", registry.load)
    yield from results()
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.KappaError):
            yield f"kappa.errors.{name}", f"({', '.join(base.__name__ for base in kind.__bases__)})"


def exported(name: str, value: Any) -> Iterator[Line]:
    """One name: a function with its signature; a class by its constructor, its members, or both."""
    if not isinstance(value, type):
        yield name, signature(value) if inspect.isroutine(value) else ""
        return
    if value is Slice:
        yield from members(name, value, _OF_SLICES.__contains__)
        return
    if not name.startswith("kappa.serving."):
        yield name, signature(value)
    if name.startswith(("kappa.serving.", "kappa.testing.")):
        yield from members(name, value)


def members(name: str, kind: type, only: Callable[[str], bool] = lambda one: not one.startswith("_")) -> Iterator[Line]:
    """Fields, properties and methods of a class."""
    own = {item.name: "" for item in fields(kind)} if is_dataclass(kind) else {}
    for base in kind.__mro__:
        if base.__module__.startswith("kappa"):
            for member, value in vars(base).items():
                function = getattr(value, "__func__", value)
                own.setdefault(member, signature(function) if inspect.isfunction(function) else "")
    yield from ((f"{name}.{one}", rest) for one, rest in own.items() if only(one))


def results() -> Iterator[Line]:
    """What a topology takes of an operator, and a step of its result."""
    for name in operators.__all__:
        function = inspect.unwrap(getattr(operators, name))
        if inspect.isfunction(function):
            for word in re.findall(r"\w+", str(inspect.signature(function).return_annotation)):
                kind = function.__globals__.get(word)
                if isinstance(kind, type) and kind.__module__.startswith("kappa"):
                    inner = _INNER if issubclass(kind, Operator) else frozenset[str]()
                    yield from (line for line in members(word, kind) if line[0].partition(".")[2] not in inner)


class _Written(str):
    """An annotation as it is written, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def signature(function: Any) -> str:
    """A signature as it is written."""
    own = inspect.signature(function)
    parameters = [
        one.replace(annotation=_Written(one.annotation)) if isinstance(one.annotation, str) else one
        for one in own.parameters.values()
        if one.name != "self"
    ]
    result = own.return_annotation
    return str(
        own.replace(parameters=parameters, return_annotation=_Written(result) if isinstance(result, str) else result)
    )


def airflow() -> Iterator[Line]:
    """The DAGs of the page, and what the files of DAGs and the plugin import; nothing is imported for it."""
    page = (ROOT / "docs" / "airflow.md").read_text()
    table = page[page.index("| DAG |") :].partition("\n\n")[0]
    for cell in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE):
        yield from ((f"DAG {name}", "") for name in re.findall(r"`([^`]+)`", cell))
    for file in (*ROOT.glob("dags/*.py"), *ROOT.glob("plugins/*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kappa"):
                for one in node.names:
                    yield f"{node.module}.{one.name}", written(str(node.module), one.name)


def written(module: str, name: str) -> str:
    """The signature of a function in its file, or where that imports it from; empty for what is not a function."""
    place = ROOT / "include" / module.replace(".", "/")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    tree = ast.parse(file.read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return f"({ast.unparse(node.args)})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    origins = [str(node.module) for node in imports if name in {one.name for one in node.names}]
    return written(origins[0], name) if origins and origins[0].startswith("kappa") else ""


def commands() -> Iterator[Line]:
    """Commands with their arguments and options."""
    yield from commands_of("kappa", typer.main.get_command(app))


def commands_of(name: str, command: Any) -> Iterator[Line]:
    """A command, or those of a group."""
    if isinstance(command, typer.core.TyperGroup):
        for word, one in command.commands.items():
            yield from commands_of(f"{name} {word}", one)
        return
    words = {one: parameter(one) for one in command.params if one.name != "help"}
    arguments = [word for one, word in words.items() if one.param_type_name == "argument"]
    yield name, " ".join([*arguments, *sorted(set(words.values()) - set(arguments))])


def parameter(one: Any) -> str:
    """An argument or an option; optional ones in brackets, repeatable ones with three dots."""
    if one.param_type_name == "argument":
        word = one.name.upper()
    else:
        kind = "" if one.is_flag else f" {one.metavar or getattr(one.type_descriptor.annotation, '__name__', 'text')}"
        word = "/".join([max(one.opts, key=len), *one.secondary_opts]) + kind
        if not one.is_flag and one.default not in (None, (), ""):
            word += f"={one.default}"
    return f"{word if one.required else f'[{word}]'}{'...' if one.multiple or one.nargs == -1 else ''}"


def variables() -> Iterator[Line]:
    """Settings with their defaults."""
    for item in settings():
        yield f"{PREFIX}{item.name.upper()}", "" if item.default in (MISSING, "") else str(item.default)


def findings() -> Iterator[Line]:
    """Codes of findings, of which some are values of `--allow`."""
    for code, finding in DECLARED.items():
        yield code, f"{finding.severity}{', may be allowed' if code in ALLOWABLE else ''}"


def monitoring() -> Iterator[Line]:
    """Metrics with their labels, alerts, and the fields of a notice."""
    source = Source(topic="t", schema="a STRING, at BIGINT", time="at", grace="0 seconds")
    topology = Topology(
        name="a.b",
        version="1",
        owner="o",
        sources=[source],
        outputs=[Append(name="rows", schema="a STRING")],
        step=lambda slice: {},
    )
    none = Offsets({})
    for metric in vars(Metrics(topology, 1, bound={}, start=none, end=none)).values():
        if hasattr(metric, "_labelnames"):
            suffix = "_total" if metric._type == "counter" else ""
            yield f"{metric._name}{suffix}", f"{metric._type}: {', '.join(metric._labelnames)}"
    rules = yaml.safe_load((ROOT / "docker" / "prometheus" / "alerts.yaml").read_text())
    yield from ((rule["alert"], rule["labels"]["severity"]) for group in rules["groups"] for rule in group["rules"])
    yield from ((f"notice.{item.name}", str(item.type)) for item in fields(Notice))


def places() -> Iterator[Line]:
    """Files in the lake, and names in Kafka."""
    epoch = names.EpochPaths(lake="<lake>", topology="<topology>", epoch=7)
    for word in ("ledger", "heartbeat", "notices", "dead_letters", "markers", "name"):
        yield str(getattr(epoch, word)), ""
    for word in ("published", "table", "changes", "output", "changelog", "versioned"):
        yield str(getattr(epoch, word)("<name>")), ""
    archive = names.ArchivePaths(lake="<lake>", topic="<topic>")
    yield from ((place, "") for place in (archive.records, archive.ledger, archive.heartbeat))
    yield from ((place, "") for place in (names.epochs_log("<lake>"), names.epochs_history("<lake>")))
    yield from ((place("<lake>", "<id>"), "") for place in (names.plan_file, names.code_file, names.schemas_of))


def routes() -> Iterator[Line]:
    """Queries over HTTP with their parameters."""
    document = build(Config.from_env({}), lambda: None).openapi()
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            yield f"{method.upper()} {path}", ", ".join(word["name"] for word in one.get("parameters", ()))


SECTIONS: dict[str, Callable[[], Iterator[Line]]] = {
    "Python": python,
    "Airflow": airflow,
    "Commands": commands,
    "Settings": variables,
    "Findings": findings,
    "Metrics, alerts and notices": monitoring,
    "Places in the lake and names in Kafka": places,
    "Queries over HTTP": routes,
}

if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n")
