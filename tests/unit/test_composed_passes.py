"""Passes that PyTorch composes of operators: their traffic and launches beside what torch itself dispatches."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

import perfmodel as pm
from perfmodel.framework.lowering import lower
from perfmodel.framework.profile import load_framework
from perfmodel.graph.liveness import MemoryRules
from perfmodel.records import Attention, Role
from tests.lowering_rules import PLAIN, changed

VIEWS = {
    "view",
    "view_as_complex",
    "view_as_real",
    "_conj",
    "_unsafe_view",
    "t",
    "transpose",
    "expand",
    "slice",
    "detach",
    "unsqueeze",
    "squeeze",
    "alias",
    "select",
}
FEATURES, ROWS = 512, 256


class Traffic(TorchDispatchMode):
    """Bytes that operators read and write, each tensor once, and how many ran; an expanded tensor is read once."""

    def __init__(self):
        super().__init__()
        self.read = self.written = self.launches = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        name = operator.__name__.partition(".")[0]
        if name not in VIEWS:
            operands = {id(x): x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)}
            self.read += sum(map(_stored_bytes, operands.values()))
            self.written += sum(_stored_bytes(x) for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor))
            self.launches += 1
        return result


def _stored_bytes(tensor):
    is_expanded = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    return 0 if is_expanded else tensor.numel() * tensor.element_size()


def _traffic(function, x):
    x.requires_grad_()
    with Traffic() as forward:
        y = function(x)
    gradient = torch.ones_like(y)
    with Traffic() as backward:
        y.backward(gradient)
    return forward, backward


def _rms_norm(dtype):
    weight = torch.nn.Parameter(torch.ones(FEATURES, dtype=dtype))
    return _traffic(
        lambda x: torch.nn.functional.rms_norm(x, (FEATURES,), weight), torch.randn(ROWS, FEATURES, dtype=dtype)
    )


def _rotary(dtype):
    cosines, sines = torch.randn(64, 64, dtype=dtype), torch.randn(64, 64, dtype=dtype)

    def turned(x):
        first, second = x[..., :32], x[..., 32:]
        return x * cosines + torch.cat((-second, first), dim=-1) * sines

    return _traffic(turned, torch.randn(4, 8, 64, 64, dtype=dtype))


def _complex_rotary(dtype):
    turns = torch.polar(torch.ones(64, 32), torch.randn(64, 32))

    def turned(x):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3).type_as(x)

    return _traffic(turned, torch.randn(4, 8, 64, 64, dtype=dtype))


@pytest.mark.parametrize("framework", ["torchtitan", "torchtitan_compiled", "torchtitan_compiled_loss"])
def test_torchtitan_turns_positions_as_complex_numbers(framework):
    elements = 4 * 8 * 64 * 64
    rules = _rules(framework)
    for measured, key in zip(
        _complex_rotary(torch.bfloat16), ("rotary_embedding", "rotary_embedding_backward"), strict=True
    ):
        read, written, launches = rules[key].traffic(elements, element_bytes=2)
        assert (read, written) == pytest.approx((measured.read, measured.written), rel=0.03)
        assert launches == measured.launches


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("name", "measure", "elements"),
    [("rms_norm", _rms_norm, ROWS * FEATURES), ("rotary_embedding", _rotary, 4 * 8 * 64 * 64)],
    ids=["rms_norm", "rotary_embedding"],
)
def test_rules_move_and_launch_what_torch_does(name, measure, elements, dtype):
    rules = _rules("pytorch_2")
    for measured, key in zip(measure(dtype), (name, f"{name}_backward"), strict=True):
        read, written, launches = rules[key].traffic(elements, element_bytes=dtype.itemsize)
        assert read == pytest.approx(measured.read, rel=0.03)
        assert written == pytest.approx(measured.written, rel=0.03)
        assert launches == pytest.approx(measured.launches, abs=1)
        compulsory = (2 if key == name else 3) * dtype.itemsize * elements
        assert read + written > 3 * compulsory  # one kernel would move this much: no rule for it


def _rules(framework):
    tables = load_framework(framework).gpu.lowering.passes
    return dict(tables)


@pytest.mark.parametrize("framework", ["pytorch_2_compiled", "megatron_core"])
def test_what_fuses_moves_each_tensor_once(framework):
    rules = _rules(framework)
    for name in ("rms_norm", "rotary_embedding"):
        assert rules[name].traffic(1000, element_bytes=2) == (2000, 2000, 1)


def test_a_language_model_pays_for_composed_norms_once_a_pass():
    """Both gradients of a norm come from the same operators, which are counted once."""
    graph = pm.zoo.llama(
        layers=2, width=1024, heads=8, key_heads=8, intermediate=2816, vocabulary=1000, sequence_length=512
    )
    p = pm.predict(graph, batch_size=4, device="a100_80_sxm", framework="pytorch_2", dtype="fp32")
    rows = [row for row in p.layers if row.layer == "block1_mlp_norm" and row.phase == "backward"]
    elements = 4 * 512 * 1024
    moved = sum(row.bytes for row in rows if "rms_norm" in row.kernel)
    assert moved == pytest.approx((14 + 9) * 4 * elements, rel=0.01)


def test_megatron_holds_narrow_parameters_wide_gradients_and_a_copy_in_the_optimizer():
    graph = pm.zoo.gpt(layers=4, width=512, heads=8, sequence_length=128)
    job = {"batch_size": 1, "device": "a100_80_sxm", "optimizer": "adam", "framework": "megatron_core"}
    narrow, wide = (pm.predict(graph, dtype=dtype, **job).memory for dtype in ("bf16", "fp32"))
    count = graph.parameter_count
    assert (narrow.weights_bytes, narrow.optimizer_bytes) == (2 * count, 12 * count)
    assert (wide.weights_bytes, wide.optimizer_bytes) == (4 * count, 8 * count)
    torch_2 = pm.predict(graph, dtype="bf16", **job | {"framework": "pytorch_2"}).memory
    assert torch_2.weights_bytes > 4 * count  # automatic mixed precision: fp32, and narrow copies for the step
    # casts of weights are gone with their copies
    p = pm.predict(graph, dtype="bf16", **job)
    assert not any("cast" in row.kernel for row in p.layers if row.layer.endswith("_up"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_operators_of_a_norm_keep_what_torch_saves(dtype):
    weight = torch.nn.Parameter(torch.ones(FEATURES, dtype=dtype))
    x = torch.randn(ROWS, FEATURES, dtype=dtype, requires_grad=True)
    saved = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        torch.nn.functional.rms_norm(x, (FEATURES,), weight)
    graph = pm.LayerGraph("norm", input_shape=(FEATURES,))
    inside = graph.add("inside", pm.layers.Dense(units=FEATURES), inputs=graph.input)
    graph.add(
        "loss",
        pm.layers.MeanSquaredError(),
        inputs=(graph.add("norm", pm.layers.RMSNorm(), inputs=inside), graph.input),
    )
    rules = MemoryRules(element_bytes=dtype.itemsize)
    composed, single = (graph.liveness(rules=replace(rules, composed=kinds)).kept for kinds in ((("rms_norm", 1),), ()))
    input_bytes = dtype.itemsize * FEATURES  # which one kernel keeps
    beside = composed[1] - single[1] + input_bytes
    assert ROWS * beside == pytest.approx(sum(saved.values()), rel=0.02)


def test_torchtitan_copies_keys_and_values_to_all_heads():
    for name in ("torchtitan", "torchtitan_compiled"):
        assert load_framework(name).gpu.lowering.key_heads == "repeated"
    sizes = {"batch_size": 4, "heads": 8, "key_heads": 2, "queries": 64, "keys": 64, "head_size": 32, "value_size": 32}
    keys = torch.randn(4, 64, 2, 32, dtype=torch.bfloat16)
    forward, backward = _traffic(lambda x: x.unsqueeze(3).expand(4, 64, 2, 4, 32).reshape(4, 64, 8, 32), keys)
    forward.read += 2 * keys.numel()  # expanded
    for measured, role in ((forward, Role.OUTPUT), (backward, Role.INPUT_GRADIENT)):
        grouped = Attention(**sizes, causal=True, role=role)
        ((*passes, kernel),) = (way.kernels for way in _lowered(grouped, key_heads="repeated"))
        assert [kernel] == [one for way in _lowered(replace(grouped, key_heads=8)) for one in way.kernels]
        assert [(each.read_bytes, each.written_bytes) for each in passes] == [(measured.read, measured.written)] * 2
        assert sum(each.launches for each in passes) == 2 * measured.launches
        assert len(_lowered(replace(grouped, key_heads=8), key_heads="repeated")[0].kernels) == 1


def _lowered(operation, **rules):
    return lower(operation, rules=changed(PLAIN, **rules), element_bytes=2, processor="gpu")
