"""What is computed again by argument: the cores of attention, and a number of blocks of each stage."""

import json
from itertools import pairwise

import pytest
import sympy
from typer.testing import CliRunner

import perfmodel as pm
from perfmodel.cli.app import app
from perfmodel.errors import ArgumentError, UnknownNameError

SIZES = {"width": 256, "heads": 4, "sequence_length": 128, "vocabulary": 512}
JOB = {"batch_size": 8, "device": "a100_80_sxm", "dtype": "bf16", "framework": "pytorch_2", "optimizer": "adam"}
PIPELINE = {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "system": "dgx_a100"}
S, N, W = sympy.symbols("S N W", positive=True, integer=True)


def gpt(layers=4, **options):
    return pm.zoo.gpt(layers=layers, **SIZES | options)


def kept_of_a_layer(**how):
    """Return the bytes that a layer of GPT keeps in half precision with materialised scores."""
    heads = 4
    two, three = (
        gpt(layers=count, heads=heads, sequence_length=S, width=W, dropout=0.1, attention="materialised")
        for count in (2, 3)
    )
    return sympy.expand(
        three.kept_bytes(batch_size=N, dtype="fp16", **how) - two.kept_bytes(batch_size=N, dtype="fp16")
    )


def test_a_layer_keeps_what_korthikanti_say():
    # arXiv:2205.05198, table 2: s b h (34 + 5 a s / h), or 34 s b h with selective and 2 s b h with full recomputation;
    # the paper leaves out mean and deviation of each row of the two norms
    statistics = 2 * 2 * 2 * N * S
    scores = 5 * 4 * S**2 * N
    assert kept_of_a_layer() == sympy.expand(34 * S * N * W + scores + statistics)
    # both networks differ by a layer, so the cores of the other two are in the difference too
    spared = 3 * scores
    assert kept_of_a_layer(recompute="selective") == sympy.expand(34 * S * N * W + scores + statistics - spared)
    saved_by_one = kept_of_a_layer() - kept_of_a_layer(recompute=1)
    assert saved_by_one == sympy.expand((34 - 2) * S * N * W + scores + statistics)


def test_marks_of_a_graph_and_arguments_are_one_thing():
    for marked, plain, how in (
        (gpt(checkpointed=True), gpt(), 4),
        (gpt(attention="selective"), gpt(attention="selective"), "selective"),
    ):
        one, other = pm.predict(marked, **JOB), pm.predict(plain, **JOB, recompute=how)
        assert other.step_s == pytest.approx(one.step_s, rel=1e-12)
        assert other.memory.activations_bytes == one.memory.activations_bytes
        assert other.hfu == pytest.approx(one.hfu, rel=1e-12)


def test_each_block_takes_its_forward_phase_again_and_keeps_its_input_only():
    steps = [pm.predict(gpt(), **JOB, recompute=count) for count in (0, 1, 2, 3)]
    plain = pm.predict(gpt(), **JOB)
    assert steps[0].step_s == plain.step_s
    assert steps[0].memory.total_bytes == plain.memory.total_bytes
    added = [after.hfu * after.step_s - before.hfu * before.step_s for before, after in pairwise(steps)]
    assert added[0] > 0
    assert added == pytest.approx([added[0]] * 3, rel=1e-9)
    memory = [step.memory.activations_bytes for step in steps]
    assert memory == sorted(memory, reverse=True)
    assert len(set(memory)) == 4


def test_the_number_counts_blocks_of_each_stage():
    job = {name: value for name, value in JOB.items() if name != "device"} | PIPELINE
    graph = gpt(layers=8)
    flop = [pm.predict(graph, **job, recompute=count).utilisation().hardware_flop for count in (0, 2, 8)]
    alone = [pm.predict(graph, **JOB, recompute=count).utilisation().hardware_flop for count in (0, 4, 8)]
    assert flop == pytest.approx(alone, rel=1e-12)
    cuts = [[stage.placed.graph.name for stage in pm.Job(graph, **job, recompute=n).prepared.stages] for n in (0, 2)]
    assert cuts[0] == cuts[1]  # blocks of the first stage alone would have moved them


def test_wrong_numbers_and_networks_are_refused():
    with pytest.raises(ArgumentError, match="at most 4, the number of blocks"):
        pm.predict(gpt(), **JOB, recompute=5)
    with pytest.raises(ArgumentError, match="a whole number of blocks from 0 to 1,000,000"):
        pm.predict(gpt(), **JOB, recompute=-1)
    with pytest.raises(ArgumentError, match="no attention layer apart"):
        pm.predict(pm.zoo.resnet18(), **JOB, recompute="selective")
    with pytest.raises(UnknownNameError, match="selective"):
        pm.predict(gpt(), **JOB, recompute="selectiv")
    with pytest.raises(UnknownNameError):
        pm.predict(gpt(), **JOB, recompute=True)


def test_the_command_line_takes_names_and_numbers():
    typed = ["sweep", "gpt", "--device", "h100_sxm", "--batch-size", "1", "--recompute", "full,selective,2", "--json"]
    rows = json.loads(CliRunner().invoke(app, typed, catch_exceptions=False).output)["rows"]
    assert [row["recompute"] for row in rows] == ["full", "selective", 2]
    graph = pm.zoo.gpt()
    seconds = [pm.predict(graph, batch_size=1, device="h100_sxm", recompute=row["recompute"]).step_s for row in rows]
    assert [row["step_s"] for row in rows] == pytest.approx(seconds, rel=1e-12)
