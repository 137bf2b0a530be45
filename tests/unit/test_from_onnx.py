"""ONNX files: counts beside the zoo's, free batch sizes, external data, custom operators, and bad files."""

import os
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch.utils.flop_counter import FlopCounterMode

import perfmodel as pm
from perfmodel import layers
from perfmodel.errors import (
    ArgumentError,
    FixedBatchWarning,
    OpaqueLayerWarning,
    SpecError,
    UnknownNameError,
)
from perfmodel.graph import LayerGraph
from torch_models.gpt import GPT
from torch_models.resnet import resnet50

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
BATCH_SIZES = (3, 64)


def product_flop_counts(graph, batch_size):
    return [
        sum(operation.product_flop_count for _, operation in graph.operations(batch_size=batch_size, phase=phase))
        for phase in ("forward", "backward")
    ]


def assert_counts_are_those_of(graph, other):
    assert graph.parameter_count == other.parameter_count
    for batch_size in BATCH_SIZES:
        assert product_flop_counts(graph, batch_size) == product_flop_counts(other, batch_size)


def of_kind(graph, kind):
    return [node for node in graph.layers if node.layer.kind == kind]


def weights(name, *shape):
    return helper.make_tensor(name, FLOAT, shape, np.zeros(shape, np.float32).tobytes(), raw=True)


def numbers(name, *values):
    return helper.make_tensor(name, INT64, [len(values)], values)


def save(path, nodes, *, inputs, stored=(), outputs=("y",), version=17, functions=(), domains=(), stated=()):
    """Write a model; ``inputs`` maps names to extents, of whole numbers where the name begins with "i"."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info(name, INT64 if name.startswith("i") else FLOAT, shape)
            for name, shape in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        list(stored),
        value_info=[helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in stated],
    )
    versions = [helper.make_opsetid("", version), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=versions, functions=list(functions), ir_version=10)
    onnx.save(model, path)
    return path


def exported(path, module, example, **options):
    """Write a torch module; weights stay as they are, neither folded nor transposed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's announcements of its other exporter
        torch.onnx.export(
            module,
            (example,),
            path,
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            do_constant_folding=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            **options,
        )
    return path


# AlexNet in one tower (arXiv:1404.5997): out channels, kernel, stride, zeros, whether a pooling follows
ALEXNET = [
    (64, 11, 4, 2, True),
    (192, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, False),
    (256, 3, 1, 1, True),
]


def stored_outside(tensor, location, offset):
    """Let a tensor's content lie in another file, and return where it ends there."""
    length = 4 * int(np.prod(tensor.dims))
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": offset, "length": length}.items():
        tensor.external_data.add(key=key, value=str(value))
    return offset + length


def alexnet_file(folder, batch):
    """Write AlexNet whose 244 MB of weights are a hole in a sparse file: whoever reads them, reads zeros."""
    nodes, stored, x, channels = [], [], "x", 3
    for index, (outputs, kernel, stride, zeros, is_pooled) in enumerate(ALEXNET):
        stored += [empty(f"conv{index}.weight", outputs, channels, kernel, kernel), empty(f"conv{index}.bias", outputs)]
        options = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [zeros] * 4}
        inputs = [x, f"conv{index}.weight", f"conv{index}.bias"]
        nodes.append(helper.make_node("Conv", inputs, [f"c{index}"], name=f"conv{index}", **options))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"], name=f"relu{index}"))
        x, channels = f"r{index}", outputs
        if is_pooled:
            nodes.append(helper.make_node("MaxPool", [x], [f"p{index}"], kernel_shape=[3, 3], strides=[2, 2]))
            x = f"p{index}"
    nodes.append(helper.make_node("Flatten", [x], ["flat"]))
    x, features = "flat", 9216
    for index, units in enumerate((4096, 4096, 1000)):
        stored += [empty(f"fc{index}.weight", units, features), empty(f"fc{index}.bias", units)]
        inputs = [x, f"fc{index}.weight", f"fc{index}.bias"]
        nodes.append(helper.make_node("Gemm", inputs, [f"f{index}"], name=f"fc{index}", transB=1))
        nodes.append(helper.make_node("Relu" if index < 2 else "Softmax", [f"f{index}"], [f"a{index}"]))
        x, features = f"a{index}", units
    end = 0
    for tensor in stored:
        end = stored_outside(tensor, "weights.bin", end)
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(end)
    return save(folder / "alexnet.onnx", nodes, inputs={"x": [batch, 3, 224, 224]}, stored=stored, outputs=[x])


