"""Convolutions of all kinds: counts by hand and by torch's counter, shapes, kernels, and calls of other programs."""

import contextlib
import itertools
import math

import pytest
import sympy
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.framework.convolution import convolution_alternatives
from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    LAYERS,
    Convolution1d,
    Convolution2d,
    Convolution3d,
    ShapeMismatchError,
    SharedShape,
    TransposedConvolution1d,
    TransposedConvolution2d,
    TransposedConvolution3d,
)
from perfmodel.layers.translation import Operand, OperatorCall
from perfmodel.layers.window import Window
from perfmodel.records import Role, Work
from tests.layer_examples import EXAMPLES
from tests.torch_calls import call_of, translated

PLAIN = {1: Convolution1d, 2: Convolution2d, 3: Convolution3d}
TRANSPOSED = {1: TransposedConvolution1d, 2: TransposedConvolution2d, 3: TransposedConvolution3d}
N = 2  # samples


def forward(layer, *shapes):
    return layer.work(shapes, batch_size=N, phase="forward")


def backward(layer, *shapes, role=None):
    operations = layer.backward_operations(shapes, batch_size=N)
    return sum((each.work(element_bytes=4) for each in operations if role in (None, each.role)), Work())


def product_flop(operations, *roles):
    return sum(each.product_flop_count for each in operations if each.role in roles)


# ---- by hand


def test_a_1d_convolution():
    layer, shape = Convolution1d(out_channels=4, kernel_size=3, padding=1), (3, 5)
    weights, x, y = 4 * 3 * 3, N * 3 * 5, N * 4 * 5
    flop_count = 2 * y * 9  # each output sums 3 channels x 3 taps
    assert layer.output_shape((shape,)) == (4, 5)
    assert layer.parameter_count((shape,)) == weights + 4
    assert forward(layer, shape) == Work(flop_count, 4 * (x + weights + 4), 4 * y)
    assert backward(layer, shape, role=Role.INPUT_GRADIENT) == Work(flop_count, 4 * (y + weights), 4 * x)
    assert backward(layer, shape, role=Role.WEIGHT_GRADIENT) == Work(flop_count + y, 4 * (x + y + y), 4 * (weights + 4))


def test_a_3d_convolution():
    layer, shape = Convolution3d(out_channels=4, kernel_size=(1, 3, 2), stride=(1, 2, 1), bias=False), (3, 2, 5, 4)
    # depth 2, height (5 - 3) // 2 + 1 = 2, width 4 - 2 + 1 = 3; each output sums 3 channels x 6 taps
    assert layer.output_shape((shape,)) == (4, 2, 2, 3)
    weights, x, y = 4 * 3 * 6, N * 3 * 40, N * 4 * 12
    assert forward(layer, shape) == Work(2 * y * 18, 4 * (x + weights), 4 * y)


def test_a_depth_wise_convolution_has_one_filter_per_channel():
    layer, shape = Convolution2d(out_channels=6, kernel_size=3, padding=1, groups=6, bias=False), (6, 5, 5)
    assert layer.parameter_shapes((shape,)) == {"weight": (6, 1, 3, 3)}
    y = N * 6 * 25
    assert forward(layer, shape) == Work(2 * y * 9, 4 * (y + 54), 4 * y)


def test_a_transposed_convolution():
    # the generator's layer of DCGAN (arXiv:1511.06434): kernel 4, stride 2, padding 1 doubles a map
    layer, shape = TransposedConvolution2d(out_channels=4, kernel_size=4, stride=2, padding=1), (3, 5, 5)
    assert layer.output_shape((shape,)) == (4, 10, 10)  # (5 - 1) 2 + 4 - 2
    assert layer.parameter_shapes((shape,)) == {"weight": (3, 4, 4, 4), "bias": (4,)}
    weights, x, y = 3 * 4 * 16, N * 3 * 25, N * 4 * 100
    flop_count = 2 * x * 4 * 16  # each input is multiplied with 16 taps of 4 filters
    assert forward(layer, shape) == Work(flop_count, 4 * (x + weights + 4), 4 * y)
    assert backward(layer, shape, role=Role.INPUT_GRADIENT) == Work(flop_count, 4 * (y + weights), 4 * x)
    # the gradient of the filters, and a sum of the output's gradient for the bias
    assert backward(layer, shape, role=Role.WEIGHT_GRADIENT) == Work(flop_count + y, 4 * (x + y + y), 4 * (weights + 4))


