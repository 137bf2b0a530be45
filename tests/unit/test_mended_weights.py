"""Stored and pruned weights beside narrow products, dense storage, penalties, remarks and optimizers' options."""

import pytest

import perfmodel as pm

GPT = pm.zoo.gpt(layers=2, width=4096, heads=32, sequence_length=128)


def predicted(graph=GPT, **arguments):
    asked = {"batch_size": 64, "device": "h100_sxm", "framework": "generic", "phase": "forward"}
    return pm.predict(graph, **asked | arguments)


@pytest.mark.parametrize("dtype", ["int8", "fp8"])
def test_stored_weights_are_no_slower_beside_narrow_products(dtype):
    plain, stored = predicted(dtype=dtype), predicted(dtype=dtype, weight_dtype="int8")
    assert 0.9 * plain.step_s < stored.step_s < plain.step_s  # their casts and scales are spared, no products
    assert stored.step_s < 0.9 * predicted(dtype="bf16", weight_dtype="int8").step_s
    assert stored.memory.weights_bytes < 0.7 * plain.memory.weights_bytes


def test_weights_of_the_operands_type_are_operands_as_they_lie():
    few = {"batch_size": 1, "dtype": "int8"}
    plain, eight, four = (predicted(**few, weight_dtype=dtype).step_s for dtype in (None, "int8", "int4"))
    assert eight < four < plain  # int4 is cast, int8 is not


def test_pruned_weights_are_no_slower_in_fp8():
    dense, sparse = predicted(dtype="fp8"), predicted(GPT.pruned(0.5, pattern="2:4"), dtype="fp8")
    eight = predicted(GPT.pruned(0.5, pattern="2:4"), dtype="int8")
    assert eight.compute_s < 0.85 * dense.compute_s  # sparse tensor cores
    assert sparse.compute_s == dense.compute_s  # no shipped file says that sparse tensor cores take eight bits
    assert 0.9 * dense.step_s < sparse.step_s < dense.step_s  # casts read fewer bytes
    assert predicted(GPT.pruned(0.1), dtype="fp8").step_s < dense.step_s


@pytest.mark.parametrize("network", [pm.zoo.vgg16(), GPT])
@pytest.mark.parametrize("density", [0.5, 0.7])
def test_weights_stored_dense_take_the_time_of_dense_ones(network, density):
    for framework in ("generic", "pytorch_1_0"):
        asked = {"framework": framework, "device": "v100_sxm2", "dtype": "fp32", "batch_size": 4}
        dense, pruned = (predicted(graph, **asked) for graph in (network, network.pruned(density)))
        assert pruned.step_s == dense.step_s
        assert predicted(network.pruned(0.1), **asked).step_s != dense.step_s
    eight = {"dtype": "bf16", "weight_dtype": "int8", "framework": "generic"}
    assert predicted(network.pruned(density), **eight).step_s == predicted(network, **eight).step_s
