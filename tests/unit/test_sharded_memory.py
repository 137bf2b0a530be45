"""Memory of a fully sharded Llama 3 8B beside arithmetic by hand, which decides what one and two sequences take."""

import pytest

import perfmodel as pm
from perfmodel.units import GIGA

LENGTH, WIDTH, LAYERS, VOCABULARY, WORKERS = 8192, 4096, 32, 128_256, 8
HEADS_BYTES, STATE_BYTES = 2, 4
# queries and what attention yields are as wide as the network, keys and values a quarter; three products of 14,336
BLOCK = WIDTH * (2 * WIDTH + 2 * 1024) + 3 * WIDTH * 14_336
ENDS = 2 * VOCABULARY * WIDTH  # embedding and scores, which are not tied


JOB = {"system": "dgx_h100", "workers": WORKERS, "framework": "pytorch_2", "dtype": "bf16", "optimizer": "adam"}
JOB |= {"sync": "all_reduce", "recompute": "full"}


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
    assert HEADS_BYTES * parameters / GIGA == pytest.approx(16.1, abs=0.05)
    held = (STATE_BYTES / WORKERS + HEADS_BYTES) * parameters
    assert one.weights_bytes == pytest.approx(held, rel=1e-3)
    rest = [memory.total_bytes - memory.weights_bytes for memory in (one, of_stage_3)]
    assert rest[0] == pytest.approx(rest[1], rel=1e-12)
    whole = pm.predict(llama, batch_size=1, shard_stage=2, **{**JOB, "framework": "megatron_core"}).memory
    assert whole.weights_bytes == pytest.approx(HEADS_BYTES * parameters, rel=1e-3)


def test_state_is_an_eighth_and_two_blocks_are_gathered(footprints):
    parameters = LAYERS * BLOCK + ENDS  # norms are 0.003 % of it
    for memory in footprints.values():
        assert memory.optimizer_bytes == pytest.approx(2 * STATE_BYTES * parameters / WORKERS, rel=1e-3)
        gathered = HEADS_BYTES * (2 * BLOCK + ENDS)  # narrow copies, prefetched one block ahead
        assert memory.weights_bytes == pytest.approx(STATE_BYTES * parameters / WORKERS + gathered, rel=1e-3)
        # scores of 8,192 positions set the peak, when no gradient of a parameter is made yet; but the memory of a
        # device's share of them, and of the largest unit's as it is exchanged, is nobody else's
        assert memory.gradients_bytes == pytest.approx(STATE_BYTES * (parameters / WORKERS + ENDS), rel=1e-3)


def test_a_second_sequence_takes_as_much_as_the_first(footprints):
    """18.0 GB for one sequence and 38.0 GB for two cannot both be right, and 18.0 is not.

    The state without gradients is 12.0 GB and what is gathered 3.0 GB, so that 18.0
    leave 3.0 GB. One sequence keeps the inputs of 32 blocks in fp32, 4.3 GB; at the peak
    there are logarithms of probabilities, their gradient and that of 8,192 x 128,256 scores, all in fp32, 12.6 GB.
    Gradients and their exchange keep 8.2 GB. PyTorch composes its
    norms, whose input and result are kept in fp32: two of the last block and the last one, 0.8 GB.
    """
    inputs = LAYERS * LENGTH * WIDTH * STATE_BYTES
    scores = LENGTH * VOCABULARY * 3 * STATE_BYTES
    norms = 3 * LENGTH * WIDTH * 2 * STATE_BYTES
    one, two = (footprints[size] for size in (1, 2))
    assert two.activations_bytes == pytest.approx(2 * one.activations_bytes, rel=1e-6)
    assert one.activations_bytes == pytest.approx(inputs + scores + norms, rel=0.1)  # and what the last layers keep
    assert one.activations_bytes > inputs + scores
    assert one.total_bytes / GIGA == pytest.approx(42.2, abs=0.1)
    assert two.total_bytes / GIGA == pytest.approx(60.6, abs=0.1)


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