def test_a_transposed_convolution_same_multiplies_by_its_stride():
    for kernel_size, stride, size in itertools.product((1, 2, 3, 5), (1, 2, 3), (1, 4, 7)):
        layer = TransposedConvolution1d(out_channels=2, kernel_size=kernel_size, stride=stride, padding="same")
        assert layer.output_shape(((3, size),)) == (2, size * stride)
        # the convolution it mirrors gets back to where it came from
        mirror = Convolution1d(out_channels=3, kernel_size=kernel_size, stride=stride, padding="same")
        assert mirror.output_shape(((2, size * stride),)) == (3, size)


def test_images_before_the_channels_are_further_samples():
    layer = Convolution2d(out_channels=4, kernel_size=3)
    frames, one = ((7, 3, 8, 8),), ((3, 8, 8),)
    assert layer.output_shape(frames) == (7, 4, 6, 6)
    assert layer.work(frames, batch_size=2, phase="step") == layer.work(one, batch_size=14, phase="step")
    assert layer.parameter_count(frames) == layer.parameter_count(one)


def test_filters_that_another_layer_computes_are_an_input():
    layer, shapes = (
        Convolution2d(out_channels=4, kernel_size=3),
        ((3, 8, 8), SharedShape((4, 3, 3, 3)), SharedShape((4,))),
    )
    assert layer.output_shape(shapes) == (4, 6, 6)
    assert layer.parameter_count(shapes) == 0
    assert layer.forward_operations(shapes, batch_size=N) == layer.forward_operations(shapes[:1], batch_size=N)

    def roles(*wanted):
        operations = layer.gradient_operations(shapes, batch_size=N, wanted=wanted)
        return [(each.kind, each.role) for each in operations]

    assert roles(True, False, False) == [("convolution", Role.INPUT_GRADIENT)]
    assert roles(False, True, False) == [("convolution", Role.WEIGHT_GRADIENT)]
    assert roles(False, False, True) == [("memory_pass", Role.WEIGHT_GRADIENT)]
    with pytest.raises(ShapeMismatchError, match="4x3x3x3 and 4 behind its maps, or none, but they are 4x3x5x5"):
        layer.output_shape((shapes[0], SharedShape((4, 3, 5, 5))))


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: TransposedConvolution2d(out_channels=4, kernel_size=3, output_padding=1), "output_padding"),
        (lambda: TransposedConvolution2d(out_channels=4, kernel_size=3, output_padding=-1), "output_padding"),
        (
            lambda: TransposedConvolution2d(out_channels=4, kernel_size=3, stride=2, output_padding=1, padding="same"),
            "output_padding",
        ),
        (lambda: Convolution3d(out_channels=4, kernel_size=(3, 3)), "kernel_size"),
        (lambda: Convolution1d(out_channels=4, kernel_size=3, padding=(1, 1)), "padding"),
    ],
)
def test_senseless_options_are_refused(make, argument):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert caught.value.argument == argument


def test_padding_that_leaves_nothing_is_refused():
    with pytest.raises(ShapeMismatchError, match="leaves nothing"):
        TransposedConvolution1d(out_channels=4, kernel_size=1, padding=2).output_shape(((3, 4),))


# ---- windows


def _taps_by_looking(window, size):
    """Taps of all windows along one axis that lie on the map, one by one."""
    ((before, _),), (windows,) = window.zeros((size,)), window.output_size((size,))
    (taps,), (stride,), (dilation,) = window.kernel_size, window.stride, window.dilation
    starts = [index * stride - before for index in range(windows)]
    return sum(0 <= start + tap * dilation < size for start in starts for tap in range(taps))


@st.composite
def windows(draw):
    kernel_size, dilation = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    zeros = st.integers(0, (kernel_size - 1) * dilation)
    return Window.of(
        axis_count=1,
        kernel_size=kernel_size,
        stride=draw(st.integers(1, 5)),
        dilation=dilation,
        padding=draw(st.one_of(st.sampled_from(["valid", "same"]), st.tuples(st.tuples(zeros, zeros)))),
        ceil_mode=draw(st.booleans()),
    )


