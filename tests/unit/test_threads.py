"""Answers from many threads, processes and hash seeds are the same to the last bit, and caches stay bounded."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel import derived as caches
from perfmodel.derived import MOST_DERIVED, derived, drop_oldest, held, kept
from perfmodel.planning.sweeps import tasks
from perfmodel.prediction.device import gpu_libraries
from perfmodel.prediction.device.factors import NO_FACTORS

THREADS = 4
GPU = {"device": "gtx_1080", "framework": "torch_423cfba"}
ROUNDS = int(os.environ.get("PERFMODEL_STRESS", "1"))


@contextmanager
def switching_often():
    """Let threads take turns a thousand times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def at_once(ask, count=THREADS):
    """Ask from several threads that start together; return their answers."""
    gate = threading.Barrier(count)

    def waits(number):
        gate.wait(60)
        return ask(number)

    with switching_often(), ThreadPoolExecutor(count) as pool:
        return list(pool.map(waits, range(count)))


def answers(graph):
    """Figures of each verb, every bit of them."""
    figures = []
    for batch_size in (1, 7, 64):
        p = pm.predict(graph, batch_size=batch_size, **GPU)
        figures += [p.step_s, *p.interval_s, *p.layers.to_dicts()]
    spread = pm.predict(graph, system="dgx_a100", workers=8, batch_size=16, sync="halving_doubling")
    figures += [spread.step_s, spread.memory.total_bytes]
    table = pm.sweep(graph, batch_size=[8, 16], dtype=["fp32"], **GPU)
    figures += table.to_json().splitlines()
    formula = pm.formula("step_s", graph=graph, free=["batch_size"], batch_size=16, **GPU)
    found = pm.search(graph, system="dgx_a100", global_batch_size=64)
    figures += [formula(batch_size=32), found.to_json()]
    return [repr(figure) for figure in figures]  # a float's text says every bit of it


def of_a_new_graph(_=0):
    return answers(pm.zoo.lenet5())


def test_a_pool_of_threads_fills_in_the_rows_of_a_sweep(monkeypatch):
    """Tasks of other workers at the same time: none takes the workers, or the caches, of another."""
    monkeypatch.setattr(tasks, "WORKERS_PER_TASK", 4)
    monkeypatch.setattr(tasks, "GRADIENTS_AT_ONCE", 0)
    space = {"batch_size": range(8, 40), "system": "dgx_a100", "workers": [2, 4], "framework": ["pytorch_2", "generic"]}
    graph, threads, evaluated = pm.zoo.lenet5(), {}, tasks.Evaluation.of
    here = pm.sweep(graph, **space)

    def noted(evaluation, task):
        threads.setdefault(evaluation, set()).add(threading.get_ident())
        time.sleep(1e-3)  # others take their turns
        return evaluated(evaluation, task)

    monkeypatch.setattr(tasks.Evaluation, "of", noted)
    with switching_often(), ThreadPoolExecutor(THREADS) as pool:
        assert pm.sweep(graph, executor=pool, **space)["step_s"].tolist() == here["step_s"].tolist()
    assert len(threads) > 1
    assert all(len(users) == 1 for users in threads.values())


def test_a_thread_reads_no_constants_that_another_one_is_still_making(monkeypatch):
    libraries = pm.predict(pm.zoo.lenet5(), batch_size=8, **GPU).basis.prepared.libraries
    profile = pm.load_framework("torch_423cfba").model_copy()  # of which nothing is kept
    made, seen = gpu_libraries._software, []

    def ask():
        blas_and_dnn = (libraries["gpu_blas"], libraries["gpu_dnn"])
        return gpu_libraries.gpu_software(
            profile, blas_and_dnn, pm.load_device("gtx_1080"), ("fp32", "fp32"), factors=NO_FACTORS
        )

    def making(*arguments):
        monkeypatch.setattr(gpu_libraries, "_software", made)
        seen.append(ask())  # the other thread's turn
        return made(*arguments)

    monkeypatch.setattr(gpu_libraries, "_software", making)
    assert ask().blas == seen[0].blas


