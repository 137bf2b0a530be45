"""Kernels of torch: functions of the passes that ``shapes.toml`` names, and kernels with operands of several shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from perfmodel import layers
from perfmodel.calibration import families
from perfmodel.calibration.benchmark import Prepared, Sizes
from perfmodel.calibration.families import ELEMENTS, MAPS, ROWS, SEQUENCES
from perfmodel.records import Convolution, Operation, Recurrence, Role

if TYPE_CHECKING:
    from perfmodel.calibration.backends.torch_passes import TorchTools
    from perfmodel.layers import Layer

EPSILON = 1e-5
"""Term that norms add to a variance [1]."""

CLASSES = families.family("torch_classes")


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


def batch_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a batch norm, or its gradients."""
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


def frozen_batch_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a batch norm with given statistics."""
    channels = sizes["channels"]
    vectors = [tools.normal(channels) for _ in range(2)]
    mean, variance = tools.full(0.1, channels), tools.full(1.1, channels)
    norm = tools.torch.nn.functional.batch_norm
    return Prepared(partial(norm, tools.normal(*MAPS.tensor(sizes)), mean, variance, *vectors, False))


def layer_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a layer norm, or one part of its gradients."""
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


def rms_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare an RMS norm, or one part of its gradients."""
    backward = operation.role is not Role.OUTPUT
    x = tools.normal(*SEQUENCES.tensor(sizes), grad=operation.role is Role.INPUT_GRADIENT)
    scale = tools.normal(sizes["features"], grad=operation.role is Role.WEIGHT_GRADIENT)
    norm = partial(tools.torch.nn.functional.rms_norm, normalized_shape=[sizes["features"]])
    if not backward:
        return Prepared(partial(norm, x, weight=scale))
    if operation.role is Role.INPUT_GRADIENT:
        return by_autograd(tools, lambda rows: norm(rows, weight=scale), x)
    return by_autograd(tools, lambda weight: norm(x, weight=weight), scale)


def group_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a group norm, or one part of its gradients."""
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


def group_shapes(sizes: Sizes) -> tuple[layers.Shape, ...]:
    """Return the shape of a sample whose channels fill all groups."""
    channels = sizes["channels"] // sizes["groups"] * sizes["groups"]
    return ((channels, sizes["height"], sizes["width"]),)


