"""What from_torch does to a module's names, parameters, batch and memory, and how it refuses."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import flex_attention

import perfmodel as pm
from perfmodel.errors import (
    ArgumentError,
    FixedBatchWarning,
    MissingPackageError,
    OpaqueLayerWarning,
    ParameterWarning,
    PerfmodelError,
    PerfmodelWarning,
    TraceError,
)
from perfmodel.importers.build import hole_bounds
from perfmodel.importers.torch.modes import BATCH_NORM, batch_norm_without_content
from perfmodel.layers import BatchNorm, Convolution2d, Dense, MaxPool2d, Overwrite, Parameter, ReLU

F = nn.functional
TESTS = Path(__file__).parent.parent


def conv_net():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 8 * 8, 10),
    )


IMAGES = torch.empty(2, 3, 16, 16)


class Block(nn.Module):
    """A module that runs a submodule twice and an operator of its own."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.act = nn.Linear(6, 6), nn.Linear(6, 6), nn.ReLU()

    def forward(self, x):
        return x + self.act(self.fc2(self.act(self.fc1(x))))


def kinds(graph):
    return {node.name: type(node.layer) for node in graph.layers}


def test_layers_are_named_by_their_paths():
    assert kinds(pm.from_torch(conv_net(), IMAGES)) == {
        "0": Convolution2d,
        "1": BatchNorm,
        "2": ReLU,
        "3": MaxPool2d,
        "4": kinds(pm.from_torch(conv_net(), IMAGES))["4"],  # a view, of whatever kind
        "5": Dense,
    }


def test_a_module_run_twice_and_operators_of_a_module_are_told_apart():
    graph = pm.from_torch(nn.Sequential(Block(), Block()), torch.empty(3, 6))
    names = [node.name for node in graph.layers]
    one = ["fc1", "act", "fc2", "act_1", "add"]
    assert names == [f"{block}.{name}" for block in (0, 1) for name in one]


def test_in_place_operators_are_marked():
    graph = pm.from_torch(conv_net(), IMAGES)
    assert graph.node("2").usage.in_place is True
    assert graph.node("0").usage.in_place is False  # torch says so; no habit of a framework decides


def test_inputs_are_named_as_forward_names_them():
    class Two(nn.Module):
        def forward(self, image, *, scale):
            return image * scale

    graph = pm.from_torch(Two(), {"image": torch.empty(2, 5), "scale": torch.empty(2, 1)})
    assert dict(graph.input_shapes) == {"image": (5,), "scale": (1,)}


def test_flags_numbers_and_none_are_passed_on():
    class Optional(nn.Module):
        def forward(self, x, mask=None, *, times, twice):
            assert mask is None
            for _ in range(times):
                x = torch.tanh(x)
            return torch.tanh(x) if twice else x

    graph = pm.from_torch(Optional(), {"x": torch.empty(2, 5), "mask": None, "times": 3, "twice": True})
    assert len(graph.layers) == 4


# Parameters


def test_tied_weights_count_once_also_transposed():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    graph = pm.from_torch(Tied(), torch.zeros(2, 4, dtype=torch.long))
    assert graph.parameter_count == 50 * 8
    assert dict(graph.node("head").usage.shared_parameters) == {"weight": ("embed", "weight")}


def test_frozen_parameters_are_not_trained():
    net = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    net[0].requires_grad_(False)
    graph = pm.from_torch(net, torch.empty(2, 6))
    assert graph.parameter_count == 6 * 5 + 5 + 5 * 4 + 4
    assert graph.trained_parameter_count == 5 * 4 + 4


def test_unused_parameters_are_named():
    net = nn.ModuleDict({"used": nn.Linear(6, 5), "spare": nn.Linear(5, 4)})
    net.forward = lambda x: net["used"](x)
    with pytest.warns(ParameterWarning, match=r"spare\.bias, spare\.weight"):
        graph = pm.from_torch(net, torch.empty(2, 6))
    assert graph.parameter_count == 6 * 5 + 5


def test_a_parameter_that_no_layer_owns_is_held_by_one():
    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.offset = nn.Parameter(torch.zeros(7))

        def forward(self, x):
            return x + self.offset

    graph = pm.from_torch(Shift(), torch.empty(2, 7))
    assert kinds(graph)["offset"] is Parameter
    assert graph.parameter_count == 7


