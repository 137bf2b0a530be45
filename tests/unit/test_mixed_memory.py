"""Memory under automatic mixed precision, against what PyTorch saves for back-propagation."""

import pytest

import perfmodel as pm

torch = pytest.importorskip("torch")
nn = torch.nn

AMP = {"device": "a100_80_sxm", "framework": "pytorch_2", "dtype": "bf16"}


class WideNorm(nn.LayerNorm):
    """Layer normalisation as torch.autocast runs it on GPUs: in fp32, which on CPUs it does not."""

    def forward(self, x):
        if not torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


def wide_softmax(x):
    """Softmax as torch.autocast runs it on GPUs."""
    return x.softmax(-1, dtype=torch.float32 if torch.is_autocast_enabled("cpu") else None)


class Attention(nn.Module):
    """A block of a transformer whose scores go through memory."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = WideNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = WideNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        scores = wide_softmax(q @ k.transpose(-1, -2))
        x = x + self.out((scores @ v).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def perceptron():
    return nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), WideNorm(1024), nn.Linear(1024, 256))


def convolutions():
    blocks = [
        nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(4)
    ]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), *blocks)


def saved_bytes(module, x):
    """Bytes that back-propagation keeps, by storage, without parameters and the input."""
    known = {each.untyped_storage().data_ptr() for each in (*module.parameters(), *module.buffers(), x)}
    found = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = (storage.nbytes(), storage)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each), torch.autocast("cpu", dtype=torch.bfloat16):
        module(x)
    return sum(size for size, _ in found.values())


NETWORKS = {
    "attention": (Attention, (64, 64)),
    "perceptron": (perceptron, (512,)),
    "convolutions": (convolutions, (3, 32, 32)),
}


def kept_bytes(graph, batch_size, **how):
    """Bytes kept from the forward phase with copies of weights, as predicted."""
    prepared = pm.Job(graph, batch_size=batch_size, phase="forward_backward", **AMP | how).prepared
    memory = prepared.stages[0].lowered.memory(graph)
    constant, slope = graph.liveness(phase="forward_backward", rules=memory.rules).kept
    copies = memory.weights_bytes - memory.rules.parameter_bytes * graph.parameter_count
    return constant + slope * batch_size, copies


@pytest.mark.parametrize("name", NETWORKS)
def test_what_autocast_saves(name):
    make, shape = NETWORKS[name]
    module, batch_size = make(), 32
    x = torch.randn(batch_size, *shape, requires_grad=True)  # or the first weights would not be kept
    graph = pm.from_torch(make(), torch.randn(2, *shape))
    kept, copies = kept_bytes(graph, batch_size)
    assert kept + copies == pytest.approx(saved_bytes(module, x), rel=0.01)


def test_half_of_single_precision_is_not_what_autocast_saves():
    """The naive rule."""
    make, shape = NETWORKS["attention"]
    graph, x = pm.from_torch(make(), torch.randn(2, *shape)), torch.randn(32, *shape, requires_grad=True)
    half = kept_bytes(graph, 32, dtype="fp32")[0] / 2
    assert half < 0.7 * saved_bytes(make(), x)


@pytest.mark.parametrize("framework", ["generic", "pytorch_1_0", "pytorch_2"])
def test_only_mixed_precision_changes_memory(framework):
    graph = pm.zoo.resnet50()
    of = {dtype: pm.Job(graph, **AMP | {"framework": framework, "dtype": dtype, "batch_size": 8}).predict().memory
          for dtype in ("fp32", "bf16")}  # fmt: skip
    is_mixed = framework == "pytorch_2"
    assert of["bf16"].gradients_bytes == pytest.approx(of["fp32"].gradients_bytes / (1 if is_mixed else 2), rel=0.01)
    assert of["bf16"].optimizer_bytes == (of["fp32"].optimizer_bytes if is_mixed else 4 * graph.parameter_count)
    assert of["bf16"].weights_bytes / of["fp32"].weights_bytes == pytest.approx(1.5 if is_mixed else 0.5, rel=0.01)


def test_a_sweep_and_the_largest_batch_know_the_types():
    graph = pm.zoo.bert(layers=4)
    rows = pm.sweep(graph, batch_size=[8, 64], columns=["step_s", "memory_bytes"], **AMP)
    for row in rows:
        whole = pm.predict(graph, batch_size=int(row["batch_size"]), **AMP).memory.total_bytes
        assert row["memory_bytes"] == pytest.approx(whole, rel=1e-9)
    largest = pm.max_batch_size(graph, **AMP)
    fits = [pm.predict(graph, batch_size=largest + more, **AMP).memory.fits for more in (0, 1)]
    assert fits == [True, False]
