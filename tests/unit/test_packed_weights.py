"""Weights stored in fewer bits or without those that pruning left out: bytes, passes, times, files."""

import pytest

import perfmodel as pm
from perfmodel import layers
from perfmodel.errors import ArgumentError, PerfmodelError

COUNT = 16384 * 16384
"""Weights of the layer. [1]"""


def one_layer(**options):
    graph = pm.LayerGraph("one", input_shape=(16384,))
    graph.add("fc", layers.Dense(units=16384), inputs="input", **options)
    return graph


def predicted(graph=None, **arguments):
    asked = {"batch_size": 1, "device": "a100_80_sxm", "framework": "generic", "dtype": "bf16", "phase": "forward"}
    return pm.predict(one_layer() if graph is None else graph, **asked | arguments)


@pytest.mark.parametrize(("dtype", "per_weight"), [(None, 2.0), ("int8", 1.0), ("int4", 0.515625)])
def test_weights_have_their_own_bytes(dtype, per_weight):
    graph = one_layer() if dtype is None else one_layer().quantised(dtype)
    assert graph.weight_bytes(element_bytes=2) == per_weight * COUNT + 2 * 16384  # biases stay
    work = graph.work(batch_size=1, dtype="bf16")
    assert work.read_bytes == per_weight * COUNT + 2 * 16384 + 2 * 16384
    dense, packed = predicted().memory.weights_bytes, predicted(weight_dtype=dtype).memory.weights_bytes
    assert packed / dense == pytest.approx((per_weight * COUNT + 2 * 16384) / (2 * COUNT + 2 * 16384))


def test_a_product_of_one_row_takes_the_time_of_its_stored_weights():
    dense, eight, four = (predicted(weight_dtype=dtype).step_s for dtype in (None, "int8", "int4"))
    assert dense > 1.5 * eight > 2 * four
    by_name = predicted(weight_dtype="int4", batch_size=4096).step_s
    assert by_name == pytest.approx(predicted(batch_size=4096).step_s, rel=0.1)  # products of many rows
    # kernels that read dense weights have them unpacked first: read stored, write and read elements
    unpacked = predicted(framework="pytorch_1_0", weight_dtype="int8", dtype="fp32").step_s
    assert unpacked > 1.4 * predicted(framework="pytorch_1_0", dtype="fp32").step_s


@pytest.mark.parametrize(
    ("pattern", "density", "per_weight"),
    [("2:4", 0.5, 2 * 9 / 16), ("unstructured", 0.1, 0.6), ("unstructured", 0.9, 2.0)],
)
def test_pruned_weights_are_stored_as_values_and_indices(pattern, density, per_weight, tmp_path):
    graph = one_layer().pruned(density, pattern=pattern)
    assert graph.weight_bytes(element_bytes=2) == pytest.approx(per_weight * COUNT + 2 * 16384)
    assert graph.parameter_count == one_layer().parameter_count
    graph.save(tmp_path / "pruned.json")
    assert pm.LayerGraph.load(tmp_path / "pruned.json").fingerprint == graph.fingerprint != one_layer().fingerprint


@pytest.mark.parametrize(("pattern", "density"), [("2:4", 0.5), ("unstructured", 0.1)])
def test_counts_stay_dense_beside_the_weights_that_are_left(pattern, density):
    dense, graph = one_layer(), one_layer().pruned(density, pattern=pattern)
    assert graph.nonzero_count == round(density * COUNT) + 16384  # biases stay
    assert dense.nonzero_count == graph.parameter_count == dense.parameter_count
    assert graph.work(batch_size=3).flop_count == dense.work(batch_size=3).flop_count
    assert f"{graph.nonzero_count:,} left by pruning" in str(graph.summary())
    assert "pruning" not in str(dense.summary())


def test_sparse_tensor_cores_take_half_the_time_from_ampere_on():
    sparse, many = one_layer().pruned(0.5, pattern="2:4"), {"batch_size": 8192}
    faster = predicted(**many).compute_s / predicted(sparse, **many).compute_s  # the step waits for its input
    assert 1.7 < faster < 2.05
    volta = many | {"device": "v100_sxm2", "dtype": "fp16"}
    for dense in (volta, many | {"dtype": "fp32"}):
        of_sparse, of_dense = predicted(sparse, **dense), predicted(**dense)
        assert of_sparse.compute_s == of_dense.compute_s
        assert of_sparse.memory_bound_s > of_dense.memory_bound_s  # unpacked first


