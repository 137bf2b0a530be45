"""Configurations of transformers: published parameter counts, what fields do, and what is refused."""

import json
import warnings

import pytest
import sympy

import perfmodel as pm
from perfmodel.errors import ArgumentError, ParameterWarning, SpecError, UnknownNameError
from perfmodel.records import Contraction
from placed_networks import place

# The fields that matter of the config.json that stands beside each published checkpoint on huggingface.co, and the
# parameters of the checkpoint: the sum over its tensors, tied ones once, as transformers' num_parameters() gives them.
GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "activation_function": "gelu_new"}
BERT = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "vocab_size": 30522,
    "type_vocab_size": 2,
    "max_position_embeddings": 512,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}
LLAMA_2_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
LLAMA_3_8B = LLAMA_2_7B | {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "vocab_size": 128256,
    "attention_bias": False,
}
LLAMA_32_1B = LLAMA_3_8B | {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "head_dim": 64,
    "tie_word_embeddings": True,
    "mlp_bias": False,
}
MISTRAL_7B = LLAMA_2_7B | {
    "model_type": "mistral",
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
}
QWEN2_05B = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}
VIT_BASE = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "qkv_bias": True,
    "id2label": {str(index): f"class {index}" for index in range(1000)},
}


def bert_of(layers, width, heads):
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    return BERT | sizes | {"intermediate_size": 4 * width}


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (GPT2 | {"n_layer": 12, "n_head": 12, "n_embd": 768}, 124_439_808),  # gpt2
        (GPT2 | {"n_layer": 24, "n_head": 16, "n_embd": 1024}, 354_823_168),  # gpt2-medium
        (GPT2 | {"n_layer": 36, "n_head": 20, "n_embd": 1280, "n_inner": None}, 774_030_080),  # gpt2-large
        (GPT2 | {"n_layer": 48, "n_head": 25, "n_embd": 1600}, 1_557_611_200),  # gpt2-xl
        (bert_of(12, 768, 12), 109_482_240),  # bert-base-uncased as BertModel, with pooler
        (bert_of(24, 1024, 16), 335_141_888),  # bert-large-uncased
        (LLAMA_2_7B, 6_738_415_616),  # meta-llama/Llama-2-7b-hf
        (LLAMA_3_8B, 8_030_261_248),  # meta-llama/Meta-Llama-3-8B
        (LLAMA_32_1B, 1_235_814_400),  # meta-llama/Llama-3.2-1B
        (MISTRAL_7B, 7_241_732_096),  # mistralai/Mistral-7B-v0.1
        (QWEN2_05B, 494_032_768),  # Qwen/Qwen2-0.5B
        (VIT_BASE, 86_567_656),  # google/vit-base-patch16-224
        # google/vit-base-patch16-224-in21k, a ViTModel: instead of 1000 classes, a pooler of 768 x 768 + 768
        (VIT_BASE | {"architectures": ["ViTModel"]}, 86_567_656 - 769_000 + 768 * 769),
    ],
)
def test_parameters_are_the_published_ones(config, published):
    assert pm.from_huggingface_config(config, sequence_length=None).parameter_count == published


@pytest.mark.parametrize(
    ("config", "other"),
    [
        (GPT2 | {"n_layer": 12, "n_head": 12, "n_embd": 768}, lambda: pm.zoo.gpt2()),
        (bert_of(12, 768, 12), lambda: pm.zoo.bert()),
        (LLAMA_3_8B, lambda: pm.zoo.llama(size="llama3_8b")),
        (VIT_BASE, lambda: pm.zoo.vit(operands="separate")),
    ],
)
def test_work_is_that_of_the_zoo(config, other):
    graph, expected = pm.from_huggingface_config(config), other()
    for phase in ("forward", "backward", "update"):
        assert graph.work(batch_size=2, phase=phase) == expected.work(batch_size=2, phase=phase)


