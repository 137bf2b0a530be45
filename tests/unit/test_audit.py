"""Audits: our products beside torch's formulas, their totals, holes, and the command."""

import json

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, OpaqueLayerWarning
from perfmodel.exit_codes import BAD_INPUT
from perfmodel.layers import Convolution2d, CrossEntropy, Dense, Flatten, Opaque


def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))


IMAGES = torch.empty(4, 3, 6, 6)
CONVOLUTION = 2 * 4 * 36 * 27 * 8  # 4 images of 36 positions, 27 taps, 8 maps
LINEAR = 2 * 4 * 288 * 10


def test_every_operation_stands_beside_torchs():
    audit = pm.audit(net(), IMAGES)
    assert [(row.layer, row.operator) for row in audit.rows] == [("0", "aten.convolution"), ("3", "aten.linear")]
    first, last = audit.rows
    # the convolution's input is the image, which wants no gradient: weights only
    assert (first.forward_flop_count, first.torch_forward_flop_count) == (CONVOLUTION, CONVOLUTION)
    assert (first.backward_flop_count, first.torch_backward_flop_count) == (CONVOLUTION, CONVOLUTION)
    assert (last.backward_flop_count, last.torch_backward_flop_count) == (2 * LINEAR, 2 * LINEAR)
    assert audit.matches
    assert audit.holes == audit.mismatches == ()


def test_totals_are_those_of_an_independent_counter():
    counter = FlopCounterMode(display=False)
    module = net().to("meta")
    with counter:
        module(IMAGES.to("meta")).sum().backward()
    audit = pm.audit(net(), IMAGES)
    assert audit.torch_forward_flop_count + audit.torch_backward_flop_count == counter.get_total_flops()
    assert audit.forward_flop_count + audit.backward_flop_count == counter.get_total_flops()


def test_the_forward_phase_alone_is_that_of_inference():
    audit = pm.audit(net(), IMAGES, phase="forward")
    assert audit.forward_flop_count == CONVOLUTION + LINEAR
    assert audit.backward_flop_count == audit.torch_backward_flop_count == 0
    assert audit.matches


def test_a_difference_is_shown(monkeypatch):
    """Were our linear layer to count multiply-adds, every row of it would say so."""
    from perfmodel.records import Contraction

    monkeypatch.setattr(Contraction, "product_flop_count", property(lambda each: each.count * each.m * each.n * each.k))
    audit = pm.audit(net(), IMAGES)
    assert [row.layer for row in audit.mismatches] == ["3"]
    assert audit.mismatches[0].difference_flop_count == -3 * LINEAR // 2
    assert not audit.matches
    assert "1 of 2 operations differ" in str(audit)


def test_the_convention_is_printed_and_counts_are_to_the_last_digit():
    text = str(pm.audit(net(), IMAGES))
    assert "one multiply-add is 2 FLOP" in text
    assert f"{CONVOLUTION:,}" in text
    assert "every operation agrees to the last digit" in text
    assert "No holes." in text


def test_what_torch_counts_too_much_is_no_difference():
    """A convolution of 8 channels and 8 filters in 4 groups: 2 channels for each filter, by torch 8 going back."""
    audit = pm.audit(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=4)), torch.empty(2, 8, 6, 6))
    (row,) = audit.rows
    products = 2 * 2 * 36 * 2 * 9 * 8  # 2 images of 36 positions, 2 channels of 9 taps, 8 filters
    assert (row.forward_flop_count, row.backward_flop_count) == (products, products)
    assert (row.torch_backward_flop_count, row.torch_excess_flop_count) == (4 * products, 3 * products)
    assert row.difference_flop_count == 0
    assert audit.matches
    *_, total = audit.table.to_dicts()
    assert (total["torch_backward"], total["difference"]) == (f"{4 * products:,}", "0")
    assert f"{3 * products:,} FLOP are too many" in str(audit)
    assert "every operation agrees to the last digit" in str(audit)


def test_excess_is_that_of_the_filters_gradient_alone():
    """Torch's formula is right for the maps' gradient: only the filters' counts every channel with every filter."""
    convolution = nn.Conv2d(8, 8, 3, padding=1, groups=4)
    audit = pm.audit(nn.Sequential(nn.Conv2d(8, 8, 1), convolution), torch.empty(2, 8, 6, 6))
    row = audit.rows[1]
    products = 2 * 2 * 36 * 2 * 9 * 8
    assert (row.backward_flop_count, row.torch_backward_flop_count) == (2 * products, 5 * products)
    assert row.torch_excess_flop_count == 3 * products
    assert audit.rows[0].torch_excess_flop_count == 0  # one group: nothing too much


def test_operations_without_a_formula_are_left_out_of_the_comparison():
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 5)
            self.vector = nn.Parameter(torch.empty(5))

        def forward(self, x):
            return self.fc(x) @ self.vector

    audit = pm.audit(Product(), torch.empty(4, 6))
    product = next(row for row in audit.rows if row.torch_has_no_formula)
    assert product.forward_flop_count == 2 * 4 * 5
    assert product.difference_flop_count is None
    *_, total = audit.table.to_dicts()
    assert total["difference"] == "0"
    assert "every operation of which torch has a formula agrees to the last digit" in str(audit)


def test_it_renders_and_becomes_a_frame():
    audit = pm.audit(net(), IMAGES)
    assert audit._repr_html_().count("<tr>") == 1 + 2 + 1  # headings, operations, total
    frame = audit.to_frame()
    assert list(frame["layer"]) == ["0", "3"]
    assert frame["forward_flop_count"].sum() == CONVOLUTION + LINEAR


