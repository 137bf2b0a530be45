"""Checkpointed blocks that stop early, as PyTorch's do from version 2.1 on: what runs again, by torch and by hand."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import perfmodel as pm
from perfmodel.graph.execution import StopsEarly
from perfmodel.graph.liveness import MemoryRules, TensorTypes
from perfmodel.records import Phase, Role

BATCH = 8
EARLY = StopsEarly(None)
SIZES = {"layers": 3, "width": 256, "heads": 4, "sequence_length": 128, "vocabulary": 512}
JOB = {"batch_size": 8, "device": "a100_80_sxm", "dtype": "bf16", "optimizer": "adam"}
TOKENS, WIDTH = SIZES["sequence_length"], SIZES["width"]
OPERATORS = {
    "relu": "relu", "gelu": "gelu", "tanh": "tanh", "softmax": "_softmax", "dropout": "bernoulli_",
    "layer_norm": "native_layer_norm",
}  # fmt: skip
"""Kind of layer -> operator of its forward phase; on a CPU dropout draws its mask in one of its own."""


class Residual(nn.Module):
    """A transformer's feed-forward part: the sum of its input and two products."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Parallel(nn.Module):
    """Two branches, the first of which ends in a product whose result back-propagation does not read."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
        self.second = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x):
        return self.first(x) + self.second(x)


class Short(nn.Module):
    """Two branches, the last of which is a product of the unit's input."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        return self.first(x) + self.second(x)


class Frozen(nn.Module):
    """A unit whose last product saves its weights only, as they are not trained."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16).requires_grad_(requires_grad=False)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


UNITS = {
    "residual": Residual,
    "parallel": Parallel,
    "short": Short,
    "frozen": Frozen,
    "relu": lambda: nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16), nn.ReLU()),
    "gelu": lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16), nn.GELU()),
    "softmax": lambda: nn.Sequential(nn.Linear(16, 16), nn.Softmax(dim=-1)),
    "layer_norm": lambda: nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.LayerNorm(16)),
    "dropout": lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16), nn.Dropout()),
}


class Checkpointed(nn.Module):
    """A layer before and behind a unit, which may be a checkpointed region."""

    def __init__(self, unit, *, is_checkpointed):
        super().__init__()
        self.before, self.unit, self.behind = nn.Linear(16, 16), unit, nn.Linear(16, 16)
        self.is_checkpointed = is_checkpointed

    def forward(self, x):
        x = self.before(x)
        x = checkpoint(self.unit, x, use_reentrant=False) if self.is_checkpointed else self.unit(x)
        return self.behind(x)


class Ran(TorchDispatchMode):
    """Counts the operators that compute."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names[operator.overloadpacket.__name__] += 1
        return operator(*args, **kwargs or {})


def imported(unit):
    """Return a network whose unit is a region that runs again as far as the framework runs it."""
    plain = pm.from_torch(Checkpointed(unit, is_checkpointed=False), torch.empty(2, 16))
    graph = pm.LayerGraph("checkpointed", inputs=plain.input_shapes)
    for node in plain.layers:
        region = {"recomputed_in": "unit", "reruns_all": None} if node.name.startswith("unit") else {}
        graph.add(node.name, node.layer, inputs=node.input_names, **node.usage.options | region)
    return graph


@pytest.mark.parametrize("name", UNITS)
def test_torch_runs_the_same_again(name):
    unit = UNITS[name]()
    graph = imported(unit)
    assert any(node.usage.recomputed_in for node in graph.layers)
    returned = Checkpointed(unit, is_checkpointed=True)(torch.zeros(BATCH, 16)).sum()
    with FlopCounterMode(display=False) as counter, Ran() as ran:
        returned.backward()
    backward = graph.operations(batch_size=BATCH, phase="backward", recompute=EARLY)
    assert sum(each.product_flop_count for _, each in backward) == counter.get_total_flops()
    again = {layer for layer, each in backward if each.role is Role.OUTPUT}
    kinds = Counter(type(node.layer).kind for node in graph.layers if node.name in again)
    assert {kind: kinds[kind] for kind in OPERATORS} == {kind: ran.names[name] for kind, name in OPERATORS.items()}


def gpt(**options):
    return pm.zoo.gpt(**SIZES | options)


def again(framework, graph=None, **options):
    """Return how often each layer runs again in a job."""
    job = pm.Job(gpt(checkpointed=True) if graph is None else graph, framework=framework, **JOB, **options)
    (stage,) = job.prepared.stages
    rows = stage.lowered.table.occurrences
    return Counter(row.layer for row in rows if row.phase is Phase.BACKWARD and row.role is Role.OUTPUT)


@pytest.mark.parametrize(
    ("framework", "stops"),
    [
        ("pytorch_2_1", True),
        ("pytorch_2", True),
        ("pytorch_2_compiled", True),
        ("llm_foundry", True),
        ("torchtitan", True),
        ("torchtitan_compiled_loss", True),
        ("llm_foundry_1_13", False),
        ("megatron_core", False),
        ("megatron_2021", False),
        ("tensorflow_1_12", False),
        ("generic", False),
    ],
)
def test_the_last_product_of_a_block_runs_once(framework, stops):
    ran = again(framework)
    for block in ("block1", "block2", "block3"):
        assert ran[f"{block}_attention_output"] >= 1
        assert ran[f"{block}_mlp_up"] >= 1
        assert (ran[f"{block}_mlp_down"] == 0) == stops
        assert (ran[f"{block}_mlp_add"] == 0) == stops


def test_dropout_behind_the_last_product_needs_its_mask():
    ran = again("pytorch_2", gpt(checkpointed=True, dropout=0.1))
    assert ran["block2_mlp_down"] == 1
    assert ran["block2_mlp_dropout"] == 1
    assert ran["block2_mlp_add"] == 0


