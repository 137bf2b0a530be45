"""VGG: stacks of 3x3 convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import BatchNorm, Convolution2d, CrossEntropy, Dense, Dropout, Flatten, MaxPool2d, ReLU
from perfmodel.zoo.blocks import chain, image_graph
from perfmodel.zoo.options import checked, member

MULTIPLES = (1, 2, 4, 8, 8)
"""Channels of each stage over those of the first [1]."""
HIDDEN_UNITS = 4096


def _configuration(convolutions: tuple[int, ...], **published: str) -> Callable[..., LayerGraph]:
    """Return the builder of a network with so many convolutions in each stage, and what is published of it."""
    layers = sum(convolutions) + 3

    def build(
        *,
        batch_norm: bool = False,
        dropout: bool = True,
        classes: Any = 1000,
        image_size: Any = 224,
        in_channels: Any = 3,
        width: Any = 64,
    ) -> LayerGraph:
        """Return VGG-{layers}, configuration {letter} [1]_: {parameters} parameters, {work} multiply-adds forward.

        Parameters
        ----------
        batch_norm : bool
            Whether batch normalisation follows each convolution ({with_norms} parameters). [-]
        dropout : bool
            Whether dropout follows the first two dense layers. [-]
        classes : int or sympy.Symbol
            Classes. [1]
        image_size : int or sympy.Symbol
            Height and width of the image. [1]
        in_channels : int or sympy.Symbol
            Channels of the image. [1]
        width : int or sympy.Symbol
            Channels of the first stage; the others have 2, 4, 8 and 8 times as many. [1]

        Returns
        -------
        LayerGraph
            The network with its loss. [-]

        References
        ----------
        .. [1] Simonyan, Zisserman, Very deep convolutional networks for large-scale image recognition, ICLR 2015,
           arXiv:1409.1556, tables 1 and 2.
        """
        name = f"vgg{layers}{'_batch_norm' if batch_norm else ''}"
        graph = image_graph(name, image_size=image_size, in_channels=in_channels)
        norm, dropped = BatchNorm() if batch_norm else None, Dropout() if dropout else None
        x = graph.input
        for stage, (count, multiple) in enumerate(zip(convolutions, MULTIPLES, strict=True), start=1):
            layer = Convolution2d(out_channels=multiple * width, kernel_size=3, padding=1)
            for place in (f"{stage}_{index}" for index in range(1, count + 1)):
                x = chain(graph, x, (f"conv{place}", layer), (f"norm{place}", norm), (f"relu{place}", ReLU()))
            x = graph.add(f"pool{stage}", MaxPool2d(kernel_size=2), inputs=x)
        x = graph.add("flatten", Flatten(), inputs=x)
        for index in (1, 2):
            dense = Dense(units=HIDDEN_UNITS)
            x = chain(graph, x, (f"fc{index}", dense), (f"fc{index}_relu", ReLU()), (f"dropout{index}", dropped))
        chain(graph, x, ("fc3", Dense(units=classes)), ("loss", CrossEntropy()))
        return graph

    return checked()(member(build, f"vgg{layers}", layers=layers, **published))


vgg11 = _configuration((1, 1, 2, 2, 2), letter="A", parameters="132,863,336", with_norms="132,868,840", work="7.61 G")
vgg13 = _configuration((2, 2, 2, 2, 2), letter="B", parameters="133,047,848", with_norms="133,053,736", work="11.3 G")
vgg16 = _configuration((2, 2, 3, 3, 3), letter="D", parameters="138,357,544", with_norms="138,365,992", work="15.5 G")
vgg19 = _configuration((2, 2, 4, 4, 4), letter="E", parameters="143,667,240", with_norms="143,678,248", work="19.6 G")
