"""Peak memory of a training step beside torch's own tracker of storages, on tensors without content.

MemTracker follows every storage that operators make or free while a module runs forward, back and through SGD without
momentum. It sees no scratch memory of cuDNN, so none is counted here either. Dropout is off (p = 0): on the CPU torch
takes it apart into other operators than on a GPU. No variable holds the scores while back-propagation runs.
"""

import os
from functools import cache

import pytest

import perfmodel as pm

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.distributed._tools.mem_tracker import MemTracker  # noqa: E402

from torch_models.alexnet import alexnet  # noqa: E402
from torch_models.bert import Bert, MaskedLanguageModel, bert_base  # noqa: E402
from torch_models.densenet import densenet121  # noqa: E402
from torch_models.googlenet import googlenet  # noqa: E402
from torch_models.gpt import gpt2  # noqa: E402
from torch_models.mobilenet_v2 import mobilenet_v2  # noqa: E402
from torch_models.resnet import resnet18, resnet50  # noqa: E402
from torch_models.unet import unet  # noqa: E402
from torch_models.vgg import vgg16  # noqa: E402
from torch_models.vit import vit_b_16  # noqa: E402

BERT_WORDS, GPT_WORDS = 30522, 50257


def images(batch_size):
    return torch.randn(batch_size, 3, 224, 224), torch.randint(1000, (batch_size,))


def sentences(batch_size):
    words, segments = (torch.randint(each, (batch_size, 512)) for each in (BERT_WORDS, 2))
    return words, segments, words.clone()


def texts(batch_size):
    words = torch.randint(GPT_WORDS, (batch_size, 1024))
    return words, words.clone()


class Training(nn.Module):
    """A network with its loss, and without dropout."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        for each in network.modules():
            if isinstance(each, nn.Dropout):
                each.p = 0.0

    def forward(self, *inputs_and_labels):
        *inputs, labels = inputs_and_labels
        scores = self.network(*inputs)
        if isinstance(scores, tuple):  # with heads in the middle of the network, as GoogLeNet
            return sum(nn.functional.cross_entropy(each, labels) for each in scores)
        return nn.functional.cross_entropy(scores.flatten(0, -2), labels.flatten())


class Total(nn.Module):
    """A network and the sum of what it yields."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, *inputs):
        return self.network(*inputs).sum()


def tracked_peak(make, make_data, batch_size, *, ending=Training, trains=True):
    """Return the peak of a step with SGD, or of its forward phase alone, without gradients [B]."""
    with FakeTensorMode():
        module, data = ending(make()).train(), make_data(batch_size)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        tracker = MemTracker()
        tracker.track_external(module, optimizer, *data)
        with tracker, torch.set_grad_enabled(trains):
            loss = module(*data)
            if trains:
                loss.backward()
                optimizer.step()
        (peak,) = tracker.get_tracker_snapshot("peak").values()
        return peak["Total"]


def imported(make, make_data, *, ending=Training):
    with torch.device("meta"):
        module = ending(make()).train()
    return pm.from_torch(module, make_data(2), progress=False)


def peak_of(graph, batch_size, **how):
    """Return our peak without scratch memory and context [B]."""
    # the scripts keep one mini-batch on the device and copy no other meanwhile
    memory = pm.predict(
        graph, batch_size=batch_size, device="a100_80_sxm", framework="generic", prefetch=0, **how
    ).memory
    return memory.total_bytes - memory.workspace_bytes - memory.context_bytes


@cache
def torchs_peak(network, place):
    """Torch's peak of a case, which is held to the zoo's graph and to the imported one [B]."""
    make, make_data, _, batch_sizes = CASES[network]
    return tracked_peak(make, make_data, batch_sizes[place])


@cache
def imported_case(network):
    make, make_data, _, _ = CASES[network]
    return imported(make, make_data)


MATERIALISED = {"attention": "materialised", "dropout": 0.0}
CASES = {
    "resnet50": (resnet50, images, {"stride_on": "3x3"}, (8, 32)),
    "vgg16": (vgg16, images, {}, (8, 32)),
    "bert": (
        lambda: MaskedLanguageModel(bert_base(dropout=0.0)),
        sentences,
        {"head": "masked_language_model"} | MATERIALISED,
        (2, 8),
    ),
    "gpt2": (lambda: gpt2("small", dropout=0.0), texts, MATERIALISED, (1, 4)),
    "resnet18": (resnet18, images, {}, (8, 32)),
    "densenet121": (densenet121, images, {}, (8, 32)),
}