def test_parts_of_one_parameter_are_parameters_of_the_layers_that_use_them():
    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    queries, keys = torch.empty(2, 5, 16), torch.empty(2, 7, 16)
    graph = pm.from_torch(attention, (queries, keys, keys))
    assert graph.parameter_count == sum(each.numel() for each in attention.parameters())


def test_gradients_stop_where_the_module_stops_them():
    class Distilled(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = nn.Linear(6, 5), nn.Linear(6, 5)

        def forward(self, x):
            with torch.no_grad():
                target = self.teacher(x)
            return self.student(x) - target

    graph = pm.from_torch(Distilled(), torch.empty(4, 6))
    backward = [layer for layer, operation in graph.operations(batch_size=4, phase="backward")]
    assert "student" in backward
    assert "teacher" not in backward


def test_writes_to_a_part_reach_what_is_read_later():
    class Filled(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 5), nn.Linear(6, 5)

        def forward(self, x):
            y = torch.zeros(x.size(0), 2, 5)
            y[:, 0] = self.a(x)
            y[:, 1] = self.b(x)
            return torch.tanh(y)

    graph = pm.from_torch(Filled(), torch.empty(4, 6))
    assert list(kinds(graph).values()).count(Overwrite) == 2
    backward = {layer for layer, _ in graph.operations(batch_size=4, phase="backward")}
    assert {"a", "b"} <= backward


def test_torchs_transformer_does_not_look_into_its_mask():
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    mask = torch.full((5, 5), -torch.inf).triu(1)
    graph = pm.from_torch(net, {"src": torch.empty(2, 5, 8), "mask": mask})
    assert graph.fixed_batch_size is None
    assert graph.parameter_count == sum(each.numel() for each in net.parameters())


def test_only_outputs_besides_the_loss_are_looked_at():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.extra = nn.Linear(6, 5), nn.Linear(6, 4)

        def forward(self, x, labels):
            scores = self.fc(x)
            return {"extra": self.extra(x), "loss": F.cross_entropy(scores, labels), "scores": scores}

    graph = pm.from_torch(WithLoss(), {"x": torch.empty(2, 6), "labels": torch.zeros(2, dtype=torch.long)})
    assert type(graph.node("extra.output").layer).__name__ == "Output"
    backward = {layer for layer, _ in graph.operations(batch_size=2, phase="backward")}
    assert "fc" in backward
    assert "extra" not in backward


# The module is left alone


def test_the_module_is_left_as_it_was():
    net = conv_net().eval()
    net[1].train()
    before = {name: (each.data_ptr(), each.clone()) for name, each in net.state_dict().items()}
    random_state = torch.get_rng_state()
    pm.from_torch(net, IMAGES, training=True)
    assert [each.training for each in net] == [False, True, False, False, False, False]
    assert not net.training
    after = net.state_dict()
    assert all(after[name].data_ptr() == at and torch.equal(after[name], value) for name, (at, value) in before.items())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mkldnn.enabled == torch.backends.mkldnn.is_available()
    assert torch.is_grad_enabled()
    assert net(IMAGES).shape == (2, 10)


def test_a_failure_leaves_the_module_as_it_was_too():
    net = nn.Sequential(nn.Linear(6, 5), nn.Linear(6, 5)).eval()
    with pytest.raises(TraceError):
        pm.from_torch(net, torch.empty(2, 6))
    assert not net.training
    assert net[0](torch.ones(2, 6)).shape == (2, 5)


def test_training_decides_what_dropout_and_batch_norm_do():
    net = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5))
    assert len(pm.from_torch(net, torch.empty(2, 6), training=True).layers) == 2
    assert len(pm.from_torch(net, torch.empty(2, 6), training=False).layers) == 1


def test_weights_are_never_allocated():
    """7 billion parameters of 4 B would be 27 GB; the machine's page tables alone would show them."""
    words = subprocess.run(
        [sys.executable, str(TESTS / "torch_llama.py")], capture_output=True, text=True, check=True, timeout=300
    )
    found = json.loads(words.stdout)
    # embed 32000 x 4096, 32 x (4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096), norm 4096, head 32000 x 4096
    assert found["parameter_count"] == found["module_parameter_count"] == 6_738_415_616
    assert found["peak_rss_bytes"] < 2e9
    # 2048 x (32 x (4 x 4096^2 + 3 x 4096 x 11008) + 32000 x 4096), and 32 x 2 x 2048^2 x 4096 of attention
    dense = 2048 * (32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096)
    assert found["forward_multiply_adds"] == dense + 32 * 2 * 2048**2 * 4096
    assert found["warnings"] == []


