"""Memory of a fully sharded Llama 3 8B beside arithmetic by hand, which decides what one and two sequences take."""

import pytest

import perfmodel as pm
from perfmodel.units import GIGA

LENGTH, WIDTH, LAYERS, VOCABULARY, WORKERS = 8192, 4096, 32, 128_256, 8
NARROW_BYTES, STATE_BYTES = 2, 4
# queries and what attention yields are as wide as the network, keys and values a quarter; three products of 14,336
BLOCK = WIDTH * (2 * WIDTH + 2 * 1024) + 3 * WIDTH * 14_336
ENDS = 2 * VOCABULARY * WIDTH  # embedding and scores, which are not tied


JOB = {"system": "dgx_h100", "workers": WORKERS, "framework": "pytorch_2", "dtype": "bf16", "optimizer": "adam"}
JOB |= {"sync": "all_reduce", "recompute": "blocks"}


@pytest.fixture(scope="module")
def llama():
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": WIDTH,
        "intermediate_size": 14_336,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": LENGTH,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    return pm.from_huggingface_config(config)


@pytest.fixture(scope="module")
def footprints(llama):
    return {size: pm.predict(llama, batch_size=size, shard_stage=3, **JOB).memory for size in (1, 2)}


def test_stage_2_holds_an_eighth_in_fp32_and_all_of_it_in_the_type_of_products(llama, footprints):
    """4.0 GB of shares and 16.1 GB that no block frees before its backward phase; the rest is that of stage 3."""
    parameters = LAYERS * BLOCK + ENDS
    one, of_stage_3 = pm.predict(llama, batch_size=1, shard_stage=2, **JOB).memory, footprints[1]
    assert STATE_BYTES * parameters / WORKERS / GIGA == pytest.approx(4.0, abs=0.02)
    assert NARROW_BYTES * parameters / GIGA == pytest.approx(16.1, abs=0.05)
    held = (STATE_BYTES / WORKERS + NARROW_BYTES) * parameters + NARROW_BYTES * ENDS / WORKERS
    assert one.weights_bytes == pytest.approx(held, rel=1e-3)
    rest = [memory.total_bytes - memory.weights_bytes for memory in (one, of_stage_3)]
    assert rest[0] == pytest.approx(rest[1], rel=1e-12)
    whole = pm.predict(llama, batch_size=1, shard_stage=2, **{**JOB, "framework": "megatron_core"}).memory
    assert whole.weights_bytes == pytest.approx(NARROW_BYTES * parameters, rel=1e-3)


def test_state_is_an_eighth_and_two_blocks_are_gathered(footprints):
    parameters = LAYERS * BLOCK + ENDS  # norms are 0.003 % of it
    for memory in footprints.values():
        assert memory.optimizer_bytes == pytest.approx(2 * STATE_BYTES * parameters / WORKERS, rel=1e-3)
        # narrow copies, prefetched one block ahead, and that of a device's own share of the largest unit
        gathered = NARROW_BYTES * (2 * BLOCK + ENDS + ENDS / WORKERS)
        assert memory.weights_bytes == pytest.approx(STATE_BYTES * parameters / WORKERS + gathered, rel=1e-3)
        # scores of 8,192 positions set the peak, when no gradient of a parameter is made yet; but the memory of a
        # device's share of them, and of the largest unit's as it is exchanged, is nobody else's
        assert memory.gradients_bytes == pytest.approx(STATE_BYTES * (parameters / WORKERS + ENDS), rel=1e-3)


def test_a_second_sequence_takes_as_much_as_the_first(footprints):
    """18.0 GB for one sequence and 38.0 GB for two cannot both be right, and 18.0 is not.

    Shares of parameters, gradients and Adam's state are 16.1 GB, what is gathered 3.2 GB and the copy of the largest
    unit's gradients that is exchanged 4.2 GB. One sequence keeps the inputs of 32 blocks in bf16, 2.1 GB; at the peak
    there are logarithms of probabilities, their gradient and that of 8,192 x 128,256 scores, all in fp32, 12.6 GB, and
    of the last norm its input and result in fp32 and what the product of the scores reads.
    PyTorch 2.13 has 15.02 GB of tensors at that moment beside parameters, as FakeTensorMode runs the same network: of a
    norm whose weight multiplies bf16 it keeps the result in bf16.
    """
    inputs = LAYERS * LENGTH * WIDTH * NARROW_BYTES
    scores = LENGTH * VOCABULARY * 3 * STATE_BYTES
    last_norm = LENGTH * WIDTH * (2 * STATE_BYTES + NARROW_BYTES)
    one, two = (footprints[size] for size in (1, 2))
    assert two.activations_bytes == pytest.approx(2 * one.activations_bytes, rel=1e-6)
    assert one.activations_bytes == pytest.approx(inputs + scores + last_norm, rel=1e-4)
    assert one.activations_bytes == pytest.approx(15.024e9, rel=0.005)
    assert one.total_bytes / GIGA == pytest.approx(39.1, abs=0.1)
    assert two.total_bytes / GIGA == pytest.approx(54.2, abs=0.1)


