"""numpy on the host's CPU: products through its BLAS and passes over arrays, on any machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from perfmodel import layers
from perfmodel.calibration import facts, families
from perfmodel.calibration.backends.base import Backend, Clock, HostClock, PeakRun
from perfmodel.calibration.benchmark import SEED, Benchmark, Prepared, Run, Sizes
from perfmodel.calibration.facts import page_fault_s
from perfmodel.calibration.families import ELEMENTS, ROWS, SEQUENCES, TWO_OF_ELEMENTS, TWO_ROWS, Family
from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError
from perfmodel.layers import Layer
from perfmodel.records import Operation, Role
from perfmodel.units import MIB

POOL: Final = 1 << 21
"""Random numbers that are drawn; larger arrays repeat them [1]."""

CLASSES: Final = families.family("numpy_classes")


BLOCK: Final = 1 << 22
"""Numbers written in one call; Ctrl-C is handled between calls [1]."""


def _touched(count: int) -> Any:
    """Return an array whose pages exist."""
    large = np.empty(count, dtype=np.float32)
    for start in range(0, count, BLOCK):
        large[start : start + BLOCK] = 1
    return large


class NumpyTools:
    """Makes operands in a data type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self._pool = np.random.default_rng(SEED).standard_normal(POOL).astype(np.float32).astype(dtype)
        self.restart()

    def restart(self) -> None:
        """Reset the generator, so that the same operands are drawn again."""
        self._generator = np.random.default_rng(SEED)
        self._shift = 0

    def normal(self, *shape: int) -> Any:
        """Return an array of random normal numbers [1] in its own memory."""
        self._shift = (self._shift + 9973) % (POOL // 2)
        return np.resize(self._pool[self._shift :], shape)

    def integers(self, high: int, *shape: int) -> Any:
        """Return an array of random whole numbers below ``high`` [1]."""
        return self._generator.integers(high, size=shape)


def _dense(tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
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


def _batched(tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
    return Prepared(partial(np.matmul, *families.batched_operands(tools, sizes, operation)))


def _pass(
    name: str,
    family: Family,
    layer: Layer | Callable[[Sizes], Layer],
    run: Callable[..., Any],
    *,
    arrays: int = 1,
    random: bool = False,
) -> Benchmark:
    """Return the benchmark of a pass over some arrays of one shape."""

    def prepare(tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
        return Prepared(partial(run, *(tools.normal(*family.tensor(sizes)) for _ in range(arrays))), random=random)

    return families.pass_benchmark(name, family, layer, prepare)


def _softmax(x: Any) -> Any:
    raised = np.exp(x - x.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def _log_softmax(x: Any) -> Any:
    off = x - x.max(axis=-1, keepdims=True)
    return off - np.log(np.exp(off).sum(axis=-1, keepdims=True))


def _softmax_gradient(g: Any, y: Any) -> Any:
    return y * (g - (g * y).sum(axis=-1, keepdims=True))


def _cross_entropy(tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
    scores = tools.normal(*CLASSES.tensor(sizes))
    labels, rows = tools.integers(sizes["features"], sizes["rows"]), np.arange(sizes["rows"])
    if operation.role is Role.OUTPUT:
        return Prepared(lambda: -_log_softmax(scores)[rows, labels].mean())
    probabilities = _softmax(scores)

    def gradient() -> Any:
        made = probabilities.copy()
        made[rows, labels] -= 1
        return made / len(rows)

    return Prepared(gradient)


def _layer_norm(x: Any) -> Any:
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def _dropout(x: Any) -> Any:
    return x * (np.random.default_rng(SEED).random(x.shape, dtype=x.dtype) > 0.3)  # a usual rate


def _gather(tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
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


def _update(name: str, tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
    tensors = [tools.normal(sizes["elements"]) for _ in range(3)]
    return Prepared(partial(UPDATES[name], *tensors, np.square(tools.normal(sizes["elements"]))))


def _passes() -> Iterator[Benchmark]:
    yield _pass("relu", ELEMENTS, layers.ReLU(), lambda x: np.maximum(x, 0))
    yield _pass("relu_backward", ELEMENTS, layers.ReLU(), lambda g, y: g * (y > 0), arrays=2)
    yield _pass("sigmoid", ELEMENTS, layers.Sigmoid(), lambda x: 1 / (1 + np.exp(-x)))
    yield _pass("sigmoid_backward", ELEMENTS, layers.Sigmoid(), lambda g, y: g * y * (1 - y), arrays=2)
    yield _pass("tanh", ELEMENTS, layers.Tanh(), np.tanh)
    yield _pass("tanh_backward", ELEMENTS, layers.Tanh(), lambda g, y: g * (1 - y * y), arrays=2)
    yield _pass("exp", ELEMENTS, layers.Unary(function="exp"), np.exp)
    yield _pass("add", TWO_OF_ELEMENTS, layers.Add(), np.add, arrays=2)
    yield _pass("subtract", TWO_OF_ELEMENTS, layers.Binary(function="subtract"), np.subtract, arrays=2)
    yield _pass("multiply", TWO_OF_ELEMENTS, layers.Binary(function="multiply"), np.multiply, arrays=2)
    yield _pass("divide", TWO_OF_ELEMENTS, layers.Binary(function="divide"), np.divide, arrays=2)
    yield _pass("copy", ELEMENTS, layers.Copy(), np.copy)
    yield _pass("dropout", ELEMENTS, layers.Dropout(rate=0.3), _dropout, random=True)
    yield _pass("dropout_backward", ELEMENTS, layers.Dropout(rate=0.3), np.multiply, arrays=2)
    yield _pass("softmax", ROWS, layers.Softmax(), _softmax)
    yield _pass("softmax_backward", ROWS, layers.Softmax(), _softmax_gradient, arrays=2)
    yield _pass("log_softmax", ROWS, layers.LogSoftmax(), _log_softmax)
    yield _pass("layer_norm", SEQUENCES, layers.LayerNorm(), _layer_norm)
    yield _pass("mean_squared_error", TWO_ROWS, layers.MeanSquaredError(), lambda x, y: np.mean((x - y) ** 2), arrays=2)
    yield _pass(
        "rearrange",
        SEQUENCES,
        layers.Transpose(axes=(1, 0), copies=True),
        lambda x: np.ascontiguousarray(x.swapaxes(1, 2)),
    )
    for name, reduce in (("sum", np.sum), ("mean", np.mean), ("argmax", np.argmax)):
        layer = layers.Reduction(function=name, axes=(-1,))
        yield _pass(name, SEQUENCES, layer, partial(reduce, axis=-1))
    yield _pass(
        "bias_gradient_backward",
        ROWS,
        lambda sizes: layers.Dense(units=sizes["features"]),
        lambda g: g.sum(axis=0),
    )


def numpy_benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of numpy."""
    yield from families.role_benchmarks(
        families.by_role("gemm"), families.CONTRACTION_AXES, families.contraction, _dense, point_count=28, weight=4
    )
    batched = families.by_role("batched_gemm", (Role.OUTPUT, Role.INPUT_GRADIENT))
    yield from families.role_benchmarks(batched, families.BATCHED_AXES, families.batched_contraction, _batched)
    yield from _passes()
    for name in ("cross_entropy", "cross_entropy_backward"):
        yield families.pass_benchmark(name, CLASSES, layers.CrossEntropy(), _cross_entropy)
    yield from families.role_benchmarks(families.GATHERS, families.GATHER_AXES, families.gather, _gather)
    yield from families.update_benchmarks(UPDATES, _update)


NUMPY_DTYPE: Final = {"fp32": np.float32, "fp64": np.float64}

BENCHMARKS: Final = (numpy_benchmarks,)


def blas_threads() -> int:
    """Return the threads of the BLAS: from its environment, else all physical cores [1]."""
    thread_count = next((os.environ[name] for name in facts.THREADS if os.environ.get(name, "").isdigit()), None)
    return min(int(thread_count), facts.physical_cores()) if thread_count else facts.physical_cores()


def _blas() -> str:
    config: Any = np.show_config(mode="dicts")
    blas = (config or {}).get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


class NumpyBackend(Backend):
    """numpy."""

    name: ClassVar[str] = "numpy"

    def __init__(self, target: str) -> None:
        if target != "cpu":
            raise ArgumentError(argument="target", given=target, allowed="cpu for backend='numpy'")
        self._tools = {dtype: NumpyTools(kind) for dtype, kind in NUMPY_DTYPE.items()}

    @derived_property
    def clock(self) -> Clock:
        """The host's monotonic clock."""
        return HostClock()

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Single and double precision."""
        return ("fp32", "fp64")

    @property
    def default_dtypes(self) -> tuple[str, ...]:
        """Both, because double is numpy's default."""
        return self.dtypes

    def facts(self) -> dict[str, Any]:
        """Return the table ``machine``."""
        return facts.cpu_facts(blas_threads())

    def software(self) -> dict[str, str]:
        """Return the versions of numpy and its BLAS."""
        return facts.host_software() | {"blas": _blas()}

    def clock_mhz(self) -> float | None:
        """Return the clock of the processor now."""
        return facts.clock_mhz()

    def benchmarks(self, dtype: str) -> Mapping[str, Benchmark]:
        """Return all benchmarks of numpy, the same in every data type."""
        return {benchmark.name: benchmark for kind in BENCHMARKS for benchmark in kind()}

    def tools(self, dtype: str, *, small: bool = False) -> NumpyTools:
        """Return the maker of operands in a data type."""
        return self._tools[dtype]

    def array(self, result: Any) -> Any:
        """Return a result in double precision."""
        return np.asarray(result, dtype=np.float64)

    def settings(self, dtype: str) -> AbstractContextManager[None]:
        """Return a block that changes nothing."""
        return nullcontext()

    @derived_property
    def _large(self) -> Any:
        return _touched(int(1.25 * self.facts()["cache_mib"] * MIB / 4))

    def copy_run(self, moved_bytes: float) -> Run:
        """Return the copy of one array to another."""
        source = self._tools["fp32"].normal(int(moved_bytes / 8))
        target = np.empty_like(source)
        return lambda: np.copyto(target, source)

    def reference(self) -> Run:
        """Return a product and a pass of moderate size."""
        left, right = (self._tools["fp32"].normal(400, 400) for _ in range(2))
        return lambda: np.maximum(left @ right, 0)

    def peak_runs(self, dtype: str) -> tuple[PeakRun, PeakRun]:
        """Return a square product, and a copy of an array larger than the last cache."""
        edge = 1280
        left, right = (self._tools[dtype].normal(edge, edge) for _ in range(2))
        target = _touched(self._large.size)
        product = PeakRun(lambda: left @ right, 2.0 * edge**3)
        return product, PeakRun(lambda: np.copyto(target, self._large), 2.0 * 4 * target.size)

    def overheads(self) -> dict[str, float]:
        """Return the time of fresh pages only: a numpy script has no other overheads [s]."""
        return {"page_fault_s": page_fault_s()}
