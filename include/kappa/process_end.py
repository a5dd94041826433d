"""The end of a process of the command line or of a driver."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """End this process with an exit code, once its threads are done and what it printed is written.

    Python's own end would wait for nothing else, and take its objects apart while Arrow's threads still give theirs
    back: now and then the process then aborts, with code 134, after all of its work
    (https://github.com/apache/arrow/issues/34314). Functions of ``atexit`` are not called.
    """
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # whoever read it is gone, as after `kappa status | head`
            code = code or 1
    os._exit(code)
