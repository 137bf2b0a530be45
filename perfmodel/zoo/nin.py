"""Network in network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import AveragePool2d, Convolution2d, CrossEntropy, Dropout, Flatten, Layer, MaxPool2d, ReLU
from perfmodel.layers.checks import one_of
from perfmodel.zoo.blocks import chain, image_graph
from perfmodel.zoo.options import checked


@dataclass(frozen=True)
class _Stage:
    """A convolution and two layers of 1x1 convolutions, a small network that slides over the map; then a pool."""

    convolution: Convolution2d
    widths: tuple[int | None, int | None]
    pool: Layer
    has_dropout: bool = False


def _pool(kind: type[MaxPool2d | AveragePool2d]) -> Layer:
    return kind(kernel_size=3, stride=2, ceil_mode=True)


STAGES = {
    "imagenet": (
        _Stage(Convolution2d(out_channels=96, kernel_size=11, stride=4), (96, 96), _pool(MaxPool2d)),
        _Stage(Convolution2d(out_channels=256, kernel_size=5, padding=2), (256, 256), _pool(MaxPool2d)),
        _Stage(Convolution2d(out_channels=384, kernel_size=3, padding=1), (384, 384), _pool(MaxPool2d), True),
        _Stage(
            Convolution2d(out_channels=1024, kernel_size=3, padding=1), (1024, None), AveragePool2d(kernel_size=None)
        ),
    ),
    "cifar10": (
        _Stage(Convolution2d(out_channels=192, kernel_size=5, padding=2), (160, 96), _pool(MaxPool2d), True),
        _Stage(Convolution2d(out_channels=192, kernel_size=5, padding=2), (192, 192), _pool(AveragePool2d), True),
        _Stage(Convolution2d(out_channels=192, kernel_size=3, padding=1), (192, None), AveragePool2d(kernel_size=None)),
    ),
}
"""Name to stages; the last width, None, is the classes."""
SIZES = {"imagenet": (1000, 224), "cifar10": (10, 32)}
"""Name to the classes and the height and width of the images it was published for [1]."""


@checked(variant=one_of(STAGES))
def nin(
    *,
    variant: str = "imagenet",
    dropout: bool = True,
    classes: Any = None,
    image_size: Any = None,
    in_channels: Any = 3,
) -> LayerGraph:
    """Return a network in network [1]_, which has no dense layer: scores are averages over the last maps.

    Parameters
    ----------
    variant : str
        ``imagenet`` [2]_ (four stages, 224 x 224, 1,000 classes: 7,595,176 parameters, 1.10 G multiply-adds
        forward); ``cifar10`` [3]_ (three stages, 32 x 32, 10 classes: 966,986 parameters, 0.223 G). [-]
    dropout : bool
        Whether dropout follows where the authors' files have it. [-]
    classes : int, sympy.Symbol or None
        Classes; None for those of the variant. [1]
    image_size : int, sympy.Symbol or None
        Height and width of the image; None for those of the variant. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] Lin, Chen, Yan, Network in network, ICLR 2014, arXiv:1312.4400.
    .. [2] The authors' nin_imagenet, https://gist.github.com/mavenlin/d802a5849de39225bcc6
    .. [3] The authors' nin_cifar10, https://gist.github.com/mavenlin/e56253735ef32c3c296d
    """
    published_classes, published_size = SIZES[variant]
    classes = published_classes if classes is None else classes
    image_size = published_size if image_size is None else image_size
    graph = image_graph(f"nin_{variant}", image_size=image_size, in_channels=in_channels)
    x = graph.input
    for index, stage in enumerate(STAGES[variant], start=1):
        mixers = [Convolution2d(out_channels=width or classes, kernel_size=1) for width in stage.widths]
        for letter, layer in zip("abc", (stage.convolution, *mixers), strict=True):
            x = chain(graph, x, (f"conv{index}{letter}", layer), (f"relu{index}{letter}", ReLU()))
        x = graph.add(f"pool{index}", stage.pool, inputs=x)
        x = graph.add(f"dropout{index}", Dropout(), inputs=x) if dropout and stage.has_dropout else x
    chain(graph, x, ("flatten", Flatten()), ("loss", CrossEntropy()))
    return graph