def empty(name, *shape):
    tensor = TensorProto(name=name, data_type=FLOAT)
    tensor.dims.extend(shape)
    return tensor


@pytest.mark.parametrize("batch", ["N", 1, 16])
def test_alexnet_with_weights_in_another_file(tmp_path, batch):
    graph = pm.from_onnx(alexnet_file(tmp_path, batch))
    assert graph.name == "alexnet"
    assert graph.fixed_batch_size is None
    assert graph.input_shapes == {"x": (3, 224, 224)}
    assert_counts_are_those_of(graph, pm.zoo.alexnet(variant="one_tower"))
    assert graph.parameter_counts["fc0"] == 9216 * 4096 + 4096


def test_resnet50_as_torch_exports_it(tmp_path):
    path = exported(tmp_path / "resnet50.onnx", resnet50(stride_on="1x1").train(), torch.zeros(1, 3, 224, 224))
    graph = pm.from_onnx(path, name="mine")
    assert graph.name == "mine"
    assert_counts_are_those_of(graph, pm.zoo.resnet50())
    assert len(of_kind(graph, "batch_norm")) == 53
    assert not of_kind(graph, "opaque")


@pytest.mark.parametrize("is_dynamic", [True, False])
def test_lstm_as_torch_exports_it(tmp_path, is_dynamic):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(10_000, 256)
            self.lstm = torch.nn.LSTM(256, 256, 2, batch_first=True)
            self.scores = torch.nn.Linear(256, 10_000)

        def forward(self, tokens):
            return self.scores(self.lstm(self.embedding(tokens))[0])

    axes = {"x": {0: "batch"}} if is_dynamic else None
    path = exported(tmp_path / "lstm.onnx", Model(), torch.zeros(4, 32, dtype=torch.long), dynamic_axes=axes)
    graph = pm.from_onnx(path)
    assert graph.fixed_batch_size is None
    assert_counts_are_those_of(graph, pm.zoo.lstm32(bias_vectors=2))


def recurrence(path, operator, gates, *, batch, units=7, directions=1, shape=None, **options):
    stored = [
        weights("w", directions, gates * units, 5),
        weights("r", directions, gates * units, units),
        weights("b", directions, 2 * gates * units),
    ]
    way = "bidirectional" if directions == 2 else "forward"
    node = helper.make_node(operator, ["x", "w", "r", "b"], ["", "y"], hidden_size=units, direction=way, **options)
    return save(path, [node], inputs={"x": shape or [9, batch, 5]}, stored=stored)


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_layers_with_time_first(tmp_path, operator, gates, directions):
    for batch in ("batch", 1, 6):
        graph = pm.from_onnx(recurrence(tmp_path / "r.onnx", operator, gates, batch=batch, directions=directions))
        assert graph.input_shapes == {"x": (9, 5)}
        # each direction: both matrices and two bias vectors, of every gate
        assert graph.parameter_count == directions * gates * (7 * 5 + 7 * 7 + 2 * 7)
        # 2 FLOP a weight, 9 steps
        assert product_flop_counts(graph, 4)[0] == 4 * 9 * 2 * directions * gates * (7 * 5 + 7 * 7)
        assert not of_kind(graph, "opaque")


def test_recurrent_layer_with_the_batch_first(tmp_path):
    graph = pm.from_onnx(recurrence(tmp_path / "r.onnx", "LSTM", 4, batch=None, shape=[6, 9, 5], layout=1))
    assert graph.input_shapes == {"x": (9, 5)}
    assert product_flop_counts(graph, 4)[0] == 4 * 9 * 2 * 4 * (7 * 5 + 7 * 7)


