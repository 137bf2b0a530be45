"""Sweeps by executors: the table is that of the caller's own process, to the last bit, whatever becomes of workers."""

import os
import signal
from concurrent.futures import Executor, Future, ProcessPoolExecutor

import pytest

import perfmodel as pm
from perfmodel.planning.sweeps import tasks as sweep_tasks

GRAPH = pm.zoo.alexnet()
SPACE = {
    "batch_size": range(1, 17),
    "system": "survey_fig6",
    "device": ["gtx_1080", "v100_pcie"],
    "link": ["ethernet_10_gbit", "infiniband_edr"],
    "workers": [1, 2, 4, 17],
    "sync": ["ring_all_reduce", "parameter_server"],
}


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch):
    monkeypatch.setattr(sweep_tasks, "WORKERS_PER_TASK", 32)
    monkeypatch.setattr(sweep_tasks, "ROWS_PER_TASK", 64)


@pytest.fixture(scope="module")
def alone():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sweep_tasks, "WORKERS_PER_TASK", 32)
        patched.setattr(sweep_tasks, "ROWS_PER_TASK", 64)
        return pm.sweep(GRAPH, **SPACE)


def _assert_same_table(one, other):
    assert one.columns == other.columns
    for name in one.columns:
        if name == "reason":
            assert one[name].tolist() == other[name].tolist()
        elif name in one.results:
            assert one[name].tobytes() == other[name].tobytes()
        else:
            assert one[name].tolist() == other[name].tolist()


class Dying(ProcessPoolExecutor):
    """A pool, one worker of which is killed in the middle: that breaks all of it."""

    submitted = 0

    def submit(self, *args, **kwargs):
        future = super().submit(*args, **kwargs)
        self.submitted += 1
        if self.submitted == 5:
            os.kill(next(iter(self._processes)), signal.SIGKILL)
        return future


class Losing(Executor):
    """An executor that loses every third task once, and one task always."""

    def __init__(self):
        self.submitted = []

    def submit(self, fn, *args):
        future = Future()
        task = args[-1]
        self.submitted.append(id(task))
        number = list(dict.fromkeys(self.submitted)).index(id(task))
        if number == 4 or (number % 3 == 0 and self.submitted.count(id(task)) == 1):
            future.set_exception(ConnectionError("the worker is gone"))
        else:
            future.set_result(fn(*args))
        return future


def test_a_process_pool_gives_the_same_table(alone):
    assert len(alone) == 512
    assert len(set(alone["reason"])) > 2
    with ProcessPoolExecutor(2) as executor:
        _assert_same_table(alone, pm.sweep(GRAPH, executor=executor, **SPACE))


def test_a_worker_that_is_killed_changes_nothing(alone):
    with Dying(2) as executor:
        _assert_same_table(alone, pm.sweep(GRAPH, executor=executor, **SPACE))
        assert executor.submitted >= 5


def test_tasks_that_are_lost_are_done_again_and_in_the_end_here(alone):
    executor = Losing()
    _assert_same_table(alone, pm.sweep(GRAPH, executor=executor, **SPACE))
    counts = [executor.submitted.count(task) for task in dict.fromkeys(executor.submitted)]
    assert sorted(set(counts)) == [1, 2, 3]


def test_a_list_of_configurations_is_cut_into_tasks_all_the_same():
    axes = SPACE | {"limit": 200}
    drawn = pm.sweep(GRAPH, **axes)
    with ProcessPoolExecutor(2) as executor:
        _assert_same_table(drawn, pm.sweep(GRAPH, executor=executor, **axes))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_cluster_of_dask_gives_the_same_table_though_a_worker_is_killed(alone):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        executor = client.get_executor()
        _assert_same_table(alone, pm.sweep(GRAPH, executor=executor, **SPACE))
        pids = list(client.run(os.getpid).values())
        submit = executor.submit

        def submit_and_kill(*args, **kwargs):
            future = submit(*args, **kwargs)
            if pids:
                os.kill(pids.pop(), signal.SIGKILL)
                pids.clear()
            return future

        executor.submit = submit_and_kill
        _assert_same_table(alone, pm.sweep(GRAPH, executor=executor, **SPACE))
        assert not pids
