"""Passes of torch whose elements depend on each other: norms, softmax, losses, pools, sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from perfmodel import layers
from perfmodel.calibration import families
from perfmodel.calibration.backends.torch_passes import TorchTools, passes
from perfmodel.calibration.benchmark import Axis, Benchmark, Prepared, Sizes
from perfmodel.calibration.families import MAPS, ROWS, SEQUENCES, pass_benchmark
from perfmodel.layers import Layer
from perfmodel.records import Operation, Recurrence, Role

EPSILON = 1e-5
"""Term that norms add to a variance [1]."""

PARTS = {"part": Axis(values=(0, 1))}
"""Whether the gradient is that of the input, or of scale and shift."""

CLASSES = families.family("torch_classes")
WINDOWS = families.family("maps", {"window": Axis(values=(2, 3, 3)), "stride": Axis(values=(1, 2, 2))})
WHOLE_OR_WINDOWS = families.family("maps", {"window": Axis(values=(0, 2, 3)), "stride": Axis(values=(1, 2))})
"""Maps with a window and stride; window 0 is a pool over the whole map."""

BIASED = families.family("maps", {"maps": Axis(values=(0, 0, 1))})
"""Operand of a bias: maps, or rows of features."""


def by_autograd(tools: TorchTools, forward: Callable[..., Any], *inputs: Any) -> Prepared:
    """Prepare the gradients of all inputs by autograd, for passes that torch has no separate gradient call for."""
    result = forward(*inputs)
    gradient = tools.normal(*result.shape)
    return Prepared(partial(tools.torch.autograd.grad, result, inputs, gradient, retain_graph=True))


def _with_autograd(
    tools: TorchTools, operation: Operation, run: Callable[..., Any], *shapes: Sequence[int]
) -> Prepared:
    """Prepare a pass over inputs of some shapes or, by autograd, the gradients of all of them."""
    backward = operation.role is not Role.OUTPUT
    inputs = [tools.normal(*shape, grad=backward) for shape in shapes]
    return by_autograd(tools, run, *inputs) if backward else Prepared(partial(run, *inputs))


def _batch_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    channels = sizes["channels"]
    backward = operation.role is not Role.OUTPUT
    x = tools.normal(*MAPS.tensor(sizes), grad=backward and tools.on_gpu)
    scale, shift = (tools.normal(channels, grad=backward and tools.on_gpu) for _ in range(2))
    mean, variance = tools.full(0.0, channels), tools.full(1.0, channels)
    norm = tools.torch.nn.functional.batch_norm
    if not backward:
        return Prepared(partial(norm, x, mean, variance, scale, shift, True, 0.1, EPSILON))
    if tools.on_gpu:  # only autograd chooses the library's own kernels
        return by_autograd(tools, lambda rows, *affine: norm(rows, mean, variance, *affine, True), x, scale, shift)
    aten = tools.torch.ops.aten
    _, saved_mean, saved_deviation = aten.native_batch_norm(x, scale, shift, mean, variance, True, 0.1, EPSILON)
    arguments = (tools.normal(*x.shape), x, scale, mean, variance, saved_mean, saved_deviation, True, EPSILON)
    return Prepared(partial(aten.native_batch_norm_backward, *arguments, [True, True, True]))


def _frozen_batch_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    channels = sizes["channels"]
    vectors = [tools.normal(channels) for _ in range(2)]
    mean, variance = tools.full(0.1, channels), tools.full(1.1, channels)
    norm = tools.torch.nn.functional.batch_norm
    return Prepared(partial(norm, tools.normal(*MAPS.tensor(sizes)), mean, variance, *vectors, False))


def _layer_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    features = [sizes["features"]]
    x = tools.normal(*SEQUENCES.tensor(sizes))
    scale, shift = tools.normal(*features), tools.normal(*features)
    if operation.role is Role.OUTPUT:
        return Prepared(partial(tools.torch.nn.functional.layer_norm, x, features, scale, shift))
    aten = tools.torch.ops.aten
    _, mean, deviation = aten.native_layer_norm(x, features, scale, shift, EPSILON)
    to_input = operation.role is Role.INPUT_GRADIENT
    wanted = [to_input, not to_input, not to_input]
    gradient = tools.normal(*x.shape)
    return Prepared(
        partial(aten.native_layer_norm_backward, gradient, x, features, mean, deviation, scale, shift, wanted)
    )


def _rms_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    backward = operation.role is not Role.OUTPUT
    x = tools.normal(*SEQUENCES.tensor(sizes), grad=operation.role is Role.INPUT_GRADIENT)
    scale = tools.normal(sizes["features"], grad=operation.role is Role.WEIGHT_GRADIENT)
    norm = partial(tools.torch.nn.functional.rms_norm, normalized_shape=[sizes["features"]])
    if not backward:
        return Prepared(partial(norm, x, weight=scale))
    if operation.role is Role.INPUT_GRADIENT:
        return by_autograd(tools, lambda rows: norm(rows, weight=scale), x)
    return by_autograd(tools, lambda weight: norm(x, weight=weight), scale)


def _group_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    channels, groups = sizes["channels"] // sizes["groups"] * sizes["groups"], sizes["groups"]
    x = tools.normal(sizes["batch"], channels, sizes["height"], sizes["width"])
    scale, shift = tools.normal(channels), tools.normal(channels)
    if operation.role is Role.OUTPUT:
        return Prepared(partial(tools.torch.nn.functional.group_norm, x, groups, scale, shift))
    aten, places = tools.torch.ops.aten, sizes["height"] * sizes["width"]
    _, mean, deviation = aten.native_group_norm(x, scale, shift, sizes["batch"], channels, places, groups, EPSILON)
    to_input = operation.role is Role.INPUT_GRADIENT
    shape = (sizes["batch"], channels, places, groups, [to_input, not to_input, not to_input])
    gradient = tools.normal(*x.shape)
    return Prepared(partial(aten.native_group_norm_backward, gradient, x, mean, deviation, scale, *shape))


def _group_shapes(sizes: Sizes) -> tuple[layers.Shape, ...]:
    channels = sizes["channels"] // sizes["groups"] * sizes["groups"]
    return ((channels, sizes["height"], sizes["width"]),)


def _part_of_gradient(sizes: Sizes) -> Role:
    return Role.WEIGHT_GRADIENT if sizes["part"] else Role.INPUT_GRADIENT


def _local_response_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    norm = partial(tools.torch.nn.functional.local_response_norm, size=5)
    return _with_autograd(tools, operation, norm, MAPS.tensor(sizes))


def _norms() -> Iterator[Benchmark]:
    for suffix, part, parts in (("", None, {}), ("_backward", _part_of_gradient, PARTS)):
        sequences = families.family("sequences", parts)
        grouped = families.family("maps", {"groups": Axis(values=(2, 4, 8)), **parts})
        yield pass_benchmark(f"batch_norm{suffix}", MAPS, layers.BatchNorm(), _batch_norm, weight=2)
        yield pass_benchmark(f"layer_norm{suffix}", sequences, layers.LayerNorm(), _layer_norm, role=part, weight=1.5)
        yield pass_benchmark(f"rms_norm{suffix}", sequences, layers.RMSNorm(), _rms_norm, role=part, weight=0.5)
        yield pass_benchmark(
            f"group_norm{suffix}",
            grouped,
            lambda sizes: layers.GroupNorm(groups=sizes["groups"]),
            _group_norm,
            shapes=_group_shapes,
            role=part,
            weight=0.5,
        )
        yield pass_benchmark(
            f"local_response_norm{suffix}", MAPS, layers.LocalResponseNorm(), _local_response_norm, weight=0.5
        )
    frozen = layers.BatchNorm(statistics="given")
    yield pass_benchmark("frozen_batch_norm", MAPS, frozen, _frozen_batch_norm, weight=1.5)


def _cross_entropy(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the loss of log-probabilities, or of logits, which are first turned into log-probabilities."""
    functional = tools.torch.nn.functional
    loss = functional.nll_loss if sizes["over"] else functional.cross_entropy
    labels = tools.integers(sizes["features"], sizes["rows"])
    return _with_autograd(tools, operation, partial(loss, target=labels), CLASSES.tensor(sizes))


