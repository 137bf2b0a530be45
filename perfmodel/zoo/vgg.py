"""VGG: stacks of 3x3 convolutions."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import BatchNorm, Convolution2d, CrossEntropy, Dense, Dropout, Flatten, MaxPool2d, ReLU
from perfmodel.zoo.blocks import chain, image_graph
from perfmodel.zoo.options import checked

MULTIPLES = (1, 2, 4, 8, 8)
"""Channels of each stage over those of the first [1]."""
HIDDEN_UNITS = 4096


def _vgg(
    convolutions: tuple[int, ...],
    *,
    batch_norm: bool,
    dropout: bool,
    classes: Any,
    image_size: Any,
    in_channels: Any,
    width: Any,
) -> LayerGraph:
    name = f"vgg{sum(convolutions) + 3}{'_batch_norm' if batch_norm else ''}"
    graph = image_graph(name, image_size=image_size, in_channels=in_channels)
    x = graph.input
    for stage, (count, multiple) in enumerate(zip(convolutions, MULTIPLES, strict=True), start=1):
        for index in range(1, count + 1):
            place = f"{stage}_{index}"
            x = graph.add(
                f"conv{place}", Convolution2d(out_channels=multiple * width, kernel_size=3, padding=1), inputs=x
            )
            x = graph.add(f"norm{place}", BatchNorm(), inputs=x) if batch_norm else x
            x = graph.add(f"relu{place}", ReLU(), inputs=x)
        x = graph.add(f"pool{stage}", MaxPool2d(kernel_size=2), inputs=x)
    x = graph.add("flatten", Flatten(), inputs=x)
    for index in (1, 2):
        x = chain(graph, x, (f"fc{index}", Dense(units=HIDDEN_UNITS)), (f"fc{index}_relu", ReLU()))
        x = graph.add(f"dropout{index}", Dropout(), inputs=x) if dropout else x
    chain(graph, x, ("fc3", Dense(units=classes)), ("loss", CrossEntropy()))
    return graph


@checked()
def vgg11(
    *,
    batch_norm: bool = False,
    dropout: bool = True,
    classes: Any = 1000,
    image_size: Any = 224,
    in_channels: Any = 3,
    width: Any = 64,
) -> LayerGraph:
    """Return VGG-11, configuration A [1]_: 132,863,336 parameters, 7.61 G multiply-adds forward.

    Parameters
    ----------
    batch_norm : bool
        Whether batch normalisation follows each convolution (132,868,840 parameters). [-]
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
    return _vgg(
        (1, 1, 2, 2, 2),
        batch_norm=batch_norm,
        dropout=dropout,
        classes=classes,
        image_size=image_size,
        in_channels=in_channels,
        width=width,
    )


@checked()
def vgg13(
    *,
    batch_norm: bool = False,
    dropout: bool = True,
    classes: Any = 1000,
    image_size: Any = 224,
    in_channels: Any = 3,
    width: Any = 64,
) -> LayerGraph:
    """Return VGG-13, configuration B [1]_: 133,047,848 parameters, 11.3 G multiply-adds forward.

    Parameters
    ----------
    batch_norm : bool
        Whether batch normalisation follows each convolution (133,053,736 parameters). [-]
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
    return _vgg(
        (2, 2, 2, 2, 2),
        batch_norm=batch_norm,
        dropout=dropout,
        classes=classes,
        image_size=image_size,
        in_channels=in_channels,
        width=width,
    )


@checked()
def vgg16(
    *,
    batch_norm: bool = False,
    dropout: bool = True,
    classes: Any = 1000,
    image_size: Any = 224,
    in_channels: Any = 3,
    width: Any = 64,
) -> LayerGraph:
    """Return VGG-16, configuration D [1]_: 138,357,544 parameters, 15.5 G multiply-adds forward.

    Parameters
    ----------
    batch_norm : bool
        Whether batch normalisation follows each convolution (138,365,992 parameters). [-]
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
    return _vgg(
        (2, 2, 3, 3, 3),
        batch_norm=batch_norm,
        dropout=dropout,
        classes=classes,
        image_size=image_size,
        in_channels=in_channels,
        width=width,
    )


@checked()
def vgg19(
    *,
    batch_norm: bool = False,
    dropout: bool = True,
    classes: Any = 1000,
    image_size: Any = 224,
    in_channels: Any = 3,
    width: Any = 64,
) -> LayerGraph:
    """Return VGG-19, configuration E [1]_: 143,667,240 parameters, 19.6 G multiply-adds forward.

    Parameters
    ----------
    batch_norm : bool
        Whether batch normalisation follows each convolution (143,678,248 parameters). [-]
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
    return _vgg(
        (2, 2, 4, 4, 4),
        batch_norm=batch_norm,
        dropout=dropout,
        classes=classes,
        image_size=image_size,
        in_channels=in_channels,
        width=width,
    )
