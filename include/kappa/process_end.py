"""The end of a process of the command line or of a driver."""

from __future__ import annotations

import atexit
import errno
import io
import os
import sys
import threading
from typing import NoReturn


class Output(io.TextIOWrapper):
    """Standard output of a command, which ends where it cannot be written; or standard error, which loses it then.

    An ``OSError`` of its own would be taken for one of the command's work.

    Args:
        stream: the stream as Python opened it.
        is_error: whether it is standard error.
    """

    def __init__(self, stream: io.TextIOWrapper, *, is_error: bool) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._is_error = is_error

    def write(self, text: str, /) -> int:
        """Write a text.

        Raises:
            SystemExit: it cannot be written.
        """
        try:
            return super().write(text)
        except OSError as error:
            self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Write what waits.

        Raises:
            SystemExit: it cannot be written.
        """
        try:
            super().flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if self._is_error:
            return
        if error.errno == errno.EPIPE:  # whoever read it is gone, as after `kappa status | head`
            raise SystemExit(1) from error
        raise SystemExit(
            f"The output cannot be written: {error.strerror}. What the command has done stays: kappa status"
        ) from error


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
        except (OSError, SystemExit):  # whoever read it is gone, as after `kappa status | head`
            code = code or 1
    os._exit(code)
