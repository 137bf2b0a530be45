"""Language networks beside their papers and published checkpoints, and products beside plain torch versions."""

import pytest
import torch

from perfmodel import zoo
from perfmodel.errors import ArgumentError
from torch_models import bert as torch_bert
from torch_models import classic
from torch_models.flop_count import flop_counts, parameter_count
from torch_models.gpt import gpt2 as torch_gpt2
from torch_models.llama import llama as torch_llama

SAMPLES, POSITIONS = 2, 96


def product_flop_count(graph, phase, *, batch_size=SAMPLES):
    return sum(operation.product_flop_count for _, operation in graph.operations(batch_size=batch_size, phase=phase))


@pytest.mark.parametrize(
    ("name", "options", "published"),
    [
        # transformers' BertModel of the checkpoints bert-base-uncased and bert-large-uncased; the paper says 110 M
        # and 340 M
        ("bert", {}, 109_482_240),
        ("bert", {"size": "large"}, 335_141_888),
        # BertForSequenceClassification with two labels: 768 x 2 + 2 more
        ("bert", {"head": "classification"}, 109_482_240 + 1538),
        # BertForMaskedLM: no pooler, but a transform of the same size, a norm and a bias for each word
        ("bert", {"head": "masked_language_model"}, 109_482_240 + 2 * 768 + 30_522),
        # transformers' GPT2LMHeadModel of the checkpoints gpt2, gpt2-medium, gpt2-large, gpt2-xl
        ("gpt2", {}, 124_439_808),
        ("gpt2", {"size": "medium"}, 354_823_168),
        ("gpt2", {"size": "large"}, 774_030_080),
        ("gpt2", {"size": "xl"}, 1_557_611_200),
        # sum of the tensors in the checkpoints Llama-2-7b-hf, 13b, 70b, Meta-Llama-3-8B and 70B
        ("llama", {}, 6_738_415_616),
        ("llama", {"size": "llama2_13b"}, 13_015_864_320),
        ("llama", {"size": "llama2_70b"}, 68_976_648_192),
        ("llama", {"size": "llama3_8b"}, 8_030_261_248),
        ("llama", {"size": "llama3_70b"}, 70_553_706_496),
        # arXiv:1409.3215, section 3.4: "384M parameters of which 64M are pure recurrent connections"; the biases are
        # 4 x 4,000 in each stack, and one for each of 80,000 words
        ("seq2seq", {}, 384_000_000 + 2 * 16_000 + 80_000),
    ],
)
def test_parameter_counts(name, options, published):
    assert zoo.build(name, **options).parameter_count == published


def test_recurrent_weights_of_the_translator_are_64_million():
    graph = zoo.seq2seq(bias_vectors=0)
    assert graph.parameter_counts["encoder"] + graph.parameter_counts["decoder"] == 64_000_000


def _tokens(positions=POSITIONS):
    return torch.zeros((SAMPLES, positions), dtype=torch.long)


