"""The end of a process."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

#: A thread of the process is still at work, an executor has one that waits for work, and a folder is to be removed.
_ENDS = """
import sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor
from kappa.process_end import end_process

class Slow:
    def __del__(self):
        print("taken apart")

slow, folder, pool = Slow(), tempfile.TemporaryDirectory(), ThreadPoolExecutor(2)
pool.submit(len, "x").result()
threading.Thread(target=lambda: (time.sleep(0.2), print("the thread is done"))).start()
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print(folder.name)
end_process({code})
"""


def ended(program: str, **pipes: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], text=True, check=False, stderr=subprocess.PIPE, **pipes)


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_ends_after_its_threads_with_its_output_and_leaves_no_folder(code: int) -> None:
    run = ended(_ENDS.format(code=code), stdout=subprocess.PIPE)
    folder, _, rest = run.stdout.partition("\n")
    assert (run.returncode, rest, run.stderr) == (code, "the thread is done\n", "")
    assert not Path(folder).exists()


def test_a_process_whose_reader_is_gone_says_so_by_its_code() -> None:
    program = "import os; from kappa.process_end import end_process; os.close(1); print('x'); end_process(0)"
    assert ended(program).returncode == 1


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["nonsense"], 2), (["status", "--bogus"], 2)])
def test_a_command_ends_with_its_code(words: list[str], code: int) -> None:
    run = subprocess.run([sys.executable, "-m", "kappa", *words], capture_output=True, check=False)
    assert run.returncode == code, run.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_works_without_its_streams(tmp_path: Path, closed: str) -> None:
    (tmp_path / "one.py").write_text(
        "from kappa import Append, Source, Topology\n"
        "schema = 'id STRING'\n"
        "one = Topology(name='a.b', version='1', sources=[Source(topic='in', schema=schema)],\n"
        "    outputs=[Append(name='out', schema=schema)], step=lambda slice: {})\n"
    )
    words = f"{shlex.quote(sys.executable)} -m kappa topologies {closed}"
    environ = {**os.environ, "KAPPA_TOPOLOGIES": str(tmp_path), "KAPPA_HOME": str(tmp_path / "home")}
    run = subprocess.run(["sh", "-c", words], env=environ, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert ("a.b       1 " in run.stdout) is (">&-" not in closed.split())


@pytest.mark.parametrize("buffered", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "as in a container"])
@pytest.mark.parametrize(("words", "code"), [("--help", 1), ("topologies --json", 1), ("nonsense 2>/dev/full", 2)])
def test_an_output_without_room_is_named_as_such(
    tmp_path: Path, words: str, code: int, buffered: dict[str, str]
) -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": "", "KAPPA_HOME": str(tmp_path), **buffered}
    command = f"{shlex.quote(sys.executable)} -m kappa {words} > /dev/full"
    run = subprocess.run(["sh", "-c", command], env=environ, capture_output=True, text=True, check=False)
    assert "Traceback" not in run.stderr and "LakeUnreachableError" not in run.stderr
    is_named = "The output cannot be written: No space left on device." in run.stderr
    assert (run.returncode, is_named) == (code, code == 1), run.stderr


@pytest.mark.parametrize("words", ["status", "init streams", "new a.b --shape join"])
def test_a_command_in_a_folder_that_was_removed_says_so(tmp_path: Path, words: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"rmdir {shlex.quote(str(gone))} && {shlex.quote(sys.executable)} -m kappa {words}"
    run = subprocess.run(["sh", "-c", command], cwd=gone, capture_output=True, text=True, check=False)
    error = "UsageError: The working directory was removed. Go to a folder that is there: cd\n"
    assert (run.returncode, run.stderr) == (2, error)