@pytest.mark.parametrize("is_dynamic", [True, False])
def test_transformer_as_torch_exports_it(tmp_path, is_dynamic):
    sizes = {"layers": 2, "width": 64, "heads": 4, "vocabulary": 100, "positions": 32}
    module = GPT(**sizes, dropout=0.0)
    axes = {"x": {0: "batch"}} if is_dynamic else None
    example = torch.zeros(1, 24, dtype=torch.long)
    graph = pm.from_onnx(exported(tmp_path / "gpt.onnx", module, example, dynamic_axes=axes))
    assert graph.fixed_batch_size is None
    assert_counts_are_those_of(graph, pm.zoo.gpt(**sizes, sequence_length=24))
    assert not of_kind(graph, "opaque")


def test_predictions_at_other_batch_sizes(tmp_path):
    path = exported(tmp_path / "gpt.onnx", GPT(layers=1, width=64, heads=4, vocabulary=100), torch.zeros(1, 8).long())
    graph = pm.from_onnx(path)
    for phase in ("forward", "step"):
        few, many = (pm.predict(graph, batch_size=n, device="v100_sxm2", phase=phase).step_s for n in (1, 512))
        assert 0 < few < many


def linear(name, x, y, inputs, outputs):
    node = helper.make_node("Gemm", [x, f"{name}.w", f"{name}.b"], [y], name=name, transB=1)
    return node, [weights(f"{name}.w", outputs, inputs), weights(f"{name}.b", outputs)]


class TestBatch:
    def test_a_reshape_to_the_exported_batch_size_is_one_to_any(self, tmp_path):
        for batch in (1, 8):
            nodes = [helper.make_node("Reshape", ["x", "target"], ["flat"])]
            node, stored = linear("fc", "flat", "y", 12, 5)
            target = numbers("target", batch, 12)
            path = save(tmp_path / "net.onnx", [*nodes, node], inputs={"x": [batch, 3, 4]}, stored=[target, *stored])
            graph = pm.from_onnx(path)
            assert graph.fixed_batch_size is None
            assert product_flop_counts(graph, 7)[0] == 7 * 2 * 12 * 5

    def test_shapes_of_one_batch_size_only(self, tmp_path):
        # rows of all four samples change places with features: no other batch size fits the weights
        nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0])]
        node, stored = linear("fc", "t", "y", 4, 5)
        path = save(tmp_path / "net.onnx", [*nodes, node], inputs={"x": [4, 6]}, stored=stored)
        with pytest.warns(FixedBatchWarning, match=r"net.onnx: holds for batch_size=4 only: node 'fc'"):
            graph = pm.from_onnx(path)
        assert graph.fixed_batch_size == 4
        assert product_flop_counts(graph, 4)[0] == 6 * 2 * 4 * 5
        with pytest.raises(ArgumentError, match="batch_size must be"):
            pm.from_onnx(path, batch_size=3)

    def test_convolutions_at_one_batch_size_only(self, tmp_path):
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
            helper.make_node("Reshape", ["c", "target"], ["y"]),
        ]
        # the target puts rows of several samples side by side
        stored = [weights("w", 6, 3, 3, 3), numbers("target", 2, 2 * 6 * 8 * 8)]
        path = save(tmp_path / "net.onnx", nodes, inputs={"x": [4, 3, 10, 10]}, stored=stored)
        with pytest.warns(FixedBatchWarning, match="Reshape"):
            graph = pm.from_onnx(path)
        assert graph.node("conv").layer.kind == "convolution_2d"
        assert product_flop_counts(graph, 4)[0] == 4 * 2 * 6 * 8 * 8 * 3 * 3 * 3

    def test_inputs_that_disagree_hold_for_one_batch_size(self, tmp_path):
        path = save(
            tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "z"], ["y"])], inputs={"x": [4, 6], "z": [6, 5]}
        )
        with pytest.warns(FixedBatchWarning, match="different extents along the first axis"):
            graph = pm.from_onnx(path)
        assert product_flop_counts(graph, 4)[0] == 2 * 4 * 6 * 5

    def test_the_only_batch_size_can_be_given(self, tmp_path):
        nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0])]
        node, stored = linear("fc", "t", "y", 4, 5)
        path = save(tmp_path / "net.onnx", [*nodes, node], inputs={"x": ["N", 6]}, stored=stored)
        with pytest.raises(SpecError, match=r"net.onnx: 1 fault: holds for one batch size only, so give batch_size"):
            pm.from_onnx(path)
        with pytest.raises(SpecError, match="node 'fc'"):
            pm.from_onnx(path, batch_size=3)
        with pytest.warns(FixedBatchWarning):
            assert pm.from_onnx(path, batch_size=4).fixed_batch_size == 4

    def test_other_free_sizes_must_be_given(self, tmp_path):
        nodes = [helper.make_node("Gather", ["table", "ids"], ["y"], name="words")]
        path = save(
            tmp_path / "net.onnx", nodes, inputs={"ids": ["batch", "sequence"]}, stored=[weights("table", 10, 6)]
        )
        with pytest.raises(SpecError, match=r"input 'ids', axis 1 is the free size 'sequence': give it by sizes="):
            pm.from_onnx(path)
        graph = pm.from_onnx(path, sizes={"sequence": 9})
        assert graph.shape("words") == (9, 6)
        assert graph.parameter_count == 60
        with pytest.raises(UnknownNameError, match="Did you mean 'sequence'"):
            pm.from_onnx(path, sizes={"sequense": 9})
        for wrong in (0, -3, 2.5, "nine", True):
            with pytest.raises(ArgumentError, match=r"sizes\['sequence'\]"):
                pm.from_onnx(path, sizes={"sequence": wrong})

    def test_an_input_that_samples_share_is_no_input_per_sample(self, tmp_path):
        nodes = [helper.make_node("Add", ["x", "offsets"], ["y"])]
        path = save(tmp_path / "net.onnx", nodes, inputs={"x": ["N", 6], "offsets": [1, 6]})
        graph = pm.from_onnx(path)
        assert graph.input_shapes == {"x": (6,)}
        assert graph.shape(graph.outputs[0]) == (6,)