# The batch


def test_the_batch_stays_free_where_it_is_folded_into_rows():
    net = nn.Sequential(nn.Linear(6, 5), nn.Flatten(), nn.Linear(20, 3))
    small, large = (pm.from_torch(net, torch.empty(n, 4, 6)) for n in (1, 7))
    assert small.fixed_batch_size is None
    for phase in ("forward", "backward"):
        assert small.work(batch_size=7, phase=phase) == large.work(batch_size=7, phase=phase)


def test_time_first_networks_say_where_their_batch_is():
    graph = pm.from_torch(nn.LSTM(6, 5), torch.empty(9, 2, 6), batch_axis=1)
    assert graph.fixed_batch_size is None
    assert next(iter(graph.input_shapes.values())) == (9, 6)
    # 4 gates, 9 steps, inputs 6 and states 5: 2 x 4 x 5 x 9 x 11
    assert 2 * graph.multiply_add_count(batch_size=1) == 2 * 4 * 5 * 9 * 11


class Similarity(nn.Module):
    """Compares every sample with every other: a matrix of samples by samples."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 12))

    def forward(self, image):
        z = self.encode(image)
        scores = z @ z.t()
        return F.cross_entropy(scores, torch.arange(len(z)))


def test_a_network_that_mixes_samples_holds_for_one_batch_size():
    with pytest.warns(FixedBatchWarning, match="not made of samples"):
        graph = pm.from_torch(Similarity(), torch.empty(8, 3, 16, 16))
    assert graph.fixed_batch_size == 8
    # convolution 3 x 3 x 3 taps to 8 maps of 14 x 14, linear, and an 8 x 8 matrix of products of 12
    per_sample = 27 * 8 * 14 * 14 + 8 * 14 * 14 * 12
    assert graph.multiply_add_count() == 8 * per_sample + 8 * 8 * 12
    with pytest.raises(ArgumentError, match="batch_size must be"):
        graph.work(batch_size=16)


def test_a_hard_coded_batch_size_is_told():
    class Hard(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(12, 5)

        def forward(self, x):
            return self.fc(x.view(4, 12))

    with pytest.warns(FixedBatchWarning, match="at batch size 8"):
        graph = pm.from_torch(Hard(), torch.empty(4, 3, 4))
    assert graph.fixed_batch_size == 4
    assert graph.multiply_add_count() == 4 * 12 * 5


def test_without_a_batch_axis_the_tensors_are_one_sample():
    with pytest.warns(FixedBatchWarning, match="no batch axis"):
        graph = pm.from_torch(nn.Linear(6, 5), torch.empty(9, 6), batch_axis=None)
    assert graph.multiply_add_count() == 9 * 6 * 5


# What no layer is


class Unknown(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        return torch.linalg.qr(self.fc(x))[0]


def test_what_no_layer_is_becomes_opaque_and_is_named_and_bounded():
    with pytest.warns(OpaqueLayerWarning) as caught:
        graph = pm.from_torch(Unknown(), torch.empty(2, 6, 6))
    message = str(caught[0].message)
    assert "aten.linalg_qr" in message
    assert "'linalg_qr'" in message
    assert "FLOP" in message
    opaque = graph.node("linalg_qr")
    assert opaque.layer.kind == "opaque"
    assert opaque.layer.work(opaque.input_shapes, batch_size=2, phase="forward").flop_count >= 2 * 36


# Errors, one each


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 5), nn.Linear(7, 5))

    def forward(self, x):
        return self.inner(x)


class Branches(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.inner = nn.Module()
        self.inner.forward = self._decide
        self.how = how

    def _decide(self, x):
        if self.how == "bool" and x.sum() > 0:
            return x
        if self.how == "item":
            return x * x.max().item()
        return x[x > 0]

    def forward(self, x):
        return self.inner(x)


def test_a_forward_that_fails_names_module_and_message(capfd):
    with pytest.raises(TraceError, match=r"'inner\.1' \(Linear\).*RuntimeError: .*\[2, 5\] X \[7, 5\]") as caught:
        pm.from_torch(Fails(), torch.empty(2, 6))
    assert capfd.readouterr().err == ""  # torch's own log of it is not shown beside the error
    assert caught.value.path == "inner.1"
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_input_of_the_wrong_shape_is_told_with_its_shape():
    with pytest.raises(TraceError, match=r"'0' \(Conv2d\).*called with input: \(2, 4, 16, 16\)"):
        pm.from_torch(conv_net(), torch.empty(2, 4, 16, 16))


def test_a_missing_argument_is_told():
    with pytest.raises(TraceError, match="missing 1 required positional argument: 'tgt'"):
        pm.from_torch(nn.Transformer(8, 2, batch_first=True), torch.empty(2, 4, 8))


@pytest.mark.parametrize("how", ["bool", "item", "mask"])
def test_control_flow_that_depends_on_content_is_located(how):
    with pytest.raises(TraceError, match=rf"'inner'.*{Path(__file__).name}:\d+ asks for the content of a tensor"):
        pm.from_torch(Branches(how), torch.empty(2, 6))


def test_every_error_is_one_of_ours():
    for broken in (Fails(), Branches("item")):
        with pytest.raises(PerfmodelError):
            pm.from_torch(broken, torch.empty(2, 6))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"module": "resnet50", "example_inputs": IMAGES}, r"module must.*\(got 'resnet50'"),
        ({"module": conv_net(), "example_inputs": 3}, r"example_inputs must.*\(got 'int'"),
        ({"module": conv_net(), "example_inputs": ()}, "at least one tensor"),
        ({"module": conv_net(), "example_inputs": IMAGES, "batch_axis": -1}, r"batch_axis must.*\(got -1"),
        ({"module": conv_net(), "example_inputs": IMAGES, "training": 1}, r"training must.*\(got 1"),
        ({"module": conv_net(), "example_inputs": IMAGES, "name": 7}, "name"),
        ({"module": nn.Linear(6, 5), "example_inputs": torch.empty(0, 6)}, r"at least one sample.*\(0, 6\)"),
        (
            {"module": nn.Linear(6, 5), "example_inputs": torch.empty(2, 6), "batch_axis": 5},
            r"batch_axis must.*at most 2.*\(got 5",
        ),
        ({"module": nn.Linear(6, 5), "example_inputs": torch.eye(6).to_sparse()}, "a sparse tensor"),
        ({"module": nn.DataParallel(nn.Linear(6, 5)), "example_inputs": torch.empty(2, 6)}, "module must be"),
        ({"module": nn.LazyLinear(4), "example_inputs": IMAGES}, "run it once"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(arguments, named):
    with pytest.raises(ArgumentError, match=named):
        pm.from_torch(**arguments)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_script_is_refused():
    with pytest.raises(ArgumentError, match=r"torch\.jit"):
        pm.from_torch(torch.jit.trace(nn.Linear(3, 2), torch.ones(1, 3)), torch.empty(1, 3))


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'perfmodel\[torch\]'"):
        pm.from_torch(None, None)


@pytest.mark.parametrize("package", ["onnx", "pyarrow"])
def test_without_another_package_its_extra_is_named(package, monkeypatch, tmp_path):
    swept = pm.sweep(pm.zoo.lenet5(), batch_size=[1, 2], device="gtx_1080")
    monkeypatch.setitem(sys.modules, package, None)
    extra = {"onnx": "onnx", "pyarrow": "frames"}[package]
    with pytest.raises(MissingPackageError, match=rf"{package}: pip install 'perfmodel\[{extra}\]'"):
        {"onnx": pm.from_onnx, "pyarrow": swept.to_parquet}[package](tmp_path / "file")


def test_progress_is_shown_when_asked_for(capfd):
    pm.from_torch(conv_net(), IMAGES, progress=False)
    assert capfd.readouterr().err == ""
    pm.from_torch(conv_net(), IMAGES, progress=True, name="my net")
    assert "importing my net" in capfd.readouterr().err


def test_a_graph_survives_its_file(tmp_path):
    graph = pm.from_torch(conv_net(), IMAGES)
    graph.save(tmp_path / "net.json")
    assert pm.LayerGraph.load(tmp_path / "net.json").fingerprint == graph.fingerprint


def test_nothing_is_warned_of_a_network_that_is_known_whole():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pm.from_torch(conv_net(), IMAGES)


def test_the_bound_of_a_hole_is_one():
    """Bilinear, N = 2: 2 samples x 64 outputs x 64 x 64 multiply-adds with the weights, and as many with one input."""
    with pytest.warns(OpaqueLayerWarning, match="trilinear") as caught:
        graph = pm.from_torch(Bilinear(), (torch.empty(2, 64), torch.empty(2, 64)))
    (hole,) = [node.name for node in graph.layers if node.layer.kind == "opaque"]
    least, most = hole_bounds(graph, hole, batch_size=2)
    assert least <= 2 * 2 * 64 * 64 * 64 <= most
    assert f"up to {most:,}" in str(caught[0].message)


class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Bilinear(64, 64, 64)

    def forward(self, x, y):
        return self.mix(x, y)


class LinearAttention(nn.Module):
    """Its products of one sample take a path of their own: an einsum whose extent of one torch leaves out."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return torch.einsum("nse,nef->nsf", q.softmax(-1), torch.einsum("nse,nsf->nef", k.softmax(1), v))


