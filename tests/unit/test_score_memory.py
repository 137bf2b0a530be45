"""Memory of materialised scores of attention, against what PyTorch's autograd keeps and allocates for them."""

import pytest

import perfmodel as pm
from perfmodel.layers import ScaledDotProductAttention
from perfmodel.layers.attention import AS_SCORES, SoftmaxTypes

torch = pytest.importorskip("torch")

SAMPLES, HEADS, LENGTH, FEATURES = 2, 3, 256, 4
SCORES = SAMPLES * HEADS * LENGTH * LENGTH
SHAPES = ((HEADS, LENGTH, FEATURES),) * 3
GRADIENTS = 3 * 2 * SAMPLES * HEADS * LENGTH * FEATURES
TYPES = {"narrow": AS_SCORES, "cast": SoftmaxTypes(4, casts_scores=True)}


class OneKernel(torch.autograd.Function):
    """Dropout as a GPU runs it: no scratch memory of its own, a mask of 1 B."""

    @staticmethod
    def forward(ctx, x):
        mask = torch.rand_like(x) > 0.1
        ctx.save_for_backward(mask)
        return torch.where(mask, x, 0)

    @staticmethod
    def backward(ctx, gradient):
        (mask,) = ctx.saved_tensors
        return torch.where(mask, gradient, 0)  # bf16 times a Boolean would copy the mask on a CPU


def attend(q, k, v, *, softmax, drops):
    scores = q @ k.transpose(-1, -2)
    if softmax == "cast":
        scores = scores.float()
    scores = scores * 0.25
    probabilities = scores.softmax(-1)
    if drops:
        probabilities = OneKernel.apply(probabilities)
    return probabilities.to(q.dtype) @ v


def timed_allocations(run):
    """Bytes in memory after each allocation or release, before and during back-propagation."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        result = run()
        gradient = torch.ones_like(result)
        with torch.profiler.record_function("going back"):
            result.backward(gradient)
    events = profile.profiler.kineto_results.events()
    (turn,) = [event.start_ns() for event in events if event.name() == "going back"]
    held, before, going_back = 0, [0], [0]
    for event in sorted(events, key=lambda each: each.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            (before if event.start_ns() < turn else going_back).append(held)
    return before, going_back


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("softmax", TYPES)
def test_autograd_keeps_and_allocates_as_much(softmax, drops):
    operands = [torch.randn(SAMPLES, *SHAPES[0], dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    layer = ScaledDotProductAttention(scores="materialised", dropout=0.1 * drops)
    how = {"batch_size": SAMPLES, "element_bytes": 2, "softmax": TYPES[softmax]}
    kept = layer.saved_bytes(SHAPES, **how)
    assert kept == {"narrow": 2 + 3 * drops, "cast": 6 + drops}[softmax] * SCORES
    own = {each.untyped_storage().data_ptr() for each in operands}
    found = {}

    def keep(tensor):
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each):
        result = attend(*operands, softmax=softmax, drops=drops)
    assert sum(storage.nbytes() for place, storage in found.items() if place not in own) == kept
    del result
    found.clear()
    before, going_back = timed_allocations(lambda: attend(*operands, softmax=softmax, drops=drops))
    scratch = layer.backward_scratch_bytes(SHAPES, wanted=(True,) * 3, **how)
    assert max(going_back) - before[-1] == pytest.approx(
        scratch + GRADIENTS, rel=0.06
    )  # products on a CPU take scratch memory


@pytest.mark.parametrize(("framework", "wide"), [("megatron_composed", 4), ("pytorch_2", 4), ("megatron_core", 0)])
def test_a_step_keeps_scores_in_fp32_where_softmax_has_kernels_of_its_own(framework, wide):
    job = {"batch_size": 4, "dtype": "bf16", "device": "a100_80_sxm", "framework": framework}
    sizes = {"layers": 1, "width": 64, "heads": 4, "key_heads": 4, "sequence_length": 256, "vocabulary": 32}

    def kept(attention):
        graph = pm.zoo.llama(**sizes, attention=attention)
        rules = pm.Job(graph, **job).prepared.stages[0].lowered.memory(graph).rules
        constant, slope = graph.liveness(rules=rules).kept
        return constant + 4 * slope

    rows, scores = 4 * 4 * 256, 4 * 4 * 256 * 256
    assert kept("materialised") - kept("fused_softmax") == wide * scores  # beside the narrow copy
    assert kept("fused_softmax") - kept("fused") == 2 * scores - 4 * rows  # recomputed: a statistic of each row