def local_response_norm(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a local response norm, or its gradient."""
    norm = partial(tools.torch.nn.functional.local_response_norm, size=5)
    return _with_autograd(tools, operation, norm, MAPS.tensor(sizes))


def cross_entropy(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the loss of log-probabilities, or of logits, which are first turned into log-probabilities."""
    functional = tools.torch.nn.functional
    loss = functional.nll_loss if sizes["over"] else functional.cross_entropy
    labels = tools.integers(sizes["features"], sizes["rows"])
    return _with_autograd(tools, operation, partial(loss, target=labels), CLASSES.tensor(sizes))


def binary_cross_entropy(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the loss of logits of two classes, or its gradient."""
    target = tools.normal(*ROWS.tensor(sizes)).sigmoid()
    loss = partial(tools.torch.nn.functional.binary_cross_entropy_with_logits, target=target)
    return _with_autograd(tools, operation, loss, ROWS.tensor(sizes))


def max_pool(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a pool of maxima, or its gradient."""
    window, stride, aten = sizes["window"], sizes["stride"], tools.torch.ops.aten
    x = tools.normal(*MAPS.tensor(sizes))
    geometry = ([window, window], [stride, stride], [0, 0], [1, 1], False)
    if operation.role is Role.OUTPUT:
        return Prepared(partial(aten.max_pool2d_with_indices, x, *geometry))
    largest, places = aten.max_pool2d_with_indices(x, *geometry)
    gradient = tools.normal(*largest.shape)
    return Prepared(partial(aten.max_pool2d_with_indices_backward, gradient, x, *geometry, places))


def average_pool(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a pool of means, or its gradient; window 0 is the whole map."""
    functional, window = tools.torch.nn.functional, sizes["window"]
    pool = (
        partial(functional.avg_pool2d, kernel_size=window, stride=sizes["stride"])
        if window
        else partial(functional.adaptive_avg_pool2d, output_size=1)
    )
    return _with_autograd(tools, operation, pool, MAPS.tensor(sizes))


def average_layer(sizes: Sizes) -> Layer:
    """Return the layer of a pool of means."""
    if not sizes["window"]:
        return layers.AveragePool2d(kernel_size=None)
    return layers.AveragePool2d(kernel_size=sizes["window"], stride=sizes["stride"])


def bias_gradient(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the gradient of a bias that is added to maps, or to rows of features."""
    if sizes["maps"]:
        return Prepared(partial(tools.torch.sum, tools.normal(*MAPS.tensor(sizes)), (0, 2, 3)))
    rows = tools.normal(sizes["batch"] * sizes["height"] * sizes["width"], sizes["channels"])
    return Prepared(partial(tools.torch.sum, rows, 0))


def broadcast_sum(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the gradient of a vector that was added to every step of a sequence."""
    return Prepared(partial(tools.torch.sum, tools.normal(*SEQUENCES.tensor(sizes)), 1))


def slice_gradient(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the gradient of one step that was cut out of a sequence."""
    batch, steps, features = SEQUENCES.tensor(sizes)
    gradient = tools.normal(batch, 1, features)
    return Prepared(partial(tools.torch.ops.aten.slice_backward, gradient, [batch, steps, features], 1, 2, 3, 1))


def power_gradient(torch: Any, g: Any, x: Any) -> Any:
    """Gradient of the third power."""
    return g * (3.0 * torch.pow(x, 2.0))


def coin_flips(torch: Any, x: Any) -> Any:
    """Draw zeros and ones."""
    return torch.empty_like(x).bernoulli_(0.5)


def concatenated(torch: Any, *maps: Any) -> Any:
    """Join maps along their channels."""
    return torch.cat(maps, 1)


def parts_of_maps(torch: Any, g: Any) -> Any:
    """Split a gradient into those of three maps without a copy, as autograd does."""
    return g.chunk(3, 1)


def channels_last(torch: Any, x: Any) -> Any:
    """Copy maps with their channels last."""
    return x.permute(0, 2, 3, 1).contiguous()


def channels_first(torch: Any, x: Any) -> Any:
    """Copy maps with their channels first."""
    return x.permute(0, 3, 1, 2).contiguous()


def upsampled(torch: Any, x: Any) -> Any:
    """Repeat every value of maps along both axes."""
    return torch.nn.functional.interpolate(x, scale_factor=2)


def upsample_gradient(torch: Any, g: Any, x: Any, y: Any) -> Any:
    """Gradient of maps that were made larger by repeating values."""
    return torch.ops.aten.upsample_nearest2d_backward(g, list(y.shape[2:]), list(x.shape))


def softmax_gradient(torch: Any, g: Any, y: Any) -> Any:
    """Gradient of a softmax from its result."""
    return torch.ops.aten._softmax_backward_data(g, y, -1, y.dtype)


def log_softmax_gradient(torch: Any, g: Any, y: Any) -> Any:
    """Gradient of the logarithm of a softmax from its result."""
    return torch.ops.aten._log_softmax_backward_data(g, y, -1, y.dtype)


def with_positions(torch: Any, x: Any) -> Any:
    """Add a vector for each position to all samples."""
    return torch.add(x, x[0])


def dropout_gradient(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the gradient from the dropout mask: kept as Booleans on a GPU, as numbers on a CPU."""
    gradient, kept = (tools.normal(*ELEMENTS.tensor(sizes)) for _ in range(2))
    if tools.on_gpu:
        return Prepared(partial(tools.torch.ops.aten.native_dropout_backward, gradient, kept > 0, 1.4))
    return Prepared(partial(tools.torch.mul, gradient, kept))


def recurrent(cell: str, tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
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


def attention(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare fused attention, or its gradients."""
    shape = (sizes["batch"], sizes["heads"], sizes["queries"], sizes["head_size"])
    drops = bool(sizes["drops"])
    attend = partial(
        tools.torch.nn.functional.scaled_dot_product_attention,
        dropout_p=0.1 if drops else 0.0,
        is_causal=bool(sizes["causal"]),
    )
    return replace(_with_autograd(tools, operation, attend, shape, shape, shape), random=drops)


def gather(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a look-up of rows, or the sum of their gradients."""
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


def update(name: str, tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
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


def dense(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the products of ``F.linear`` and its autograd; weights are kept by outputs."""
    rows, inputs, outputs = sizes["rows"], sizes["inputs"], sizes["outputs"]
    if operation.role is Role.OUTPUT:
        linear = tools.torch.nn.functional.linear
        return Prepared(
            partial(linear, tools.normal(rows, inputs), tools.normal(outputs, inputs), tools.normal(outputs))
        )
    gradient = tools.normal(rows, outputs)
    if operation.role is Role.INPUT_GRADIENT:
        return Prepared(partial(tools.torch.mm, gradient, tools.normal(outputs, inputs)))
    return Prepared(partial(tools.torch.mm, gradient.t(), tools.normal(rows, inputs)))


def batched(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare several products at once."""
    return Prepared(partial(tools.torch.bmm, *families.batched_operands(tools, sizes, operation)))


def convolution(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a convolution, or one of its gradients by the output mask of ``convolution_backward``."""
    assert isinstance(operation, Convolution)
    op, torch = operation, tools.torch
    along = len(op.kernel_size)
    maps = tools.normal(op.batch_size, op.in_channels, *op.input_size)
    filters = tools.normal(op.out_channels, op.in_channels // op.groups, *op.kernel_size)
    padding = [first for first, _ in op.padding]
    stride, dilation = list(op.stride), list(op.dilation)
    if op.role is Role.OUTPUT:
        convolve = getattr(torch.nn.functional, f"conv{along}d")
        return Prepared(partial(convolve, maps, filters, None, stride, padding, dilation, op.groups))
    wanted = [op.role is Role.INPUT_GRADIENT, op.role is Role.WEIGHT_GRADIENT, False]
    gradient = tools.normal(op.batch_size, op.out_channels, *op.output_size)
    geometry = (stride, padding, dilation, False, [0] * along, op.groups, wanted)
    return Prepared(partial(torch.ops.aten.convolution_backward, gradient, maps, filters, None, *geometry))
