"""The end of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A thread of the process is still at work, and so is one of C's that wants to give an object of Python's back.
_ENDS = """
import sys, threading, time
from kappa.process_end import end_process

class Slow:
    def __del__(self):
        print("taken apart")

kept = Slow()
threading.Thread(target=lambda: (time.sleep(0.2), print("the thread is done"))).start()
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("said")
end_process({code})
"""


def ended(program: str, **pipes: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], text=True, check=False, stderr=subprocess.PIPE, **pipes)


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_ends_after_its_threads_and_with_all_of_its_output(code: int) -> None:
    run = ended(_ENDS.format(code=code), stdout=subprocess.PIPE)
    assert (run.returncode, run.stdout, run.stderr) == (code, "said\nthe thread is done\n", "")


def test_a_process_whose_reader_is_gone_says_so_by_its_code() -> None:
    program = "import os; from kappa.process_end import end_process; os.close(1); print('x'); end_process(0)"
    assert ended(program).returncode == 1


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["nonsense"], 2), (["status", "--bogus"], 2)])
def test_a_command_ends_with_its_code(words: list[str], code: int) -> None:
    run = subprocess.run([sys.executable, "-m", "kappa", *words], capture_output=True, check=False)
    assert run.returncode == code, run.stderr
