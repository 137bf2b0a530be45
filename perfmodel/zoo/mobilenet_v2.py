"""MobileNet v2: depth-wise convolutions between narrow maps."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import Add, BatchNorm, Convolution2d, ReLU6
from perfmodel.zoo.blocks import chain, classified, image_graph, normalised
from perfmodel.zoo.options import check_factor, checked

STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Table 2 of the paper: expansion, channels, blocks, stride of the first [1]."""
FIRST_CHANNELS = 32
LAST_CHANNELS = 1280
CHANNEL_STEP = 8
"""Channels are multiples of it [1]."""


def _scaled(channels: int, width: float) -> int:
    """Return the multiple of 8 nearest to width times channels, but not less than nine tenths of it."""
    wanted = width * channels
    nearest = max(CHANNEL_STEP, int(wanted + CHANNEL_STEP / 2) // CHANNEL_STEP * CHANNEL_STEP)
    return nearest + CHANNEL_STEP if nearest < 0.9 * wanted else nearest


def _block(graph: LayerGraph, name: str, x: str, *, channels: int, expansion: int, stride: int) -> str:
    """Add 1x1 that widens, 3x3 depth-wise, 1x1 that narrows without a non-linearity, and the shortcut."""
    shortcut, inputs = x, graph.shape(x)[0]
    hidden = expansion * inputs
    if expansion > 1:
        wide = Convolution2d(out_channels=hidden, kernel_size=1, bias=False)
        x = normalised(graph, f"{name}_a", x, wide, activation=ReLU6())
    deep = Convolution2d(out_channels=hidden, kernel_size=3, stride=stride, padding=1, groups=hidden, bias=False)
    x = normalised(graph, f"{name}_b", x, deep, activation=ReLU6())
    narrow = Convolution2d(out_channels=channels, kernel_size=1, bias=False)
    x = chain(graph, x, (f"{name}_c_conv", narrow), (f"{name}_c_norm", BatchNorm()))
    return graph.add(f"{name}_add", Add(), inputs=(shortcut, x)) if stride == 1 and inputs == channels else x


@checked(width=check_factor)
def mobilenet_v2(*, width: float = 1.0, classes: Any = 1000, image_size: Any = 224, in_channels: Any = 3) -> LayerGraph:
    """Return MobileNet v2 [1]_: 3,504,872 parameters, 0.301 G multiply-adds forward.

    Parameters
    ----------
    width : float
        What the channels of every layer are multiplied with, then rounded to multiples of 8. [1]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] Sandler, Howard, Zhu, Zhmoginov, Chen, MobileNetV2: inverted residuals and linear bottlenecks, CVPR 2018,
       arXiv:1801.04381, table 2.
    """
    graph = image_graph("mobilenet_v2", image_size=image_size, in_channels=in_channels)
    first = Convolution2d(out_channels=_scaled(FIRST_CHANNELS, width), kernel_size=3, stride=2, padding=1, bias=False)
    x = normalised(graph, "first", graph.input, first, activation=ReLU6())
    for stage, (expansion, channels, count, stride) in enumerate(STAGES, start=1):
        for index in range(count):
            x = _block(
                graph,
                f"stage{stage}_block{index + 1}",
                x,
                channels=_scaled(channels, width),
                expansion=expansion,
                stride=1 if index else stride,
            )
    last = Convolution2d(out_channels=_scaled(LAST_CHANNELS, max(width, 1.0)), kernel_size=1, bias=False)
    x = normalised(graph, "last", x, last, activation=ReLU6())
    return classified(graph, x, classes=classes, dropout=0.2)
