"""DCGAN: the two convolutional networks of an adversarial pair."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    BatchNorm,
    BinaryCrossEntropy,
    Convolution2d,
    Flatten,
    LeakyReLU,
    ReLU,
    Sigmoid,
    Tanh,
    TransposedConvolution2d,
)
from perfmodel.layers.checks import refuse
from perfmodel.zoo.blocks import chain, image_graph
from perfmodel.zoo.options import checked, numbered

SMALLEST_MAP = 4
"""Height and width of the map between the dense product and the first doubling [1]."""
KERNEL_SIZE = 4
SLOPE = 0.2


def _halvings(image_size: int) -> int:
    """Return how often the image is halved until its map is the smallest [1]."""
    count = 0
    while SMALLEST_MAP * 2**count < image_size:
        count += 1
    if SMALLEST_MAP * 2**count != image_size or not count:
        refuse("image_size", image_size, f"must be {SMALLEST_MAP} times a power of two, e.g. 64")
    return count


@checked(image_size=numbered())
def dcgan_generator(*, noise: Any = 100, width: Any = 64, image_size: int = 64, out_channels: Any = 3) -> LayerGraph:
    """Return the generator of DCGAN [1]_ with the sizes of PyTorch's example [2]_: 3,576,704 parameters.

    105 M multiply-adds forward. Transposed convolutions spread a vector of noise to an image; what scores the image is
    :func:`dcgan_discriminator`, so the graph ends without a loss.

    Parameters
    ----------
    noise : int or sympy.Symbol
        Elements of the noise. [1]
    width : int or sympy.Symbol
        Channels before the image; double with each halving of the map. [1]
    image_size : int
        Height and width of the image, 4 times a power of two. [1]
    out_channels : int or sympy.Symbol
        Channels of the image. [1]

    Returns
    -------
    LayerGraph
        The network. [-]

    References
    ----------
    .. [1] Radford, Metz, Chintala, Unsupervised representation learning with deep convolutional generative adversarial
       networks, ICLR 2016, arXiv:1511.06434, figure 1.
    .. [2] https://github.com/pytorch/examples/blob/main/dcgan/main.py
    """
    halvings = _halvings(image_size)
    graph = LayerGraph("dcgan_generator", input_shape=(noise, 1, 1))
    x = graph.input
    for index in range(halvings):
        stride, padding = (2, 1) if index else (1, 0)
        layer = TransposedConvolution2d(
            out_channels=width * 2 ** (halvings - 1 - index),
            kernel_size=KERNEL_SIZE,
            stride=stride,
            padding=padding,
            bias=False,
        )
        x = chain(graph, x, (f"up{index}", layer), (f"up{index}_norm", BatchNorm()), (f"up{index}_relu", ReLU()))
    last = TransposedConvolution2d(out_channels=out_channels, kernel_size=KERNEL_SIZE, stride=2, padding=1, bias=False)
    chain(graph, x, (f"up{halvings}", last), ("image", Tanh()))
    return graph


@checked(image_size=numbered())
def dcgan_discriminator(*, width: Any = 64, image_size: int = 64, in_channels: Any = 3) -> LayerGraph:
    """Return the discriminator of DCGAN [1]_ with the sizes of PyTorch's example: 2,765,568 parameters.

    104 M multiply-adds forward. It tells made images from real ones; a step of training runs it on both.

    Parameters
    ----------
    width : int or sympy.Symbol
        Channels of the first convolution; double with each halving of the map. [1]
    image_size : int
        Height and width of the image, 4 times a power of two. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] Radford, Metz, Chintala, Unsupervised representation learning with deep convolutional generative adversarial
       networks, ICLR 2016, arXiv:1511.06434.
    """
    graph = image_graph("dcgan_discriminator", image_size=image_size, in_channels=in_channels)
    x = graph.input
    for index in range(_halvings(image_size)):
        layer = Convolution2d(out_channels=width * 2**index, kernel_size=KERNEL_SIZE, stride=2, padding=1, bias=False)
        x = graph.add(f"down{index + 1}", layer, inputs=x)
        # the paper leaves the norm out behind the image
        x = graph.add(f"down{index + 1}_norm", BatchNorm(), inputs=x) if index else x
        x = graph.add(f"down{index + 1}_relu", LeakyReLU(slope=SLOPE), inputs=x)
    chain(
        graph,
        x,
        ("score", Convolution2d(out_channels=1, kernel_size=SMALLEST_MAP, bias=False)),
        ("flatten", Flatten()),
        ("probability", Sigmoid()),
        ("loss", BinaryCrossEntropy(over="probabilities")),
    )
    return graph
