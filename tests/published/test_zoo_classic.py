"""Classic networks beside the counts of their papers and programs, and products beside plain torch versions."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from perfmodel import zoo
from perfmodel.errors import ArgumentError
from torch_models import classic
from torch_models.flop_count import flop_counts, parameter_count

SAMPLES = 3
SHORT_TEXT = 10
"""Words of a text that torch takes step by step; texts of 200 words follow, step by step. [1]"""


def product_flop_count(graph, phase):
    return sum(operation.product_flop_count for _, operation in graph.operations(batch_size=SAMPLES, phase=phase))


@pytest.mark.parametrize(
    ("name", "options", "published"),
    [
        # 784 x 64 + 64 + 64 x 64 + 64 + 64 x 10 + 10, the network of the parameter-server experiments on MNIST
        ("mnist_classifier", {}, 55_050),
        # Science 313, 2006: 784-1000-500-250-30 and back. Weights twice 1,417,500; biases 1,000 + 500 + 250 + 30
        # forth, 250 + 500 + 1,000 + 784 back
        ("autoencoder", {}, 2 * (784 * 1000 + 1000 * 500 + 500 * 250 + 250 * 30) + 1780 + 2534),
        # github.com/pytorch/examples, vae/main.py: fc1, fc21, fc22, fc3, fc4
        (
            "variational_autoencoder",
            {},
            (784 * 400 + 400) + 2 * (400 * 20 + 20) + (20 * 400 + 400) + (400 * 784 + 784),
        ),
        # Neural Computation 18, 2006: the lowest machine, 784 pixels and 500 units
        ("restricted_boltzmann_machine", {}, 784 * 500 + 784 + 500),
        # Science 313, 2006, supporting text: 784-500-500-2000-10
        ("deep_belief_network", {}, 784 * 500 + 500 * 500 + 500 * 2000 + 2000 * 10 + 500 + 500 + 2000 + 10),
        # github.com/goodfeli/adversarial, mnist.yaml: 100-1200-1200-784 rectifiers; maxout of 5 pieces, 784-240-240-1
        (
            "generative_adversarial_network",
            {},
            (101 * 1200 + 1201 * 1200 + 1201 * 784) + (785 * 1200 + 241 * 1200 + 241),
        ),
        # Cognitive Science 14, 1990: 31 input, 150 hidden and context, 31 output units
        ("recurrent_network", {}, (31 + 150) * 150 + 150 + 150 * 31 + 31),
        # keras.io/examples/nlp/bidirectional_lstm_imdb prints "Total params: 2,757,761"
        ("lstm_classifier", {}, 2_757_761),
        # keras-team/keras, examples/imdb_lstm.py, whose summary prints 2,691,713
        ("lstm_classifier", {"hidden_size": 128, "layer_count": 1, "bidirectional": False}, 2_691_713),
        # EMNLP 2013, section 4.1: one W of d x 2 d, softmax over 5 classes, words of d = 30
        ("recursive_network", {}, 10_000 * 30 + (60 * 30 + 30) + (30 * 5 + 5)),
    ],
)
def test_parameter_counts(name, options, published):
    assert zoo.build(name, **options).parameter_count == published


def _sequences(features):
    return torch.empty(SAMPLES, 32, features)


def _words(count):
    return torch.zeros((SAMPLES, count), dtype=torch.long)


NETWORKS = {
    "mnist_classifier": (
        lambda: zoo.mnist_classifier(),
        lambda: classic.dense_stack(784, 64, 64, 10, activation=torch.nn.Tanh),
        lambda: (torch.empty(SAMPLES, 784),),
    ),
    "autoencoder": (
        lambda: zoo.autoencoder(),
        lambda: classic.autoencoder(784, 1000, 500, 250, 30),
        lambda: (torch.empty(SAMPLES, 784),),
    ),
    "variational_autoencoder": (
        lambda: zoo.variational_autoencoder(),
        lambda: classic.VariationalAutoencoder(784, 400, 20),
        lambda: (torch.empty(SAMPLES, 784),),
    ),
    "deep_belief_network": (
        lambda: zoo.deep_belief_network(),
        lambda: classic.dense_stack(784, 500, 500, 2000, 10, activation=torch.nn.Sigmoid),
        lambda: (torch.empty(SAMPLES, 784),),
    ),
    "generative_adversarial_network": (
        lambda: zoo.generative_adversarial_network(),
        lambda: classic.AdversarialStep(784, 100, (1200, 1200), (240, 240), 5),
        lambda: (torch.empty(SAMPLES, 784), torch.empty(SAMPLES, 100), torch.empty(SAMPLES, 100)),
    ),
    "recurrent_network": (
        lambda: zoo.recurrent_network(bias_vectors=2),
        lambda: classic.RecurrentNetwork(31, 150, 31),
        lambda: (_sequences(31),),
    ),
    "lstm_classifier": (
        lambda: zoo.lstm_classifier(bias_vectors=2, steps=SHORT_TEXT),
        lambda: classic.TextClassifier(20_000, 128, 64, 2),
        lambda: (_words(SHORT_TEXT),),
    ),
    "recursive_network": (
        lambda: zoo.recursive_network(leaves=11),
        lambda: classic.RecursiveNetwork(10_000, 30, 5),
        lambda: (_words(11),),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_and_products_are_those_of_torch(name):
    make_graph, make_module, make_inputs = NETWORKS[name]
    graph = make_graph()
    with torch.device("meta"):
        module, inputs = make_module(), make_inputs()
        counted = flop_counts(module, *inputs)
    assert graph.parameter_count == parameter_count(module)
    assert (product_flop_count(graph, "forward"), product_flop_count(graph, "backward")) == counted


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_every_further_word_takes_the_products_of_the_one_before(phase):
    short, longer, whole = (
        product_flop_count(zoo.lstm_classifier(**({} if steps is None else {"steps": steps})), phase)
        for steps in (SHORT_TEXT, 2 * SHORT_TEXT, None)
    )
    assert whole - short == (200 / SHORT_TEXT - 1) * (longer - short) > 0


@pytest.mark.parametrize("steps", [1, 3])
def test_boltzmann_machine_takes_3_plus_2_k_products(steps):
    graph = zoo.restricted_boltzmann_machine(steps=steps)
    with torch.device("meta"):
        machine, visible = classic.BoltzmannMachine(784, 500), torch.empty(SAMPLES, 784)
        with FlopCounterMode(display=False) as counter:
            machine.gradients(visible, steps=steps)
    # one product up, k down and up again, and two of units with units for the gradient
    counted = product_flop_count(graph, "forward_backward")
    assert counted == counter.get_total_flops() == (3 + 2 * steps) * 2 * SAMPLES * 784 * 500


def test_pre_training_of_a_deep_belief_network_runs_frozen_layers_below_its_machine():
    for level, below, machine in [
        (1, 0, 784 * 500),
        (2, 784 * 500, 500 * 500),
        (3, 784 * 500 + 500 * 500, 500 * 2000),
    ]:
        graph = zoo.deep_belief_network(stage="pre_training", level=level)
        # below it forward only; the machine: five products
        assert product_flop_count(graph, "forward_backward") == 2 * SAMPLES * (below + 5 * machine)
        assert graph.parameter_count - graph.trained_parameter_count == below + sum((500, 500)[: level - 1])


GENERATOR = 100 * 1200 + 1200 * 1200 + 1200 * 784
DISCRIMINATOR = 784 * 1200 + 240 * 1200 + 240


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("samples", ["fresh", "reused"])
def test_passes_of_an_adversarial_step(steps, samples):
    graph = zoo.generative_adversarial_network(discriminator_steps=steps, samples=samples)
    made = steps + 1 if samples == "fresh" else steps
    multiply_adds = product_flop_count(graph, "forward") // (2 * SAMPLES)
    assert multiply_adds == made * GENERATOR + (2 * steps + 1) * DISCRIMINATOR
    # gradients of the discriminator's parameters 2 k times, each with those of the inputs of its upper two layers;
    # once those of all three inputs alone; the generator's parameters once, with the inputs of its upper two layers
    upper_discriminator, upper_generator = DISCRIMINATOR - 784 * 1200, GENERATOR - 100 * 1200
    multiply_adds = product_flop_count(graph, "backward") // (2 * SAMPLES)
    assert multiply_adds == (
        2 * steps * (DISCRIMINATOR + upper_discriminator) + DISCRIMINATOR + GENERATOR + upper_generator
    )
    assert graph.parameter_count == graph.trained_parameter_count == 3_735_425


@pytest.mark.parametrize("tree", ["balanced", "chain"])
@pytest.mark.parametrize("leaves", [2, 7, 16])
def test_recursive_network_composes_once_less_than_it_has_words(tree, leaves):
    graph = zoo.recursive_network(leaves=leaves, tree=tree, classified="root")
    compositions = (leaves - 1) * 60 * 30
    assert graph.multiply_add_count() == compositions + 30 * 5
    assert graph.parameter_count == zoo.recursive_network(leaves=2).parameter_count


def test_depth_of_trees():
    def depth(graph):
        longest = dict.fromkeys(graph.input_shapes, 0)
        for node in graph.layers:
            is_composition = node.name.startswith("composition")
            longest[node.name] = max(longest[each] for each in node.input_names) + is_composition
        return max(longest.values())

    assert depth(zoo.recursive_network(leaves=16)) == 4  # log2 16
    assert depth(zoo.recursive_network(leaves=16, tree="chain")) == 15


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("feed_forward", {"hidden": 64}),
        ("feed_forward", {"hidden": ()}),
        ("feed_forward", {"activation": "rellu"}),
        ("autoencoder", {"widths": (784,)}),
        ("autoencoder", {"widths": (784, 0)}),
        ("autoencoder", {"loss": "hinge"}),
        ("deep_belief_network", {"stage": "tuning"}),
        ("deep_belief_network", {"stage": "pre_training", "level": 4}),
        ("generative_adversarial_network", {"samples": "old"}),
        ("generative_adversarial_network", {"discriminator_steps": 0}),
        ("recurrent_network", {"read_steps": "first"}),
        ("lstm_classifier", {"classes": 1}),
        ("recursive_network", {"leaves": 1}),
        ("recursive_network", {"tree": "flat"}),
    ],
)
def test_options_that_are_refused(name, options):
    with pytest.raises(ArgumentError, match=" must "):
        zoo.build(name, **options)
