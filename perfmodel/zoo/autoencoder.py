"""Auto-encoders: plain, and variational."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import BinaryCrossEntropy, Dense, GaussianSample, KLDivergence, Layer, MeanSquaredError, Sigmoid
from perfmodel.layers.checks import check_widths, one_of
from perfmodel.zoo.activations import ACTIVATIONS
from perfmodel.zoo.blocks import chain
from perfmodel.zoo.options import checked

LOSSES: dict[str, Layer] = {
    "binary_cross_entropy": BinaryCrossEntropy(over="probabilities"),
    "mean_squared_error": MeanSquaredError(),
}
"""Name to what compares the reconstruction with the input."""


def _dense_stack(graph: LayerGraph, x: str, *, name: str, widths: Sequence[Any], activation: str) -> str:
    for index, units in enumerate(widths, start=1):
        x = graph.add(f"{name}{index}", Dense(units=units), inputs=x)
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

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

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
    x = graph.add("code", Dense(units=code), inputs=x)
    x = _dense_stack(graph, x, name="decoder", widths=hidden[::-1], activation=activation)
    x = chain(graph, x, ("reconstruction", Dense(units=features)), ("reconstruction_sigmoid", Sigmoid()))
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

    Returns
    -------
    LayerGraph
        The network with its losses. [-]

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
    mean = graph.add("mean", Dense(units=latent), inputs=x)
    log_variance = graph.add("log_variance", Dense(units=latent), inputs=x)
    x = graph.add("sample", GaussianSample(), inputs=(mean, log_variance))
    x = _dense_stack(graph, x, name="decoder", widths=hidden[::-1], activation=activation)
    x = chain(graph, x, ("reconstruction", Dense(units=features)), ("reconstruction_sigmoid", Sigmoid()))
    graph.add("reconstruction_loss", LOSSES["binary_cross_entropy"], inputs=(x, graph.input))
    graph.add("latent_loss", KLDivergence(), inputs=(mean, log_variance))
    return graph