TRACKED_ONCE = () if os.environ.get("PERFMODEL_FULL_WALK") else ("resnet50", "bert", "gpt2", "densenet121")
"""Networks that torch runs at one batch size, as another of their kind is held at two: residual, or a part of BERT."""
PEAKS = [(name, place) for name in CASES for place in (0, 1) if not (place and name in TRACKED_ONCE)]


@pytest.mark.parametrize(("network", "place"), PEAKS)
def test_the_peak_is_what_torch_tracks(network, place):
    # Within 0.6 %, where issue and practice ask for 5. What is left has names: GPT-2 in torch makes a mask of 1 MiB in
    # every layer and keeps it (12.6 MB); ResNets have running statistics, and a tensor on which two gradients meet,
    # which torch adds in place unless a tracker watches (next test); indices and labels have 8 B there.
    _, _, options, batch_sizes = CASES[network]
    ours = peak_of(pm.zoo.build(network, **options), batch_sizes[place])
    assert ours == pytest.approx(torchs_peak(network, place), rel=0.006)


def test_the_masks_of_gpt2_are_what_is_missing():
    graph = pm.zoo.gpt2(**MATERIALISED)
    missing = torchs_peak("gpt2", 0) - peak_of(graph, CASES["gpt2"][3][0])
    assert missing == pytest.approx(12 * 1024**2, rel=0.002)


def test_torch_adds_gradients_in_place_where_nobody_watches():
    x = torch.randn(4, 4, requires_grad=True)
    y = x.sin()
    z = y.cos() + y.exp()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        z.backward(torch.ones(4, 4))
    names = [event.name for event in profile.events()]
    assert "aten::add_" in names
    assert "aten::add" not in names


def test_a_block_of_attention_at_its_peak():
    # Without a loss over words the peak lies in the last block, where the gradient of its scores is made; within 1.5 %,
    # because a layer's gradients of parameters count together, those of three projections (7.1 MB) too early. Taken
    # apart into its products by the importer, the block is exact.
    def make():
        return Bert(layers=6, width=768, heads=12, dropout=0.0)

    def data(batch_size):
        return sentences(batch_size)[:2]

    whole, apart = pm.zoo.bert(layers=6, **MATERIALISED), imported(make, data, ending=Total)
    for batch_size in (2, 8):
        torchs = tracked_peak(make, data, batch_size, ending=Total)
        assert peak_of(whole, batch_size) == pytest.approx(torchs, rel=0.015)
        assert peak_of(apart, batch_size) == pytest.approx(torchs, rel=1e-5)


@pytest.mark.parametrize(("network", "place"), PEAKS)
def test_imported_modules_peak_where_torch_does(network, place):
    # to the byte, but for the running statistics of ResNets and DenseNet, gradients that torch adds in place unless a
    # tracker watches, and what torch returns as a scalar and a graph per sample
    tolerance = 0.005 if network in ("resnet18", "resnet50", "densenet121") else 1e-5
    ours = peak_of(imported_case(network), CASES[network][3][place])
    assert ours == pytest.approx(torchs_peak(network, place), rel=tolerance)


@pytest.mark.parametrize("make", [alexnet, googlenet, mobilenet_v2, vit_b_16], ids=lambda make: make.__name__)
def test_other_imported_modules(make):
    # branches, heads in the middle, depth-wise convolutions, attention; norms as above
    torchs = tracked_peak(make, images, 16)
    assert peak_of(imported(make, images), 16) == pytest.approx(torchs, rel=0.004)


def test_skips_keep_their_tensors():
    # a U-Net's skips are read going back, and joined with crops of them
    def data(batch_size):
        return (torch.randn(batch_size, 1, 572, 572),)

    torchs = tracked_peak(unet, data, 2, ending=Total)
    assert peak_of(imported(unet, data, ending=Total), 2) == pytest.approx(torchs, rel=1e-5)


def test_inference_makes_what_a_loss_makes():
    # at the end both logits and their log-softmax, 4 B for each of 8 x 1024 x 50257
    make, make_data, options, _ = CASES["gpt2"]
    torchs = tracked_peak(make, make_data, 8, trains=False)
    assert peak_of(pm.zoo.build("gpt2", **options), 8, phase="forward") == pytest.approx(torchs, rel=0.001)
    assert peak_of(imported_case("gpt2"), 8, phase="forward") == pytest.approx(torchs, rel=0.001)


