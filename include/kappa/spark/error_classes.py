"""The class of an error of a step, in one word: by it the records that fail alike are listed."""

from __future__ import annotations

import re

from kappa.errors import KappaError

#: The last line of a traceback of a Python function of the step: the error's type, and what it says.
_RAISED = re.compile(r"^([A-Za-z_][\w.]*): ", re.MULTILINE)


def error_class(error: BaseException) -> str:
    """Spark's name of the condition, like ``CAST_INVALID_INPUT``; of an error of Python's, also one that a function of
    the step raised in a worker, its type, like ``ValueError``.
    """
    if isinstance(error, KappaError):
        return str(error.data.get("code") or type(error).__name__)
    condition = getattr(error, "getCondition", lambda: None)()
    if condition:
        return str(condition)
    if type(error).__name__ == "PythonException" and (raised := _RAISED.findall(str(error))):
        return str(raised[-1])
    return type(error).__name__
