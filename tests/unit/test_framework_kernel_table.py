"""The table of unique kernels: nothing counted twice, nothing lost, exact at every batch size."""

import numpy as np
import pytest
import sympy

from perfmodel.errors import GraphError
from perfmodel.framework.kernel_table import LayerOperation, build_kernel_table
from perfmodel.framework.rules import PassRule
from perfmodel.records import Contraction, Convolution, MemoryPass, Phase, Role
from tests.lowering_rules import PLAIN, changed

RULES = changed(PLAIN, convolution_algorithms=("implicit_gemm", "fft"), bias="separate")


def table_of(operations_at, rules=RULES):
    """Build a table from a function of the batch size that returns (layer, operation) pairs."""
    probes = [
        [LayerOperation(layer, Phase.FORWARD, operation) for layer, operation in operations_at(batch_size)]
        for batch_size in (1, 2, 3)
    ]
    return build_kernel_table(probes, rules=rules, element_bytes=4, processor="gpu")


def dense(batch_size, units=20):
    return Contraction(m=batch_size, n=units, k=30, bias_elements=units)


def relu(elements):
    return MemoryPass(name="relu", read_elements=elements, written_elements=elements, tensor_elements=elements)


def convolution(batch_size):
    return Convolution(
        batch_size=batch_size, in_channels=16, out_channels=8, input_size=(27, 27), output_size=(27, 27),
        kernel_size=(5, 5), stride=(1, 1), padding=((2, 2), (2, 2)), dilation=(1, 1),
    )  # fmt: skip


def test_identical_layers_are_one_group_with_a_multiplicity():
    table = table_of(
        lambda n: [("a", dense(n)), ("b", dense(n)), ("c", dense(n, units=21)), ("d", dense(n)), ("e", relu(20 * n))]
    )
    assert table.multiplicity.tolist() == [3, 1, 1]
    assert [each.group for each in table.occurrences] == [0, 0, 1, 0, 2]
    assert [each.layer for each in table.occurrences] == list("abcde")
    # two products and two biases, whose passes are alike to nothing else; the relu
    assert (table.matmul.row_count, table.stream.row_count) == (2, 3)


def test_operations_alike_at_one_batch_size_only_stay_apart():
    # at batch size 1 both have one row: only the second is independent of the batch size
    table = table_of(lambda n: [("grows", relu(5 * n)), ("stays", relu(5))])
    assert table.multiplicity.tolist() == [1, 1]
    assert table.stream.at(10)["read_bytes"].tolist() == [200, 20]


def test_alternatives_of_a_group_are_its_own():
    table = table_of(lambda n: [("fc", dense(n)), ("conv", convolution(n))])
    assert table.alternative_names == ("gemm", "implicit_gemm", "fft")
    assert table.choices.T.tolist() == [[0, 0], [1, 2]]
    # at 27 + 4 wide the fft takes 32 x 17 frequencies of 8 B, for image, filters and result
    assert table.workspace.at(6)["workspace_bytes"].tolist() == [0, 0, 8 * 544 * (6 * 16 + 16 * 8 + 6 * 8)]


def test_what_is_not_affine_is_refused():
    with pytest.raises(GraphError, match=r"read_bytes is not affine.*4, 16, 36 at 1, 2, 3"):
        table_of(lambda n: [("odd", relu(n * n))])
    with pytest.raises(GraphError, match="no operations"):
        table_of(lambda n: [])


def test_update_groups_are_marked():
    update = MemoryPass(name="sgd", read_elements=8, written_elements=4, tensor_elements=4, role=Role.UPDATE)
    table = table_of(lambda n: [("fc", dense(n)), ("fc", update)])
    assert table.is_update.tolist() == [False, True]


def test_an_array_of_batch_sizes_has_a_column_for_each():
    table = table_of(lambda n: [("fc", dense(n)), ("relu", relu(20 * n))])
    of_array = table.matmul.at(np.array([1.0, 16.0, 1000.0]))
    assert of_array["m"].tolist() == [[1, 16, 1000]]
    # y is written: 20 columns of 4 B
    assert of_array["written_bytes"].tolist() == [[80, 1_280, 80_000]]


def test_a_symbol_gives_exact_integers():
    table = table_of(lambda n: [("fc", dense(n)), ("conv", convolution(n))])
    n = sympy.Symbol("N")
    assert table.matmul.at(n)["read_bytes"][0] == 120 * n + 2_400
    assert table.workspace.at(n)["workspace_bytes"][2] == 8 * 544 * (24 * n + 128)
    columns = [*table.matmul.at(n).values(), *table.stream.at(n).values()]
    assert not any(value.has(sympy.Float) for column in columns for value in column)


def test_a_symbol_gives_exact_fractions():
    # an image of 27 x 27 by a third of the pass's traffic for each of three launches
    table = table_of(
        lambda n: [("relu", relu(8 * n))], changed(
            PLAIN, passes={"relu": PassRule(reads=1, writes=1, launches=4)},
        )
    )  # fmt: skip
    n = sympy.Symbol("N")
    assert table.stream.at(n)["read_bytes"][0] * table.stream.at(n)["launches"][0] == 32 * n


def test_algorithms_are_left_out_where_another_is_left():
    table = table_of(lambda n: [("fc", dense(n)), ("conv", convolution(n))])
    names = table.alternative_names
    assert table.without_alternatives(("fft",)).choices.T.tolist() == [[0, 0], [1, 1]]
    assert table.without_alternatives(("implicit_gemm",)).choices.T.tolist() == [[0, 0], [2, 2]]
    assert table.without_alternatives(("gemm", "winograd")).choices.tolist() == table.choices.tolist()
    assert table.without_alternatives(()).choices.tolist() == table.choices.tolist()
    # a group keeps its first where nothing else is left
    assert table.without_alternatives(names).choices.T.tolist() == [[0, 0], [1, 1]]
    assert table.choices.T.tolist() == [[0, 0], [1, 2]]