class Between(nn.Module):
    """A function between two products, so wide that the step is at its peak in the function's backward phase."""

    def __init__(self, function, *, operands, has_row):
        super().__init__()
        self.first = nn.ModuleList([nn.Linear(64, 512) for _ in range(operands)])
        self.row = nn.Parameter(torch.empty(512)) if has_row else None
        self.last = nn.Linear(512, 64)
        self.function = function

    def forward(self, x):
        rows = () if self.row is None else (self.row,)
        return self.last(self.function(*(each(x) for each in self.first), *rows))


def rms_norm(x, row):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * row


ELEMENT_WISE = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "neg", "abs", "square"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "erf", "logit", "sigmoid", "tanh", "relu"),
)
ACTIVATIONS = (
    *("softplus", "elu", "celu", "hardswish", "hardsigmoid", "mish", "softsign", "hardtanh", "relu6", "silu", "gelu"),
    *("leaky_relu", "selu"),
)
# Not here: log_sigmoid, which keeps a buffer on a CPU; power and atan2 of tensors, of which one may be a row.
OF_ONE = {
    **{name: getattr(torch, name) for name in ELEMENT_WISE},
    **{name: getattr(nn.functional, name) for name in ACTIVATIONS},
    "power": lambda x: x.pow(3),
    "power_of_number": lambda x: 2**x,
    "multiply_by_number": lambda x: 2 * x,
    "subtract_from_number": lambda x: 1 - x,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_one_side": lambda x: x.clamp(min=0),
    "threshold": lambda x: nn.functional.threshold(x, 0.0, 0.0),
    "softmax": lambda x: x.softmax(-1),
    "log_sum_exp": lambda x: x * x.logsumexp(-1, keepdim=True),
    "var": lambda x: x + x.var(-1, keepdim=True),
    "std": lambda x: x + x.std(-1, keepdim=True),
    "norm": lambda x: x + x.norm(dim=-1, keepdim=True),
    "prod": lambda x: x + x.prod(-1, keepdim=True),
    "running_total": lambda x: x.cumsum(-1),
    "joined": lambda x: torch.cat([x[:, :256], x[:, 256:].sigmoid()], 1),
}
WITH_ROW = {
    "gate": lambda x, row: x * row,
    "shift": lambda x, row: x + row,
    "difference": lambda x, row: row - x,
    "ratio": lambda x, row: x / row,
    "inverse_ratio": lambda x, row: row / x,
    "larger": lambda x, row: torch.maximum(x, row),
    "between": lambda x, row: torch.lerp(row, x, 0.3),
    "prelu": lambda x, row: nn.functional.prelu(x, row),
    "rms_norm": rms_norm,
}
OF_TWO = {
    "product": lambda x, y: x * y,
    "difference": lambda x, y: x - y,
    "ratio": lambda x, y: x / y,
    "larger": torch.maximum,
    "power": lambda x, y: x**y,
    "angle": torch.atan2,
    "between": lambda x, y: torch.lerp(x, y, 0.3),
}


@pytest.mark.parametrize(
    ("functions", "name"),
    [(functions, name) for functions in (OF_ONE, WITH_ROW, OF_TWO) for name in functions],
    ids=lambda each: each if isinstance(each, str) else f"{len(each)}",
)
def test_gradients_of_element_wise_functions(functions, name):
    def make():
        return Between(functions[name], operands=2 if functions is OF_TWO else 1, has_row=functions is WITH_ROW)

    def data(batch_size):
        return (torch.randn(batch_size, 64),)

    torchs = tracked_peak(make, data, 4096, ending=Total)
    assert peak_of(imported(make, data, ending=Total), 4096) == pytest.approx(torchs, rel=0.002)


class Cells(nn.Module):
    """A recurrence written out: LSTM or GRU, step by step."""

    def __init__(self, kind, units=256):
        super().__init__()
        self.kind, self.units = kind, units
        self.of_x, self.of_h = nn.Linear(128, 4 * units), nn.Linear(units, 4 * units)

    def gates(self, x, h):
        return (self.of_x(x) + self.of_h(h)).chunk(4, 1)

    def lstm(self, x, h, c):
        i, f, o, new = self.gates(x, h)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(new)
        return torch.sigmoid(o) * torch.tanh(c), c

    def gru(self, x, h, c):
        (ar, az, an, _), (br, bz, bn, _) = self.of_x(x).chunk(4, 1), self.of_h(h).chunk(4, 1)
        z = torch.sigmoid(az + bz)
        return (1 - z) * torch.tanh(an + torch.sigmoid(ar + br) * bn) + z * h, c

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.units)
        for step in range(x.shape[1]):
            h, c = getattr(self, self.kind)(x[:, step], h, c)
        return h


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrences_written_out(kind):
    # Layers like nn.LSTM stand for cuDNN's kernels of whole sequences, of which a CPU shows nothing: not compared.
    # Within 2.5 %: torch's peak has one (LSTM) or three (GRU) tensors of the size of h more.
    def make():
        return Cells(kind)

    def data(batch_size):
        return (torch.randn(batch_size, 12, 128),)

    torchs = tracked_peak(make, data, 1024, ending=Total)
    assert peak_of(imported(make, data, ending=Total), 1024) == pytest.approx(torchs, rel=0.025)