def _binary_cross_entropy(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    target = tools.normal(*ROWS.tensor(sizes)).sigmoid()
    loss = partial(tools.torch.nn.functional.binary_cross_entropy_with_logits, target=target)
    return _with_autograd(tools, operation, loss, ROWS.tensor(sizes))


def _softmaxes() -> Iterator[Benchmark]:
    yield from passes(
        "softmax",
        ROWS,
        layers.Softmax(),
        lambda torch, x: torch.softmax(x, -1),
        lambda torch, g, y, x: torch.ops.aten._softmax_backward_data(g, y, -1, x.dtype),
    )
    yield from passes(
        "log_softmax",
        ROWS,
        layers.LogSoftmax(),
        lambda torch, x: torch.log_softmax(x, -1),
        lambda torch, g, y, x: torch.ops.aten._log_softmax_backward_data(g, y, -1, x.dtype),
    )
    squares = ("nn.functional.mse_loss", "x", "z"), ("ops.aten.mse_loss_backward", "g", "x", "z", 1)
    yield from passes("mean_squared_error", families.TWO_ROWS, layers.MeanSquaredError(), *squares, weight=0.5)
    for suffix in ("", "_backward"):
        yield pass_benchmark(
            f"cross_entropy{suffix}",
            CLASSES,
            lambda sizes: layers.CrossEntropy(over="log_probabilities" if sizes["over"] else "logits"),
            _cross_entropy,
        )
        yield pass_benchmark(
            f"binary_cross_entropy{suffix}",
            families.TWO_ROWS,
            layers.BinaryCrossEntropy(),
            _binary_cross_entropy,
            weight=0.5,
        )


def _max_pool(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    window, stride, aten = sizes["window"], sizes["stride"], tools.torch.ops.aten
    x = tools.normal(*MAPS.tensor(sizes))
    geometry = ([window, window], [stride, stride], [0, 0], [1, 1], False)
    if operation.role is Role.OUTPUT:
        return Prepared(partial(aten.max_pool2d_with_indices, x, *geometry))
    largest, places = aten.max_pool2d_with_indices(x, *geometry)
    gradient = tools.normal(*largest.shape)
    return Prepared(partial(aten.max_pool2d_with_indices_backward, gradient, x, *geometry, places))


def _average_pool(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    functional, window = tools.torch.nn.functional, sizes["window"]
    pool = (
        partial(functional.avg_pool2d, kernel_size=window, stride=sizes["stride"])
        if window
        else partial(functional.adaptive_avg_pool2d, output_size=1)
    )
    return _with_autograd(tools, operation, pool, MAPS.tensor(sizes))


def _average_layer(sizes: Sizes) -> Layer:
    if not sizes["window"]:
        return layers.AveragePool2d(kernel_size=None)
    return layers.AveragePool2d(kernel_size=sizes["window"], stride=sizes["stride"])


def _pools() -> Iterator[Benchmark]:
    for suffix in ("", "_backward"):
        yield pass_benchmark(
            f"max_pool{suffix}",
            WINDOWS,
            lambda sizes: layers.MaxPool2d(kernel_size=sizes["window"], stride=sizes["stride"]),
            _max_pool,
            weight=1.5,
        )
        yield pass_benchmark(f"avg_pool{suffix}", WHOLE_OR_WINDOWS, _average_layer, _average_pool)


def _bias_gradient(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    if sizes["maps"]:
        return Prepared(partial(tools.torch.sum, tools.normal(*MAPS.tensor(sizes)), (0, 2, 3)))
    rows = tools.normal(sizes["batch"] * sizes["height"] * sizes["width"], sizes["channels"])
    return Prepared(partial(tools.torch.sum, rows, 0))


def _biased_layer(sizes: Sizes) -> Layer:
    return layers.Convolution2d(out_channels=sizes["channels"], kernel_size=1)


def _sums() -> Iterator[Benchmark]:
    yield pass_benchmark("bias_gradient_backward", BIASED, _biased_layer, _bias_gradient, weight=1.5)
    yield from passes(
        "positional_embedding",
        SEQUENCES,
        lambda sizes: layers.PositionalEmbedding(positions=sizes["steps"]),
        lambda torch, x: torch.add(x, x[0]),
        lambda torch, g, y, x: torch.sum(g, 0),
        weight=0.5,
    )
    yield pass_benchmark(
        "broadcast_sum_backward",
        SEQUENCES,
        layers.Binary(function="add"),
        lambda tools, sizes, operation: Prepared(partial(tools.torch.sum, tools.normal(*SEQUENCES.tensor(sizes)), 1)),
        shapes=lambda sizes: ((sizes["steps"], sizes["features"]), (1, sizes["features"])),
    )
    for name in ("sum", "mean", "argmax"):
        layer = layers.Reduction(function=name, axes=(-1,))
        yield from passes(name, SEQUENCES, layer, (name, "x", -1), weight=0.5)


def _slices() -> Iterator[Benchmark]:
    def prepare(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
        batch, steps, features = SEQUENCES.tensor(sizes)
        gradient = tools.normal(batch, 1, features)
        return Prepared(partial(tools.torch.ops.aten.slice_backward, gradient, [batch, steps, features], 1, 2, 3, 1))

    yield pass_benchmark(
        "slice_backward", SEQUENCES, lambda sizes: layers.Slice(shape=(1, sizes["features"])), prepare, weight=0.5
    )


def reduction_benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of norms, softmaxes, losses, pools and sums."""
    yield from _norms()
    yield from _softmaxes()
    yield from _pools()
    yield from _sums()
    yield from _slices()


def _recurrent(cell: str, tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a layer over a sequence; one call computes both gradients; its time is split by their FLOP."""
    assert isinstance(operation, Recurrence)
    torch = tools.torch
    module = getattr(torch.nn, cell.upper())(sizes["inputs"], sizes["hidden"], device=tools.device)
    module = module.to(tools.dtype)
    x = tools.normal(sizes["steps"], sizes["batch"], sizes["inputs"], grad=True)
    if operation.role is Role.OUTPUT:
        return Prepared(lambda: module(x)[0])
    backward = (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
    flop = [families.recurrence(cell, sizes, role).product_flop_count for role in backward]
    share = flop[backward.index(operation.role)] / sum(flop)
    weights = list(module.parameters())
    result = module(x)[0]
    gradient = tools.normal(*result.shape)
    run = partial(torch.autograd.grad, result, [x, *weights], gradient, retain_graph=True)
    return Prepared(run, share=share)


def _attention(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    shape = (sizes["batch"], sizes["heads"], sizes["queries"], sizes["head_size"])
    drops = bool(sizes["drops"])
    attend = partial(
        tools.torch.nn.functional.scaled_dot_product_attention,
        dropout_p=0.1 if drops else 0.0,
        is_causal=bool(sizes["causal"]),
    )
    return replace(_with_autograd(tools, operation, attend, shape, shape, shape), random=drops)


def _gather(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    rows = tools.integers(sizes["table_rows"], sizes["rows"])
    if operation.role is Role.OUTPUT:
        table = tools.normal(sizes["table_rows"], sizes["features"])
        return Prepared(partial(tools.torch.nn.functional.embedding, rows, table))
    gradient = tools.normal(sizes["rows"], sizes["features"])
    backward = tools.torch.ops.aten.embedding_dense_backward
    return Prepared(partial(backward, gradient, rows, sizes["table_rows"], -1, False))


def _sgd(torch: Any, weight: Any, gradient: Any, *states: Any) -> Any:
    return weight.add_(gradient, alpha=-1e-6)


def _momentum(torch: Any, weight: Any, gradient: Any, velocity: Any, *states: Any) -> Any:
    velocity.mul_(0.9).add_(gradient)
    return weight.add_(velocity, alpha=-1e-6)


def _nesterov(torch: Any, weight: Any, gradient: Any, velocity: Any, *states: Any) -> Any:
    velocity.mul_(0.9).add_(gradient)
    return weight.add_(gradient.add(velocity, alpha=0.9), alpha=-1e-6)


def _adam(torch: Any, weight: Any, gradient: Any, mean: Any, square: Any) -> Any:
    mean.lerp_(gradient, 0.1)
    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    return weight.addcdiv_(mean, square.sqrt().div(0.9).add_(1e-8), value=-1e-6)


def _norm(torch: Any, weight: Any, gradient: Any, *states: Any) -> Any:
    return torch.linalg.vector_norm(gradient)


def _scaled(torch: Any, weight: Any, gradient: Any, *states: Any) -> Any:
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
"""Tensors that one optimizer step updates together on a GPU, in few launches [1]."""


def _update(name: str, tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare an update: call by call on a CPU; on a GPU a share of a step over several tensors."""
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


def sequence_benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of recurrent layers, attention, embedding tables and optimizers."""
    for cell, weight in (("lstm", 2.0), ("gru", 0.5), ("rnn", 0.5)):
        make = partial(families.recurrence, cell)
        yield from families.role_benchmarks(
            families.by_role(cell), families.RECURRENT_AXES, make, partial(_recurrent, cell), weight=weight
        )
    attentions = {Role.OUTPUT: "attention", Role.INPUT_GRADIENT: "attention_backward"}
    yield from families.role_benchmarks(attentions, families.ATTENTION_AXES, families.attention, _attention, weight=2)
    yield from families.role_benchmarks(families.GATHERS, families.GATHER_AXES, families.gather, _gather)
    yield from families.update_benchmarks(UPDATES, _update)
