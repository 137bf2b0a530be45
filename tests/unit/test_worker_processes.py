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


def fails(_):
    raise ZeroDivisionError


def test_an_error_ends_workers_in_the_middle_of_their_work():
    before = set(multiprocessing.active_children())
    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError), worker_pool(2) as pool:
        fails(pool.submit(time.sleep, 600))
    assert time.monotonic() - begin < 60
    assert set(multiprocessing.active_children()) <= before


def test_a_worker_that_dies_is_an_error_in_words():
    with pytest.raises(WorkerError, match="one of 2 worker processes died"), worker_pool(2) as pool:
        pool.submit(os._exit, 3).result()


@pytest.mark.parametrize("whom", ["parent", "all"])
def test_ctrl_c_ends_parent_and_workers_without_a_word(whom):
    code = """
import time
from perfmodel.worker_processes import worker_pool

try:
    with worker_pool(2) as pool:
        future = pool.submit(time.sleep, 600)
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
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"")
