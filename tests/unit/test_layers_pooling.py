"""Poolings, resampling and padding: counts by hand, shapes by torch, sizes left open, and calls of other programs."""

import math

import numpy as np
import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    LAYERS,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool1d,
    AveragePool2d,
    AveragePool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    Pad,
    ShapeMismatchError,
    SharedShape,
    Upsample,
)
from perfmodel.layers.translation import Operand, OperatorCall
from perfmodel.records import Work
from tests.layer_examples import EXAMPLES
from tests.torch_calls import call_of, translated

N = 2  # samples
ATEN = torch.ops.aten
H = sympy.Symbol("H", positive=True, integer=True)
W = sympy.Symbol("W", positive=True, integer=True)


def forward(layer, shape):
    return layer.work((shape,), batch_size=N, phase="forward")


def backward(layer, shape):
    return layer.work((shape,), batch_size=N, phase="backward")


def meta(*shape):
    return torch.empty((N, *shape), device="meta")


# ---- by hand


def test_max_pool_over_one_axis():
    # 4 channels of 9: windows at -1, 1, 3, 5, 7 of 3 taps; one tap of the first lies before the map: 14 taps
    layer, shape = MaxPool1d(kernel_size=3, stride=2, padding=1), (4, 9)
    x, y, taps = N * 36, N * 4 * 5, N * 4 * 13  # and one of the last beyond it
    assert forward(layer, shape) == Work(taps - y, 4 * x, 4 * y + 4 * y)
    assert backward(layer, shape) == Work(y, 4 * y + 4 * y, 4 * x)
    assert layer.saved_index_count((shape,), batch_size=N) == y


def test_average_pool_over_three_axes():
    # 2 x 2 x 2 windows of a 5 x 4 x 4 map, floor: 2 x 2 x 2 of them
    layer, shape = AveragePool3d(kernel_size=2), (3, 5, 4, 4)
    x, y = N * 3 * 80, N * 3 * 8
    assert forward(layer, shape) == Work(8 * y, 4 * x, 4 * y)  # 7 adds and a division
    assert backward(layer, shape) == Work(9 * y, 4 * y, 4 * x)
    assert layer.saved_bytes((shape,), batch_size=N, element_bytes=4) == 0


def test_dilated_windows():
    # taps 0, 2, 4 of 9: 5 windows
    layer = MaxPool2d(kernel_size=3, stride=1, dilation=2)
    assert layer.output_shape(((4, 9, 9),)) == (4, 5, 5)
    assert forward(layer, (4, 9, 9)).flop_count == N * 4 * 25 * 8


def test_adaptive_poolings():
    # 10 into 4: [0, 3), [2, 5), [5, 8), [7, 10): 12 elements; 6 into 3: 2 each
    shape, x, y, taps = (3, 10, 6), N * 180, N * 36, N * 3 * 12 * 6
    average, maximum = AdaptiveAveragePool(output_size=(4, 3)), AdaptiveMaxPool(output_size=(4, 3))
    assert average.output_shape((shape,)) == (3, 4, 3)
    assert forward(average, shape) == Work(taps, 4 * x, 4 * y)
    assert backward(average, shape) == Work(taps + y, 4 * y, 4 * x)
    assert forward(maximum, shape) == Work(taps - y, 4 * x, 4 * 2 * y)
    assert backward(maximum, shape) == Work(y, 4 * 2 * y, 4 * x)
    assert maximum.saved_index_count((shape,), batch_size=N) == y