class Block(nn.Module):
    """A block of a transformer, normalised before each part, with torch's own attention."""

    def __init__(self, width=256):
        super().__init__()
        self.before_attention, self.before_product = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.before_attention(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(self.before_product(x))))


def test_fused_attention_writes_where_the_next_product_reads():
    # its output has the layout of its queries, so that no copy of it follows
    def make():
        return nn.Sequential(*(Block() for _ in range(4)))

    def data(batch_size):
        return (torch.randn(batch_size, 128, 256),)

    torchs = tracked_peak(make, data, 16, ending=Total)
    assert peak_of(imported(make, data, ending=Total), 16) == pytest.approx(torchs, rel=1e-4)


class Stack(nn.Module):
    """Layers with weights, and a function after each."""

    def __init__(self, layers, function):
        super().__init__()
        self.layers, self.function = nn.ModuleList(layers), function
        if function in (masked_scores, masked_by_two):
            self.register_buffer("mask", torch.ones(512, 512, dtype=torch.bool))

    def forward(self, x, *others):
        for layer in self.layers:
            x = self.function(self, layer(x), *others)
        return x


def masked_scores(stack, x):
    return (x @ x.transpose(1, 2)).masked_fill(stack.mask, -1e9) @ x


def masked_input(_, x, mask):
    return x.masked_fill(mask, 0.0)


def masked_by_two(stack, x, mask):
    return torch.where(mask & ~stack.mask[:, :16], x, 0.5)


def largest(_, x):
    return x.unflatten(-1, (16, 4)).max(-1)[0]


def gated(_, x):
    return nn.functional.glu(x)


def mirrored(_, x):
    return nn.functional.pad(x, (1, 1, 1, 1), mode="reflect")


def rows(batch_size):
    return (torch.randn(batch_size, 512, 16),)


def rows_and_mask(batch_size):
    return torch.randn(batch_size, 512, 16), torch.ones(batch_size, 512, 16, dtype=torch.bool)


def maps(batch_size):
    return (torch.randn(batch_size, 8, 64, 64),)


@pytest.mark.parametrize(
    ("function", "make_layer", "make_data"),
    [
        (masked_scores, lambda: nn.Linear(16, 16), rows),  # one mask of the network, kept once
        (masked_input, lambda: nn.Linear(16, 16), rows_and_mask),  # truth values have 1 B, given ones too
        (masked_by_two, lambda: nn.Linear(16, 16), rows_and_mask),
        (gated, lambda: nn.Linear(16, 32), rows),  # keeps its input, not the logistic function of half of it
        (mirrored, lambda: nn.Conv2d(8, 8, 3), maps),  # keeps its input
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
@pytest.mark.parametrize("depth", [1, 4])
def test_what_functions_keep(function, make_layer, make_data, depth):
    def make():
        return Stack([make_layer() for _ in range(depth)], function)

    # to the gradient of the sum, one number
    torchs = tracked_peak(make, make_data, 4, ending=Total)
    assert peak_of(imported(make, make_data, ending=Total), 4) == pytest.approx(torchs, abs=4)


def test_a_maximum_keeps_its_place_alone():
    def peaks(depth):
        def make():
            return Stack([nn.Linear(16, 64) for _ in range(depth)], largest)

        torchs = tracked_peak(make, rows, 4, ending=Total)
        return torchs, peak_of(imported(make, rows, ending=Total), 4)

    (two, own_two), (four, own_four) = peaks(2), peaks(4)
    assert four - two == own_four - own_two
    # Under a tracker torch writes the gradient to a copy of the zeros, else in place: 64 features of 4 samples of 512
    # rows more than in the moment of our peak, when the layer before makes the gradient of its 16.
    assert four - own_four == pytest.approx(4 * 4 * 512 * (64 - 16), rel=1e-4)