class TestFields:
    def test_a_file_or_the_folder_of_a_checkpoint(self, tmp_path):
        config = GPT2 | {"n_layer": 1, "n_head": 2, "n_embd": 8, "_name_or_path": "tiny"}
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        graphs = [pm.from_huggingface_config(each) for each in (config, path, str(path), tmp_path)]
        assert len({graph.fingerprint for graph in graphs}) == 1
        assert graphs[0].name == "tiny"
        assert pm.from_huggingface_config(config, name="mine").name == "mine"

    def test_positions_of_a_sample(self):
        config = GPT2 | {"n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 64}
        assert pm.from_huggingface_config(config).input_shapes == {"tokens": (64,)}
        short = pm.from_huggingface_config(config, sequence_length=16)
        assert short.input_shapes == {"tokens": (16,)}
        assert short.parameter_count == pm.from_huggingface_config(config).parameter_count
        steps = sympy.Symbol("S", integer=True, positive=True)
        free = pm.from_huggingface_config(config, sequence_length=steps)
        assert free.work().flop_count.subs(steps, 16) == short.work().flop_count

    def test_dropout_of_hidden_and_attention_apart(self):
        config = GPT2 | {"n_layer": 1, "n_head": 2, "n_embd": 8, "resid_pdrop": 0.25, "attn_pdrop": 0.5}
        graph = pm.from_huggingface_config(config)
        layers = {node.name: node.layer for node in graph.layers}
        assert layers["embedding_dropout"].rate == 0.25
        assert layers["block1_attention"].dropout == 0.5
        inference = pm.from_huggingface_config(config, dropout=0.0)
        assert not [node for node in inference.layers if node.layer.kind == "dropout"]
        assert inference.node("block1_attention").layer.dropout == 0

    def test_biases_and_heads_of_the_llama_family(self):
        sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1}
        config = LLAMA_2_7B | sizes | {"intermediate_size": 100, "vocab_size": 50}
        plain = pm.from_huggingface_config(config).parameter_count
        # queries and output 64, keys and values 2 heads of 16
        with_bias = pm.from_huggingface_config(config | {"attention_bias": True}).parameter_count
        assert with_bias - plain == 64 + 32 + 32 + 64
        qwen = pm.from_huggingface_config(config | {"model_type": "qwen2"}).parameter_count
        assert qwen - plain == 64 + 32 + 32
        mlp = pm.from_huggingface_config(config | {"mlp_bias": True}).parameter_count
        assert mlp - plain == 100 + 100 + 64
        tied = pm.from_huggingface_config(config | {"tie_word_embeddings": True}).parameter_count
        assert plain - tied == 50 * 64
        wide = pm.from_huggingface_config(config | {"head_dim": 32}).parameter_count
        # every head has 16 features more, in 4 + 2 + 2 heads of the projections and 4 of the output's
        assert wide - plain == 16 * (4 + 2 + 2 + 4) * 64

    def test_heads_of_bert(self):
        config = bert_of(1, 8, 2)
        classes = config | {
            "architectures": ["BertForSequenceClassification"],
            "id2label": {"0": "a", "1": "b", "2": "c"},
        }
        graph = pm.from_huggingface_config(classes)
        assert graph.shape("classifier") == (3,)
        assert pm.from_huggingface_config(classes, head="pooler").outputs == ("pooler_tanh",)
        words = pm.from_huggingface_config(config, head="masked_language_model")
        assert words.shape("scores") == (512, 30522)


class TestRefusals:
    def test_unknown_family(self):
        with pytest.raises(
            UnknownNameError, match=r"unknown model_type .* 'gpt3'. Did you mean 'gpt2'\? Known: bert, deepseek_v2, "
        ):
            pm.from_huggingface_config({"model_type": "gpt3"})

    def test_all_faults_at_once_with_the_file(self, tmp_path):
        path = tmp_path / "config.json"
        config = LLAMA_2_7B | {"hidden_size": 4097, "hidden_act": "silo", "num_key_value_heads": 3, "vocab_size": -1}
        del config["intermediate_size"]
        path.write_text(json.dumps(config))
        with pytest.raises(SpecError) as caught:
            pm.from_huggingface_config(path)
        told = str(caught.value)
        assert str(path) in told
        for part in (
            "intermediate_size is missing",
            "vocab_size=-1: must be a whole number >= 1",
            "hidden_act='silo': must be one of gelu",
            "did you mean 'silu'?",
            "num_attention_heads=32: must divide hidden_size=4097",
            "num_key_value_heads=3: must divide num_attention_heads=32",
        ):
            assert part in told

    @pytest.mark.parametrize(
        ("base", "field", "wrong"),
        [
            ("gpt2", "n_layer", "12"),
            ("gpt2", "n_layer", True),
            ("gpt2", "n_layer", 2.5),
            ("gpt2", "n_embd", float("nan")),
            ("gpt2", "resid_pdrop", 1.5),
            ("gpt2", "tie_word_embeddings", "yes"),
            ("gpt2", "add_cross_attention", True),
            ("bert", "is_decoder", True),
            ("bert", "position_embedding_type", "relative_key"),
            ("vit", "qkv_bias", False),
            ("vit", "patch_size", 15),
        ],
    )
    def test_senseless_fields(self, base, field, wrong):
        configs = {"gpt2": GPT2, "bert": bert_of(1, 8, 2), "vit": VIT_BASE}
        with pytest.raises(SpecError, match=f"configuration: 1 fault: {field}="):
            pm.from_huggingface_config(configs[base] | {field: wrong})

    def test_what_is_no_configuration(self, tmp_path):
        path = tmp_path / "config.json"
        for content, problem in [
            ("{", "is not JSON"),
            ("[]", "must be a JSON object"),
            ("{}", "model_type is missing: must be one of bert"),
            ("\x00\xff", "is not JSON"),
        ]:
            path.write_text(content)
            with pytest.raises(SpecError, match=problem):
                pm.from_huggingface_config(path)
        path.write_bytes(b"\x00\xff\xfe")
        with pytest.raises(SpecError, match="is not JSON"):
            pm.from_huggingface_config(path)
        with pytest.raises(SpecError, match="cannot be read"):
            pm.from_huggingface_config(tmp_path / "missing.json")
        for wrong in (None, 3, "", []):
            with pytest.raises(ArgumentError, match="path_or_dict"):
                pm.from_huggingface_config(wrong)

    def test_arguments(self):
        config = GPT2 | {"n_layer": 1, "n_head": 2, "n_embd": 8}
        for wrong in ({"head": "pooler"}, {"attention": "flash"}, {"sequence_length": 0}, {"dropout": 1.0}):
            with pytest.raises(ArgumentError, match=next(iter(wrong))):
                pm.from_huggingface_config(config, **wrong)
        with pytest.raises(ArgumentError, match="sequence_length"):
            pm.from_huggingface_config(VIT_BASE, sequence_length=10)
        with pytest.raises(ArgumentError, match="head"):
            pm.from_huggingface_config(bert_of(1, 8, 2), head="poler")