class TestNodes:
    def test_names_of_the_same_cost_nothing(self, tmp_path):
        node, stored = linear("fc", "c", "d", 6, 5)
        nodes = [
            helper.make_node("Identity", ["x"], ["a"]),
            helper.make_node("Constant", [], ["half"], value=helper.make_tensor("", FLOAT, [], [0.5])),
            helper.make_node("Dropout", ["a", "half"], ["c"]),
            node,
            helper.make_node("Identity", ["d"], ["y"]),
        ]
        graph = pm.from_onnx(save(tmp_path / "net.onnx", nodes, inputs={"x": ["N", 6]}, stored=stored))
        assert [each.name for each in graph.layers] == ["fc"]
        assert graph.parameter_count == 35

    def test_dropout_of_networks_in_training(self, tmp_path):
        stored = [helper.make_tensor("rate", FLOAT, [], [0.25]), helper.make_tensor("on", TensorProto.BOOL, [], [True])]
        node = helper.make_node("Dropout", ["x", "rate", "on"], ["y"], name="drop")
        graph = pm.from_onnx(save(tmp_path / "net.onnx", [node], inputs={"x": ["N", 6]}, stored=stored))
        assert graph.node("drop").layer == layers.Dropout(rate=0.25)

    def test_a_bias_added_to_a_product_belongs_to_the_dense_layer(self, tmp_path):
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="fc"), helper.make_node("Add", ["b", "p"], ["y"])]
        stored = [weights("w", 6, 5), weights("b", 5)]
        graph = pm.from_onnx(save(tmp_path / "net.onnx", nodes, inputs={"x": ["N", 9, 6]}, stored=stored))
        assert [(each.name, each.layer) for each in graph.layers] == [("fc", layers.Dense(units=5))]

    def test_a_product_read_twice_keeps_its_bias_apart(self, tmp_path):
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="fc"),
            helper.make_node("Add", ["p", "b"], ["q"]),
            helper.make_node("Mul", ["p", "q"], ["y"]),
        ]
        stored = [weights("w", 6, 5), weights("b", 5)]
        graph = pm.from_onnx(save(tmp_path / "net.onnx", nodes, inputs={"x": ["N", 9, 6]}, stored=stored))
        assert graph.node("fc").layer == layers.Dense(units=5, bias=False)
        assert graph.parameter_count == 35

    def test_one_tensor_of_two_layers_counts_once(self, tmp_path):
        nodes = [
            helper.make_node("Gather", ["table", "ids"], ["e"], name="words"),
            helper.make_node("Transpose", ["table"], ["t"], perm=[1, 0]),
            helper.make_node("MatMul", ["e", "t"], ["y"], name="scores"),
        ]
        graph = pm.from_onnx(
            save(tmp_path / "net.onnx", nodes, inputs={"ids": ["N", 9]}, stored=[weights("table", 50, 6)])
        )
        assert [each.name for each in graph.layers] == ["words", "scores"]
        assert graph.parameter_count == 300
        assert graph.node("scores").trained_shared_count == 300
        assert product_flop_counts(graph, 2)[0] == 2 * 9 * 2 * 6 * 50

    def test_shapes_computed_from_shapes(self, tmp_path):
        # the target (N, 3, 4 // 2, -1), worked out as exporters write it
        nodes = [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "first"], ["n"]),
            helper.make_node("Gather", ["s", "last"], ["w"]),
            helper.make_node("Div", ["w", "two"], ["h"]),
            helper.make_node("Concat", ["n", "three", "h", "rest"], ["target"], axis=0),
            helper.make_node("Reshape", ["x", "target"], ["y"], name="view"),
        ]
        stored = [numbers("first", 0), numbers("last", 2), numbers("two", 2), numbers("three", 3), numbers("rest", -1)]
        graph = pm.from_onnx(save(tmp_path / "net.onnx", nodes, inputs={"x": ["N", 3, 4]}, stored=stored))
        assert [each.name for each in graph.layers] == ["view"]
        assert graph.shape("view") == (3, 2, 2)

    def test_functions_of_the_file_are_their_nodes(self, tmp_path):
        inner = [helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Add", ["a", "b"], ["c"])]
        function = helper.make_function("mine", "Twice", ["a"], ["c"], inner, [helper.make_opsetid("", 17)])
        node = helper.make_node("Twice", ["x"], ["y"], domain="mine")
        path = save(tmp_path / "net.onnx", [node], inputs={"x": ["N", 6]}, functions=[function], domains=["mine"])
        assert [each.layer.kind for each in pm.from_onnx(path).layers] == ["relu", "add"]

    def test_a_custom_operator_is_a_hole_with_a_name(self, tmp_path):
        node, stored = linear("fc", "c", "y", 8, 5)
        nodes = [helper.make_node("Fold", ["x"], ["c"], name="fold", domain="com.acme"), node]
        path = save(
            tmp_path / "net.onnx",
            nodes,
            inputs={"x": ["N", 6]},
            stored=stored,
            domains=["com.acme"],
            stated=[("c", ["N", 8])],
        )
        with pytest.warns(OpaqueLayerWarning, match=r"'com.acme.Fold' \(1 nodes: fold\)"):
            graph = pm.from_onnx(path)
        assert graph.shape("fold") == (8,)
        counts = dict.fromkeys(("fold", "fc"), 0)
        for name, operation in graph.operations(batch_size=3, phase="forward"):
            counts[name] += operation.work(element_bytes=4).flop_count
        assert counts["fold"] >= 3 * (6 + 8)
        assert product_flop_counts(graph, 3)[0] == 3 * 2 * 8 * 5

    def test_json_round_trip(self, tmp_path):
        graph = pm.from_onnx(recurrence(tmp_path / "r.onnx", "GRU", 3, batch="N"))
        graph.save(tmp_path / "net.json")
        assert LayerGraph.load(tmp_path / "net.json").fingerprint == graph.fingerprint


class TestBadFiles:
    def refused(self, path, *, match):
        with pytest.raises(SpecError, match=match) as caught:
            pm.from_onnx(path)
        assert str(path) in str(caught.value)

    def test_ten_random_bytes(self, tmp_path):
        generator = np.random.default_rng(7)
        for _ in range(50):
            path = tmp_path / "random.onnx"
            path.write_bytes(generator.bytes(10))
            self.refused(path, match="is no ONNX file")

    def test_truncated_anywhere(self, tmp_path):
        whole = recurrence(tmp_path / "whole.onnx", "LSTM", 4, batch="N").read_bytes()
        path = tmp_path / "cut.onnx"
        for end in (*range(0, 200, 7), *range(200, len(whole) - 40, 61)):
            path.write_bytes(whole[:end])
            self.refused(path, match="is no ONNX file|is made by no node|which no node before it makes")

    def test_what_is_no_file(self, tmp_path):
        self.refused(tmp_path, match="cannot be read")
        self.refused(tmp_path / "missing.onnx", match="cannot be read")
        for wrong in (None, 3, ""):
            with pytest.raises(ArgumentError, match="path"):
                pm.from_onnx(wrong)

    def test_weights_that_are_missing_or_cut(self, tmp_path):
        path = alexnet_file(tmp_path, "N")
        outside = tmp_path / "weights.bin"
        os.truncate(outside, 1000)
        self.refused(path, match=r"tensor 'conv0.weight': its file 'weights.bin' has 1000 B, but must have 92928 B")
        outside.unlink()
        self.refused(path, match=r"tensor 'fc2.bias': its file 'weights.bin' is missing beside alexnet.onnx")

    def test_control_flow(self, tmp_path):
        branch = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["z"])], "b", [], [helper.make_empty_tensor_value_info("z")]
        )
        node = helper.make_node("If", ["is"], ["y"], name="choice", then_branch=branch, else_branch=branch)
        path = save(tmp_path / "net.onnx", [node], inputs={"x": ["N", 6], "is": []})
        self.refused(path, match="node 'choice' is a If, whose nodes depend on data")

    def test_shapes_that_depend_on_data(self, tmp_path):
        path = save(tmp_path / "net.onnx", [helper.make_node("NonZero", ["x"], ["y"], name="z")], inputs={"x": [4, 6]})
        self.refused(path, match="node 'z': the shape of 'y', made by NonZero, depends on data")

    def test_shapes_that_do_not_fit(self, tmp_path):
        node, stored = linear("fc", "x", "y", 6, 5)
        path = save(tmp_path / "net.onnx", [node], inputs={"x": ["N", 7]}, stored=stored)
        self.refused(path, match="node 'fc': Gemm")

    def test_links_that_lead_nowhere(self, tmp_path):
        path = save(tmp_path / "net.onnx", [helper.make_node("Relu", ["z"], ["y"], name="r")], inputs={"x": [4, 6]})
        self.refused(path, match="node 'r' reads 'z', which no node before it makes")
        path = save(tmp_path / "net.onnx", [helper.make_node("Relu", ["x"], ["z"])], inputs={"x": [4, 6]})
        self.refused(path, match="output 'y' is made by no node")

    def test_results_that_follow_from_no_input(self, tmp_path):
        path = save(
            tmp_path / "net.onnx",
            [helper.make_node("Relu", ["w"], ["y"])],
            inputs={"x": ["N", 6]},
            stored=[weights("w", 3)],
        )
        self.refused(path, match="its outputs depend on none of its inputs")


