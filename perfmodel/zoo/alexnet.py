"""AlexNet in its published forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.layers import Convolution2d, CrossEntropy, Dense, Dropout, Flatten, LocalResponseNorm, MaxPool2d, ReLU
from perfmodel.layers.checks import one_of, refuse
from perfmodel.layers.window import Padding, Window
from perfmodel.zoo.options import checked

CLASSES = 1000
PADDINGS = ("valid", "same")


def _convolution(graph: LayerGraph, index: int, x: str, layer: Convolution2d) -> str:
    x = graph.add(f"conv{index}", layer, inputs=x)
    return graph.add(f"relu{index}", ReLU(), inputs=x)


def _classifier(graph: LayerGraph, x: str, *, dropout: bool) -> LayerGraph:
    """Add the three dense layers and the loss."""
    x = graph.add("flatten", Flatten(), inputs=x)
    for index in (6, 7):
        x = graph.add(f"fc{index}", Dense(units=4096), inputs=x)
        x = graph.add(f"relu{index}", ReLU(), inputs=x)
        if dropout:
            x = graph.add(f"dropout{index}", Dropout(), inputs=x)
    x = graph.add("fc8", Dense(units=CLASSES), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph


def _tower(graph: LayerGraph, *, first_padding: int, fourth_channels: int, dropout: bool) -> LayerGraph:
    first = Convolution2d(out_channels=64, kernel_size=11, stride=4, padding=first_padding)
    x = _convolution(graph, 1, graph.input, first)
    x = graph.add("pool1", MaxPool2d(kernel_size=3, stride=2), inputs=x)
    x = _convolution(graph, 2, x, Convolution2d(out_channels=192, kernel_size=5, padding=2))
    x = graph.add("pool2", MaxPool2d(kernel_size=3, stride=2), inputs=x)
    for index, channels in ((3, 384), (4, fourth_channels), (5, 256)):
        x = _convolution(graph, index, x, Convolution2d(out_channels=channels, kernel_size=3, padding=1))
    x = graph.add("pool5", MaxPool2d(kernel_size=3, stride=2), inputs=x)
    return _classifier(graph, x, dropout=dropout)


def _one_tower(*, padding: str, first_padding: Padding | None, dropout: bool) -> LayerGraph:
    _refuse_padding("one_tower", padding, first_padding)
    graph = LayerGraph("alexnet", input_shape=(3, 224, 224))
    return _tower(graph, first_padding=2, fourth_channels=256, dropout=dropout)


def _wide_tower(*, padding: str, first_padding: Padding | None, dropout: bool) -> LayerGraph:
    _refuse_padding("wide_tower", padding, first_padding)
    graph = LayerGraph("alexnet_wide_tower", input_shape=(3, 227, 227))
    return _tower(graph, first_padding=0, fourth_channels=384, dropout=dropout)


def _grouped(*, padding: str, first_padding: Padding | None, dropout: bool) -> LayerGraph:
    _refuse_padding("grouped", padding, first_padding)
    graph = LayerGraph("alexnet_grouped", input_shape=(3, 227, 227))
    x = _convolution(graph, 1, graph.input, Convolution2d(out_channels=96, kernel_size=11, stride=4))
    x = graph.add("norm1", LocalResponseNorm(), inputs=x)
    x = graph.add("pool1", MaxPool2d(kernel_size=3, stride=2), inputs=x)
    x = _convolution(graph, 2, x, Convolution2d(out_channels=256, kernel_size=5, padding=2, groups=2))
    x = graph.add("norm2", LocalResponseNorm(), inputs=x)
    x = graph.add("pool2", MaxPool2d(kernel_size=3, stride=2), inputs=x)
    for index, channels, groups in ((3, 384, 1), (4, 384, 2), (5, 256, 2)):
        layer = Convolution2d(out_channels=channels, kernel_size=3, padding=1, groups=groups)
        x = _convolution(graph, index, x, layer)
    x = graph.add("pool5", MaxPool2d(kernel_size=3, stride=2), inputs=x)
    return _classifier(graph, x, dropout=dropout)


def _shi2016(*, padding: str, first_padding: Padding | None, dropout: bool) -> LayerGraph:
    graph = LayerGraph("alexnet_shi2016", input_shape=(3, 224, 224))
    first: Padding = padding if first_padding is None else first_padding
    # only Caffe's pools count the overhanging window, so that its 54 x 54 maps end at 6 x 6 as the others do
    pool = MaxPool2d(kernel_size=3, stride=2, padding=padding, ceil_mode=first == "valid")
    x = _convolution(graph, 1, graph.input, Convolution2d(out_channels=96, kernel_size=11, stride=4, padding=first))
    x = graph.add("pool1", pool, inputs=x)
    x = _convolution(graph, 2, x, Convolution2d(out_channels=256, kernel_size=5, padding="same"))
    x = graph.add("pool2", pool, inputs=x)
    for index, channels in ((3, 384), (4, 384), (5, 256)):
        x = _convolution(graph, index, x, Convolution2d(out_channels=channels, kernel_size=3, padding="same"))
    x = graph.add("pool5", pool, inputs=x)
    return _classifier(graph, x, dropout=dropout)


def _refuse_padding(variant: str, padding: str, first_padding: Padding | None) -> None:
    allowed = f"is fixed for variant={variant!r}; padding and first_padding are options of 'shi2016'"
    if padding != "valid":
        refuse("padding", padding, allowed)
    if first_padding is not None:
        refuse("first_padding", first_padding, allowed)


def _check_first_padding(argument: str, given: Any) -> None:
    try:
        Window.of(axis_count=2, kernel_size=1, stride=1, padding=given)
    except ArgumentError as error:
        raise ArgumentError(argument, given, error.allowed) from None


VARIANTS: dict[str, Callable[..., LayerGraph]] = {
    "one_tower": _one_tower,
    "wide_tower": _wide_tower,
    "grouped": _grouped,
    "shi2016": _shi2016,
}
"""Name to builder."""


@checked(variant=one_of(VARIANTS), padding=one_of(PADDINGS), first_padding=_check_first_padding)
def alexnet(
    *,
    variant: str = "one_tower",
    padding: str = "valid",
    first_padding: Padding | None = None,
    dropout: bool = True,
) -> LayerGraph:
    """Return AlexNet for 1,000 classes of ImageNet.

    Parameters
    ----------
    variant : str
        ``one_tower`` [1]_ (64-192-384-256-256 channels, 61,100,840 parameters, 0.714 G multiply-adds
        forward); ``wide_tower`` [4]_ (the same with 384 channels in the fourth convolution, 227 x 227: 61,838,248
        parameters, 0.838 G); ``grouped`` [2]_ (two towers as groups, 96-256-384-384-256, local response norm, 227 x
        227: 60,965,224 parameters, 0.724 G, of which convolutions 0.666 G); ``shi2016`` [3]_ (96-256-384-384-256,
        neither groups nor norm, 224 x 224: 62,378,344 parameters, 6x6x256 before the dense layers, 1.13 G).
        [-]
    padding : str
        ``shi2016`` only. ``valid``: Caffe's script, the first convolution and the pools without padding (54 x
        54 maps after it); ``same``: TensorFlow's, SAME throughout (56 x 56 maps, 7x7x256 before the dense
        layers, 76,009,832 parameters, 1.27 G). The other convolutions keep their map's size in either. [-]
    first_padding : str, int, tuple or None
        ``shi2016`` only: padding of the first convolution, where it is not ``padding``; 2 in Torch's script
        (55 x 55 maps, 1.14 G), ``same`` in CNTK's (56 x 56, 1.14 G), whose pools leave the overhang out. [-]
    dropout : bool
        Whether dropout follows the first two dense layers; of Shi et al.'s scripts only Caffe's has it. [-]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] Krizhevsky, One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997.
    .. [2] Krizhevsky, Sutskever, Hinton, ImageNet classification with deep convolutional neural networks,
       NIPS 2012.
    .. [3] Shi, Wang, Xu, Chu, arXiv:1608.07249, and https://github.com/hclhkbu/dlbench.
    .. [4] TensorFlow, https://github.com/tensorflow/benchmarks, scripts/tf_cnn_benchmarks, alexnet_model.py.
    """
    return VARIANTS[variant](padding=padding, first_padding=first_padding, dropout=dropout)
