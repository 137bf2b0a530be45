"""Networks that turn maps into maps: the deconvolutional network and the U-Net."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfmodel import layers as nn
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import numbered, one_of
from perfmodel.zoo.blocks import chain, image_graph
from perfmodel.zoo.options import checked


@dataclass(frozen=True, slots=True)
class _Filter:
    """A convolution of the network that is run backwards: its input channels, window and pooling."""

    in_channels: int | None
    kernel_size: int
    stride: int
    padding: int
    is_pooled: bool

    def output_size(self, size: int) -> int:
        """Return the map that the convolution made [1]."""
        return (size + 2 * self.padding - self.kernel_size) // self.stride + 1

    def reversed(self, size: int, *, channels: int) -> nn.TransposedConvolution2d:
        """Return the window that leads back to a map of ``size``: the remainder of the division is padded on."""
        spanned = (self.output_size(size) - 1) * self.stride + self.kernel_size - 2 * self.padding
        return nn.TransposedConvolution2d(
            out_channels=channels,
            kernel_size=self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            output_padding=size - spanned,
        )


FILTERS = (
    _Filter(None, kernel_size=7, stride=2, padding=1, is_pooled=True),
    _Filter(96, kernel_size=5, stride=2, padding=0, is_pooled=True),
    _Filter(256, kernel_size=3, stride=1, padding=1, is_pooled=False),
    _Filter(384, kernel_size=3, stride=1, padding=1, is_pooled=False),
    _Filter(384, kernel_size=3, stride=1, padding=1, is_pooled=False),
)
"""The five convolutions of figure 3, each with the channels it saw; pools of 3x3 halve the map after two of them."""
LAST_CHANNELS = 256


@checked(image_size=numbered(minimum=16))
def deconvolutional(*, image_size: int = 224, out_channels: Any = 3) -> LayerGraph:
    """Return the deconvolutional network of Zeiler and Fergus [1]_: 3,726,211 parameters, 1.11 G multiply-adds.

    Their classifier's five convolutions in reverse: features of 13 x 13 are rectified, filtered by transposed
    convolutions and un-pooled until they are an image, which is compared with a given one. Un-pooling, which puts each
    number where the maximum was, is counted as nearest up-sampling: it writes the same map.

    Parameters
    ----------
    image_size : int
        Height and width of the image. [1]
    out_channels : int or sympy.Symbol
        Channels of the image. [1]

    References
    ----------
    .. [1] Zeiler, Fergus, Visualizing and understanding convolutional networks, ECCV 2014, arXiv:1311.2901, figures 1
       and 3.
    """
    sizes = [image_size]
    for filters in FILTERS:
        made = filters.output_size(sizes[-1])
        sizes.append((made - 1) // 2 + 1 if filters.is_pooled else made)  # 3x3, stride 2 and one line of padding
    inputs = {"features": (LAST_CHANNELS, sizes[-1], sizes[-1]), "image": (out_channels, image_size, image_size)}
    graph = LayerGraph("deconvolutional", inputs=inputs)
    x = "features"
    for index, filters in reversed(list(enumerate(FILTERS, start=1))):
        size = sizes[index - 1]
        if filters.is_pooled:
            made = filters.output_size(size)
            x = graph.add(f"unpool{index}", nn.Upsample(output_size=(made, made)), inputs=x)
        channels = out_channels if filters.in_channels is None else filters.in_channels
        layer = filters.reversed(size, channels=channels)
        x = chain(graph, x, (f"relu{index}", nn.ReLU()), (f"deconv{index}", layer))
    graph.add("loss", nn.MeanSquaredError(), inputs=(x, "image"))
    return graph


ZEROS = {"valid": 0, "same": 1}
"""Padding rule -> zeros around each 3x3 convolution [1]."""


def _double(graph: LayerGraph, name: str, x: str, *, channels: Any, zeros: int) -> str:
    """Add two convolutions with their rectifiers."""
    layer = nn.Convolution2d(out_channels=channels, kernel_size=3, padding=zeros)
    return chain(
        graph,
        x,
        (f"{name}_conv1", layer),
        (f"{name}_relu1", nn.ReLU()),
        (f"{name}_conv2", layer),
        (f"{name}_relu2", nn.ReLU()),
    )


def _expanded(graph: LayerGraph, name: str, x: str, *, skip: str, channels: Any, zeros: int) -> str:
    """Double the map, join it with the skipped map cropped to its size, and convolve twice."""
    up = nn.TransposedConvolution2d(out_channels=channels, kernel_size=2, stride=2)
    x = graph.add(f"{name}_up", up, inputs=x)
    cropped = (graph.shape(skip)[0], *graph.shape(x)[1:])
    if cropped != graph.shape(skip):
        skip = graph.add(f"{name}_crop", nn.Slice(shape=cropped), inputs=skip)
    x = graph.add(f"{name}_concat", nn.Concat(), inputs=(skip, x))
    return _double(graph, name, x, channels=channels, zeros=zeros)


@checked(padding=one_of(ZEROS), depth=numbered())
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
    zeros = ZEROS[padding]
    graph = image_graph("unet", image_size=image_size, in_channels=in_channels)
    x, skips = graph.input, []
    for level in range(1, depth + 1):
        x = _double(graph, f"down{level}", x, channels=width * 2 ** (level - 1), zeros=zeros)
        skips.append(x)
        x = graph.add(f"down{level}_pool", nn.MaxPool2d(kernel_size=2), inputs=x)
    x = _double(graph, "bottom", x, channels=width * 2**depth, zeros=zeros)
    for level in range(depth, 0, -1):
        channels = width * 2 ** (level - 1)
        x = _expanded(graph, f"up{level}", x, skip=skips.pop(), channels=channels, zeros=zeros)
    x = graph.add("scores", nn.Convolution2d(out_channels=classes, kernel_size=1), inputs=x)
    _, height, breadth = graph.shape(x)
    chain(
        graph,
        x,
        ("pixels", nn.Reshape(shape=(classes, height * breadth))),
        ("pixels_first", nn.Transpose(axes=(1, 0))),
        ("loss", nn.CrossEntropy()),
    )
    return graph