@given(windows(), st.integers(1, 40))
def test_closed_forms_count_what_looking_at_every_tap_counts(window, size):
    try:
        window.output_size((size,))
    except ShapeMismatchError:
        assume(False)
    assert window.taps_inside((size,)) == _taps_by_looking(window, size)


@settings(max_examples=40, deadline=None)
@given(windows(), st.lists(st.integers(1, 40), min_size=5, max_size=5))
def test_closed_forms_hold_for_maps_of_open_size(window, sizes):
    length = sympy.Symbol("L", positive=True, integer=True)
    (count,), taps = window.output_size((length,)), sympy.sympify(window.taps_inside((length,)))
    for size in sizes:
        try:
            expected = window.output_size((size,))
        except ShapeMismatchError:
            continue
        assert (count.subs(length, size),) == expected
        assert taps.subs(length, size) == window.taps_inside((size,))


# ---- torch


@st.composite
def convolutions(draw):
    """Options of torch's convolution over one to three axes, with shapes."""
    axes = draw(st.integers(1, 3))
    by_axis = lambda low, high: st.tuples(*[st.integers(low, high)] * axes)  # noqa: E731
    stride, dilation = draw(by_axis(1, 3)), draw(by_axis(1, 2))
    transposed = draw(st.booleans())
    extra = [draw(st.integers(0, max(steps) - 1)) for steps in zip(stride, dilation, strict=True)]
    return {
        "axes": axes,
        "groups": draw(st.integers(1, 3)),
        "channels": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "size": draw(by_axis(1, 7)),
        "kernel_size": draw(by_axis(1, 4)),
        "stride": stride,
        "padding": draw(by_axis(0, 2)),
        "dilation": dilation,
        "transposed": transposed,
        "output_padding": tuple(extra) if transposed else (0,) * axes,
        "bias": draw(st.booleans()),
    }