def test_sweeps_of_packed_weights_refuse_the_rows_that_train():
    sparse, asked = one_layer().pruned(0.5, pattern="2:4"), {"device": "a100_80_sxm", "dtype": "bf16", "batch_size": 8}
    swept = pm.sweep(sparse, phase=["forward", "step"], **asked)
    assert [row.fits for row in swept.rows] == [True, False]
    assert swept.rows[0].step_s == pytest.approx(pm.predict(sparse, phase="forward", **asked).step_s)


def test_packed_weights_do_not_train_unless_frozen():
    with pytest.raises(ArgumentError, match=r"fc.*freeze"):
        predicted(weight_dtype="int8", phase="step")
    graph = pm.LayerGraph("adapted", input_shape=(16384,))
    graph.add("fc", layers.Dense(units=16384), inputs="input", is_trained=False)
    graph.add("adapter", layers.Dense(units=16), inputs="fc")
    trained = graph.pruned(0.5, pattern="2:4", layers=["fc"])
    assert predicted(trained, phase="step").memory.weights_bytes < predicted(graph, phase="step").memory.weights_bytes
    # QLoRA: frozen weights in half a byte each and a scale for every group, the adapter's in two
    whole, packed = (predicted(graph, phase="step", weight_dtype=dtype).memory for dtype in (None, "int4"))
    assert whole.weights_bytes - packed.weights_bytes == (2 - 0.515625) * COUNT
    assert packed.optimizer_bytes == whole.optimizer_bytes
    inferred = predicted(graph, weight_dtype="int4").memory  # the adapter's too
    assert packed.weights_bytes - inferred.weights_bytes == (2 - 0.515625) * 16 * 16384


@pytest.mark.parametrize(
    "wrong",
    [
        {"density": 0.4, "pattern": "2:4"},
        {"density": 1.5},
        {"density": 0.5, "pattern": "4:8"},
        {"density": 0.5, "layers": ["fd"]},
    ],
)
def test_wrong_pruning_is_refused(wrong):
    with pytest.raises(PerfmodelError):
        one_layer().pruned(**wrong)


