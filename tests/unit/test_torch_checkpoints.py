"""torch.utils.checkpoint in an imported module: what runs again, and what is then in memory."""

import json

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils import checkpoint as torchs
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import perfmodel as pm
from perfmodel.errors import BackwardWarning, SpecError

BATCH = 256


class Checkpointed(nn.Module):
    """A first layer and blocks, each a checkpointed region; ``use_reentrant=None`` keeps everything."""

    def __init__(self, use_reentrant, blocks=4, **options):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 128), nn.GELU(), nn.Linear(128, 16)) for _ in range(blocks)
        )
        self.use_reentrant, self.options = use_reentrant, options

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            kept = self.use_reentrant is None
            x = block(x) if kept else checkpoint(block, x, use_reentrant=self.use_reentrant, **self.options)
        return x


class Softened(nn.Module):
    """A region whose last layer keeps its output, which is made again for it, and which draws random numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        def region(y):
            return torch.tanh(self.second(y + torch.randn_like(y)))

        return self.second(checkpoint(region, self.first(x), use_reentrant=False))


def backward_products(graph):
    return sum(each.product_flop_count for _, each in graph.operations(batch_size=BATCH, phase="backward"))


def torchs_products(module):
    returned = module(torch.zeros(BATCH, 16))
    with FlopCounterMode(display=False) as counter:
        returned.sum().backward()
    return counter.get_total_flops()


def torchs_peak(make):
    """Return the most that torch has in memory in a step, but for the input [B]."""
    with FakeTensorMode():
        module, x = make(), torch.zeros(BATCH, 16)
        tracker = MemTracker()
        tracker.track_external(module)
        with tracker:
            module(x).sum().backward()
        (peak,) = tracker.get_tracker_snapshot("peak").values()
        return peak["Total"]


@pytest.mark.parametrize("use_reentrant", [None, False, True])
def test_regions_run_again_as_torch_runs_them_again(use_reentrant):
    module = Checkpointed(use_reentrant)
    graph = pm.from_torch(module, torch.empty(2, 16))
    assert backward_products(graph) == torchs_products(module)


@pytest.mark.parametrize("use_reentrant", [None, False, True])
def test_regions_keep_what_torch_keeps(use_reentrant):
    graph = pm.from_torch(Checkpointed(use_reentrant, blocks=8), torch.empty(2, 16))
    live = graph.liveness(phase="forward_backward")
    peak = (live.activations[0] + BATCH * live.activations[1] + live.gradients).max() + 4 * graph.parameter_count
    # the sum's gradient is one number expanded in torch, and a block's input is returned one operation apart: at most
    # two tensors of a block's input; what a block holds inside is sixteen of them, and there are eight blocks
    theirs = torchs_peak(lambda: Checkpointed(use_reentrant, blocks=8))
    assert abs(peak - theirs) <= 2 * 4 * BATCH * 16


def test_a_region_that_keeps_its_own_output_makes_it_again():
    module = Softened()
    graph = pm.from_torch(module, torch.empty(2, 16))
    assert backward_products(graph) == torchs_products(module)
    again = {layer for layer, each in graph.operations(batch_size=2, phase="backward") if each.role == "output"}
    assert {"second", "tanh"} <= again
    assert "first" not in again


def test_a_reentrant_region_of_data_alone_has_no_gradient():
    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.region, self.last = nn.Linear(16, 8), nn.Linear(8, 4)

        def forward(self, x):
            return self.last(checkpoint(self.region, x, use_reentrant=True))

    graph = pm.from_torch(First(), torch.empty(2, 16))
    # torch gives no gradient to weights of a region none of whose arguments has one: dW of the last layer is left
    assert backward_products(graph) == 2 * BATCH * 8 * 4


def test_regions_are_read_back_from_a_file_and_named_if_wrong(tmp_path):
    path = tmp_path / "graph.json"
    graph = pm.from_torch(Checkpointed(True), torch.empty(2, 16))
    graph.save(path)
    assert backward_products(pm.LayerGraph.load(path)) == backward_products(graph)
    content = json.loads(path.read_text())
    content["layers"][0]["recomputed_in"] = 7
    path.write_text(json.dumps(content))
    with pytest.raises(SpecError, match="recomputed_in=7 must be a string"):
        pm.LayerGraph.load(path)


def test_inference_keeps_nothing_to_run_again():
    graph = pm.from_torch(Checkpointed(False), torch.empty(2, 16), training=False)
    assert all(node.usage.recomputed_in is None for node in graph.layers)


def test_torchs_own_checkpoints_are_as_before():
    before = torchs.CheckpointFunction, torchs._checkpoint_without_reentrant_generator
    pm.from_torch(Checkpointed(False), torch.empty(2, 16))
    with pytest.raises(pm.errors.PerfmodelError):
        pm.from_torch(Checkpointed(False), torch.empty(2, 17))
    assert (torchs.CheckpointFunction, torchs._checkpoint_without_reentrant_generator) == before


def test_an_audit_says_what_runs_again():
    audit = pm.audit(Checkpointed(False), torch.empty(BATCH, 16))
    assert audit.matches
    # the first linear layer of each of four blocks: the second one's result is read by nobody in its region
    assert f"{4 * 2 * BATCH * 16 * 128:,} FLOP of products in checkpointed regions" in str(audit)


def test_a_region_that_chooses_what_it_keeps_is_told_of():
    def contexts():
        return torchs.create_selective_checkpoint_contexts([torch.ops.aten.mm.default])

    with pytest.warns(BackwardWarning, match="chooses what it keeps"):
        pm.from_torch(Checkpointed(False, context_fn=contexts), torch.empty(2, 16))


def test_gradients_inside_forward_are_told_of():
    class Penalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.critic = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, x):
            x = x.clone().requires_grad_(True)
            scores = self.critic(x)
            (slope,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
            return {"loss": scores.mean() + (slope.norm(dim=1) - 1).square().mean()}

    with pytest.warns(BackwardWarning, match=r"create_graph=True\), in '': gradients of gradients are not counted"):
        pm.from_torch(Penalised(), torch.empty(4, 8))
    with pytest.warns(BackwardWarning):
        audit = pm.audit(Penalised(), torch.empty(4, 8))
    assert not audit.matches
    assert "1 of 4 operations differ" in str(audit)