@given(st.integers(1, 60), st.integers(1, 60))
def test_adaptive_windows_are_those_that_torch_documents(size, parts):
    # from floor(i n / o) to ceil((i + 1) n / o)
    taps = sum(-(-(index + 1) * size // parts) - index * size // parts for index in range(parts))
    layer = AdaptiveAveragePool(output_size=(parts,))
    assert layer.work(((1, size),), batch_size=1, phase="forward").flop_count == taps
    work = layer.work(((1, H),), batch_size=1, phase="forward")
    assert sympy.sympify(work.flop_count).subs(H, size) == taps
    assert AdaptiveAveragePool(output_size=(H,)).work(((1, size),), batch_size=1, phase="forward").flop_count.subs(
        H, parts
    ) == (taps)


def test_whole_maps_of_open_size_are_pooled_into_one():
    whole = AdaptiveAveragePool(output_size=1).work(((3, H, W),), batch_size=N, phase="forward")
    assert whole == AveragePool2d(kernel_size=None).work(((3, H, W),), batch_size=N, phase="forward")
    assert whole.flop_count == N * 3 * H * W
    with pytest.raises(ShapeMismatchError, match="one of them must be a number"):
        AdaptiveAveragePool(output_size=W).work(((3, H),), batch_size=1, phase="forward")


@pytest.mark.parametrize(
    ("mode", "forward_flop", "backward_flop"),
    [
        ("nearest", 0, 1),  # copied; added to the gradient it came from
        # two sums of two terms along the width and one of those, 3 FLOP each; 2 and 4 products, 4 adds
        ("linear", 9, 10),
        ("cubic", 35, 36),  # 4 + 1 sums of four terms, 7 FLOP each; 4 + 16 products, 16 adds
    ],
)
def test_upsample(mode, forward_flop, backward_flop):
    layer, shape = Upsample(scale_factor=2, mode=mode), (3, 4, 5)
    x, y = N * 60, N * 240
    assert layer.output_shape((shape,)) == (3, 8, 10)
    assert forward(layer, shape) == Work(forward_flop * y, 4 * x, 4 * y)
    assert backward(layer, shape) == Work(backward_flop * y, 4 * y, 4 * x)


def test_upsample_by_fractions_rounds_down():
    assert Upsample(scale_factor=(0.7, 1.5)).output_shape(((3, 10, 5),)) == (3, 7, 7)
    assert Upsample(scale_factor=0.7).output_shape(((3, H),)) == (3, sympy.floor(7 * H / 10))
    with pytest.raises(ShapeMismatchError, match="leaves nothing"):
        Upsample(scale_factor=0.1).output_shape(((3, 5),))


def test_pad():
    layer, shape = Pad(padding=((0, 0), (1, 2), (0, 1))), (3, 4, 5)
    x, y = N * 60, N * 3 * 7 * 6
    assert layer.output_shape((shape,)) == (3, 7, 6)
    assert forward(layer, shape) == Work(0, 4 * x, 4 * y)
    assert backward(layer, shape) == Work(0, 4 * x, 4 * x)  # what is behind the zeros is not read
    reflected = Pad(padding=layer.padding, mode="reflect")
    assert forward(reflected, shape) == forward(layer, shape)
    assert backward(reflected, shape) == Work(y - x, 4 * y, 4 * x)  # every gradient arrives, those of copies are added


def test_negative_padding_cuts_off():
    layer = Pad(padding=((-1, 2),))
    assert layer.output_shape(((5,),)) == (6,)
    assert forward(layer, (5,)) == Work(0, 4 * N * 4, 4 * N * 6)
    assert backward(layer, (5,)) == Work(0, 4 * N * 4, 4 * N * 5)
    with pytest.raises(ShapeMismatchError, match="leaves nothing"):
        Pad(padding=((-5, 0),)).output_shape(((5,),))


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: MaxPool3d(kernel_size=(2, 2)), "kernel_size"),
        (lambda: MaxPool1d(kernel_size=None, dilation=2), "kernel_size"),
        (lambda: MaxPool1d(kernel_size=H, padding=1), "kernel_size"),
        (lambda: AveragePool1d(kernel_size=2, padding=2), "padding"),
        (lambda: AdaptiveMaxPool(output_size=(3, 0)), "output_size"),
        (lambda: Upsample(), "output_size"),
        (lambda: Upsample(output_size=3, scale_factor=2), "output_size"),
        (lambda: Upsample(scale_factor=-1), "scale_factor"),
        (lambda: Upsample(scale_factor=math.nan), "scale_factor"),
        (lambda: Upsample(scale_factor=2, mode="bilinear"), "mode"),
        (lambda: Pad(padding=1), "padding"),
        (lambda: Pad(padding=((1,),)), "padding"),
        (lambda: Pad(padding=((1, 1.5),)), "padding"),
        (lambda: Pad(padding=((1, 1),), mode="edge"), "mode"),
    ],
)
def test_senseless_options_are_refused(make, argument):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert caught.value.argument == argument