def test_full_recomputation_keeps_the_input_of_each_branch(llama, footprints):
    """Twice as many inputs, and the last branch does not run again: gates, units and their products, and its norm."""
    branches = pm.predict(llama, batch_size=1, shard_stage=3, **{**JOB, "recompute": "full"}).memory
    more = branches.total_bytes - footprints[1].total_bytes
    inputs = LAYERS * LENGTH * WIDTH * NARROW_BYTES
    last = 4 * LENGTH * 14_336 * NARROW_BYTES + LENGTH * WIDTH * (2 * STATE_BYTES + NARROW_BYTES)
    assert more == pytest.approx(inputs + last, rel=0.07)  # one of the inputs is the last branch's own


def test_parameters_copied_out_of_a_gather_are_there_twice(llama, footprints):
    """``fully_shard`` holds the buffers of the root and a block beside their parameters, and casts gradients in place
    of activations, which have gone by then; where a block is wrapped, ``full`` runs all of it again.
    """
    one = pm.predict(llama, batch_size=1, shard_stage=3, **{**JOB, "framework": "torchtitan"}).memory
    parameters = LAYERS * BLOCK + ENDS
    gathered = NARROW_BYTES * (2 * (BLOCK + ENDS) + ENDS / WORKERS)
    assert one.weights_bytes == pytest.approx(STATE_BYTES * parameters / WORKERS + gathered, rel=1e-3)
    assert one.gradients_bytes == pytest.approx(STATE_BYTES * parameters / WORKERS, rel=1e-3)
    full = pm.predict(llama, batch_size=1, shard_stage=3, **{**JOB, "framework": "torchtitan", "recompute": "full"})
    assert full.memory == one
    # logits in bf16 leave a gap that no tensor of the loss fits; what else differs is the copies
    gap = LENGTH * VOCABULARY * NARROW_BYTES
    assert one.activations_bytes == pytest.approx(footprints[1].activations_bytes + gap, rel=0.01)


@pytest.mark.parametrize("limit", [1, 2, 40])
def test_no_more_is_gathered_than_there_is(llama, limit):
    parameters = LAYERS * BLOCK + ENDS
    for framework, copies in (("pytorch_2", 1), ("torchtitan", 2)):
        how = {**JOB, "framework": framework, "prefetch_limit": limit}
        held = pm.predict(llama, batch_size=1, shard_stage=3, **how).memory.weights_bytes
        gathered = held - (STATE_BYTES * parameters + NARROW_BYTES * ENDS) / WORKERS
        assert gathered <= copies * NARROW_BYTES * parameters * 1.001
        if limit > LAYERS and copies == 1:
            assert gathered == pytest.approx(NARROW_BYTES * parameters, rel=1e-3)


@pytest.mark.parametrize("shard_stage", [0, 1])
def test_megatrons_buffer_of_gradients_is_there_before_they_are_made(shard_stage):
    """One micro-batch needs what the last of several does: all gradients in fp32 beside all kept activations."""
    graph = pm.zoo.gpt(layers=4, width=512, heads=8, sequence_length=512, vocabulary=4096)
    job = {"system": "dgx_h100", "optimizer": "adamw", "dtype": "bf16", "workers": 8, "shard_stage": shard_stage}
    for framework, keeps in (("megatron_core", True), ("pytorch_2", False)):
        one, several = (
            pm.predict(graph, global_batch_size=8 * count, accumulation_steps=count, framework=framework, **job).memory
            for count in (1, 2)
        )
        assert (one.total_bytes == several.total_bytes) == keeps
        assert one.total_bytes <= several.total_bytes
        if keeps:
            assert one.gradients_bytes == 4 * graph.trained_parameter_count