def torch_arguments(case, groups):
    """Tensors and options of aten.convolution, for all groups or for one."""
    inputs, outputs = (each * groups for each in case["channels"])
    filters = (inputs, outputs // groups) if case["transposed"] else (outputs, inputs // groups)
    parameter = lambda *shape: torch.nn.Parameter(torch.empty(shape, device="meta"))  # noqa: E731
    return (
        torch.empty((N, inputs, *case["size"]), device="meta", requires_grad=True),
        parameter(*filters, *case["kernel_size"]),
        parameter(outputs) if case["bias"] else None,
        *(list(case[name]) for name in ("stride", "padding", "dilation")),
        case["transposed"],
        list(case["output_padding"]),
        groups,
    )


def torch_flop(case, groups):
    with FlopCounterMode(display=False) as counter:
        torch.ops.aten.convolution(*torch_arguments(case, groups)).sum().backward()
    counts = counter.get_flop_counts()["Global"]
    return counts[torch.ops.aten.convolution], counts[torch.ops.aten.convolution_backward]


def layer_of(case):
    kinds = TRANSPOSED if case["transposed"] else PLAIN
    return kinds[case["axes"]](
        out_channels=case["channels"][1] * case["groups"],
        padding=tuple((zeros, zeros) for zeros in case["padding"]),
        **{name: case[name] for name in ("kernel_size", "stride", "dilation", "groups", "bias")},
        **({"output_padding": case["output_padding"]} if case["transposed"] else {}),
    )


@settings(max_examples=150, deadline=None)
@given(convolutions())
def test_products_shapes_and_calls_are_torchs(case):
    layer, shape = layer_of(case), (case["channels"][0] * case["groups"], *case["size"])
    try:
        output_shape = layer.output_shape((shape,))
    except ShapeMismatchError:
        with contextlib.suppress(RuntimeError):  # torch refuses it too, or computes nothing
            assert not torch.ops.aten.convolution(*torch_arguments(case, case["groups"])).numel()
        return
    call = call_of(torch.ops.aten.convolution.default, *torch_arguments(case, case["groups"]))
    assert output_shape == call.output.shape
    translation = translated(LAYERS.values(), call)
    assert translation.layer == layer
    assert {name: operand.shape for name, operand in translation.parameters.items()} == layer.parameter_shapes((shape,))

    forward_operations = layer.forward_operations((shape,), batch_size=N)
    backward_operations = layer.backward_operations((shape,), batch_size=N)
    # torch's counter takes the filters' gradient of a grouped convolution for that of all channels with all filters; of
    # one group it is right, and groups are convolved apart
    of_one_group = torch_flop(case, 1)
    groups = case["groups"]
    assert product_flop(forward_operations, Role.OUTPUT) == groups * of_one_group[0]
    assert product_flop(backward_operations, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT) == groups * of_one_group[1]
    of_all = torch_flop(case, groups)
    weights = product_flop(backward_operations, Role.WEIGHT_GRADIENT)
    assert product_flop(forward_operations, Role.OUTPUT) == of_all[0]
    assert product_flop(backward_operations, Role.INPUT_GRADIENT) + groups * weights == of_all[1]


def test_computed_filters_become_an_input():
    arguments = list(torch_arguments({
        "channels": (3, 4), "transposed": False, "kernel_size": (3,), "size": (9,), "bias": True, "stride": (1,),
        "padding": (0,), "dilation": (1,), "output_padding": (0,),
    }, 1))  # fmt: skip
    call = call_of(torch.ops.aten.convolution.default, *arguments)
    shape = SharedShape((4, 3, 3))
    normed = Operand(key="norm", shape=shape, axes=(0, 1, 2))
    computed = OperatorCall(
        operator=call.operator, arguments={**call.arguments, "weight": normed}, outputs=call.outputs
    )
    translation = translated(LAYERS.values(), computed)
    assert [operand.key for operand in translation.inputs] == ["input", "norm", "bias"]
    assert not translation.parameters
    per_sample = Operand(key="hyper", shape=(3, 3), axes=(None, 0, 1))
    other = OperatorCall(
        operator=call.operator, arguments={**call.arguments, "weight": per_sample}, outputs=call.outputs
    )
    assert translated(LAYERS.values(), other) is None


@pytest.mark.parametrize("role", [Role.OUTPUT, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT])
def test_filters_of_every_sample_are_read_apart(role):
    layer = PLAIN[2](out_channels=6, kernel_size=3, bias=False)
    maps, filters = (1, 4, 9, 9), (6, 4, 3, 3)
    apart, of_all = (layer.convolution((maps, kind(filters)), batch_size=5, role=role) for kind in (tuple, SharedShape))
    assert apart.product_flop_count == of_all.product_flop_count
    works = [convolution.work(element_bytes=2) for convolution in (apart, of_all)]
    moved = [work.read_bytes + work.written_bytes for work in works]
    assert moved[0] - moved[1] == 2 * (5 - 1) * 6 * 4 * 9  # four more banks


class OwnFilters(torch.nn.Module):
    """Mixes filters for every sample, as CondConv does, and lays the samples side by side as channels."""

    def __init__(self):
        super().__init__()
        self.mixes, self.experts = torch.nn.Linear(4, 3), torch.nn.Parameter(torch.empty(3, 6 * 4 * 9))

    def forward(self, x):
        filters = (self.mixes(x.mean((2, 3))) @ self.experts).view(-1, 4, 3, 3)
        maps = torch.nn.functional.conv2d(x.reshape(1, -1, 9, 9), filters, groups=len(x))
        return maps.view(len(x), 6, 7, 7)


def test_a_network_that_mixes_filters_for_every_sample_predicts():
    graph = pm.from_torch(OwnFilters(), torch.empty(2, 4, 9, 9))
    assert graph.fixed_batch_size is None
    (node,) = (node for node in graph.layers if node.layer.kind == "convolution_2d")
    operations = node.layer.operations(node.input_shapes, batch_size=7, phase="forward_backward")
    assert [operation.bank_count for operation in operations] == [7, 7, 7]
    for framework in ("pytorch_2", "pytorch_1_0"):
        assert pm.predict(graph, batch_size=64, device="gtx_1080", framework=framework).step_s > 0


# ---- sizes left open


@settings(max_examples=40, deadline=None)
@given(convolutions(), st.sampled_from([1, 5, 12]))
def test_open_sizes_count_the_same(case, batch_size):
    layer, axes = layer_of(case), case["axes"]
    symbols = sympy.symbols("N C D H W", positive=True, integer=True)
    batch, channels, *extents = symbols[: axes + 2]
    values = {batch: batch_size, channels: case["channels"][0] * case["groups"]}
    values |= dict(zip(extents, case["size"], strict=True))
    shape, opened = tuple(values[each] for each in (channels, *extents)), (channels, *extents)
    try:
        numbers = layer.output_shape((shape,))
    except ShapeMismatchError:
        assume(False)
    assert tuple(sympy.sympify(each).subs(values) for each in layer.output_shape((opened,))) == numbers
    assert sympy.sympify(layer.parameter_count((opened,))).subs(values) == layer.parameter_count((shape,))
    for phase in ("forward", "backward"):
        exact = layer.work((opened,), batch_size=batch, phase=phase)
        number = layer.work((shape,), batch_size=batch_size, phase=phase)
        for name in ("flop_count", "read_bytes", "written_bytes"):
            assert sympy.sympify(getattr(exact, name)).subs(values) == getattr(number, name)


def test_open_options_count_the_same():
    filters, taps = sympy.symbols("K R", positive=True, integer=True)
    opened = Convolution2d(out_channels=filters, kernel_size=taps, groups=filters)
    work = opened.work(((filters, 9, 9),), batch_size=N, phase="step")
    numbers = Convolution2d(out_channels=8, kernel_size=3, groups=8).work(((8, 9, 9),), batch_size=N, phase="step")
    assert sympy.sympify(work.flop_count).subs({filters: 8, taps: 3}) == numbers.flop_count


def test_branches_of_open_size_agree_where_their_windows_do():
    # a residual block halves a map by a 3 x 3 window and its shortcut by a 1 x 1 one: ceil(H / 2), in one form
    height = sympy.Symbol("H", positive=True, integer=True)
    block = Convolution2d(out_channels=8, kernel_size=3, stride=2, padding=1)
    shortcut = Convolution2d(out_channels=8, kernel_size=1, stride=2)
    shape = ((4, height, height),)
    assert block.output_shape(shape) == shortcut.output_shape(shape) == (8, *[sympy.ceiling(height / 2)] * 2)


# ---- kernels


def test_a_transposed_convolution_runs_as_the_gradient_of_its_mirror():
    layer = TransposedConvolution2d(out_channels=4, kernel_size=4, stride=2, padding=1)
    mirror = Convolution2d(out_channels=3, kernel_size=4, stride=2, padding=1)
    (operation,) = layer.forward_operations(((3, 5, 5),), batch_size=N)
    gradients = mirror.backward_operations(((4, 10, 10),), batch_size=N)
    assert operation.role is Role.OUTPUT
    assert operation.mirrored == gradients[0]
    assert operation.mirrored.mirrored.role is Role.OUTPUT
    input_gradient, weight_gradient, _ = layer.backward_operations(((3, 5, 5),), batch_size=N)
    (output,) = Convolution2d(out_channels=3, kernel_size=4, stride=2, padding=1, bias=False).forward_operations(
        ((4, 10, 10),), batch_size=N
    )
    assert input_gradient.mirrored == output
    assert weight_gradient.mirrored == gradients[1]
    kernels = convolution_alternatives(operation.mirrored, algorithms=("implicit_gemm",), element_bytes=4)
    assert math.isclose(sum(each.flop_count for each in kernels[0].kernels), operation.product_flop_count)


@pytest.mark.parametrize("device", ["gtx_1080", "i7_3820"])
@pytest.mark.parametrize("kind", [*PLAIN.values(), *TRANSPOSED.values()], ids=lambda kind: kind.kind)
def test_every_convolution_is_predicted(kind, device):
    times = []
    for options, (shape,) in EXAMPLES[kind.kind]:
        for phase in ("forward", "forward_backward"):
            graph = LayerGraph("one", input_shape=shape)
            graph.add("convolution", kind(**options), inputs=graph.input)
            times.append(pm.predict(graph, batch_size=N, device=device, phase=phase).step_s)
        assert 0 < times[-2] < times[-1] < 0.1


@pytest.mark.parametrize("device", ["gtx_1080", "i7_3820"])
def test_a_large_transposed_convolution_takes_at_least_its_arithmetic(device):
    # 64 x 512 x 8 x 8 inputs, 25 taps of 256 filters: 13.4 GFLOP; a GTX 1080 does 8.9 TFLOP/s at most (1.5 ms), four
    # cores of an i7-3820 230 GFLOP/s (58 ms)
    graph = LayerGraph("generator", input_shape=(512, 8, 8))
    layer = TransposedConvolution2d(out_channels=256, kernel_size=5, stride=2, padding=2, output_padding=1)
    graph.add("up", layer, inputs=graph.input)
    assert graph.shape("up") == (256, 16, 16)
    flop_count = 2 * 64 * 512 * 64 * 25 * 256
    assert graph.work(batch_size=64, phase="forward").flop_count == flop_count
    peak = {"gtx_1080": 8.9e12, "i7_3820": 230e9}[device]
    step_s = pm.predict(graph, batch_size=64, device=device, phase="forward").step_s
    assert flop_count / peak < step_s < 20 * flop_count / peak


# ---- ONNX


def node(operator, shape, filters, *, bias=None, **attributes):
    def parameter(key, size):
        return Operand(key=key, shape=SharedShape(size), axes=tuple(range(len(size))), is_parameter=True)

    maps = Operand(key="x", shape=shape, axes=(None, *range(len(shape))))
    arguments = {"0": maps, "1": parameter("w", filters), "2": bias and parameter("b", bias), **attributes}
    return OperatorCall(operator=operator, arguments=arguments, outputs=())


def read(call):
    readers = [kind.operators[call.operator] for kind in LAYERS.values() if call.operator in kind.operators]
    (found,) = [translation for translation in (reader(call) for reader in readers) if translation is not None]
    return found


@pytest.mark.parametrize(
    ("attributes", "size", "expected"),
    [
        ({"kernel_shape": (3,)}, 9, 7),
        ({}, 9, 7),  # the kernel's shape follows from the filters
        ({"pads": (1, 2), "strides": (2,)}, 9, 5),  # (9 + 3 - 3) // 2 + 1
        ({"dilations": (3,)}, 9, 3),
        ({"auto_pad": "VALID", "strides": (2,)}, 9, 4),
        ({"auto_pad": "SAME_UPPER", "strides": (2,)}, 8, 4),
        ({"auto_pad": "SAME_LOWER", "strides": (2,)}, 8, 4),
    ],
)
def test_onnx_conv(attributes, size, expected):
    translation = read(node("Conv", (4, size), (6, 2, 3), bias=(6,), group=2, **attributes))
    assert translation.layer.kind == "convolution_1d"
    assert translation.layer.groups == 2
    assert set(translation.parameters) == {"weight", "bias"}
    assert translation.layer.output_shape(((4, size),)) == (6, expected)
    if attributes.get("auto_pad", "").startswith("SAME"):
        # 4 windows of 3, two apart, span 9 = 8 + 1: the zero comes last or first
        (operation,) = translation.layer.forward_operations(((4, size),), batch_size=1)
        assert operation.padding == {"SAME_UPPER": ((0, 1),), "SAME_LOWER": ((1, 0),)}[attributes["auto_pad"]]


@pytest.mark.parametrize(
    ("attributes", "expected", "padding"),
    [
        ({"strides": (2,)}, 11, (0, 0)),  # (5 - 1) 2 + 3
        ({"strides": (2,), "output_padding": (1,)}, 12, (0, 0)),
        ({"strides": (2,), "pads": (1, 0)}, 10, (1, 0)),
        ({"strides": (2,), "auto_pad": "SAME_UPPER"}, 10, (0, 1)),
        ({"strides": (2,), "auto_pad": "SAME_LOWER"}, 10, (1, 0)),
        ({"strides": (2,), "output_shape": (9,), "auto_pad": "SAME_UPPER"}, 9, (1, 1)),
        ({"strides": (3,), "output_shape": (16,)}, 16, (0, 0)),  # one more than (5 - 1) 3 + 3
    ],
)
def test_onnx_conv_transpose(attributes, expected, padding):
    translation = read(node("ConvTranspose", (4, 5), (4, 3, 3), group=2, **attributes))
    assert translation.layer.kind == "transposed_convolution_1d"
    assert translation.layer.output_shape(((4, 5),)) == (6, expected)
    (operation,) = translation.layer.forward_operations(((4, 5),), batch_size=1)
    assert operation.padding == (padding,)
