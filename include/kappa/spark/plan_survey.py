"""What occurs in an analysed plan, asked for in a few calls of the JVM.

A walk from Python asks the JVM several times for each node: seconds for a plan of some hundred nodes. Here the JVM
walks. The functions that it applies to each node are put together from its own methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CATALYST = "org.apache.spark.sql.catalyst"


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What occurs in an analysed plan and in the plans below it; subqueries are told of, and not looked into.

    Attributes:
        plans: classes of the plans, without their packages.
        expressions: classes of their expressions, and of all that these are made of.
        is_deterministic: whether Spark takes every expression for a function of its input.
        has_subqueries: whether an expression holds a plan of its own.
    """

    plans: frozenset[str]
    expressions: frozenset[str]
    is_deterministic: bool
    has_subqueries: bool


def survey(frame: DataFrame) -> Survey:
    """What occurs in a DataFrame's analysed plan. Computes nothing."""
    functions = _Functions(frame.sparkSession._jvm)
    plan = frame._jdf.queryExecution().analyzed()
    kind = functions.function(functions.kind)
    parts = functions.method(f"{_CATALYST}.trees.TreeNode", "map", "scala.collection.immutable.Seq", "scala.Function1")
    kinds = functions.function(functions.handles.insertArguments(parts, 1, functions.array(kind)))
    own = functions.method(f"{_CATALYST}.plans.QueryPlan", "expressions", "scala.collection.immutable.Seq")
    return Survey(
        plans=_words(plan.map(kind)),
        expressions=_words(plan.flatMap(functions.function(own)).flatMap(kinds)),
        is_deterministic=bool(plan.deterministic()),
        has_subqueries=not plan.subqueriesAll().isEmpty(),
    )


def _words(names: Any) -> frozenset[str]:
    return frozenset(filter(None, str(names.distinct().mkString("\n")).split("\n")))


class _Functions:
    """Scala functions of one argument, from methods of classes that the JVM has."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self.handles = jvm.java.lang.invoke.MethodHandles
        self._lookup = self.handles.publicLookup()
        #: Object -> the name of its class.
        self.kind = self.handles.filterReturnValue(
            self.method("java.lang.Object", "getClass", "java.lang.Class"),
            self.method("java.lang.Class", "getSimpleName", "java.lang.String"),
        )

    def method(self, owner: str, name: str, returns: str, *takes: str) -> Any:
        """A method of a class."""
        types = [self._class(each) for each in (returns, *takes)]
        return self._lookup.findVirtual(
            self._class(owner), name, self._jvm.java.lang.invoke.MethodType.methodType(*types)
        )

    def function(self, handle: Any) -> Any:
        """The Scala function that calls it."""
        proxies = self._jvm.java.lang.invoke.MethodHandleProxies
        return proxies.asInterfaceInstance(self._class("scala.Function1"), handle)

    def array(self, value: Any) -> Any:
        """An array of objects with one."""
        found = self._jvm.java.lang.reflect.Array.newInstance(self._class("java.lang.Object"), 1)
        found[0] = value
        return found

    def _class(self, name: str) -> Any:
        return self._jvm.py4j.reflection.ReflectionUtil.classForName(name)