def test_progress_is_shown_where_it_is_asked_for(tmp_path, capsys):
    path = recurrence(tmp_path / "net.onnx", "GRU", 3, batch="N")
    pm.from_onnx(path)
    assert capsys.readouterr().err == ""
    pm.from_onnx(path, progress=True)
    assert "importing net.onnx" in capsys.readouterr().err


def test_zero_states_are_of_every_sample(tmp_path):
    class Cell(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = torch.nn.LSTMCell(8, 10)

        def forward(self, x):
            state = torch.zeros(x.shape[0], 10), torch.zeros(x.shape[0], 10)
            for step in range(3):
                state = self.cell(x[:, step], state)
            return state[0]

    path = exported(tmp_path / "cell.onnx", Cell(), torch.zeros(4, 3, 8), dynamic_axes={"x": {0: "batch"}})
    graph = pm.from_onnx(path)
    assert not of_kind(graph, "opaque")
    # three steps of four gates of 10 units, from 8 inputs and 10 states; N = 4
    assert product_flop_counts(graph, 4)[0] == 3 * 2 * 4 * 40 * (8 + 10)


class Neighbours(torch.nn.Module):
    """Two layers on the nodes of a graph whose edges are a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.rand(10, 10))
        self.register_buffer("mean", torch.rand(5))
        self.first, self.second = torch.nn.Linear(5, 9), torch.nn.Linear(9, 2)

    def forward(self, x):
        x = self.edges @ (x - self.mean)
        return self.second(self.edges @ self.first(x).relu())


class Normalised(torch.nn.Module):
    """Layers whose weights are divided by a measure of them, which two buffers hold the vectors of."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.utils.spectral_norm(torch.nn.Conv2d(3, 8, 3))
        self.dense = torch.nn.utils.spectral_norm(torch.nn.Linear(8, 1))

    def forward(self, x):
        return self.dense(self.convolution(x).mean((2, 3)))


class Queries(torch.nn.Module):
    """Learned queries, as many as they have features, go through a layer; a learned table is added."""

    def __init__(self):
        super().__init__()
        self.queries = torch.nn.Parameter(torch.rand(6, 6))
        self.places = torch.nn.Parameter(torch.rand(7, 6))
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(self.queries) @ (x + self.places).transpose(1, 2)


@pytest.mark.parametrize(
    ("make", "shape"), [(Neighbours, (2, 10, 5)), (Normalised, (2, 3, 9, 9)), (Queries, (2, 7, 6))]
)
def test_parameters_are_those_that_torch_trains(tmp_path, make, shape):
    module = make().eval()
    path = exported(tmp_path / "net.onnx", module, torch.zeros(shape), dynamic_axes={"x": {0: "batch"}})
    assert pm.from_onnx(path).parameter_count == sum(each.numel() for each in module.parameters())


def test_a_stored_mask_is_no_parameter(tmp_path):
    mask = helper.make_tensor(
        "mask", FLOAT, [3, 3], np.triu(np.full((3, 3), -np.inf, np.float32), 1).tobytes(), raw=True
    )
    node = helper.make_node("Add", ["x", "mask"], ["y"])
    assert (
        pm.from_onnx(save(tmp_path / "mask.onnx", [node], inputs={"x": ["N", 3, 3]}, stored=[mask])).parameter_count
        == 0
    )


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bi,ij,bj->b", [("N", 5), (5, 7), ("N", 7)]),  # a bilinear form
        ("bshd,hde,bthe->bhst", [("N", 6, 2, 3), (2, 3, 4), ("N", 7, 2, 4)]),
        ("bi,ij,jk,kl->bl", [("N", 5), (5, 7), (7, 3), (3, 4)]),
        ("ij,jk,bk->bi", [(5, 7), (7, 3), ("N", 3)]),  # the first product is of weights alone
    ],
)
def test_sums_over_products_of_several_tensors_from_left_to_right(tmp_path, equation, shapes):
    names = [f"x{index}" for index in range(len(shapes))]
    given = {name: list(shape) for name, shape in zip(names, shapes, strict=True)}
    stored = [weights(name, *shape) for name, shape in given.items() if "N" not in shape]
    inputs = {name: shape for name, shape in given.items() if "N" in shape}
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    graph = pm.from_onnx(save(tmp_path / "sum.onnx", [node], inputs=inputs, stored=stored))
    assert not of_kind(graph, "opaque")
    tensors = [torch.empty([4 if extent == "N" else extent for extent in shape], device="meta") for shape in shapes]
    with torch.backends.opt_einsum.flags(enabled=False), FlopCounterMode(display=False) as counter:
        torch.einsum(equation, *tensors)
    assert product_flop_counts(graph, 4)[0] == counter.get_total_flops()
