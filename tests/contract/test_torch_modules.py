"""Modules of varied kinds, imported: every parameter, every product of torch's own counter, no hole of weight."""

import warnings
from functools import cache

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import perfmodel as pm
from tests.torch_modules import MODULES

HOLE_SHARE = 0.01
"""Largest share of all arithmetic that opaque layers may hold together [1]."""

EXCESS = {
    "views_and_permutes": 3 * (2 * 2 * 64 * 8 * 2),
    "squeeze_excite": 23 * (2 * 2 * 144 * 24 * 25),
}
"""What FlopCounterMode counts too much for filters' gradients of convolutions in g groups: (g - 1) times the products
there are, here 2 x batch x positions x filters x taps of each [FLOP]."""


def _on_meta(value):
    """The same inputs without memory; masks and tokens keep their type."""
    if isinstance(value, torch.Tensor):
        return torch.empty_like(value, device="meta")
    if isinstance(value, dict):
        return {name: _on_meta(each) for name, each in value.items()}
    return tuple(map(_on_meta, value))


@cache
def torch_counts(name):
    """Products of forward and backward as FlopCounterMode counts them, in a run of its own on the meta device.

    On the meta device no fused kernel hides products: attention is made of two, an LSTM of one per step.
    """
    kind, inputs = MODULES[name]
    module = kind().to("meta").train()
    given = _on_meta(inputs(2))
    forward = FlopCounterMode(display=False)
    with torch.device("meta"), forward:
        returned = _called(module, given)
    targets = _targets(returned)
    backward = FlopCounterMode(display=False)
    with torch.device("meta"), backward:
        torch.autograd.backward(targets, [torch.ones_like(each) for each in targets])
    return forward.get_total_flops(), backward.get_total_flops()


def _called(module, given):
    if isinstance(given, dict):
        return module(**given)
    return module(*given) if isinstance(given, tuple) else module(given)


def _targets(returned):
    """All that back-propagation can start at: no rule of what a loss may be, so that ours cannot hide in it."""
    outputs = list(returned.values()) if isinstance(returned, dict) else returned
    outputs = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    return [each for each in outputs if each.requires_grad]


@pytest.fixture(scope="module", params=sorted(MODULES))
def case(request):
    kind, inputs = MODULES[request.param]
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = pm.from_torch(kind(), inputs(2))
    return request.param, graph, [str(each.message) for each in caught]


def test_every_parameter_is_counted_once(case):
    name, graph, _ = case
    module = MODULES[name][0]()
    assert graph.parameter_count == sum(each.numel() for each in module.parameters())
    trained = sum(each.numel() for each in module.parameters() if each.requires_grad)
    assert graph.trained_parameter_count == trained


def test_no_hole_has_weight(case):
    name, graph, messages = case
    audit = pm.audit(graph, batch_size=2)
    assert sum(hole.share for hole in audit.holes) <= HOLE_SHARE, messages
    if audit.holes:
        assert all(any(hole.operator in message for message in messages) for hole in audit.holes)
    assert graph.fixed_batch_size is None, messages
    assert name


def test_products_equal_torchs_in_a_run_of_its_own(case):
    name, graph, _ = case
    forward, backward = torch_counts(name)
    audit = pm.audit(graph, batch_size=2)
    assert audit.forward_flop_count == forward
    assert audit.backward_flop_count == backward - EXCESS.get(name, 0)


def test_products_equal_torchs_operation_by_operation(case):
    name, _, _ = case
    kind, inputs = MODULES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        audit = pm.audit(kind(), inputs(2))
    assert audit.mismatches == ()
    assert audit.torch_excess_flop_count == EXCESS.get(name, 0)
    forward, backward = torch_counts(name)
    assert (audit.torch_forward_flop_count, audit.torch_backward_flop_count) == (forward, backward)


@pytest.mark.parametrize("phase", ["step", "forward"])
def test_predictions_run(case, phase):
    _, graph, _ = case
    prediction = pm.predict(graph, batch_size=2, device="gtx_1080", phase=phase)
    assert prediction.step_s > 0


def test_another_batch_size_needs_no_second_import(case):
    name, graph, _ = case
    kind, inputs = MODULES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = pm.from_torch(kind(), inputs(5))
    for phase in ("forward", "backward", "update"):
        assert graph.work(batch_size=5, phase=phase) == other.work(batch_size=5, phase=phase)


def test_inference_is_imported_too(case):
    name, _, _ = case
    kind, inputs = MODULES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = pm.from_torch(kind().eval(), inputs(2), training=False)
    assert pm.predict(graph, batch_size=2, device="gtx_1080", phase="forward").step_s > 0


def test_there_are_twenty():
    assert len(MODULES) >= 20
