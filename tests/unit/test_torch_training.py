"""What training a torch module takes: where back-propagation starts, what is frozen, what one tensor counts."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import perfmodel as pm
from perfmodel.errors import BackwardWarning, UnknownNameError
from perfmodel.layers import Dense, LayerNorm

F = nn.functional


def products(graph, phase, *, batch_size):
    return sum(operation.product_flop_count for _, operation in graph.operations(batch_size=batch_size, phase=phase))


def torchs_backward(module, *inputs):
    """Return the products of back-propagation from the sum of all outputs that have a gradient."""
    with sdpa_kernel(SDPBackend.MATH):  # of a CPU's fused attention torch has no formula
        returned = module(*inputs)
    outputs = (
        returned.values() if isinstance(returned, dict) else returned if isinstance(returned, tuple) else [returned]
    )
    with FlopCounterMode(display=False) as counter:
        sum(output.sum() for output in outputs if output.requires_grad).backward()
    return counter.get_total_flops()


class Scaled(nn.Module):
    """Scores and the temperature they were divided by, as CLIP returns them."""

    def __init__(self):
        super().__init__()
        self.scores, self.temperature = nn.Linear(8, 400), nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scores(x) * self.temperature, self.temperature.exp()


class Routed(nn.Module):
    """Scores and a number that balances the experts."""

    def __init__(self):
        super().__init__()
        self.router, self.head = nn.Linear(8, 4), nn.Linear(8, 512)

    def forward(self, x):
        shares = self.router(x).softmax(-1)
        return self.head(x) * shares[:, :1], shares.mean()


class Judged(nn.Module):
    """An accuracy, which has no gradient, before the loss."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(8, 4)

    def forward(self, x):
        scores = self.scores(x)
        return (scores.argmax(-1) == 0).float().mean(), scores.square().mean()


class TwoLosses(nn.Module):
    """Two losses, neither called the loss."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        return {"one": self.first(x).square().mean(), "two": self.second(x).square().mean()}


class Named(TwoLosses):
    """One of two losses called the loss."""

    def forward(self, x):
        both = super().forward(x)
        return {"watched": both["two"], "loss": both["one"]}


class ScoresAndLoss(nn.Module):
    """Scores beside a loss that a layer is, in a tuple without names."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(8, 4)

    def forward(self, x):
        scores = self.scores(x)
        return scores, F.cross_entropy(scores, torch.zeros(x.size(0), dtype=torch.long))


@pytest.mark.parametrize("kind", [Scaled, Routed, TwoLosses, ScoresAndLoss])
def test_a_number_among_the_outputs_does_not_swallow_the_others(kind):
    with pytest.warns(BackwardWarning, match="calls none of them 'loss'"):
        graph = pm.from_torch(kind(), torch.empty(4, 8))
    assert products(graph, "backward", batch_size=4) == torchs_backward(kind(), torch.zeros(4, 8))
    with pytest.warns(BackwardWarning):
        assert pm.audit(kind(), torch.empty(4, 8)).matches


def test_a_number_without_a_gradient_is_no_loss():
    graph = pm.from_torch(Judged(), torch.empty(4, 8))
    assert products(graph, "backward", batch_size=4) == torchs_backward(Judged(), torch.zeros(4, 8))


def test_an_output_called_loss_is_what_training_minimises():
    graph = pm.from_torch(Named(), torch.empty(4, 8))
    assert products(graph, "backward", batch_size=4) == 2 * 4 * 8 * 4  # of the first layer alone, whose input is data


# Frozen parameters


ROWS = torch.zeros(2, 5, 16)
FROZEN = {
    "the weight of a first layer": (lambda: nn.Linear(16, 6), ("weight",), (ROWS,)),
    "a bias": (lambda: nn.Linear(16, 6), ("bias",), (ROWS,)),
    "the weight of a second layer": (
        lambda: nn.Sequential(nn.Linear(16, 7), nn.Linear(7, 6)),
        ("1.weight",),
        (ROWS,),
    ),
    "filters": (lambda: nn.Conv1d(5, 8, 3), ("weight",), (ROWS,)),
    "an offset of a norm": (lambda: nn.LayerNorm(16), ("bias",), (ROWS,)),
    "projections": (
        lambda: _SelfAttention(),
        ("attention.in_proj_weight", "attention.in_proj_bias"),
        (ROWS,),
    ),
    "weights of projections": (lambda: _SelfAttention(), ("attention.in_proj_weight",), (ROWS,)),
}


class _SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("case", FROZEN)
def test_each_parameter_is_frozen_by_itself(case, tmp_path):
    kind, frozen, inputs = FROZEN[case]
    module = kind()
    for name in frozen:
        module.get_parameter(name).requires_grad_(False)
    graph = pm.from_torch(module, inputs)
    graph.save(tmp_path / "graph.json")
    for each in (graph, type(graph).load(tmp_path / "graph.json")):
        trained = sum(each.numel() for each in module.parameters() if each.requires_grad)
        assert each.trained_parameter_count == trained
        assert each.parameter_count == sum(each.numel() for each in module.parameters())
        assert products(each, "backward", batch_size=2) == torchs_backward(module, *inputs)


def dense(**usage):
    graph = pm.LayerGraph("dense", input_shape=(1000,))
    graph.add("fc", Dense(units=500), inputs="input", **usage)
    return graph


def test_a_frozen_weight_has_no_gradient_no_update_and_keeps_no_input():
    graph = dense(frozen_parameters=("weight",))
    assert graph.trained_parameter_counts == {"fc": 500}  # the bias
    (sums,) = [operation for _, operation in graph.operations(batch_size=8, phase="backward")]
    assert sums.product_flop_count == 0
    assert sums.work(element_bytes=4).flop_count == 8 * 500  # each of 8 rows is added once
    assert graph.liveness(phase="forward_backward").gradients.max() == 4 * 500
    (update,) = [operation for _, operation in graph.operations(batch_size=8, phase="update")]
    assert update.tensor_elements == 500


def test_a_frozen_bias_takes_the_pass_that_sums_its_gradient_away():
    (product,) = [
        operation for _, operation in dense(frozen_parameters=("bias",)).operations(batch_size=1, phase="backward")
    ]
    assert product.product_flop_count == 2 * 1000 * 500


def test_a_pass_that_serves_two_parameters_stays_for_one():
    graph = pm.LayerGraph("norm", input_shape=(10,))
    graph.add("norm", LayerNorm(), inputs="input", frozen_parameters=("beta",))
    assert graph.trained_parameter_count == 10
    assert graph.operations(batch_size=2, phase="backward")


def test_freezing_what_is_no_parameter_names_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'weight'"):
        dense(frozen_parameters=("weigth",))


def test_one_parameter_in_two_shapes_counts_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(6, 3, 4))

        def forward(self, x):
            return torch.einsum("bi,ijk->bjk", x, self.weight), torch.tensordot(x, self.weight, dims=1)

    graph = pm.from_torch(Twice(), torch.empty(2, 6))
    assert graph.parameter_count == 6 * 3 * 4
