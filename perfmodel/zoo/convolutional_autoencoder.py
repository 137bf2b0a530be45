"""Auto-encoder of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import Convolution2d, MeanSquaredError, Sigmoid, TransposedConvolution2d
from perfmodel.layers.checks import is_open_size, one_of, refuse
from perfmodel.zoo.activations import ACTIVATIONS
from perfmodel.zoo.blocks import chain, image_graph
from perfmodel.zoo.options import checked


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
        Height and width of the image, divisible by two as often as it is halved; left open, a multiple of a symbol,
        e.g. ``4 * sympy.Symbol("I", integer=True, positive=True)``. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

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
        layer = Convolution2d(out_channels=outputs, kernel_size=3, stride=2, padding=1)
        x = chain(graph, x, (f"encoder{index}", layer), (f"encoder{index}_activation", nonlinear))
    for index, outputs in enumerate((*channels[-2::-1], in_channels), start=1):
        back = TransposedConvolution2d(out_channels=outputs, kernel_size=3, stride=2, padding=1, output_padding=1)
        last = index == len(channels)
        after = ("reconstruction", Sigmoid()) if last else (f"decoder{index}_activation", nonlinear)
        x = chain(graph, x, (f"decoder{index}", back), after)
    graph.add("loss", MeanSquaredError(), inputs=(x, graph.input))
    return graph
