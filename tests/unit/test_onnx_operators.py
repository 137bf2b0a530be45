"""Standard ONNX operators, one node each: which layer they are, at a free batch size, with the shape onnx says."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import perfmodel as pm


def node_graph(folder, operator, shapes, stored=(), *, version=17, outputs=1, **attributes):
    """Import a network of one node; ``shapes`` are of its inputs, "N" for the batch axis, bool where they begin so."""
    names = [f"x{index}" for index in range(len(shapes))]
    kinds = [TensorProto.BOOL if shape[0] is bool else TensorProto.FLOAT for shape in shapes]
    extents = [shape[1:] if shape[0] is bool else shape for shape in shapes]
    tensors = [
        numpy_helper.from_array(np.asarray(each), f"c{index}") for index, each in enumerate(stored) if each is not None
    ]
    constants = [f"c{index}" if each is not None else "" for index, each in enumerate(stored)]
    made = [f"y{index}" for index in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(operator, [*names, *constants], made, name="node", **attributes)],
        "graph",
        [helper.make_tensor_value_info(*each) for each in zip(names, kinds, extents, strict=True)],
        [helper.make_empty_tensor_value_info(name) for name in made],
        tensors,
    )
    path = folder / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)
    onnx.save(model, path)
    return pm.from_onnx(path)


MAP = ("N", 6, 10, 10)
ROWS = ("N", 9, 6)


def ints(*values):
    return np.array(values, np.int64)


def floats(*shape):
    return np.ones(shape, np.float32)


CASES = [
    # operator, shapes, stored, attributes, kind of the layer, shape of a sample
    ("Relu", [ROWS], [], {}, "relu", (9, 6)),
    ("LeakyRelu", [ROWS], [], {"alpha": 0.2}, "leaky_relu", (9, 6)),
    ("PRelu", [MAP], [floats(6, 1, 1)], {}, None, (6, 10, 10)),
    ("Clip", [ROWS], [np.float32(0), np.float32(6)], {}, "relu6", (9, 6)),
    ("Clip", [ROWS], [np.float32(-2), np.float32(2)], {}, "unary", (9, 6)),
    ("Sigmoid", [ROWS], [], {}, "sigmoid", (9, 6)),
    ("HardSwish", [ROWS], [], {}, "unary", (9, 6)),
    ("HardSigmoid", [ROWS], [], {}, "unary", (9, 6)),
    ("Softmax", [ROWS], [], {"axis": -1}, "softmax", (9, 6)),
    ("LogSoftmax", [ROWS], [], {"axis": 2}, "log_softmax", (9, 6)),
    ("Gelu", [ROWS], [], {"approximate": "tanh", "version": 20}, "gelu", (9, 6)),
    ("Erf", [ROWS], [], {}, "unary", (9, 6)),
    ("Sqrt", [ROWS], [], {}, "unary", (9, 6)),
    ("Not", [(bool, *ROWS)], [], {}, "unary", (9, 6)),
    ("Cast", [ROWS], [], {"to": TensorProto.FLOAT16}, "copy", (9, 6)),
    ("Add", [ROWS, ROWS], [], {}, "add", (9, 6)),
    ("Add", [ROWS], [floats(9, 1)], {}, "binary", (9, 6)),
    ("Mul", [MAP, ("N", 6, 1, 1)], [], {}, "binary", (6, 10, 10)),
    ("Div", [ROWS], [np.float32(8)], {}, "binary", (9, 6)),
    ("Pow", [ROWS], [np.float32(2)], {}, "binary", (9, 6)),
    ("Less", [ROWS, ROWS], [], {}, "binary", (9, 6)),
    ("And", [(bool, *ROWS), (bool, *ROWS)], [], {}, "binary", (9, 6)),
    ("Where", [(bool, *ROWS), ROWS], [np.float32(0)], {}, "where", (9, 6)),
    ("MatMul", [ROWS, ("N", 6, 4)], [], {}, "matmul", (9, 4)),
    ("MatMul", [ROWS], [floats(6, 4)], {}, "dense", (9, 4)),
    ("Gemm", [("N", 6)], [floats(4, 6), floats(4)], {"transB": 1}, "dense", (4,)),
    ("Einsum", [ROWS, ROWS], [], {"equation": "nqd,nkd->nqk"}, "matmul", (9, 9)),
    ("Einsum", [("N", 9, 2, 4), ("N", 7, 2, 4)], [], {"equation": "bqhd,bkhd->bhqk"}, "matmul", (2, 9, 7)),
    ("Einsum", [ROWS], [floats(6, 2, 3)], {"equation": "bsd,dhk->bhsk"}, "matmul", (2, 9, 3)),
    ("Einsum", [ROWS], [floats(6, 4)], {"equation": "...d,dk->...k"}, "matmul", (9, 4)),
    ("Conv", [MAP], [floats(8, 3, 3, 3), floats(8)], {"group": 2, "pads": [1] * 4}, "convolution_2d", (8, 10, 10)),
    ("Conv", [("N", 6, 10)], [floats(8, 6, 3)], {}, "convolution_1d", (8, 8)),
    ("Conv", [("N", 2, 6, 6, 6)], [floats(8, 2, 3, 3, 3)], {}, "convolution_3d", (8, 4, 4, 4)),
    ("ConvTranspose", [MAP], [floats(6, 4, 2, 2)], {"strides": [2, 2]}, "transposed_convolution_2d", (4, 20, 20)),
    ("MaxPool", [MAP], [], {"kernel_shape": [2, 2], "strides": [2, 2]}, "max_pool_2d", (6, 5, 5)),
    ("AveragePool", [MAP], [], {"kernel_shape": [3, 3]}, "avg_pool_2d", (6, 8, 8)),
    ("GlobalAveragePool", [MAP], [], {}, "avg_pool_2d", (6, 1, 1)),
    ("GlobalMaxPool", [MAP], [], {}, "max_pool_2d", (6, 1, 1)),
    ("BatchNormalization", [MAP], [floats(6)] * 4, {}, "batch_norm", (6, 10, 10)),
    ("InstanceNormalization", [MAP], [floats(6)] * 2, {}, "group_norm", (6, 10, 10)),
    ("GroupNormalization", [MAP], [floats(6)] * 2, {"num_groups": 3, "version": 21}, "group_norm", (6, 10, 10)),
    ("LayerNormalization", [ROWS], [floats(6)] * 2, {"axis": -1}, "layer_norm", (9, 6)),
    ("LRN", [MAP], [], {"size": 5}, "local_response_norm", (6, 10, 10)),
    ("Resize", [MAP], [None, np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"}, "upsample", (6, 20, 20)),
    ("Resize", [(1, 6, 10, 10)], [None, None, ints(1, 6, 20, 30)], {}, "upsample", (6, 20, 30)),
    ("Pad", [MAP], [ints(0, 0, 1, 2, 0, 0, 3, 4)], {}, "pad", (6, 14, 16)),
    ("Flatten", [MAP], [], {}, "flatten", (600,)),
    ("Reshape", [MAP], [ints(0, -1)], {}, None, (600,)),
    ("Reshape", [MAP], [ints(-1, 2, 3, 100)], {}, "reshape", (2, 3, 100)),
    ("Squeeze", [("N", 1, 6)], [ints(1)], {}, "reshape", (6,)),
    ("Squeeze", [("N", 1, 6)], [], {"axes": [1], "version": 11}, "reshape", (6,)),
    ("Unsqueeze", [ROWS], [ints(1)], {}, "reshape", (1, 9, 6)),
    ("Transpose", [ROWS], [], {"perm": [0, 2, 1]}, "transpose", (6, 9)),
    ("Slice", [ROWS], [ints(1), ints(5), ints(1), ints(2)], {}, "slice", (2, 6)),
    ("Slice", [ROWS], [], {"starts": [1], "ends": [5], "axes": [1], "version": 9}, "slice", (4, 6)),
    ("Split", [ROWS], [ints(2, 7)], {"axis": 1, "outputs": 2}, "slice", (2, 6)),
    ("Gather", [ROWS], [ints(0)[0]], {"axis": 1}, None, (6,)),
    ("Concat", [ROWS, ("N", 4, 6)], [], {"axis": 1}, "concat", (13, 6)),
    ("Expand", [("N", 1, 6)], [ints(1, 5, 6)], {}, "expand", (5, 6)),
    ("Tile", [ROWS], [ints(1, 2, 1)], {}, None, (18, 6)),
    ("ReduceMean", [MAP], [], {"axes": [2, 3], "keepdims": 0}, "reduction", (6,)),
    ("ReduceMean", [MAP], [ints(2, 3)], {"version": 18}, "reduction", (6, 1, 1)),
    ("ReduceSum", [ROWS], [ints(1)], {"keepdims": 0}, "reduction", (6,)),
    ("ReduceL2", [ROWS], [], {"axes": [-1], "keepdims": 1}, "reduction", (9, 1)),
    ("ArgMax", [ROWS], [], {"axis": -1, "keepdims": 0}, "reduction", (9,)),
    ("DepthToSpace", [("N", 8, 5, 5)], [], {"blocksize": 2}, None, (2, 10, 10)),
]


@pytest.mark.parametrize(("operator", "shapes", "stored", "attributes", "kind", "shape"), CASES)
def test_a_standard_node_is_a_layer(tmp_path, operator, shapes, stored, attributes, kind, shape):
    # an opaque layer would warn, and warnings are errors
    graph = node_graph(tmp_path, operator, shapes, stored, **attributes)
    assert graph.fixed_batch_size is None
    main = next(node for node in graph.layers if node.name.startswith("node") and kind in (None, node.layer.kind))
    last = graph.layers[-1] if operator == "Einsum" else main
    assert tuple(last.output_shape) == shape
    assert sum(graph.parameter_counts.values()) == trained(operator, stored)
    for phase in ("forward", "backward"):
        graph.operations(batch_size=4, phase=phase)


def trained(operator, stored):
    """Count the stored tensors that are trained: of a norm not the running statistics, of options none."""
    if operator in ("Resize", "Pad", "Clip"):
        return 0
    counted = stored[:2] if operator == "BatchNormalization" else stored
    return sum(each.size for each in counted if each is not None and each.dtype == np.float32 and each.ndim)


@pytest.mark.parametrize(
    ("equation", "shapes", "stored", "products"),
    [
        ("nqd,nkd->nqk", [ROWS, ROWS], [], 9 * 9 * 6),
        ("bqhd,bkhd->bhqk", [("N", 9, 2, 4), ("N", 7, 2, 4)], [], 2 * 9 * 7 * 4),
        ("bsd,dhk->bhsk", [ROWS], [floats(6, 2, 3)], 9 * 6 * 2 * 3),
        ("nd,nd->n", [("N", 6), ("N", 6)], [], 6),
    ],
)
def test_products_of_einsum(tmp_path, equation, shapes, stored, products):
    graph = node_graph(tmp_path, "Einsum", shapes, stored, equation=equation)
    for batch_size in (1, 5):
        counted = [
            sum(operation.product_flop_count for _, operation in graph.operations(batch_size=batch_size, phase=phase))
            for phase in ("forward", "backward")
        ]
        # a multiply-add for every combination of indices; only the gradient of what is trained is wanted
        assert counted[0] == 2 * batch_size * products
        assert counted[1] == (2 * batch_size * products if stored else 0)
