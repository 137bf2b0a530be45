"""Recurrent layers, attention, tables of rows and optimizers of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from perfmodel import layers
from perfmodel.calibration.machine.backends.torch_reductions import by_autograd
from perfmodel.calibration.machine.backends.torch_tools import TorchTools
from perfmodel.calibration.machine.benchmark import Benchmark, Prepared, Sizes
from perfmodel.calibration.machine.families import (
    ATTENTION_AXES,
    GATHER_AXES,
    RECURRENT_AXES,
    ROLES,
    UPDATE_AXES,
    attention,
    gather,
    recurrence,
    update,
)
from perfmodel.records import Operation, Recurrence, Role

MODULE_OF = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}
"""Cell -> its module."""


def _pointwise_flop_count(cell: str) -> int:
    kinds: dict[str, Any] = {"lstm": layers.LSTM, "gru": layers.GRU, "rnn": layers.RNN}
    count: int = kinds[cell](hidden_size=8).pointwise_flop_count
    return count


def _recurrent(cell: str, tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a layer over a sequence; both gradients come of one call, and share its time by their arithmetic."""
    assert isinstance(operation, Recurrence)
    torch = tools.torch
    module = getattr(torch.nn, MODULE_OF[cell])(sizes["inputs"], sizes["hidden"], device=tools.device)
    module = module.to(tools.dtype)
    x = tools.normal(sizes["steps"], sizes["batch"], sizes["inputs"], grad=True)
    if operation.role is Role.OUTPUT:
        return Prepared(lambda: module(x)[0])
    backward = (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
    flop = [
        recurrence(cell, sizes, role, pointwise_flop_count=_pointwise_flop_count(cell)).product_flop_count
        for role in backward
    ]
    share = flop[backward.index(operation.role)] / sum(flop)
    weights = list(module.parameters())
    result = module(x)[0]
    gradient = tools.normal(*result.shape)
    run = partial(torch.autograd.grad, result, [x, *weights], gradient, retain_graph=True)
    return Prepared(run, share=share)


def _attention(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    shape = (sizes["batch"], sizes["heads"], sizes["queries"], sizes["head_size"])
    backward = operation.role is not Role.OUTPUT
    drops = bool(sizes["drops"])
    attend = partial(
        tools.torch.nn.functional.scaled_dot_product_attention,
        dropout_p=0.1 if drops else 0.0,
        is_causal=bool(sizes["causal"]),
    )
    operands = [tools.normal(*shape, grad=backward) for _ in range(3)]
    prepared = by_autograd(tools, attend, *operands) if backward else Prepared(partial(attend, *operands))
    return Prepared(prepared.run, random=drops)


def _gather(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    rows = tools.integers(sizes["table_rows"], sizes["rows"])
    if operation.role is Role.OUTPUT:
        table = tools.normal(sizes["table_rows"], sizes["features"])
        return Prepared(partial(tools.torch.nn.functional.embedding, rows, table))
    gradient = tools.normal(sizes["rows"], sizes["features"])
    backward = tools.torch.ops.aten.embedding_dense_backward
    return Prepared(partial(backward, gradient, rows, sizes["table_rows"], -1, False))


def _sgd(torch: Any, weight: Any, gradient: Any, *states: Any) -> Any:
    del torch, states
    return weight.add_(gradient, alpha=-1e-6)


def _momentum(torch: Any, weight: Any, gradient: Any, velocity: Any, *states: Any) -> Any:
    del torch, states
    velocity.mul_(0.9).add_(gradient)
    return weight.add_(velocity, alpha=-1e-6)


def _nesterov(torch: Any, weight: Any, gradient: Any, velocity: Any, *states: Any) -> Any:
    del torch, states
    velocity.mul_(0.9).add_(gradient)
    return weight.add_(gradient.add(velocity, alpha=0.9), alpha=-1e-6)


def _adam(torch: Any, weight: Any, gradient: Any, mean: Any, square: Any) -> Any:
    del torch
    mean.lerp_(gradient, 0.1)
    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    return weight.addcdiv_(mean, square.sqrt().div(0.9).add_(1e-8), value=-1e-6)


def _norm(torch: Any, weight: Any, gradient: Any, *states: Any) -> Any:
    del weight, states
    return torch.linalg.vector_norm(gradient)


def _scaled(torch: Any, weight: Any, gradient: Any, *states: Any) -> Any:
    del torch, weight, states
    return gradient.mul_(1.0)


UPDATES: dict[str, Callable[..., Any]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "nesterov": _nesterov,
    "adam": _adam,
    "gradient_norm": _norm,
    "gradient_scale": _scaled,
}
"""Pass of an optimizer -> the calls by which ``torch.optim`` updates one tensor on a CPU."""

OPTIMIZER_OF: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 1e-6}),
    "momentum": ("SGD", {"lr": 1e-6, "momentum": 0.9}),
    "nesterov": ("SGD", {"lr": 1e-6, "momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {"lr": 1e-6}),
}
"""Pass of an optimizer -> the class of ``torch.optim`` and its options."""

TENSORS_AT_ONCE = 16
"""Tensors that one step of an optimizer updates on a GPU, in few launches for all of them [1]."""


def _update(name: str, tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare an update: call by call on a CPU; on a GPU a share of a step over several tensors."""
    del operation
    elements = sizes["elements"]
    if tools.on_gpu and name in OPTIMIZER_OF:
        weights = [tools.normal(elements, grad=True) for _ in range(TENSORS_AT_ONCE)]
        for weight in weights:
            weight.grad = tools.normal(elements)
        kind, options = OPTIMIZER_OF[name]
        optimizer = getattr(tools.torch.optim, kind)(weights, **options)
        optimizer.step()
        return Prepared(partial(_stepped, optimizer, weights[0]), share=1 / TENSORS_AT_ONCE)
    tensors = [tools.normal(elements) for _ in range(3)]
    return Prepared(partial(UPDATES[name], tools.torch, *tensors, tools.normal(elements).square_()))


def _stepped(optimizer: Any, weight: Any) -> Any:
    optimizer.step()
    return weight


def benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of recurrent layers, attention, tables and optimizers."""
    for cell, weight in (("lstm", 2.0), ("gru", 0.5), ("rnn", 0.5)):
        flop = _pointwise_flop_count(cell)
        for role in ROLES:
            yield Benchmark(
                name=f"{cell}_{role.value}",
                axes=RECURRENT_AXES,
                operation=lambda sizes, cell=cell, role=role, flop=flop: recurrence(  # type: ignore[misc]
                    cell, sizes, role, pointwise_flop_count=flop
                ),
                prepare=partial(_recurrent, cell),
                weight=weight,
            )
    for role, name in ((Role.OUTPUT, "attention"), (Role.INPUT_GRADIENT, "attention_backward")):
        yield Benchmark(
            name=name,
            axes=ATTENTION_AXES,
            operation=lambda sizes, role=role: attention(sizes, role),  # type: ignore[misc]
            prepare=_attention,
            weight=2,
        )
    for role, name in ((Role.OUTPUT, "gather"), (Role.WEIGHT_GRADIENT, "scatter_add")):
        yield Benchmark(
            name=name,
            axes=GATHER_AXES,
            operation=lambda sizes, role=role: gather(sizes, role),  # type: ignore[misc]
            prepare=_gather,
        )
    for name in UPDATES:
        yield Benchmark(name=name, axes=UPDATE_AXES, operation=update(name), prepare=partial(_update, name))