def test_hardware_flop_are_those_of_a_block_without_its_last_product():
    # of a block: query, key, value, output, and a product of four times the width; two products of scores
    block = 2 * TOKENS * 8 * WIDTH**2 + 4 * TOKENS**2 * WIDTH
    last = 2 * TOKENS * 4 * WIDTH**2
    for framework, of_block in (("pytorch_2_1", block), ("llm_foundry_1_13", block + last)):
        use = pm.predict(gpt(checkpointed=True), framework=framework, **JOB).utilisation()
        assert use.hardware_flop - use.model_flop == pytest.approx(JOB["batch_size"] * 3 * of_block, rel=1e-12)


@pytest.mark.parametrize("how", ["blocks", 2, 3])
def test_blocks_by_argument_stop_early_too(how):
    count = how if isinstance(how, int) else 3
    ran = again("pytorch_2", gpt(), recompute=how)
    assert sum(ran[f"block{place}_mlp_up"] > 0 for place in (1, 2, 3)) == count
    assert not any(ran[f"block{place}_mlp_down"] for place in (1, 2, 3))
    whole = again("megatron_core", gpt(), recompute=how)
    assert sum(whole[f"block{place}_mlp_down"] > 0 for place in (1, 2, 3)) == count


def test_time_and_energy_are_saved_and_memory_is_not_larger():
    marked = gpt(checkpointed=True)
    early, whole = (pm.predict(marked, framework=name, **JOB) for name in ("llm_foundry", "llm_foundry_1_13"))
    assert early.step_s < whole.step_s
    assert early.energy_j() < whole.energy_j()
    assert early.memory.total_bytes <= whole.memory.total_bytes
    # beside what waits for back-propagation, each moment of a block holds no more than where it runs again whole
    rules = MemoryRules(element_bytes=2), MemoryRules(element_bytes=2, recompute=EARLY)
    whole, early = (marked.liveness(phase="forward_backward", rules=each) for each in rules)
    moments = [
        {moment: max(live.activations[1][place] for place, other in enumerate(live.moments) if other == moment)
         for moment in live.moments}
        for live in (whole, early)
    ]  # fmt: skip
    assert all(size <= moments[0][moment] for moment, size in moments[1].items())
    assert early.kept == whole.kept


def test_a_copy_that_the_last_product_reads_is_made_again():
    graph = pm.LayerGraph("norm", input_shape=(16,))
    x = graph.add("first", pm.layers.Dense(units=64), inputs=graph.input)
    region = {"recomputed_in": "unit", "reruns_all": None}
    x = graph.add("norm", pm.layers.LayerNorm(), inputs=x, **region)
    x = graph.add("last", pm.layers.Dense(units=64), inputs=x, **region)
    graph.add("loss", pm.layers.CrossEntropy(), inputs=x)
    types = TensorTypes(
        result_bytes={"first": 2, "norm": 4, "last": 2}, cast_inputs={"last": (0,)}, parameter_bytes=4,
        copied_weight_bytes=0,
    )  # fmt: skip
    kept = [
        graph.liveness(phase="forward_backward", rules=MemoryRules(element_bytes=2, types=types, recompute=how)).kept
        for how in (None, EARLY)
    ]
    assert kept[0] == kept[1]  # not the copy in the narrow type, which waited for nobody in between


def test_a_sum_over_a_tensor_group_is_not_repeated_behind_the_last_product():
    layout = {"parallelism": "tensor", "tensor_size": 4, "workers": 1, "system": "dgx_a100"}
    options = {name: value for name, value in JOB.items() if name != "device"} | layout

    def repeated(framework):
        (stage,) = pm.Job(gpt(), framework=framework, recompute="full", **options).prepared.placement.stages
        return Counter((sent.after_layer, sent.kind) for sent in stage.exchanges if sent.phase is Phase.BACKWARD)

    more = repeated("megatron_core") - repeated("torchtitan")
    assert {name for name, _ in more} == {"block1_mlp_down", "block2_mlp_down", "block3_mlp_down"}


def test_sweeps_and_pipelines_compose_the_same():
    layout = {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "system": "dgx_a100"}
    options = {name: value for name, value in JOB.items() if name != "device"} | layout | {"framework": "torchtitan"}
    graph = gpt(layers=4)
    table = pm.sweep(graph, recompute=["full", 1, 2], **options)
    alone = [pm.predict(graph, recompute=how, **options) for how in ("full", 1, 2)]
    assert list(table["step_s"]) == pytest.approx([each.step_s for each in alone], rel=1e-12)
    assert alone[0].step_s == pytest.approx(alone[2].step_s, rel=1e-12)  # two blocks of each stage are all
    assert alone[0].hfu == pytest.approx(alone[2].hfu, rel=1e-12)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_modules_own_way_is_not_changed_by_the_framework(use_reentrant):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.unit, self.behind = nn.Linear(16, 16), Residual(), nn.Linear(16, 16)

        def forward(self, x):
            return self.behind(checkpoint(self.unit, self.before(x), use_reentrant=use_reentrant))

    ran = again("pytorch_2", pm.from_torch(Block(), torch.empty(2, 16)))
    assert (ran["unit.down"] > 0) == use_reentrant
    assert ran["unit.up"] > 0


def test_marks_are_read_back_from_a_file(tmp_path):
    graph = gpt(checkpointed=True)
    graph.save(tmp_path / "graph.json")
    read = pm.LayerGraph.load(tmp_path / "graph.json")
    assert again("pytorch_2", read) == again("pytorch_2", graph)
    assert [node.usage for node in read.layers] == [node.usage for node in graph.layers]
