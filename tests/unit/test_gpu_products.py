"""Products of all libraries of a GPU at once take as long as those of each library by itself."""

from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.framework import kernel_table
from perfmodel.framework.kernel_table import columns_at
from perfmodel.prediction.device import gpu_products
from perfmodel.prediction.device.gpu_products import product_rows, product_times
from perfmodel.prediction.job.prepared import Prepared

MENU = ("tile_rows", "tile_columns", "tile_efficiency", "split_k")


@pytest.fixture(scope="module")
def basis():
    return pm.predict(pm.zoo.alexnet(), batch_size=17, device="gtx_1080", framework="tensorflow_0_9").basis


def with_menu(library, entries):
    chosen = {name: getattr(library.reach, name)[entries] for name in MENU}
    return library._replace(reach=replace(library.reach, **chosen))


def times_of(basis, libraries, batch_size):
    table = basis.prepared.lowered.table
    columns = columns_at(table, batch_size).matmul
    times = np.full((2, *columns["m"].shape), np.nan)
    for rows, *branches in product_times(libraries, columns, table.matmul_efficiency, basis.timed.numbers):
        for branch, seconds in zip(times, branches, strict=True):
            branch[rows] = seconds
    return times


@pytest.mark.parametrize("batch_size", [17, np.array([1.0, 32.0, 100.0])], ids=["one", "several"])
@pytest.mark.parametrize("entries", [slice(None), [0, 3, 5]], ids=["every split of a tile", "some"])
def test_libraries_together_take_as_long_as_one_by_one(basis, entries, batch_size):
    blas, dnn = (with_menu(library, entries) for library in basis.timed.numbers.matmul_libraries)
    assert blas.reach.skinny_bandwidth_fraction is not None
    assert dnn.reach.skinny_bandwidth_fraction is None
    together = times_of(basis, (blas, dnn), batch_size)
    alone = [times_of(basis, (library,), batch_size) for library in (blas, dnn)]
    assert not np.isnan(together).any()
    ran = [~np.isnan(times[0]) for times in alone]
    assert not (ran[0] & ran[1]).any()
    for times, rows in zip(alone, ran, strict=True):
        np.testing.assert_allclose(together[:, rows], times[:, rows], rtol=1e-14)


def test_a_smaller_menu_is_slower_somewhere(basis):
    libraries = basis.timed.numbers.matmul_libraries
    fewer = [with_menu(library, [0]) for library in libraries]
    full_s, fewer_s = (times_of(basis, each, 17)[0] for each in (libraries, fewer))
    assert (fewer_s >= full_s * (1 - 1e-14)).all()
    assert fewer_s.sum() > 1.1 * full_s.sum()


def test_few_strided_rows_as_numbers_take_as_long_as_arrays(basis, monkeypatch):
    table = basis.prepared.lowered.table
    assert table.matmul_efficiency.count("gemm_transposed") == 3
    one_by_one = times_of(basis, basis.timed.numbers.matmul_libraries, 64)
    monkeypatch.setattr(gpu_products, "FEW_ROWS", 2)
    np.testing.assert_allclose(one_by_one, times_of(basis, basis.timed.numbers.matmul_libraries, 64), rtol=1e-14)


def test_rows_of_no_library_are_none():
    assert product_rows(("relu",), (("gemm",), ("conv_1x1",))) is None
    assert product_rows(("relu", "gemm", "gemm_transposed"), (("gemm",),)).rows == slice(1, 3)


def test_an_interval_is_one_evaluation_of_many_configurations(monkeypatch):
    """One by one they take as long as a hundred predictions."""
    evaluated, step = [], Prepared.step
    monkeypatch.setattr(Prepared, "step", lambda *given: evaluated.append(given) or step(*given))
    for framework in ("tensorflow_0_9", "caffe_1_0_rc3", "generic"):
        p = pm.predict(pm.zoo.alexnet(), batch_size=5, device="gtx_1080", framework=framework)
        assert p.interval.low_s < p.step_s < p.interval.high_s
    assert len(evaluated) == 6


def test_numbers_of_which_one_was_changed_are_looked_at_again(basis):
    numbers = basis.timed.numbers
    assert numbers.is_plain
    assert numbers.configuration_count is None
    several = replace(numbers, launch_s=np.array([1e-6, 2e-6, 3e-6]))
    assert not several.is_plain
    assert several.configuration_count == 3


@pytest.mark.parametrize("network", ["alexnet", "lstm32"])
def test_rows_that_one_of_two_launches_take_as_long_as_rows_that_either_may(monkeypatch, network):
    how = {"batch_size": 3, "device": "gtx_1080", "framework": "generic"}
    told_apart = pm.predict(pm.zoo.build(network), **how)
    weights = kernel_table._group_weights
    monkeypatch.setattr(kernel_table, "_group_weights", lambda table: weights(table)._replace(issuer_of_row=None))
    in_general = pm.predict(pm.zoo.build(network), **how)
    assert told_apart.table.weights.has_library_launches
    for name in ("compute_s", "memory_s", "launches", "dispatch_s", "exposed_dispatch_s"):
        one, other = (getattr(p.groups, name) for p in (told_apart, in_general))
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-20)
