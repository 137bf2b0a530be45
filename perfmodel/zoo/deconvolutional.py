"""Deconvolutional network: from a few small maps back to an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import MeanSquaredError, ReLU, TransposedConvolution2d, Upsample
from perfmodel.zoo.blocks import chain
from perfmodel.zoo.options import checked, numbered


@dataclass(frozen=True, slots=True)
class _Filter:
    """A convolution of the network that is run backwards: what it saw, and how."""

    in_channels: int | None
    kernel_size: int
    stride: int
    padding: int
    is_pooled: bool

    def output_size(self, size: int) -> int:
        """Return the map that the convolution made [1]."""
        return (size + 2 * self.padding - self.kernel_size) // self.stride + 1

    def reversed(self, size: int, *, channels: int) -> TransposedConvolution2d:
        """Return what leads back to a map of ``size``: the remainder of the division is padded on."""
        spanned = (self.output_size(size) - 1) * self.stride + self.kernel_size - 2 * self.padding
        return TransposedConvolution2d(
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


def _pooled_size(size: int) -> int:
    """Return the map behind a pool of 3x3 with stride 2 and one line of padding [1]."""
    return (size - 1) // 2 + 1


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

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] Zeiler, Fergus, Visualizing and understanding convolutional networks, ECCV 2014, arXiv:1311.2901, figures 1
       and 3.
    """
    seen = [image_size]
    for each in FILTERS:
        made = each.output_size(seen[-1])
        seen.append(_pooled_size(made) if each.is_pooled else made)
    inputs = {"features": (LAST_CHANNELS, seen[-1], seen[-1]), "image": (out_channels, image_size, image_size)}
    graph = LayerGraph("deconvolutional", inputs=inputs)
    x = "features"
    for index, each in reversed(list(enumerate(FILTERS, start=1))):
        size = seen[index - 1]
        if each.is_pooled:
            made = each.output_size(size)
            x = graph.add(f"unpool{index}", Upsample(output_size=(made, made)), inputs=x)
        channels = out_channels if each.in_channels is None else each.in_channels
        layer = each.reversed(size, channels=channels)
        x = chain(graph, x, (f"relu{index}", ReLU()), (f"deconv{index}", layer))
    graph.add("loss", MeanSquaredError(), inputs=(x, "image"))
    return graph