class Messages(nn.Module):
    """A layer over edges, which are as many whatever the number of points."""

    def __init__(self):
        super().__init__()
        self.points, self.edges = nn.Linear(6, 5), nn.Linear(5, 4)

    def forward(self, points, ends):
        return self.edges(self.points(points)[ends])


def test_what_a_hole_makes_of_all_samples_is_counted_once():
    module, inputs = Messages(), (torch.zeros(20, 6), torch.zeros(60, dtype=torch.int64))
    with pytest.warns(OpaqueLayerWarning, match="index"):
        graph, audit = pm.from_torch(module, inputs), pm.audit(module, inputs)
    assert [row.difference_flop_count for row in audit.rows] == [0, 0], audit
    assert audit.rows[1].forward_flop_count == 60 * 2 * 5 * 4
    (hole,) = [node for node in graph.layers if node.layer.kind == "opaque"]
    elements = [5 * batch + 60 + 60 * 5 for batch in (20, 40)]
    counted = [hole.layer.work(hole.input_shapes, batch_size=batch, phase="forward").flop_count for batch in (20, 40)]
    assert counted == elements


def test_holes_are_named():
    class Unknown(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x):
            return torch.linalg.qr(self.fc(x))[0]

    with pytest.warns(OpaqueLayerWarning):
        audit = pm.audit(Unknown(), torch.empty(2, 6, 6))
    (hole,) = audit.holes
    assert hole.operator == "aten.linalg_qr"
    assert 0 < hole.share < 1
    assert not audit.matches
    assert "aten.linalg_qr" in str(audit)


def graph():
    g = pm.LayerGraph("small", input_shape=(3, 6, 6))
    x = g.add("conv", Convolution2d(out_channels=8, kernel_size=3, padding=1), inputs=g.input)
    x = g.add("flat", Flatten(), inputs=x)
    x = g.add("fc", Dense(units=10), inputs=x)
    g.add("loss", CrossEntropy(), inputs=x)
    return g


def test_a_graph_is_audited_alone():
    audit = pm.audit(graph(), batch_size=4)
    assert audit.forward_flop_count == CONVOLUTION + LINEAR
    assert audit.torch_forward_flop_count is None
    assert [row.difference_flop_count for row in audit.rows] == [None, None]


def test_holes_of_a_graph_are_named():
    g = pm.LayerGraph("holed", input_shape=(3,))
    g.add("odd", Opaque(operator="custom::odd", shape=(5,)), inputs=g.input)
    (hole,) = pm.audit(g).holes
    # forward 3 + 5, and no backward: nothing before it is trained
    assert (hole.layer, hole.operator, hole.flop_count, hole.share) == ("odd", "custom::odd", 8, 1.0)
    assert "8 FLOP, 100 %" in str(pm.audit(g))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"module_or_graph": graph(), "example_inputs": IMAGES}, "example_inputs"),
        ({"module_or_graph": net()}, r"^example_inputs must.*\(got None"),
        (
            {"module_or_graph": net(), "example_inputs": IMAGES, "batch_size": 4},
            r"^batch_size must.*example inputs.*\(got 4",
        ),
        ({"module_or_graph": net(), "example_inputs": IMAGES, "phase": "step"}, r"phase must.*\(got 'step'"),
        ({"module_or_graph": "resnet50", "example_inputs": IMAGES}, r"module must.*\(got 'resnet50'"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(arguments, named):
    with pytest.raises(ArgumentError, match=named):
        pm.audit(**arguments)


FACTORY = """
import torch
from torch import nn

def small(width=8):
    return nn.Sequential(nn.Linear(6, width), nn.Linear(width, 2)), torch.empty(3, 6)

def wrong():
    return 7

def failing():
    raise RuntimeError("no weights here")
"""


@pytest.fixture
def factory(tmp_path):
    (tmp_path / "nets.py").write_text(FACTORY)
    return tmp_path / "nets.py"


def test_the_command_audits_a_function_of_the_users(factory, capsys):
    assert run(["audit", f"{factory}:small", "--option", "width=16", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["matches"] is True
    assert content["forward_flop_count"] == content["torch_forward_flop_count"] == 2 * 3 * (6 * 16 + 16 * 2)


def test_predict_takes_the_function_too(factory, capsys):
    words = ["--device", "gtx_1080", "--batch-size", "64", "--option", "width=16", "--json"]
    assert run(["predict", f"{factory}:small", *words]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["memory"]["weights_bytes"] == 4 * (6 * 16 + 16 + 16 * 2 + 2)


def test_the_command_audits_the_zoo_and_graph_files(tmp_path, capsys):
    assert run(["audit", "alexnet", "--batch-size", "2", "--phase", "forward"]) == 0
    assert "one multiply-add is 2 FLOP" in capsys.readouterr().out
    graph().save(tmp_path / "small.json")
    assert run(["audit", str(tmp_path / "small.json"), "--batch-size", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forward_flop_count"] == CONVOLUTION + LINEAR


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["alexnett"], "alexnet"),
        (["{}:smal"], "did you mean 'small'"),
        (["{}:wrong"], "returns (module, example_inputs)"),
        (["{}:failing"], "no weights here"),
        (["nowhere.py:small"], "target must be"),
        (["{}:small", "--option", "height=3"], "unexpected keyword argument"),
        (["{}:small", "--batch-size", "3"], "batch_size must be "),
        (["alexnet", "--phase", "sideways"], "sideways"),
    ],
)
def test_the_command_refuses_bad_input_in_one_line(factory, capsys, words, named):
    assert run(["audit", *(word.format(factory) for word in words)]) == BAD_INPUT
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1
