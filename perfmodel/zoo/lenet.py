"""LeNet-5."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import AveragePool2d, Convolution2d, CrossEntropy, Dense, Flatten, Layer, ReLU, Sigmoid, Tanh
from perfmodel.layers.checks import one_of
from perfmodel.zoo.blocks import chain, image_graph
from perfmodel.zoo.options import checked

ACTIVATIONS: dict[str, Layer] = {"tanh": Tanh(), "sigmoid": Sigmoid(), "relu": ReLU()}
"""Name to non-linearity."""


@checked(activation=one_of(ACTIVATIONS))
def lenet5(*, activation: str = "tanh", classes: Any = 10, image_size: Any = 32, in_channels: Any = 1) -> LayerGraph:
    """Return LeNet-5 [1]_ for digits of 32 x 32: 61,706 parameters, 416,520 multiply-adds forward.

    The form that everyone builds today: every map of the second convolution sees all six maps before it (the paper
    connects some, 1,516 parameters in place of 2,416), pools have no coefficients, and ten scores with softmax stand
    for the radial basis functions.

    Parameters
    ----------
    activation : str
        ``tanh`` as in the paper, ``sigmoid`` or ``relu``. [-]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image; on images above 35 the third convolution yields more than one column, as the
        paper explains. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document recognition, Proceedings of the
       IEEE 86 (1998), figure 2, doi:10.1109/5.726791.
    """
    graph = image_graph("lenet5", image_size=image_size, in_channels=in_channels)
    squash = ACTIVATIONS[activation]
    x = chain(
        graph,
        graph.input,
        ("conv1", Convolution2d(out_channels=6, kernel_size=5)),
        ("squash1", squash),
        ("pool2", AveragePool2d(kernel_size=2)),
        ("conv3", Convolution2d(out_channels=16, kernel_size=5)),
        ("squash3", squash),
        ("pool4", AveragePool2d(kernel_size=2)),
        ("conv5", Convolution2d(out_channels=120, kernel_size=5)),
        ("squash5", squash),
        ("flatten", Flatten()),
        ("fc6", Dense(units=84)),
        ("squash6", squash),
        ("fc7", Dense(units=classes)),
    )
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph
