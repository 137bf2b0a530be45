"""Worker processes end with what they work for, whatever ends it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from perfmodel.errors import WorkerError
from perfmodel.worker_processes import worker_pool

WORK_S = 600
"""Work in whose middle processes end; they took no notice if they take that long. [s]"""


def fails(_):
    raise ZeroDivisionError


def test_an_error_ends_workers_in_the_middle_of_their_work():
    before = set(multiprocessing.active_children())
    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError), worker_pool(2) as pool:
        fails(pool.submit(time.sleep, WORK_S))
    assert time.monotonic() - begin < WORK_S
    assert set(multiprocessing.active_children()) <= before


def test_a_worker_that_dies_is_an_error_in_words():
    with pytest.raises(WorkerError, match="one of 2 worker processes died"), worker_pool(2) as pool:
        pool.submit(os._exit, 3).result()


def pressed(whom, work_s, setting=""):
    """Return the code and the errors of a parent of working processes after Ctrl-C."""
    code = f"""
import signal, time
from perfmodel.worker_processes import worker_pool

{setting}
try:
    with worker_pool(2) as pool:
        future = pool.submit(time.sleep, {work_s})
        print("working", flush=True)
        future.result()
except KeyboardInterrupt:
    raise SystemExit(130)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout.readline() == b"working\n"
    {"parent": os.kill, "all": os.killpg}[whom](process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=WORK_S)
    return process.returncode, said


@pytest.mark.parametrize("whom", ["parent", "all"])
@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_ends_parent_and_workers_without_a_word(whom):
    assert pressed(whom, WORK_S) == (130, b"")


def test_workers_ignore_ctrl_c_as_their_parent_does():
    """As behind ``nohup``: workers that died alone were reported as a lack of memory."""
    assert pressed("all", 2, "signal.signal(signal.SIGINT, signal.SIG_IGN)") == (0, b"")