NETWORKS = {
    **{
        f"bert_{size}": (
            lambda size=size: zoo.bert(size=size, sequence_length=POSITIONS),
            lambda size=size: getattr(torch_bert, f"bert_{size}")(),
            lambda: (_tokens(), _tokens()),
        )
        for size in ("base", "large")
    },
    "bert_masked_language_model": (
        lambda: zoo.bert(head="masked_language_model", sequence_length=POSITIONS),
        lambda: torch_bert.MaskedLanguageModel(torch_bert.bert_base()),
        lambda: (_tokens(), _tokens()),
    ),
    **{
        f"gpt2_{size}": (
            lambda size=size: zoo.gpt2(size=size, sequence_length=POSITIONS),
            lambda size=size: torch_gpt2(size),
            lambda: (_tokens(),),
        )
        for size in ("small", "medium", "large", "xl")
    },
    **{
        size: (
            lambda size=size: zoo.llama(size=size, sequence_length=POSITIONS),
            lambda size=size: torch_llama(size),
            lambda: (_tokens(),),
        )
        for size in ("llama2_7b", "llama3_8b")
    },
    "seq2seq": (
        lambda: zoo.seq2seq(source_steps=7, target_steps=5, bias_vectors=2),
        lambda: classic.SequenceToSequence(160_000, 80_000, 1000, 1000, 4),
        lambda: (_tokens(7), _tokens(5)),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_and_products_are_those_of_torch(name):
    make_graph, make_module, make_inputs = NETWORKS[name]
    graph = make_graph()
    with torch.device("meta"):
        module = make_module()
        counted = flop_counts(module, *make_inputs())
    assert graph.parameter_count == parameter_count(module)
    assert (product_flop_count(graph, "forward"), product_flop_count(graph, "backward")) == counted


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_lowering_of_attention_changes_bytes_and_no_product(name):
    fused, materialised = (zoo.build(name, attention=each) for each in ("fused", "materialised"))
    for phase in ("forward", "backward"):
        assert product_flop_count(fused, phase) == product_flop_count(materialised, phase)
        moved = [graph.work(batch_size=SAMPLES, phase=phase).moved_bytes for graph in (fused, materialised)]
        assert moved[0] < moved[1]


def test_layers_of_gpt_follow_narayanan():
    # Narayanan et al., arXiv:2104.04473, eq. 3: a layer takes 24 B s h^2 + 4 B s^2 h FLOP forward, the scores of
    # every word 2 B s h V; backward twice that
    layers, h, s, vocabulary = 6, 512, 256, 51_200
    graph = zoo.gpt(layers=layers, width=h, heads=8, sequence_length=s, vocabulary=vocabulary)
    forward = SAMPLES * (layers * (24 * s * h**2 + 4 * s**2 * h) + 2 * s * h * vocabulary)
    assert product_flop_count(graph, "forward") == forward
    assert product_flop_count(graph, "backward") == 2 * forward
    # the same equation with recomputation of the forward pass: 96 B s l h^2 (1 + s / 6 h + V / 16 l h), where the
    # scores are not recomputed
    with_recomputation = SAMPLES * 96 * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (16 * layers * h))
    scores = SAMPLES * 2 * s * h * vocabulary
    assert 4 * forward - scores == pytest.approx(with_recomputation, rel=1e-12)


def test_step_of_gpt_follows_six_n_d():
    # Kaplan et al., arXiv:2001.08361, section 2.1: C = 6 N D for N parameters without embeddings, D positions, valid
    # for a width of much more than a twelfth of the context. Left out: scores of attention, s / (6 h) = 8.3 % of the
    # blocks here, and of all words
    graph = zoo.gpt(layers=48, width=4096, heads=32, sequence_length=2048, vocabulary=50_257)
    blocks = graph.parameter_count - (50_257 + 2048) * 4096
    counted = product_flop_count(graph, "forward_backward", batch_size=1)
    of_words = 6 * 50_257 * 4096 * 2048
    ratio = (counted - of_words) / (6 * blocks * 2048)
    assert ratio == pytest.approx(1 + 2048 / (6 * 4096), rel=1e-3)  # biases and norms are 0.03 % of the parameters
    assert counted / (6 * graph.parameter_count * 2048) == pytest.approx(1, abs=0.09)


def test_grouped_queries_and_tied_tables_save_what_they_should():
    plain = zoo.llama(layers=2, width=64, heads=8, key_heads=8, intermediate=96, vocabulary=100, sequence_length=16)
    grouped = zoo.llama(layers=2, width=64, heads=8, key_heads=2, intermediate=96, vocabulary=100, sequence_length=16)
    assert plain.parameter_count - grouped.parameter_count == 2 * 2 * 64 * (64 - 16)
    sizes = {"layers": 2, "width": 64, "heads": 8, "key_heads": 8, "intermediate": 96, "vocabulary": 100}
    tied = zoo.llama(**sizes, sequence_length=16, tied=True)
    assert plain.parameter_count - tied.parameter_count == 64 * 100
    ungated = zoo.llama(**sizes, sequence_length=16, gated=False)
    assert plain.parameter_count - ungated.parameter_count == 2 * 64 * 96


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bert", {"size": "huge"}),
        ("bert", {"head": "masked_lm"}),
        ("bert", {"heads": 7}),
        ("bert", {"attention": "flash"}),
        ("gpt", {"layers": 0}),
        ("gpt", {"tied": "yes"}),
        ("gpt2", {"size": "mini"}),
        ("llama", {"size": "llama4"}),
        ("llama", {"activation": "swiglu"}),
    ],
)
def test_options_that_are_refused(name, options):
    with pytest.raises(ArgumentError, match=" must "):
        zoo.build(name, **options)


def test_a_sequence_longer_than_the_table_of_positions_is_refused():
    with pytest.raises(ValueError, match="1024"):
        zoo.gpt2(sequence_length=2000)