@pytest.fixture(scope="module")
def alone():
    return of_a_new_graph()


def test_four_threads_get_the_answers_of_one(alone):
    for _ in range(ROUNDS):
        shared = pm.zoo.lenet5()
        assert at_once(lambda number, shared=shared: answers(shared)) == [alone] * THREADS


def test_a_fork_gets_the_same_answers(alone):
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork here")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(of_a_new_graph) == alone


@pytest.mark.parametrize(("seed", "threads"), [("0", "2"), ("4242", "3")][: 1 + (ROUNDS > 1)])
def test_in_a_new_process_hash_seed_and_number_of_threads_change_no_bit(alone, seed, threads):
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_threads as t, json; "
    code += "print(json.dumps(t.of_a_new_graph()))"
    counts = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | counts | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert json.loads(ran.stdout) == alone


def test_a_full_cache_is_shared_by_threads_that_drop_its_oldest():
    made = {}

    def ask(number):
        return [kept(made, (number, place), lambda: (number, place), most=4) for place in range(3000)]  # noqa: B023

    assert at_once(ask) == [[(number, place) for place in range(3000)] for number in range(THREADS)]
    assert len(made) <= 4 + THREADS


def test_the_oldest_are_dropped_and_the_newest_stay():
    made = dict.fromkeys(range(10))
    drop_oldest(made, most=3)
    assert list(made) == [7, 8, 9]
    drop_oldest(made, most=5)
    assert list(made) == [7, 8, 9]


def test_what_is_derived_from_one_object_is_bounded():
    class Spec: ...

    once = derived(lambda spec, number: number)
    spec, name = Spec(), f"{__name__}.test_what_is_derived_from_one_object_is_bounded.<locals>.<lambda>"
    assert all(once(spec, number) == number for number in range(MOST_DERIVED + 100))
    assert held()[name] == MOST_DERIVED


def test_hundreds_of_different_jobs_are_held_within_a_bound_and_answered_alike(monkeypatch):
    """A week of a notebook: what lowered networks weigh together is bounded, whatever their number."""
    graphs = [pm.zoo.build(name) for name in ("lenet5", "fcn5", "alexnet")]
    asked = [
        {"framework": framework, "dtype": dtype, "optimizer": optimizer, "phase": phase, "device": "gtx_1080"}
        for framework in ("torch_423cfba", "tensorflow_0_9", "caffe_cudnn5", "generic")
        for dtype in ("fp32", "fp16")
        for optimizer in ("sgd", "momentum", "adam")
        for phase in ("step", "forward", "forward_backward")
    ]
    monkeypatch.setattr(caches, "_NEWEST", type(caches._NEWEST)())
    monkeypatch.setattr(caches, "MOST_WEIGHT", 20 * caches.LEAST_WEIGHT)
    times = [pm.predict(graph, batch_size=16, **job).step_s for job in asked for graph in graphs]
    assert len(times) == 216
    assert sum(weight for _, _, weight in caches._NEWEST) == caches._NEWEST.weight <= caches.MOST_WEIGHT
    assert held()["perfmodel.derived.Weighed"] == len(caches._NEWEST) <= 20
    again = [pm.predict(graph, batch_size=16, **job).step_s for job in asked[:6] for graph in graphs]
    assert again == times[: len(again)]  # dropped, and made anew


def test_an_operation_is_cached_once_for_all_sets_of_rules_within_a_bound(monkeypatch):
    from perfmodel.framework import kernel_table

    monkeypatch.setattr(kernel_table, "_LOWERED", {})
    monkeypatch.setattr(kernel_table, "MOST_LOWERED", 50)
    for framework in ("torch_423cfba", "tensorflow_0_9", "caffe_cudnn5"):
        pm.predict(pm.zoo.alexnet(), batch_size=16, device="gtx_1080", framework=framework)
        assert 0 < len(kernel_table._LOWERED) <= 50