def test_an_example_of_one_sample_leaves_the_batch_free():
    one, two = (pm.from_torch(LinearAttention(), torch.empty(n, 10, 16)) for n in (1, 2))
    assert one.fixed_batch_size is None
    for phase in ("forward", "backward"):
        assert one.work(batch_size=7, phase=phase).flop_count == two.work(batch_size=7, phase=phase).flop_count


class Mapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(4, 4)

    def forward(self, x):
        return torch.vmap(self.scale)(x)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("adjacency", torch.eye(4).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.adjacency, x)


@pytest.mark.parametrize("make", [Mapped, Sparse])
def test_tensors_that_cannot_be_followed_are_named(make):
    with pytest.raises(TraceError, match="cannot be followed: sparse and nested tensors"):
        pm.from_torch(make(), torch.empty(4, 4))


class Rotary(nn.Module):
    """Positions by complex factors, as Llama's first code has them."""

    def __init__(self):
        super().__init__()
        self.queries = nn.Linear(16, 16)
        self.register_buffer("factors", torch.polar(torch.ones(10, 8), torch.ones(10, 8)))

    def forward(self, x):
        pairs = torch.view_as_complex(self.queries(x).reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.factors).flatten(-2)


def test_a_complex_product_counts_six_and_its_views_nothing():
    graph = pm.from_torch(Rotary(), torch.empty(2, 10, 16))
    work = graph.work(batch_size=4)
    products = 2 * 4 * 10 * 16 * 16
    assert work.flop_count == products + 6 * 4 * 10 * 8  # four multiplies and two adds of each pair
    (factors,) = [node for node in graph.layers if node.layer.kind == "constant"]
    assert factors.output_elements == 2 * 10 * 8  # real and imaginary parts


class ComplexLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(8, 8, dtype=torch.complex64)

    def forward(self, x):
        return self.mix(torch.complex(x, x)).abs()


def test_products_of_complex_matrices_are_named_holes():
    with pytest.warns(OpaqueLayerWarning) as caught:
        graph = pm.from_torch(ComplexLinear(), torch.empty(2, 8))
    assert any("computes with complex numbers" in str(each.message) for each in caught)
    assert graph.parameter_count == 2 * (64 + 8)


class Decorrelation(nn.Module):
    """A loss on the covariance of the features over the mini-batch (Barlow Twins)."""

    def __init__(self):
        super().__init__()
        self.features = nn.Linear(8, 16)

    def forward(self, x):
        z = self.features(x)
        return ((z.T @ z - torch.eye(16)) ** 2).sum()


def test_a_product_that_sums_over_the_samples_leaves_the_batch_free():
    graph = pm.from_torch(Decorrelation(), torch.empty(4, 8))
    assert graph.fixed_batch_size is None
    products = [op for name, op in graph.operations(batch_size=32, phase="forward") if name == "matmul"]
    assert sum(each.product_flop_count for each in products) == 2 * 16 * 16 * 32
    assert pm.audit(Decorrelation(), torch.empty(4, 8)).matches


class Of(nn.Module):
    """A linear layer of 8 to 8 features, and what a function makes of the module and its inputs."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.fc = nn.Linear(8, 8)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def flexible(net, x):
    heads = x[:, None]
    return flex_attention(net.fc(heads), heads, heads)


def padded(net, x):
    y = net.fc(x)
    return torch.nested.nested_tensor([y[0], y[1]]).to_padded_tensor(0.0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The PyTorch API of nested:UserWarning")
@pytest.mark.parametrize(("function", "what"), [(flexible, "flex_attention"), (padded, "a nested tensor")])
def test_what_torch_does_beside_its_dispatcher_is_no_fault_of_the_module(function, what):
    with pytest.raises(TraceError, match=f"computes with {what}.*cannot be followed"):
        pm.from_torch(Of(function), torch.empty(4, 16, 8))


def summed_in_rows(net, x):
    z = net.fc(x).view(-1, 8)
    return (z.T @ z).square().sum()


def summed_in_heads(net, x):
    return torch.einsum("nhd,nhe->hde", net.fc(x), x).sum()


@pytest.mark.parametrize("function", [summed_in_rows, summed_in_heads])
def test_rows_and_heads_are_summed_over_the_samples_too(function):
    audit = pm.audit(Of(function), torch.empty(4, 3, 8))
    assert audit.matches, str(audit)
    # three rows of each sample: 8 x 8 of the linear layer, and each row's share in 8 x 8 sums
    assert audit.forward_flop_count == 2 * 4 * 3 * (64 + 64)
    graph = pm.from_torch(Of(function), torch.empty(4, 3, 8))
    assert graph.fixed_batch_size is None
    assert 2 * graph.multiply_add_count(batch_size=12) == 3 * audit.forward_flop_count


def contrasted(net, image, text):
    scores = net.fc(image) @ text.T
    target = torch.arange(len(image))
    return (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2


def test_two_losses_over_pairs_of_samples_add_up_without_a_hole():
    with pytest.warns(FixedBatchWarning) as caught:
        graph = pm.from_torch(Of(contrasted), (torch.empty(4, 8), torch.empty(4, 8)))
    assert not any(issubclass(each.category, OpaqueLayerWarning) for each in caught)
    (total,) = [node for node in graph.layers if node.layer.kind == "add"]
    assert total.input_shapes == ((), ())


def test_a_bound_that_is_a_tensor_is_no_hole():
    graph = pm.from_torch(Of(lambda net, x: F.cosine_similarity(net.fc(x), x)), torch.empty(4, 8))
    functions = [node.layer.options().get("function") for node in graph.layers]
    assert functions.count("maximum") == 2  # of either norm with the smallest that is divided by


def paired(net, x):
    return torch.cdist(net.fc(x), net.fc(x))


def test_the_bound_holds_where_samples_meet():
    with pytest.warns(PerfmodelWarning) as caught:
        graph = pm.from_torch(Of(paired), torch.empty(4, 8))
    assert graph.fixed_batch_size == 4
    (message,) = [str(each.message) for each in caught if "cdist" in str(each.message)]
    most = int(re.search(r"up to ([\d,]+)", message)[1].replace(",", ""))
    # each of the 4 x 4 distances may read both whole matrices of 4 x 8
    assert most == 2 * 16 * (32 + 32)


def test_a_joint_of_one_tensor_is_a_copy():
    graph = pm.from_torch(Of(lambda net, x: torch.cat([net.fc(x)])), torch.empty(4, 8))
    assert [node.layer.kind for node in graph.layers] == ["dense", "copy"]


class RelativePositions(torch.nn.Module):
    """Attention with a trained bias for each pair of positions, from a table, and kept between calls in eval."""

    def __init__(self):
        super().__init__()
        self.operands, self.table = torch.nn.Linear(8, 24), torch.nn.Parameter(torch.zeros(2, 9))
        self.register_buffer("places", torch.zeros(5, 5, dtype=torch.long))
        self.cache = {}

    def bias(self):
        if self.training:
            return self.table[:, self.places]
        if "bias" not in self.cache:
            self.cache["bias"] = self.table[:, self.places]
        return self.cache["bias"]

    def forward(self, x):
        query, key, value = self.operands(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=self.bias())
        return mixed.transpose(1, 2).flatten(2)


def test_gradients_flow_through_an_attention_bias():
    module, x = RelativePositions(), torch.empty(2, 5, 8)
    assert pm.audit(module, x).matches
    graph = pm.from_torch(module, x)
    backward = {layer for layer, _ in graph.operations(batch_size=2, phase="backward")}
    (looked_up,) = [node.name for node in graph.layers if node.layer.kind == "take"]
    assert looked_up in backward


@pytest.mark.parametrize("is_training", [True, False])
def test_a_module_that_caches_is_left_as_it_was(is_training):
    module, cached = RelativePositions().train(is_training), []
    module.cache["other"] = cached
    graph = pm.from_torch(module, torch.empty(2, 5, 8), training=False)
    assert graph.fixed_batch_size is None
    assert list(module.cache) == ["other"]
    assert module.cache["other"] is cached
    assert module.training is is_training
    module.eval()(torch.zeros(3, 5, 8))  # with a bias of its own, not one without content
    assert type(module.cache["bias"]) is torch.Tensor


def test_writes_to_nothing_are_nothing():
    class Masked(torch.nn.Module):
        def forward(self, x):
            mask = x.new_zeros(4, 6)
            mask[0:0, :] = 1
            mask[1:3, :] = 2
            return x * mask

    graph = pm.from_torch(Masked(), torch.empty(2, 4, 6))
    assert [node.layer.kind for node in graph.layers].count("overwrite") == 1


def test_filters_of_each_sample_count_as_convolutions():
    class Conditional(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bank, self.route = torch.nn.Parameter(torch.zeros(4, 8 * 6 * 9)), torch.nn.Linear(6, 4)

        def forward(self, x):
            n, channels, height, width = x.shape
            filters = (self.route(x.mean((2, 3))) @ self.bank).view(n * 8, channels, 3, 3)
            y = torch.nn.functional.conv2d(x.reshape(1, n * channels, height, width), filters, padding=1, groups=n)
            return y.view(n, 8, height, width)

    assert pm.audit(Conditional(), torch.empty(2, 6, 9, 9)).matches


def test_an_imported_network_is_cut_past_its_labels_and_masks():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(20, 8)
            self.blocks = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))

        def forward(self, tokens):
            hidden = (tokens == 0).unsqueeze(-1)
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x).masked_fill(hidden, 0.0)
            return torch.nn.functional.cross_entropy(x.flatten(0, -2), tokens.flatten() % 8)

    graph = pm.from_torch(Net(), torch.zeros(2, 5, dtype=torch.long))
    job = {"batch_size": 8, "system": "dgx_a100", "parallelism": "pipeline", "micro_batches": 4}
    assert pm.predict(graph, stages=2, **job).step_s > 0


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 5), (4, 6, 5, 3), (2, 6, 5, 3, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_batch_norm_without_content_makes_what_torchs_does(shape, training, dtype):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    with FakeTensorMode():
        plain = torch.empty(shape, dtype=dtype)
        inputs = [plain, plain.transpose(0, -1).contiguous().transpose(0, -1)]
        inputs += [plain.to(memory_format=formats[len(shape)])] if len(shape) in formats else []
        for x in inputs:
            of_channels = [torch.empty(6, dtype=dtype) for _ in range(4)]
            arguments = (x, *of_channels, training, 0.1, 1e-5)
            without_content, torchs = batch_norm_without_content(*arguments), BATCH_NORM(*arguments)
            if without_content is not NotImplemented:
                assert [(each.shape, each.stride(), each.dtype) for each in without_content] == [
                    (each.shape, each.stride(), each.dtype) for each in torchs
                ]
        assert batch_norm_without_content(plain, *of_channels, training, 0.1, 1e-5) is not NotImplemented
        wider = [each.double() for each in of_channels]
        assert batch_norm_without_content(plain, *wider, training, 0.1, 1e-5) is NotImplemented


def test_images_lie_as_the_filters_of_the_module_do():
    def imported(module, shape):
        return pm.from_torch(module, torch.zeros(shape))

    def images():
        return torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3))

    plain = imported(images(), (2, 3, 32, 32))
    moved = imported(images().to(memory_format=torch.channels_last), (2, 3, 32, 32))
    assert (plain.image_layout, moved.image_layout) == ("channels_first", "channels_last")
    job = {"batch_size": 64, "device": "rtx_4070", "framework": "pytorch_2", "dtype": "fp16"}
    assert pm.predict(plain, **job).step_s > pm.predict(moved, **job).step_s
    assert pm.predict(plain, image_layout="channels_last", **job).step_s == pm.predict(moved, **job).step_s
    assert imported(torch.nn.Linear(8, 8), (2, 8)).image_layout is None
