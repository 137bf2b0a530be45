"""Densely connected networks."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import AveragePool2d, BatchNorm, Concat, Convolution2d, MaxPool2d, ReLU
from perfmodel.zoo.blocks import chain, classified, image_graph, normalised
from perfmodel.zoo.options import checked

BLOCKS_121 = (6, 12, 24, 16)
"""Layers in each of the four blocks [1]."""
BOTTLENECK = 4
"""Channels between the two convolutions of a layer over those that it adds [1]."""


def _dense_layer(graph: LayerGraph, name: str, x: str, *, growth: Any) -> str:
    """Add norm, rectifier, 1x1, norm, rectifier, 3x3."""
    x = chain(graph, x, (f"{name}_norm", BatchNorm()), (f"{name}_relu", ReLU()))
    bottleneck = Convolution2d(out_channels=BOTTLENECK * growth, kernel_size=1, bias=False)
    x = normalised(graph, f"{name}_a", x, bottleneck)
    return graph.add(
        f"{name}_b_conv", Convolution2d(out_channels=growth, kernel_size=3, padding=1, bias=False), inputs=x
    )


def _dense_block(graph: LayerGraph, name: str, x: str, *, layer_count: int, growth: Any) -> str:
    """Add layers that each read what all before them made, side by side."""
    parts = [x]
    for index in range(1, layer_count + 1):
        parts.append(_dense_layer(graph, f"{name}_layer{index}", x, growth=growth))
        x = graph.add(f"{name}_concat{index}", Concat(), inputs=parts)
    return x


@checked()
def densenet121(*, classes: Any = 1000, image_size: Any = 224, in_channels: Any = 3, growth: int = 32) -> LayerGraph:
    """Return DenseNet-121 [1]_: 7,978,856 parameters, 2.83 G multiply-adds forward.

    Parameters
    ----------
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]
    growth : int
        Channels that each layer adds, even; the first convolution has twice as many. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] Huang, Liu, van der Maaten, Weinberger, Densely connected convolutional networks, CVPR 2017,
       arXiv:1608.06993, table 1.
    """
    graph = image_graph("densenet121", image_size=image_size, in_channels=in_channels)
    first = Convolution2d(out_channels=2 * growth, kernel_size=7, stride=2, padding=3, bias=False)
    x = normalised(graph, "first", graph.input, first)
    x = graph.add("first_pool", MaxPool2d(kernel_size=3, stride=2, padding=1), inputs=x)
    for index, layer_count in enumerate(BLOCKS_121, start=1):
        x = _dense_block(graph, f"block{index}", x, layer_count=layer_count, growth=growth)
        x = chain(graph, x, (f"block{index}_norm", BatchNorm()), (f"block{index}_relu", ReLU()))
        if index < len(BLOCKS_121):
            halved = Convolution2d(out_channels=graph.shape(x)[0] // 2, kernel_size=1, bias=False)
            pool = AveragePool2d(kernel_size=2)
            x = chain(graph, x, (f"transition{index}_conv", halved), (f"transition{index}_pool", pool))
    return classified(graph, x, classes=classes)
