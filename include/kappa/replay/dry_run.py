"""A dry run: the very function that would act, ended by its first effect.

Whatever changes the lake, the broker, a file or a process calls :func:`about_to` immediately before. Outside a dry run
that costs a look at a flag. Within :func:`first_effect` it ends the call: a refusal on the way is raised as it would be
by the real call, and what the dry run says is what the real call would do first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

_is_dry: ContextVar[bool] = ContextVar("kappa_dry_run", default=False)


class _Effect(BaseException):
    """Ends a dry run; not an :class:`Exception`, so that error handling on the way does not take it for a failure."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def about_to(what: str) -> None:
    """Announce an effect; in a dry run the call ends here.

    Args:
        what: the effect as an infinitive without "to", for example ``start the driver of epoch 2``.
    """
    if _is_dry.get():
        raise _Effect(what)


def first_effect(act: Callable[[], object]) -> str | None:
    """Call a function up to its first effect; None where it returns without one. Changes nothing.

    Args:
        act: the call, made in this thread.

    Raises:
        KappaError: whatever the function refuses before its first effect.
    """
    token = _is_dry.set(True)
    try:
        act()
    except _Effect as effect:
        return effect.what
    finally:
        _is_dry.reset(token)
    return None
