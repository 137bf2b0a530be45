"""Inception networks: GoogLeNet and Inception v3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfmodel import layers as nn
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import one_of
from perfmodel.layers.window import Size
from perfmodel.zoo.blocks import chain, classified, image_graph, normalised, published_sizes
from perfmodel.zoo.options import checked

VARIANTS = ("batch_norm", "lrn")
MODULES: dict[str, list[int]] = published_sizes("googlenet")
"""Table 1 of the paper: channels of 1x1, reduction and 3x3, reduction and 5x5, and behind the pool [1]."""
AUXILIARY_AFTER = ("4a", "4d")
LAST_BEFORE_POOL = ("3b", "4e")


@dataclass(frozen=True, slots=True)
class _Builder:
    graph: LayerGraph
    is_normalised: bool

    def convolution(self, name: str, x: str, channels: int, kernel_size: int, stride: int = 1) -> str:
        """Add a convolution that keeps the map except for its stride, and the layers that follow it."""
        layer = nn.Convolution2d(
            out_channels=channels,
            kernel_size=kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            bias=not self.is_normalised,
        )
        if self.is_normalised:
            return normalised(self.graph, name, x, layer)
        return chain(self.graph, x, (f"{name}_conv", layer), (f"{name}_relu", nn.ReLU()))

    def local_norm(self, name: str, x: str) -> str:
        """Add the response norm, where the variant has one."""
        return x if self.is_normalised else self.graph.add(name, nn.LocalResponseNorm(), inputs=x)

    def module(self, name: str, x: str) -> str:
        """Add four branches side by side."""
        direct, reduced_3, wide_3, reduced_5, wide_5, pooled = MODULES[name]
        middle = self.convolution(f"{name}_3x3_reduction", x, reduced_3, 1)
        large = self.convolution(f"{name}_5x5_reduction", x, reduced_5, 1)
        pool = self.graph.add(f"{name}_pool", nn.MaxPool2d(kernel_size=3, stride=1, padding=1), inputs=x)
        branches = (
            self.convolution(f"{name}_1x1", x, direct, 1),
            self.convolution(f"{name}_3x3", middle, wide_3, 3),
            # torchvision kept the 3x3 that a port of the network had put in the 5x5's place
            self.convolution(f"{name}_5x5", large, wide_5, 3 if self.is_normalised else 5),
            self.convolution(f"{name}_projection", pool, pooled, 1),
        )
        return self.graph.add(f"{name}_concat", nn.Concat(), inputs=branches)

    def auxiliary(self, name: str, x: str, *, classes: Any) -> None:
        """Add a classifier that trains the lower half."""
        x = self.graph.add(f"{name}_pool", nn.AveragePool2d(kernel_size=5, stride=3), inputs=x)
        x = self.convolution(name, x, 128, 1)
        chain(
            self.graph,
            x,
            (f"{name}_flatten", nn.Flatten()),
            (f"{name}_fc1", nn.Dense(units=1024)),
            (f"{name}_fc1_relu", nn.ReLU()),
            (f"{name}_dropout", nn.Dropout(rate=0.7)),
            (f"{name}_fc2", nn.Dense(units=classes)),
            (f"{name}_loss", nn.CrossEntropy()),
        )


@checked(variant=one_of(VARIANTS))
def googlenet(
    *,
    variant: str = "batch_norm",
    auxiliary: bool = False,
    classes: Any = 1000,
    image_size: Any = 224,
    in_channels: Any = 3,
) -> LayerGraph:
    """Return GoogLeNet [1]_, with or without the two classifiers that only training has.

    Parameters
    ----------
    variant : str
        ``batch_norm``: torchvision's, batch-normalised, with 3x3 in the 5x5's place (6,624,904 parameters, 13,004,888
        with the auxiliary classifiers, 1.50 G multiply-adds forward); ``lrn``: the paper's, with local response norms
        and biases, as Caffe's bvlc_googlenet (6,998,552 and 13,378,280, 1.58 G). [-]
    auxiliary : bool
        Whether the two auxiliary classifiers and their losses are there. [-]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    References
    ----------
    .. [1] Szegedy et al., Going deeper with convolutions, CVPR 2015, arXiv:1409.4842, table 1.
    """
    graph = image_graph(f"googlenet_{variant}", image_size=image_size, in_channels=in_channels)
    builder = _Builder(graph, is_normalised=variant == "batch_norm")
    halving = nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True)
    x = builder.convolution("first", graph.input, 64, 7, stride=2)
    x = builder.local_norm("first_norm", graph.add("first_pool", halving, inputs=x))
    x = builder.convolution("second_reduction", x, 64, 1)
    x = builder.local_norm("second_norm", builder.convolution("second", x, 192, 3))
    x = graph.add("second_pool", halving, inputs=x)
    for name in MODULES:
        x = builder.module(name, x)
        if auxiliary and name in AUXILIARY_AFTER:
            builder.auxiliary(f"auxiliary_{name}", x, classes=classes)
        x = graph.add(f"pool_{name}", halving, inputs=x) if name in LAST_BEFORE_POOL else x
    return classified(graph, x, classes=classes, dropout=0.2 if variant == "batch_norm" else 0.4)


Step = tuple[int, Size, int, bool]
"""Channels, kernel, stride, and whether padding keeps the map: one convolution of a branch."""


def _kept(channels: int, kernel_size: Size) -> Step:
    return (channels, kernel_size, 1, True)


def _halving(channels: int) -> Step:
    return (channels, 3, 2, False)


@dataclass(frozen=True, slots=True)
class _Inception:
    graph: LayerGraph

    def branch(self, name: str, x: str, *steps: Step) -> str:
        """Add normalised convolutions one after the other."""
        for index, (channels, kernel_size, stride, keeps) in enumerate(steps, start=1):
            layer = nn.Convolution2d(
                out_channels=channels,
                kernel_size=kernel_size,
                stride=stride,
                padding="same" if keeps else "valid",
                bias=False,
            )
            x = normalised(self.graph, f"{name}_{index}", x, layer)
        return x

    def pooled(self, name: str, x: str, channels: int) -> str:
        """Add an average over neighbours and a 1x1 convolution."""
        x = self.graph.add(f"{name}_pool", nn.AveragePool2d(kernel_size=3, stride=1, padding=1), inputs=x)
        return self.branch(f"{name}_projection", x, _kept(channels, 1))

    def joined(self, name: str, *branches: str) -> str:
        """Put branches side by side."""
        return self.graph.add(f"{name}_concat", nn.Concat(), inputs=branches)

    def square(self, name: str, x: str, pooled: int) -> str:
        """Add a module of the 35 x 35 maps (figure 5): 5x5 as two 3x3."""
        return self.joined(
            name,
            self.branch(f"{name}_1x1", x, _kept(64, 1)),
            self.branch(f"{name}_5x5", x, _kept(48, 1), _kept(64, 5)),
            self.branch(f"{name}_3x3", x, _kept(64, 1), _kept(96, 3), _kept(96, 3)),
            self.pooled(name, x, pooled),
        )

    def factored(self, name: str, x: str, inner: int) -> str:
        """Add a module of the 17 x 17 maps (figure 6): 7x7 as 1x7 and 7x1."""
        wide, tall = (1, 7), (7, 1)
        long = (_kept(inner, tall), _kept(inner, wide), _kept(inner, tall), _kept(192, wide))
        return self.joined(
            name,
            self.branch(f"{name}_1x1", x, _kept(192, 1)),
            self.branch(f"{name}_7x7", x, _kept(inner, 1), _kept(inner, wide), _kept(192, tall)),
            self.branch(f"{name}_7x7_twice", x, _kept(inner, 1), *long),
            self.pooled(name, x, 192),
        )

    def spread(self, name: str, x: str) -> str:
        """Add a module of the 8 x 8 maps (figure 7): 1x3 and 3x1 side by side."""
        middle = self.branch(f"{name}_3x3", x, _kept(384, 1))
        double = self.branch(f"{name}_3x3_twice", x, _kept(448, 1), _kept(384, 3))
        sides = [
            self.branch(f"{stem}_{side}", stem_output, _kept(384, kernel_size))
            for stem, stem_output in ((f"{name}_middle", middle), (f"{name}_double", double))
            for side, kernel_size in (("wide", (1, 3)), ("tall", (3, 1)))
        ]
        direct = self.branch(f"{name}_1x1", x, _kept(320, 1))
        return self.joined(name, direct, *sides, self.pooled(name, x, 192))

    def reduced(self, name: str, x: str, *branches: tuple[Step, ...]) -> str:
        """Halve the map: branches of convolutions and a pool (figure 10)."""
        convolved = [self.branch(f"{name}_{index}", x, *steps) for index, steps in enumerate(branches, start=1)]
        pool = self.graph.add(f"{name}_pool", nn.MaxPool2d(kernel_size=3, stride=2), inputs=x)
        return self.joined(name, *convolved, pool)

    def stem(self, x: str) -> str:
        """Go from the image to 35 x 35 maps."""
        pool = nn.MaxPool2d(kernel_size=3, stride=2)
        x = self.branch("stem_a", x, _halving(32), (32, 3, 1, False), _kept(64, 3))
        x = self.branch("stem_b", self.graph.add("stem_a_pool", pool, inputs=x), _kept(80, 1), (192, 3, 1, False))
        return self.graph.add("stem_b_pool", pool, inputs=x)


@checked()
def inception_v3(
    *, auxiliary: bool = False, classes: Any = 1000, image_size: Any = 299, in_channels: Any = 3
) -> LayerGraph:
    """Return Inception v3 [1]_ as torchvision and the authors' later files have it, every convolution normalised.

    23,834,568 parameters, 5.71 G multiply-adds forward; 27,161,264 with the auxiliary classifier, which only training
    has.

    Parameters
    ----------
    auxiliary : bool
        Whether the auxiliary classifier and its loss are there. [-]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    References
    ----------
    .. [1] Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, Rethinking the inception architecture for computer vision, CVPR
       2016, arXiv:1512.00567.
    """
    graph = image_graph("inception_v3", image_size=image_size, in_channels=in_channels)
    builder = _Inception(graph)
    x = builder.stem(graph.input)
    for index, pooled in enumerate((32, 64, 64), start=1):
        x = builder.square(f"square{index}", x, pooled)
    x = builder.reduced("reduction1", x, (_halving(384),), (_kept(64, 1), _kept(96, 3), _halving(96)))
    for index, inner in enumerate((128, 160, 160, 192), start=1):
        x = builder.factored(f"factored{index}", x, inner)
    if auxiliary:
        y = graph.add("auxiliary_reduction", nn.AveragePool2d(kernel_size=5, stride=3), inputs=x)
        y = builder.branch("auxiliary", y, _kept(128, 1), (768, 5, 1, False))
        classified(graph, y, classes=classes, name="auxiliary_")
    factored = (_kept(192, 1), _kept(192, (1, 7)), _kept(192, (7, 1)), _halving(192))
    x = builder.reduced("reduction2", x, (_kept(192, 1), _halving(320)), factored)
    for index in (1, 2):
        x = builder.spread(f"spread{index}", x)
    return classified(graph, x, classes=classes, dropout=0.5)
