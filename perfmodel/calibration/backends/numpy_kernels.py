"""Kernels of numpy: functions of the passes that ``shapes.toml`` names, and kernels with operands of several shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.calibration import families
from perfmodel.calibration.benchmark import SEED, Prepared, Sizes
from perfmodel.records import Operation, Role

if TYPE_CHECKING:
    from perfmodel.calibration.backends.numpy_backend import NumpyTools

CLASSES: Final = families.family("numpy_classes")


def dense(tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare x W + b, g W^T or x^T g; weights are kept by inputs, as scripts write them."""
    rows, inputs, outputs = sizes["rows"], sizes["inputs"], sizes["outputs"]
    if operation.role is Role.OUTPUT:
        x, weights, bias = tools.normal(rows, inputs), tools.normal(inputs, outputs), tools.normal(outputs)
        return Prepared(lambda: x @ weights + bias)
    gradient = tools.normal(rows, outputs)
    if operation.role is Role.INPUT_GRADIENT:
        weights = tools.normal(inputs, outputs)
        return Prepared(lambda: gradient @ weights.T)
    x = tools.normal(rows, inputs)
    return Prepared(lambda: x.T @ gradient)


def batched(tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare several products at once."""
    return Prepared(partial(np.matmul, *families.batched_operands(tools, sizes, operation)))


def relu_gradient(g: Any, y: Any) -> Any:
    """Gradient of a ReLU from its result."""
    return g * (y > 0)


def sigmoid(x: Any) -> Any:
    """Logistic function."""
    return 1 / (1 + np.exp(-x))


def sigmoid_gradient(g: Any, y: Any) -> Any:
    """Gradient of a logistic function from its result."""
    return g * y * (1 - y)


def tanh_gradient(g: Any, y: Any) -> Any:
    """Gradient of a hyperbolic tangent from its result."""
    return g * (1 - y * y)


def mean_squared_error(x: Any, z: Any) -> Any:
    """Mean of the squared differences."""
    return np.mean((x - z) ** 2)


def rearranged(x: Any) -> Any:
    """Copy with the last two axes exchanged."""
    return np.ascontiguousarray(x.swapaxes(1, 2))


def softmax(x: Any) -> Any:
    """Softmax over the last axis."""
    raised = np.exp(x - x.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def log_softmax(x: Any) -> Any:
    """Logarithm of a softmax over the last axis."""
    off = x - x.max(axis=-1, keepdims=True)
    return off - np.log(np.exp(off).sum(axis=-1, keepdims=True))


def softmax_gradient(g: Any, y: Any) -> Any:
    """Gradient of a softmax from its result."""
    return y * (g - (g * y).sum(axis=-1, keepdims=True))


def cross_entropy(tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the loss of logits, or its gradient."""
    scores = tools.normal(*CLASSES.tensor(sizes))
    labels, rows = tools.integers(sizes["features"], sizes["rows"]), np.arange(sizes["rows"])
    if operation.role is Role.OUTPUT:
        return Prepared(lambda: -log_softmax(scores)[rows, labels].mean())
    probabilities = softmax(scores)

    def gradient() -> Any:
        made = probabilities.copy()
        made[rows, labels] -= 1
        return made / len(rows)

    return Prepared(gradient)


def layer_norm(x: Any) -> Any:
    """Layer norm over the last axis, without scale and shift."""
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def dropout(x: Any) -> Any:
    """Set a share of the values to zero."""
    return x * (np.random.default_rng(SEED).random(x.shape, dtype=x.dtype) > 0.3)  # a usual rate


def gather(tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a look-up of rows, or the sum of their gradients."""
    rows = tools.integers(sizes["table_rows"], sizes["rows"])
    table = tools.normal(sizes["table_rows"], sizes["features"])
    if operation.role is Role.OUTPUT:
        return Prepared(lambda: table[rows])
    gradient = tools.normal(sizes["rows"], sizes["features"])

    def scattered() -> Any:
        made = np.zeros_like(table)
        np.add.at(made, rows, gradient)
        return made

    return Prepared(scattered)


def _sgd(weight: Any, gradient: Any, *states: Any) -> Any:
    weight -= 1e-6 * gradient
    return weight


def _momentum(weight: Any, gradient: Any, velocity: Any, *states: Any) -> Any:
    velocity *= 0.9
    velocity += gradient
    weight -= 1e-6 * velocity
    return weight


def _adam(weight: Any, gradient: Any, mean: Any, square: Any) -> Any:
    mean += 0.1 * (gradient - mean)
    square += 0.001 * (gradient * gradient - square)
    weight -= 1e-6 * mean / (np.sqrt(square) + 1e-8)
    return weight


UPDATES: Final[dict[str, Callable[..., Any]]] = {"sgd": _sgd, "momentum": _momentum, "adam": _adam}
"""Pass of an optimizer -> its numpy code in a usual script."""


def update(name: str, tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the update of one tensor."""
    tensors = [tools.normal(sizes["elements"]) for _ in range(3)]
    return Prepared(partial(UPDATES[name], *tensors, np.square(tools.normal(sizes["elements"]))))