def test_in_ceil_mode_a_window_may_overhang_a_smaller_map():
    # as torch: ceil((1 - 2) / 2) + 1 = 1 window, which starts inside; one of 4 taps by 2 does not: ceil(-3 / 2) + 1 = 0
    assert MaxPool1d(kernel_size=2, ceil_mode=True).output_shape(((3, 1),)) == (3, 1)
    with pytest.raises(ShapeMismatchError, match="is larger than its input"):
        MaxPool1d(kernel_size=4, stride=2, ceil_mode=True).output_shape(((3, 1),))


# ---- torch


@st.composite
def poolings(draw):
    axes = draw(st.integers(1, 3))
    by_axis = lambda low, high: st.tuples(*[st.integers(low, high)] * axes)  # noqa: E731
    kernel_size = draw(by_axis(1, 4))
    return {
        "axes": axes,
        "size": draw(by_axis(1, 9)),
        "kernel_size": kernel_size,
        "stride": draw(st.one_of(st.just(()), by_axis(1, 4))),
        "padding": tuple(draw(st.integers(0, extent // 2)) for extent in kernel_size),
        "dilation": draw(by_axis(1, 2)),
        "ceil_mode": draw(st.booleans()),
    }


def check_against_torch(operator, arguments, shape):
    """Read the call, and compare its layer's output with torch's; both may refuse the shape."""
    try:
        call = call_of(operator, meta(*shape), *arguments)
    except RuntimeError:
        return None
    if not all(call.output.shape):
        return None  # torch computes nothing
    layer = translated(LAYERS.values(), call).layer
    assert layer.output_shape((shape,)) == call.output.shape
    return layer


@settings(max_examples=150, deadline=None)
@given(poolings())
def test_pooled_shapes_are_torchs(case):
    axes, shape = case["axes"], (3, *case["size"])
    options = [list(case[name]) for name in ("kernel_size", "stride", "padding")]
    average = getattr(ATEN, f"avg_pool{axes}d").default
    check_against_torch(average, (*options, case["ceil_mode"]), shape)
    maximum = ATEN.max_pool1d if axes == 1 else getattr(ATEN, f"max_pool{axes}d_with_indices")
    layer = check_against_torch(maximum.default, (*options, list(case["dilation"]), case["ceil_mode"]), shape)
    if layer is not None:
        opened = tuple(sympy.symbols("D H W", positive=True, integer=True)[:axes])
        work = layer.work(((3, *opened),), batch_size=N, phase="forward")
        values = dict(zip(opened, case["size"], strict=True))
        for name in ("flop_count", "read_bytes", "written_bytes"):
            exact = sympy.sympify(getattr(work, name)).subs(values)
            assert exact == getattr(forward(layer, shape), name)


@pytest.mark.parametrize(
    ("operator", "arguments", "shape", "kind"),
    [
        (ATEN.max_pool1d_with_indices.default, ([3], [2], [1]), (4, 9), "max_pool_1d"),
        (ATEN.max_pool2d.default, ([3, 3], [2, 2], [1, 1]), (4, 9, 9), "max_pool_2d"),
        (ATEN.max_pool3d.default, ([2],), (4, 5, 9, 9), "max_pool_3d"),
        (ATEN.avg_pool2d.default, ([3],), (4, 9, 9), "avg_pool_2d"),
        (ATEN.avg_pool2d.default, ([3],), (7, 4, 9, 9), None),  # torch takes no frames
        (ATEN.adaptive_avg_pool1d.default, ([3],), (4, 7), "adaptive_avg_pool"),
        (ATEN._adaptive_avg_pool2d.default, ([3, 2],), (4, 7, 7), "adaptive_avg_pool"),
        (ATEN._adaptive_avg_pool3d.default, ([3, 2, 1],), (4, 7, 7, 7), "adaptive_avg_pool"),
        (ATEN.adaptive_max_pool1d.default, ([3],), (4, 7), "adaptive_max_pool"),
        (ATEN.adaptive_max_pool2d.default, ([3, 2],), (4, 7, 7), "adaptive_max_pool"),
        (ATEN.adaptive_max_pool3d.default, ([3, 2, 1],), (4, 7, 7, 7), "adaptive_max_pool"),
        (ATEN.upsample_nearest1d.default, ([9],), (4, 7), "upsample"),
        (ATEN.upsample_nearest2d.vec, (None, [2.0, 1.5]), (4, 7, 7), "upsample"),
        (ATEN._upsample_nearest_exact2d.default, ([9, 8],), (4, 7, 7), "upsample"),
        (ATEN.upsample_nearest3d.default, ([9, 8, 7],), (4, 7, 7, 7), "upsample"),
        (ATEN.upsample_linear1d.default, ([9], False), (4, 7), "upsample"),
        (ATEN.upsample_bilinear2d.default, ([9, 8], True), (4, 7, 7), "upsample"),
        (ATEN.upsample_trilinear3d.default, ([9, 8, 7], False), (4, 7, 7, 7), "upsample"),
        (ATEN.upsample_bicubic2d.default, ([9, 8], False), (4, 7, 7), "upsample"),
        (ATEN.constant_pad_nd.default, ([1, 2, 3, 0], 0.0), (4, 7, 7), "pad"),
        (ATEN.constant_pad_nd.default, ([-1, 2],), (4, 7, 7), "pad"),
        (ATEN.reflection_pad1d.default, ([1, 2],), (4, 7), "pad"),
        (ATEN.reflection_pad2d.default, ([1, 2, 3, 0],), (4, 7, 7), "pad"),
        (ATEN.reflection_pad3d.default, ([1, 2, 3, 0, 1, 1],), (4, 7, 7, 7), "pad"),
        (ATEN.replication_pad1d.default, ([1, 2],), (4, 7), "pad"),
        (ATEN.replication_pad2d.default, ([1, 2, 3, 0],), (4, 7, 7), "pad"),
        (ATEN.replication_pad3d.default, ([1, 2, 3, 0, 1, 1],), (4, 7, 7, 7), "pad"),
    ],
    ids=lambda each: str(each) if isinstance(each, torch._ops.OpOverload) else None,
)
def test_calls_of_torch(operator, arguments, shape, kind):
    layer = check_against_torch(operator, arguments, shape)
    assert (layer.kind if layer else None) == kind
    if layer is not None:
        mode = "linear" if "linear" in str(operator) else "cubic" if "cubic" in str(operator) else None
        mode = mode or next((word for word in ("nearest", "constant") if word in str(operator)), None)
        mode = mode or {"reflection": "reflect", "replication": "replicate"}.get(str(operator)[5:].split("_pad")[0])
        assert getattr(layer, "mode", None) == mode


def test_what_touches_the_batch_is_no_layer():
    call = call_of(ATEN.constant_pad_nd.default, meta(3), [0, 0, 1, 1])  # pads the batch
    assert translated(LAYERS.values(), call) is None
    call = call_of(ATEN.avg_pool2d.default, meta(9, 9), [3])  # pools images, their number as channels
    assert translated(LAYERS.values(), call) is None


# ---- ONNX


def node(operator, shape, *, output=None, **arguments):
    maps = Operand(key="x", shape=shape, axes=(None, *range(len(shape))))
    outputs = () if output is None else (Operand(key="y", shape=output, axes=(None, *range(len(output)))),)
    return OperatorCall(operator=operator, arguments={"0": maps, **arguments}, outputs=outputs)


def constant(*values):
    return Operand(key="c", shape=SharedShape((len(values),)), axes=(0,), value=np.array(values))


def read(call):
    readers = [kind.operators[call.operator] for kind in LAYERS.values() if call.operator in kind.operators]
    found = [translation for translation in (reader(call) for reader in readers) if translation is not None]
    assert len(found) <= 1
    return found[0].layer if found else None


@pytest.mark.parametrize(
    ("call", "layer"),
    [
        # the stride of ONNX is one where none is given, not the kernel's
        (
            node("MaxPool", (4, 9), kernel_shape=(3,)),
            MaxPool1d(kernel_size=(3,), stride=(1,), padding=((0, 0),), dilation=(1,)),
        ),
        (
            node("MaxPool", (4, 9, 9), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 0, 1, 2), ceil_mode=1),
            MaxPool2d(kernel_size=(3, 3), stride=(2, 2), padding=((1, 1), (0, 2)), dilation=(1, 1), ceil_mode=True),
        ),
        (
            node("AveragePool", (4, 9), kernel_shape=(3,), strides=(2,), auto_pad="SAME_UPPER", dilations=(2,)),
            AveragePool1d(kernel_size=(3,), stride=(2,), padding="same", dilation=(2,)),
        ),
        (node("GlobalAveragePool", (4, 9, 9)), AveragePool2d(kernel_size=None)),
        (node("GlobalMaxPool", (4, 5, 9, 9)), MaxPool3d(kernel_size=None)),
        (node("GlobalMaxPool", (4,)), None),
        (node("Pad", (4, 9), **{"1": constant(0, 0, 1, 0, 0, 2)}), Pad(padding=((0, 0), (1, 2)))),
        (node("Pad", (4, 9), pads=(0, 0, 1, 0, 0, 2), mode="edge"), Pad(padding=((0, 0), (1, 2)), mode="replicate")),
        (
            node("Pad", (4, 9), mode="reflect", **{"1": constant(1, 2), "3": constant(-1)}),
            Pad(padding=((0, 0), (1, 2)), mode="reflect"),
        ),
        (node("Pad", (4, 9), **{"1": constant(1, 0, 0, 0, 0, 0)}), None),  # the batch
        (node("Upsample", (4, 9), **{"1": constant(1.0, 1.0, 2.0)}), Upsample(scale_factor=(2.0,))),
        (node("Upsample", (4, 9), scales=(1.0, 1.0, 2.0), mode="linear"), Upsample(scale_factor=(2.0,), mode="linear")),
        (node("Resize", (4, 9), **{"2": constant(1.0, 1.0, 0.5), "3": None}), Upsample(scale_factor=(0.5,))),
        (
            node("Resize", (4, 9, 9), output=(4, 20, 9), mode="cubic", **{"3": constant(2, 4, 20, 9)}),
            Upsample(output_size=(20, 9), mode="cubic"),
        ),
        (node("Resize", (4, 9, 9), output=(4, 9, 20), axes=(3,), **{"3": constant(20)}), Upsample(output_size=(9, 20))),
        (node("Resize", (4, 9), output=(8, 9), **{"2": constant(1.0, 2.0, 1.0)}), None),  # channels
    ],
    ids=lambda each: None if not isinstance(each, OperatorCall) else each.operator,
)
def test_nodes_of_onnx(call, layer):
    found = read(call)
    assert found == layer
    if layer is not None and call.outputs:
        assert layer.output_shape((call["0"].shape,)) == call.output.shape


# ---- kernels


@pytest.mark.parametrize("device", ["gtx_1080", "i7_3820"])
def test_every_kind_is_predicted(device):
    families = ("perfmodel.layers.pooling", "perfmodel.layers.resizing")
    kinds = [kind for kind in LAYERS.values() if kind.__module__.startswith(families)]
    assert len(kinds) == 10
    for kind in kinds:
        for options, (shape,) in EXAMPLES[kind.kind]:
            graph = LayerGraph("one", input_shape=shape)
            graph.add("layer", kind(**options), inputs=graph.input)
            assert 0 < pm.predict(graph, batch_size=N, device=device, phase="forward").step_s < 0.1


def test_files_of_an_earlier_time_are_read(tmp_path):
    # poolings had no dilation when these options were written
    graph = LayerGraph("old", input_shape=(4, 9, 9))
    graph.add("pool", MaxPool2d(kernel_size=3, stride=2), inputs=graph.input)
    path = tmp_path / "graph.json"
    graph.save(path)
    path.write_text(path.read_text().replace('"dilation": 1,', ""))
    assert "dilation" not in path.read_text()
    assert LayerGraph.load(path).fingerprint == graph.fingerprint