MIXTRAL_8X7B = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
    "num_local_experts": 8, "num_experts_per_tok": 2, "hidden_act": "silu", "router_aux_loss_coef": 0.02,
}  # fmt: skip
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_attention_heads": 128, "num_key_value_heads": 128, "num_hidden_layers": 61, "vocab_size": 129280,
    "max_position_embeddings": 163840, "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "hidden_act": "silu",
    "num_nextn_predict_layers": 1,
}  # fmt: skip


def run_through(graph, length):
    """Parameters that a word meets: those of products with weights, and its row of the table."""
    products = (each for _, each in graph.operations(batch_size=1, phase="forward") if isinstance(each, Contraction))
    width = graph.shape("tokens_embedding")[-1]
    return (
        sum(each.product_flop_count for each in products) / (2 * length) + graph.node("scores").output_shape[-1] * width
    )


def test_mixtral_has_the_published_parameters_and_a_word_meets_two_experts():
    mixtral = pm.from_huggingface_config(MIXTRAL_8X7B, sequence_length=512)
    attention, expert, router = 4096 * 128 * (2 * 32 + 2 * 8), 3 * 4096 * 14336, 4096 * 8
    words, norms = 2 * 32_000 * 4096, (2 * 32 + 1) * 4096
    assert mixtral.parameter_count == 32 * (attention + 8 * expert + router) + words + norms == 46_702_792_704
    assert run_through(mixtral, 512) == 32 * (attention + 2 * expert + router) + words
    assert run_through(mixtral, 512) == pytest.approx(12.9e9, rel=0.005)  # arXiv:2401.04088: 13 billion active
    assert mixtral.parameter_count == pm.zoo.mixtral(sequence_length=512).parameter_count


def test_deepseek_v3_has_the_published_parameters_and_a_word_meets_eight_experts_and_one():
    v3 = pm.from_huggingface_config(DEEPSEEK_V3, sequence_length=512)
    queries = 7168 * 1536 + 1536 * 128 * (128 + 64)
    keys_and_values = 7168 * (512 + 64) + 512 * 128 * (128 + 128)
    attention, expert, router = queries + keys_and_values + 128 * 128 * 7168, 3 * 7168 * 2048, 7168 * 256
    words, dense, norms = 2 * 129_280 * 7168, 3 * 7168 * 18432, 61 * (2 * 7168 + 1536 + 512) + 7168
    assert v3.parameter_count == 61 * attention + 58 * (257 * expert + router) + 3 * dense + words + norms
    assert v3.parameter_count == pytest.approx(671e9, rel=1e-3)  # arXiv:2412.19437, section 4.2
    assert run_through(v3, 512) == 61 * attention + 58 * (9 * expert + router) + 3 * dense + words
    assert run_through(v3, 512) == pytest.approx(37e9, rel=0.02)
    plain = pm.from_huggingface_config({**DEEPSEEK_V3, "q_lora_rank": None}, sequence_length=512)
    assert plain.parameter_count - v3.parameter_count == 61 * (7168 * 128 * 192 - queries - 1536)
    for wrong, says in (
        ({"moe_layer_freq": 2}, "moe_layer_freq=2: must be 1"),
        ({"kv_lora_rank": 0}, "kv_lora_rank=0"),
    ):
        with pytest.raises(SpecError, match=says):
            pm.from_huggingface_config(DEEPSEEK_V3 | wrong)


