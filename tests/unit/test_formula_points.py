"""Bad points and arguments of a formula are refused with words, never by what they would break inside."""

from functools import cache

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError

HOW = {"device": "gtx_1080", "batch_size": 8}


@cache
def opened():
    free = ["batch_size", "memory_bandwidth_bytes_per_s"]
    return pm.formula(graph=pm.zoo.mnist_classifier(), free=free, **HOW)


@pytest.mark.parametrize("at", ["x", [("memory_bandwidth_bytes_per_s", 1e11)], 5, {"batch_size"}])
def test_a_point_that_is_no_mapping_is_refused(at):
    f = opened()
    for ask in (
        lambda: f.solve_for("batch_size", 0.1, at=at),
        lambda: f.crossover("compute_s", "memory_bound_s", symbol="batch_size", at=at),
        lambda: f.active(at),
        lambda: f.elasticities(at),
    ):
        with pytest.raises(ArgumentError, match="values by names of symbols") as caught:
            ask()
        assert (caught.value.argument, caught.value.given) == ("at", at)


def test_arrays_that_do_not_broadcast_are_refused_by_their_shapes():
    f = opened()
    for function in (f, f.lambdify()):
        with pytest.raises(ArgumentError, match="broadcast") as caught:
            function(np.array([1, 2.0]), np.array([1e10, 2e10, 3e10]))
        assert "'batch_size': (2,), 'memory_bandwidth_bytes_per_s': (3,)" in str(caught.value)
        assert function(np.array([[1], [2.0]]), np.array([1e10, 2e10, 3e10])).shape == (2, 3)


def test_a_formula_of_nothing_is_refused():
    with pytest.raises(ArgumentError, match=r"graph must.*LayerGraph \(see pm.zoo\) or a Run.*\(got None"):
        pm.formula(free="batch_size", **HOW)
    with pytest.raises(ArgumentError, match="at least one symbol"):
        pm.formula(graph=pm.zoo.mnist_classifier(), **HOW)
