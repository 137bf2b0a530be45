"""U-Net: segmentation with skips from the contracting to the expanding path."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    Concat,
    Convolution2d,
    CrossEntropy,
    MaxPool2d,
    ReLU,
    Reshape,
    Slice,
    Transpose,
    TransposedConvolution2d,
)
from perfmodel.layers.checks import one_of
from perfmodel.zoo.blocks import chain, image_graph
from perfmodel.zoo.options import checked, numbered

PADDINGS = {"valid": 0, "same": 1}
"""Rule to the zeros around each 3x3 convolution [1]."""


def _double(graph: LayerGraph, name: str, x: str, *, channels: Any, zeros: int) -> str:
    """Add two convolutions with their rectifiers."""
    layer = Convolution2d(out_channels=channels, kernel_size=3, padding=zeros)
    return chain(
        graph,
        x,
        (f"{name}_conv1", layer),
        (f"{name}_relu1", ReLU()),
        (f"{name}_conv2", layer),
        (f"{name}_relu2", ReLU()),
    )


def _expanded(graph: LayerGraph, name: str, x: str, *, skip: str, channels: Any, zeros: int) -> str:
    """Double the map, put what the skip brings beside it, cropped to its size, and convolve twice."""
    up = TransposedConvolution2d(out_channels=channels, kernel_size=2, stride=2)
    x = graph.add(f"{name}_up", up, inputs=x)
    cropped = (graph.shape(skip)[0], *graph.shape(x)[1:])
    if cropped != graph.shape(skip):
        skip = graph.add(f"{name}_crop", Slice(shape=cropped), inputs=skip)
    x = graph.add(f"{name}_concat", Concat(), inputs=(skip, x))
    return _double(graph, name, x, channels=channels, zeros=zeros)


@checked(padding=one_of(PADDINGS), depth=numbered())
def unet(
    *,
    padding: str = "valid",
    depth: int = 4,
    width: Any = 64,
    classes: Any = 2,
    image_size: Any = 572,
    in_channels: Any = 1,
) -> LayerGraph:
    """Return U-Net [1]_: 31,030,658 parameters, 167 G multiply-adds forward on an image of 572 x 572.

    Parameters
    ----------
    padding : str
        ``valid`` as in the paper: 3x3 convolutions without padding, skips are cropped, 388 x 388 scores of a 572 x 572
        image; ``same``: one zero around each map, scores for every pixel, no crop where ``image_size`` is a multiple of
        2 to the depth. [-]
    depth : int
        How often the map is halved, and doubled again. [1]
    width : int or sympy.Symbol
        Channels of the first convolutions; double with each halving. [1]
    classes : int or sympy.Symbol
        Classes of a pixel. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    Returns
    -------
    LayerGraph
        The network with its loss over all pixels. [-]

    References
    ----------
    .. [1] Ronneberger, Fischer, Brox, U-Net: convolutional networks for biomedical image segmentation, MICCAI 2015,
       arXiv:1505.04597, figure 1.
    """
    zeros = PADDINGS[padding]
    graph = image_graph("unet", image_size=image_size, in_channels=in_channels)
    x, skips = graph.input, []
    for level in range(1, depth + 1):
        x = _double(graph, f"down{level}", x, channels=width * 2 ** (level - 1), zeros=zeros)
        skips.append(x)
        x = graph.add(f"down{level}_pool", MaxPool2d(kernel_size=2), inputs=x)
    x = _double(graph, "bottom", x, channels=width * 2**depth, zeros=zeros)
    for level in range(depth, 0, -1):
        channels = width * 2 ** (level - 1)
        x = _expanded(graph, f"up{level}", x, skip=skips.pop(), channels=channels, zeros=zeros)
    x = graph.add("scores", Convolution2d(out_channels=classes, kernel_size=1), inputs=x)
    _, height, breadth = graph.shape(x)
    chain(
        graph,
        x,
        ("pixels", Reshape(shape=(classes, height * breadth))),
        ("pixels_first", Transpose(axes=(1, 0))),
        ("loss", CrossEntropy()),
    )
    return graph