def test_tensor_groups_share_experts_and_heads():
    small = pm.from_huggingface_config(
        {**DEEPSEEK_V3, "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2, "vocab_size": 1024,
         "n_routed_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "intermediate_size": 1024},
        sequence_length=256)  # fmt: skip
    (part,) = place(small, parallelism="tensor", workers=2, tensor_size=2, element_bytes=2).stages
    experts, whole = (graph.node("block2_mlp_experts") for graph in (part.graph, small))
    assert (experts.parameter_count - 512 * 8) * 2 == whole.parameter_count - 512 * 8
    halves, heads = (graph.node("block1_attention").parameter_count for graph in (part.graph, small))
    latent = 512 * (1536 + 512 + 64) + 1536 + 512  # projections to latent vectors, and their norms, are whole
    assert 2 * (halves - latent) == heads - latent
    with pytest.raises(ArgumentError, match="a divisor of the 8 heads"):
        place(small, parallelism="tensor", workers=16, tensor_size=16, element_bytes=2)


def test_searches_and_predictions_of_experts_agree():
    graph = pm.from_huggingface_config(
        {**MIXTRAL_8X7B, "hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 8,
         "num_hidden_layers": 4},
        sequence_length=1024)  # fmt: skip
    s = pm.search(graph, system="dgx_h100", devices=8, global_batch_size=16, framework="megatron_core",
                  optimizer="adamw", tokens=1e9, limits={"interleave": 1})  # fmt: skip
    for rank in range(0, len(s), max(1, len(s) // 8)):
        one = s.found(rank)
        assert one.row.step_s == pytest.approx(one.prediction.step_s, rel=1e-12)
        assert one.row.mfu == pytest.approx(one.prediction.mfu, rel=1e-12)
    assert {row.tensor_size for row in s.rows} >= {1, 2, 4}
    apart = pm.search(graph, system="dgx_h100", devices=8, global_batch_size=16, framework="megatron_core",
                      optimizer="adamw", limits={"interleave": 1}, context_size=[2]).best  # fmt: skip
    assert apart.job.context_size == 2
    assert apart.row.step_s == pytest.approx(apart.prediction.step_s, rel=1e-12)


@pytest.mark.parametrize(
    ("family", "fields", "says"),
    [
        ("llama", {"num_local_experts": 8}, "num_local_experts=8: a mixture of experts, which is read of mixtral"),
        ("qwen2", {"num_experts": 60}, "num_experts=60: a mixture of experts"),
        ("mistral", {"kv_lora_rank": 512, "q_lora_rank": None}, "kv_lora_rank=512: latent attention"),
    ],
)
def test_experts_and_latent_attention_are_refused_not_left_out(family, fields, says):
    with pytest.raises(SpecError, match=says):
        pm.from_huggingface_config({**MISTRAL_7B, "model_type": family, **fields})
    plain = {name: 1 for name, value in fields.items() if name.endswith("experts")}
    if family == "qwen2":
        assert pm.from_huggingface_config({**MISTRAL_7B, "model_type": family, **plain}).parameter_count > 7e9


def test_weights_stored_in_fewer_bits_are_warned_of():
    stored = {"quant_method": "awq", "bits": 4}
    with pytest.warns(ParameterWarning, match=r"quantization_config is not read.*weight_dtype"):
        pm.from_huggingface_config({**MISTRAL_7B, "quantization_config": stored})
    pm.from_huggingface_config({**MISTRAL_7B, "quantization_config": None})


@pytest.mark.parametrize(
    ("fields", "length", "is_warned"),
    [
        ({}, None, True),
        ({}, 4097, True),
        ({}, sympy.Symbol("s", positive=True, integer=True), True),
        ({}, 4096, False),
        ({"sliding_window": None}, None, False),
        ({"model_type": "llama"}, None, False),
        ({"model_type": "qwen2"}, None, False),
        ({"model_type": "qwen2", "use_sliding_window": True}, None, True),
        ({"use_sliding_window": False}, None, False),
    ],
)
def test_a_window_of_attention_shorter_than_the_sequence_is_warned_of(fields, length, is_warned):
    config = {**MISTRAL_7B, "max_position_embeddings": 32768, "sliding_window": 4096, **fields}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pm.from_huggingface_config(config, sequence_length=length)
    says = [str(each.message) for each in warned]
    assert any("sliding_window=4096 is not read" in said for said in says) == is_warned == bool(says)
    assert all(each.filename == __file__ for each in warned)


def test_a_window_that_is_no_number_is_a_fault():
    with pytest.raises(SpecError, match="sliding_window='wide'"):
        pm.from_huggingface_config({**MISTRAL_7B, "sliding_window": "wide"})
