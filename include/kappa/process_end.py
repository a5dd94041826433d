"""The end of a process of the command line or of a driver."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """End this process with an exit code, after its threads, what it registered for its end, and its output.

    It does all that Python's own end does but take the objects apart: Arrow's threads may still give theirs back then,
    and now and then the process aborts, with code 134, after all of its work
    (https://github.com/apache/arrow/issues/34314).
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, and wakes the idle ones of executors
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # none is there for a descriptor that is closed
        try:
            stream.flush()
        except OSError:  # whoever read it is gone, as after `kappa status | head`
            code = code or 1
    os._exit(code)
