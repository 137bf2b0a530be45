"""What an update reads, writes and computes, per parameter."""

import pytest

from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.layers.optimizers import Adam, Momentum, Sgd, load_optimizer
from perfmodel.records import Role, Work

COUNTS = {"conv": 90, "relu": 0, "fc": 10}


def work(optimizer):
    operations = optimizer.operations(COUNTS, batch_size=8)
    assert all(operation.role is Role.UPDATE for operation in operations)
    return sum((operation.work(element_bytes=4) for operation in operations), Work())


@pytest.mark.parametrize(
    ("name", "flop", "reads", "writes", "state"),
    [
        ("none", 0, 0, 0, 0),
        ("sgd", 2, 2, 1, 0),  # w -= rate g; reads w, g
        ("momentum", 4, 3, 2, 1),  # v = mu v + g, w -= rate v; reads w, g, v
        ("nesterov", 6, 3, 2, 1),  # v = mu v + g, w -= rate (g + mu v)
        ("adam", 12, 4, 3, 2),  # m: 3, v: 4, w: sqrt, add, divide, multiply, subtract
        ("adamw", 13, 4, 3, 2),  # and w *= 1 - rate decay, which it has by default
        ("nadam", 14, 4, 3, 2),  # m: 3, v: 4, sqrt, add, a g, b m, their sum, divide, subtract
        ("adamax", 10, 4, 3, 2),  # m: 3, u = max(b u, |g| + eps): 4, m / u, multiply, subtract
        ("adagrad", 7, 3, 2, 1),  # s += g g: 2, sqrt, add, divide, multiply, subtract
        ("adadelta", 16, 4, 3, 2),  # s: 4, x: 6, d: 4, w: 2
        ("rmsprop", 9, 3, 2, 1),  # s: 4, w: 5
        ("lamb", 16, 6, 4, 2),  # m: 3, v: 4, u: 3, squares summed: 4, w: 2; u goes through memory
    ],
)
def test_updates(name, flop, reads, writes, state):
    optimizer = load_optimizer(name)
    assert work(optimizer) == Work(100 * flop, 4 * 100 * reads, 4 * 100 * writes)
    assert optimizer.state_elements_per_parameter == state


def test_momentum_moves_five_values_per_parameter():
    # Krizhevsky, Sutskever, Hinton 2012, section 5: SGD + momentum on 61.1 M parameters: 5 x 244.4 MB = 1.222 GB
    (operation,) = Momentum().operations({"alexnet": 61_100_840}, batch_size=1)
    assert operation.work(element_bytes=4).moved_bytes == 5 * 4 * 61_100_840


def test_weight_decay_costs_arithmetic_but_no_traffic():
    plain, decayed = work(Sgd()), work(Sgd(weight_decay=1e-4))
    assert decayed == Work(plain.flop_count + 200, plain.read_bytes, plain.written_bytes)


@pytest.mark.parametrize("clipping", ["per_batch", "per_sample"])
def test_clipping_adds_a_norm_and_a_scale(clipping):
    extra = Work(
        100 * (2 + 1),  # square and add; multiply
        4 * (100 + 100),  # gradients twice
        4 * (2 + 100),  # a sum for each of two layers; gradients
    )
    assert work(Sgd(clipping=clipping)) == work(Sgd()) + extra


def test_order_of_clipping():
    def order(clipping):
        pairs = Sgd(clipping=clipping).layer_operations({"a": 1, "b": 1}, batch_size=1)
        return [f"{layer} {operation.name}" for layer, operation in pairs]

    norms, scales = ["a gradient_norm", "b gradient_norm"], ["a gradient_scale", "b gradient_scale"]
    assert order("per_batch") == [*norms, *scales, "a sgd", "b sgd"]  # the norm of all comes first
    assert order("per_sample")[:3] == ["a gradient_norm", "a gradient_scale", "a sgd"]


def test_loading():
    made = load_optimizer("momentum", momentum=0.8, weight_decay=1e-4, clipping="per_batch")
    assert made == Momentum(momentum=0.8, weight_decay=1e-4, clipping="per_batch")
    assert load_optimizer(made) is made
    with pytest.raises(UnknownNameError, match="Did you mean 'nesterov'"):
        load_optimizer("nestrov")
    with pytest.raises(UnknownNameError, match="Did you mean 'weight_decay'"):
        load_optimizer("sgd", weight_decy=0.1)
    with pytest.raises(ArgumentError, match=r"momentum must.*\(got 1\.5"):
        load_optimizer("momentum", momentum=1.5)
    with pytest.raises(ArgumentError, match="per_batch"):
        Sgd(clipping="per_bach")
    with pytest.raises(ArgumentError, match="nothing is updated"):
        load_optimizer("none", clipping="per_batch")
    with pytest.raises(ArgumentError, match="beta_1"):
        load_optimizer(Adam(), beta_1=0.5)
