"""Networks that learn without labels: auto-encoders, variational and convolutional, and Boltzmann machines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from perfmodel import layers as nn
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import check_at_most, check_widths, is_open_size, numbered, one_of, refuse
from perfmodel.zoo.blocks import ACTIVATIONS, chain, image_graph
from perfmodel.zoo.options import checked

LOSSES: dict[str, nn.Layer] = {
    "binary_cross_entropy": nn.BinaryCrossEntropy(over="probabilities"),
    "mean_squared_error": nn.MeanSquaredError(),
}
"""Name -> loss between reconstruction and input."""


def _dense_stack(graph: LayerGraph, x: str, *, name: str, widths: Sequence[Any], activation: str) -> str:
    for index, units in enumerate(widths, start=1):
        x = graph.add(f"{name}{index}", nn.Dense(units=units), inputs=x)
        x = graph.add(f"{name}{index}_activation", ACTIVATIONS[activation], inputs=x)
    return x


@checked(widths=partial(check_widths, fewest=2), activation=one_of(ACTIVATIONS), loss=one_of(LOSSES))
def autoencoder(
    *,
    widths: Sequence[Any] = (784, 1000, 500, 250, 30),
    activation: str = "sigmoid",
    loss: str = "binary_cross_entropy",
) -> LayerGraph:
    """Return an auto-encoder, by default the one of Hinton and Salakhutdinov [1]_: 2,837,314 parameters.

    The decoder mirrors the encoder; the code is linear, the reconstruction a sigmoid, compared with the input.

    Parameters
    ----------
    widths : sequence of int or sympy.Symbol
        Features of the input, then units of each layer of the encoder down to the code. [1]
    activation : str
        Non-linearity of the layers between input and code. [-]
    loss : str
        ``binary_cross_entropy`` or ``mean_squared_error`` of the reconstruction. [-]

    Examples
    --------
    >>> autoencoder().parameter_count
    2837314

    References
    ----------
    .. [1] Hinton, Salakhutdinov, Reducing the dimensionality of data with neural networks, Science 313, 2006.
    """
    features, *hidden, code = widths
    graph = LayerGraph("autoencoder", input_shape=(features,))
    x = _dense_stack(graph, graph.input, name="encoder", widths=hidden, activation=activation)
    x = graph.add("code", nn.Dense(units=code), inputs=x)
    x = _dense_stack(graph, x, name="decoder", widths=hidden[::-1], activation=activation)
    x = chain(graph, x, ("reconstruction", nn.Dense(units=features)), ("reconstruction_sigmoid", nn.Sigmoid()))
    graph.add("loss", LOSSES[loss], inputs=(x, graph.input))
    return graph


@checked(activation=one_of(ACTIVATIONS))
def variational_autoencoder(
    *, features: Any = 784, hidden: Sequence[Any] = (400,), latent: Any = 20, activation: str = "relu"
) -> LayerGraph:
    """Return a variational auto-encoder [1]_: 652,824 parameters as in PyTorch's example [2]_.

    The encoder gives mean and logarithm of the variance of each latent variable; a sample of them, made from noise
    so that gradients pass (reparameterisation), is decoded. Two losses: the reconstruction's binary cross-entropy,
    and the divergence of the latent distribution from a standard normal.

    Parameters
    ----------
    features : int or sympy.Symbol
        Input features, each a probability. [1]
    hidden : sequence of int or sympy.Symbol
        Units of each hidden layer of the encoder; the decoder mirrors it. [1]
    latent : int or sympy.Symbol
        Latent variables. [1]
    activation : str
        Non-linearity of the hidden layers. [-]

    Examples
    --------
    >>> variational_autoencoder().parameter_count
    652824

    References
    ----------
    .. [1] Kingma, Welling, Auto-encoding variational Bayes, arXiv:1312.6114.
    .. [2] https://github.com/pytorch/examples/blob/main/vae/main.py
    """
    graph = LayerGraph("variational_autoencoder", input_shape=(features,))
    x = _dense_stack(graph, graph.input, name="encoder", widths=hidden, activation=activation)
    mean = graph.add("mean", nn.Dense(units=latent), inputs=x)
    log_variance = graph.add("log_variance", nn.Dense(units=latent), inputs=x)
    x = graph.add("sample", nn.GaussianSample(), inputs=(mean, log_variance))
    x = _dense_stack(graph, x, name="decoder", widths=hidden[::-1], activation=activation)
    x = chain(graph, x, ("reconstruction", nn.Dense(units=features)), ("reconstruction_sigmoid", nn.Sigmoid()))
    graph.add("reconstruction_loss", LOSSES["binary_cross_entropy"], inputs=(x, graph.input))
    graph.add("latent_loss", nn.KLDivergence(), inputs=(mean, log_variance))
    return graph


@checked(activation=one_of(ACTIVATIONS))
def convolutional_autoencoder(
    *,
    channels: Sequence[Any] = (16, 32),
    activation: str = "relu",
    image_size: Any = 28,
    in_channels: Any = 1,
) -> LayerGraph:
    """Return a convolutional auto-encoder [1]_: convolutions halve the image, transposed ones double it again.

    Every kernel is 3x3 with a stride of 2 (the paper pools instead); the loss is the mean squared difference from the
    input. 9,569 parameters.

    Parameters
    ----------
    channels : sequence of int or sympy.Symbol
        Channels after each halving; the decoder mirrors them. [1]
    activation : str
        Non-linearity of all layers but the last, which is a sigmoid. [-]
    image_size : int or sympy.Expr
        Height and width of the image, divisible by two as often as it is halved; if symbolic, a multiple of a symbol,
        e.g. ``4 * sympy.Symbol("I", integer=True, positive=True)``. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    References
    ----------
    .. [1] Masci, Meier, Ciresan, Schmidhuber, Stacked convolutional auto-encoders for hierarchical feature extraction,
       ICANN 2011.
    """
    nonlinear = ACTIVATIONS[activation]
    graph = image_graph("convolutional_autoencoder", image_size=image_size, in_channels=in_channels)
    if not is_open_size(image_size) and image_size % 2 ** len(channels):
        refuse("image_size", image_size, f"must be divisible by 2 ** {len(channels)}, once for each entry of channels")
    x = graph.input
    for index, outputs in enumerate(channels, start=1):
        layer = nn.Convolution2d(out_channels=outputs, kernel_size=3, stride=2, padding=1)
        x = chain(graph, x, (f"encoder{index}", layer), (f"encoder{index}_activation", nonlinear))
    for index, outputs in enumerate((*channels[-2::-1], in_channels), start=1):
        back = nn.TransposedConvolution2d(out_channels=outputs, kernel_size=3, stride=2, padding=1, output_padding=1)
        last = index == len(channels)
        after = ("reconstruction", nn.Sigmoid()) if last else (f"decoder{index}_activation", nonlinear)
        x = chain(graph, x, (f"decoder{index}", back), after)
    graph.add("loss", nn.MeanSquaredError(), inputs=(x, graph.input))
    return graph


TRAINED = ("pre_training", "fine_tuning")


@checked(steps=numbered())
def restricted_boltzmann_machine(*, visible: Any = 784, hidden: Any = 500, steps: int = 1) -> LayerGraph:
    """Return a restricted Boltzmann machine [1]_ with a step of its training by contrastive divergence [2]_.

    Visible x hidden weights and a bias for each unit: 393,284 parameters by default.

    Parameters
    ----------
    visible : int or sympy.Symbol
        Visible units, the features of a sample. [1]
    hidden : int or sympy.Symbol
        Hidden units. [1]
    steps : int
        Steps of Gibbs sampling, the k of CD-k. [1]

    Returns
    -------
    LayerGraph
        The machine. [-]

    Examples
    --------
    >>> restricted_boltzmann_machine().parameter_count
    393284

    References
    ----------
    .. [1] Smolensky, Information processing in dynamical systems, 1986.
    .. [2] Hinton, Training products of experts by minimizing contrastive divergence, Neural Computation 14, 2002.
    """
    graph = LayerGraph("restricted_boltzmann_machine", input_shape=(visible,))
    graph.add("machine", nn.ContrastiveDivergence(hidden_units=hidden, steps=steps), inputs=graph.input)
    return graph


@checked(widths=partial(check_widths, fewest=2), stage=one_of(TRAINED), level=numbered(), steps=numbered())
def deep_belief_network(
    *,
    widths: Sequence[Any] = (784, 500, 500, 2000),
    classes: Any = 10,
    stage: str = "fine_tuning",
    level: int = 1,
    steps: int = 1,
) -> LayerGraph:
    """Return one stage of training a deep belief network [1]_, by default 784-500-500-2000-10 [2]_.

    Training has one stage of its own for each machine of the stack, the lowest first, and then fine-tuning by
    back-propagation; so the whole training is ``len(widths)`` graphs, each with its steps. ``pre_training`` of a
    level: the frozen layers below it turn a sample into what its machine sees, which takes one step of contrastive
    divergence. ``fine_tuning``: the weights start a feed-forward network of sigmoids with a softmax over classes
    (1,665,010 parameters), trained as any other.

    Parameters
    ----------
    widths : sequence of int or sympy.Symbol
        Features of a sample, then hidden units of each machine, lowest first. [1]
    classes : int or sympy.Symbol
        Classes of ``fine_tuning``. [1]
    stage : str
        ``pre_training`` or ``fine_tuning``. [-]
    level : int
        Machine that ``pre_training`` trains; 1 is the lowest. [1]
    steps : int
        Steps of Gibbs sampling in ``pre_training``. [1]

    Returns
    -------
    LayerGraph
        The stage. [-]

    Examples
    --------
    >>> deep_belief_network().parameter_count
    1665010
    >>> top = deep_belief_network(stage="pre_training", level=3)
    >>> top.trained_parameter_count, top.parameter_count
    (1002500, 1645500)

    References
    ----------
    .. [1] Hinton, Osindero, Teh, A fast learning algorithm for deep belief nets, Neural Computation 18, 2006.
    .. [2] Hinton, Salakhutdinov, Reducing the dimensionality of data with neural networks, Science 313, 2006,
       supporting text.
    """
    check_at_most("level", level, maximum=len(widths) - 1)
    graph = LayerGraph("deep_belief_network", input_shape=(widths[0],))
    is_trained = stage == "fine_tuning"
    hidden = widths[1:] if is_trained else widths[1:level]
    x = graph.input
    for index, units in enumerate(hidden, start=1):
        x = graph.add(f"fc{index}", nn.Dense(units=units), inputs=x, is_trained=is_trained)
        x = graph.add(f"sigmoid{index}", nn.Sigmoid(), inputs=x)
    if is_trained:
        chain(graph, x, ("scores", nn.Dense(units=classes)), ("loss", nn.CrossEntropy()))
    else:
        machine = nn.ContrastiveDivergence(hidden_units=widths[level], steps=steps)
        graph.add(f"machine{level}", machine, inputs=x)
    return graph