def quantised_file(path, *, weight_type=None):
    """Write x -> Q -> DQ -> MatMul with 32 x 64 dequantised weights -> Relu."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    kind = TensorProto.INT8 if weight_type is None else weight_type
    scale, zero = (
        helper.make_tensor("s", TensorProto.FLOAT, [], [0.1]),
        helper.make_tensor("z", TensorProto.INT8, [], [0]),
    )
    weights = helper.make_tensor("w", kind, [32, 64], [1] * (32 * 64))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["wd"]),
        helper.make_node("MatMul", ["xd", "wd"], ["y"]),
        helper.make_node("Relu", ["y"], ["r"]),
    ]
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name, size in (("x", 32), ("r", 64))
    ]
    graph = helper.make_graph(nodes, "qdq", sides[:1], sides[1:], [scale, zero, weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path


def test_a_quantised_onnx_file_keeps_its_integer_weights(tmp_path):
    graph = pm.from_onnx(quantised_file(tmp_path / "qdq.onnx"))
    assert [node.layer.kind for node in graph.layers] == ["quantize", "dequantize", "dense", "relu"]
    assert (graph.parameter_count, graph.weight_bytes(element_bytes=4)) == (2048, 2048)
    dense = pm.LayerGraph("dense", input_shape=(32,))
    dense.add("fc", layers.Dense(units=64, bias=False), inputs="input")
    dense.add("relu", layers.ReLU(), inputs="fc")
    extra = graph.work(batch_size=8).moved_bytes - dense.work(batch_size=8).moved_bytes
    assert extra == 2 * (4 + 1) * 8 * 32 - (4 - 1) * 2048  # two passes over activations, weights of one byte
    p = pm.predict(graph, batch_size=8, device="gtx_1080", phase="forward")
    q = pm.predict(dense, batch_size=8, device="gtx_1080", phase="forward")
    assert q.memory.weights_bytes == 4 * p.memory.weights_bytes
    with pytest.raises(ArgumentError, match="freeze"):
        pm.predict(graph, batch_size=8, device="gtx_1080")


def scaled_file(path, nodes, stored, *, weight_type):
    """Write nodes from x to y whose table of weights ``w`` is 32 x 64."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    tensors = [
        helper.make_tensor("w", weight_type, [32, 64], bytes(32 * 64), raw=True),
        *(helper.make_tensor(name, TensorProto.FLOAT, [64], [1.0] * 64) for name in stored),
        helper.make_tensor("z", TensorProto.INT8, [], [0]),
    ]
    made = [helper.make_node(kind, reads, makes, name=f"n{place}", **how) for place, (kind, reads, makes, how) in nodes]
    sides = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 32]), helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(made, "scaled", sides[:1], sides[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


FLOAT, INT8, FP8 = 1, 3, 17
"""onnx.TensorProto's numbers of data types. [-]"""
PRODUCT = ("MatMul", ["x", "ws"], ["y"], {})
CAST = ("Cast", ["w"], ["wf"], {"to": FLOAT})


@pytest.mark.parametrize(
    ("nodes", "stored", "weight_type"),
    [
        ([("DequantizeLinear", ["w", "s"], ["ws"], {"axis": 1}), PRODUCT], ["s"], FP8),
        ([CAST, ("Mul", ["wf", "s"], ["ws"], {}), PRODUCT], ["s"], INT8),
        ([CAST, ("Mul", ["s", "wf"], ["ws"], {}), PRODUCT], ["s"], INT8),
        ([CAST, ("Sub", ["wf", "t"], ["wt"], {}), ("Mul", ["wt", "s"], ["ws"], {}), PRODUCT], ["s", "t"], INT8),
    ],
)
def test_weights_that_a_file_scales_keep_their_stored_bytes(nodes, stored, weight_type, tmp_path):
    graph = pm.from_onnx(scaled_file(tmp_path / "f.onnx", list(enumerate(nodes)), stored, weight_type=weight_type))
    (node,) = graph.layers
    assert (node.layer.kind, node.usage.weight_dtype) == ("dense", "fp8" if weight_type == FP8 else "int8")
    assert (graph.parameter_count, graph.weight_bytes(element_bytes=4)) == (2048, 2048)
    assert graph.work(batch_size=8).flop_count == 2 * 8 * 2048
    assert predicted(graph, dtype="fp32").memory.weights_bytes == 2048


def test_a_product_of_integers_is_that_of_a_dense_layer_with_stored_weights(tmp_path):
    nodes = [
        ("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"], {}),
        ("MatMulInteger", ["xq", "w", "xz", "z"], ["yi"], {}),
        ("Cast", ["yi"], ["yf"], {"to": FLOAT}),
        ("Mul", ["yf", "xs"], ["y"], {}),
    ]
    graph = pm.from_onnx(scaled_file(tmp_path / "f.onnx", list(enumerate(nodes)), [], weight_type=INT8))
    kinds = [node.layer.kind for node in graph.layers]
    assert kinds[:2] == ["quantize", "dense"]
    assert "opaque" not in kinds
    assert (graph.parameter_count, graph.weight_bytes(element_bytes=4)) == (2048, 2048)
    assert graph.work(batch_size=8).flop_count >= 2 * 8 * 2048 + 5 * 8 * 32


def test_stored_fp8_is_the_operand_of_fp8_products():
    graph = one_layer()
    how = {"device": "h100_sxm", "dtype": "fp8", "batch_size": 1, "phase": "forward", "framework": "generic"}
    cast, stored, other = (pm.predict(graph, **how, weight_dtype=dtype) for dtype in (None, "fp8", "int8"))
    assert stored.memory.weights_bytes == other.memory.weights_bytes == COUNT + 2 * 16384
    moved = [sum(row.bytes for row in p.layers) for p in (cast, stored, other)]
    assert moved[0] - moved[1] == pytest.approx((2 + 2 + 1) * COUNT, rel=0.01)  # scaled, cast: read twice, written


def quantised_activations(size):
    graph = pm.LayerGraph("activations", input_shape=(size,))
    for place, layer in enumerate((layers.ReLU(), layers.Quantize(), layers.Dequantize(), layers.ReLU())):
        graph.add(f"layer{place}", layer, inputs=f"layer{place - 1}" if place else graph.input)
    return graph


def test_quantised_activations_take_a_byte_in_time_and_memory():
    size, batch = 2**20, 64
    graph = quantised_activations(size)
    rows = predicted(graph, batch_size=batch).layers
    elements = size * batch
    assert [row.bytes for row in rows] == [4 * elements, 3 * elements, 3 * elements, 4 * elements]  # bf16
    times = [row.seconds for row in rows]
    assert times[1] < 0.8 * times[0]
    assert times[2] < 0.8 * times[3]
    (fused,) = predicted(graph, batch_size=batch, framework="pytorch_2_compiled", dtype="fp32").layers
    assert fused.bytes == 8 * elements  # what lies between stays on chip
    _, of_a_sample = graph.liveness(phase="forward").activations
    assert of_a_sample.tolist() == [0, 4 * size, 5 * size, 5 * size, 8 * size]


def test_the_gradient_of_a_quantised_activation_has_the_type_of_the_network():
    graph = pm.LayerGraph("trained", input_shape=(100,))
    graph.add("fc", layers.Dense(units=100), inputs="input")
    graph.add("quantised", layers.Quantize(), inputs="fc")
    sides = [graph.add(name, layers.Dequantize(), inputs="quantised") for name in ("left", "right")]
    graph.add("sum", layers.Add(), inputs=sides)
    graph.add("scores", layers.Dense(units=10), inputs="sum")
    graph.add("loss", layers.CrossEntropy(), inputs="scores")
    liveness = graph.liveness(phase="forward_backward")
    summing = [place for place, (layer, _) in enumerate(liveness.moments) if layer == "quantised"][1]
    # the sum of two gradients beside the one that both sides passed on, and the loss
    assert liveness.activations[1][summing] == 4 * 100 + 4 * 100 + 4


def test_the_audit_tells_of_integer_weights(tmp_path):
    audit = pm.audit(pm.from_onnx(quantised_file(tmp_path / "qdq.onnx")), phase="forward", batch_size=8)
    assert any("int8" in note and "2,048" in note for note in audit.notes)


def embedded(cell=None):
    graph = pm.LayerGraph("embedded", input_shape=(32,))
    x = graph.add("table", layers.Embedding(vocabulary=1000, features=64), inputs=graph.input)
    if cell is not None:
        x = graph.add("cell", cell(hidden_size=64), inputs=x)
    graph.add("scores", layers.Dense(units=64), inputs=x)
    return graph


@pytest.mark.parametrize("cell", [None, layers.LSTM, layers.GRU])
def test_weights_that_stay_dense_are_named_before_the_time(cell):
    graph = embedded(cell)
    dense = ("table",) if cell is None else ("table", "cell")
    assert graph.dense_layers == dense
    share = 100 * sum(graph.parameter_counts[name] for name in dense) / graph.parameter_count
    changed = (
        predicted(graph, weight_dtype="int8"), predicted(graph.quantised("int4")),
        predicted(graph.pruned(0.5, pattern="2:4")),
    )  # fmt: skip
    for p in changed:
        (line,) = [line for line in p.remarks if "stay in bf16" in line]
        assert line.startswith("weights of table")
        assert ("and 1 more" in line) == (cell is not None)
        assert f"({share:.1f} % of all)" in line
        for text in (str(p), p.explain()):
            assert " ".join(text.split()).startswith(f"note: {line}")
            assert " ".join(text.split()).count(line) == 1
    assert not [line for line in predicted(graph).remarks if "stay in" in line]
    narrow = predicted(graph, device="h100_sxm", dtype="fp8", weight_dtype="fp8")  # a recipe keeps weights in its base
    assert any("stay in bf16" in line for line in narrow.remarks)


def test_a_network_of_recurrences_alone_says_that_none_of_its_weights_are_packed():
    graph = pm.LayerGraph("cells", input_shape=(32, 64))
    graph.add("cell", layers.LSTM(hidden_size=64), inputs=graph.input)
    p, plain = predicted(graph, weight_dtype="int8"), predicted(graph)
    assert p.memory.weights_bytes == plain.memory.weights_bytes
    assert "weights of cell (100.0 % of all) stay in bf16" in p.remarks[0]
    with pytest.raises(ArgumentError, match="density"):
        graph.pruned(0.5)


def test_tables_that_are_packed_one_by_one_are_not_called_dense():
    graph = pm.LayerGraph("table", input_shape=(32,))
    graph.add("table", layers.Embedding(vocabulary=1000, features=64), inputs=graph.input, weight_dtype="int8")
    graph.add("scores", layers.Dense(units=64), inputs="table", weight_dtype="int8")
    assert predicted(graph).memory.weights_bytes == 1000 * 64 + 64 * 64 + 2 * 64
    assert not [line for line in predicted(graph).remarks if "stay in" in line]
