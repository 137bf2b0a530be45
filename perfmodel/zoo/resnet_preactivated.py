"""Residual networks whose blocks normalise before they convolve."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import Add, BatchNorm, Convolution2d, MaxPool2d, ReLU
from perfmodel.zoo.blocks import chain, classified, image_graph, normalised
from perfmodel.zoo.options import checked

EXPANSION = 4
"""Output channels of a block over its width [1]."""
BLOCKS_200 = (3, 24, 36, 3)
"""Blocks in each of the four stages [1]."""


def _block(graph: LayerGraph, name: str, x: str, *, width: Any, halves: bool, projects: bool, is_first: bool) -> str:
    """Add norm, rectifier and 1x1, 3x3, 1x1; a projected shortcut reads the normalised maps, others the maps."""
    shortcut = x
    if not is_first:
        x = chain(graph, x, (f"{name}_norm", BatchNorm()), (f"{name}_relu", ReLU()))
    stride = 2 if halves else 1
    if projects:
        projection = Convolution2d(out_channels=EXPANSION * width, kernel_size=1, stride=stride, bias=False)
        shortcut = graph.add(f"{name}_shortcut", projection, inputs=x)
    first = Convolution2d(out_channels=width, kernel_size=1, bias=False)
    x = normalised(graph, f"{name}_a", x, first)
    second = Convolution2d(out_channels=width, kernel_size=3, stride=stride, padding=1, bias=False)
    x = normalised(graph, f"{name}_b", x, second)
    last = Convolution2d(out_channels=EXPANSION * width, kernel_size=1, bias=False)
    x = graph.add(f"{name}_c_conv", last, inputs=x)
    return graph.add(f"{name}_add", Add(), inputs=(x, shortcut))


@checked()
def resnet200(
    *,
    classes: Any = 1000,
    image_size: Any = 224,
    in_channels: Any = 3,
    width: Any = 64,
) -> LayerGraph:
    """Return ResNet-200, pre-activated [1]_: 64,666,152 parameters, 15.0 G multiply-adds forward.

    As ResNet-152 with 16 more blocks on the 28 x 28 maps. The first block finds its input normalised already, the
    last is followed by a norm (appendix of the paper); the 3x3 carries the stride, as in the authors' files [2]_.

    Parameters
    ----------
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]
    width : int or sympy.Symbol
        Channels of the first convolution and of the first stage's blocks; doubles with each stage. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] He, Zhang, Ren, Sun, Identity mappings in deep residual networks, ECCV 2016, arXiv:1603.05027, section 4.2.
    .. [2] https://github.com/facebookarchive/fb.resnet.torch, models/preresnet.lua
    """
    graph = image_graph("resnet200", image_size=image_size, in_channels=in_channels)
    first = Convolution2d(out_channels=width, kernel_size=7, stride=2, padding=3, bias=False)
    x = normalised(graph, "first", graph.input, first)
    x = graph.add("first_pool", MaxPool2d(kernel_size=3, stride=2, padding=1), inputs=x)
    for stage, block_count in enumerate(BLOCKS_200):
        for block in range(block_count):
            x = _block(
                graph,
                f"stage{stage + 1}_block{block + 1}",
                x,
                width=width * 2**stage,
                halves=stage > 0 and block == 0,
                projects=block == 0,
                is_first=stage == block == 0,
            )
    x = chain(graph, x, ("last_norm", BatchNorm()), ("last_relu", ReLU()))
    return classified(graph, x, classes=classes)
