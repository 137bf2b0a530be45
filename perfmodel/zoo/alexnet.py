"""AlexNet in its published forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.layers import Convolution2d, CrossEntropy, Dense, Dropout, Flatten, LocalResponseNorm, MaxPool2d, ReLU
from perfmodel.layers.checks import one_of, refuse
from perfmodel.layers.window import Padding, Window
from perfmodel.zoo.blocks import chain
from perfmodel.zoo.options import checked

CLASSES = 1000
PADDINGS = ("valid", "same")


@dataclass(frozen=True, kw_only=True)
class _Variant:
    """What the published forms differ in."""

    channels: tuple[int, ...]
    image_size: int = 224
    groups: tuple[int, ...] = (1, 1, 1, 1, 1)
    first_padding: Padding = "valid"
    is_normed: bool = False

    def graph(
        self, name: str, *, first_padding: Padding, padding: str | int, pool: MaxPool2d, dropout: bool
    ) -> LayerGraph:
        """Return the five convolutions, the three dense layers and the loss."""
        graph = LayerGraph(name, input_shape=(3, self.image_size, self.image_size))
        sizes = ((11, 4, first_padding), (5, 1, padding or 2), *((3, 1, padding or 1),) * 3)
        x = graph.input
        for index, (channels, groups, (taps, stride, zeros)) in enumerate(
            zip(self.channels, self.groups, sizes, strict=True), start=1
        ):
            layer = Convolution2d(out_channels=channels, kernel_size=taps, stride=stride, padding=zeros, groups=groups)
            norm = LocalResponseNorm() if self.is_normed and index <= 2 else None
            pooled = pool if index in POOLED else None
            x = chain(graph, x, (f"conv{index}", layer), (f"relu{index}", ReLU()), (f"norm{index}", norm))
            x = chain(graph, x, (f"pool{index}", pooled))
        x = graph.add("flatten", Flatten(), inputs=x)
        dropped = Dropout() if dropout else None
        for index in (6, 7):
            dense = Dense(units=4096)
            x = chain(graph, x, (f"fc{index}", dense), (f"relu{index}", ReLU()), (f"dropout{index}", dropped))
        chain(graph, x, ("fc8", Dense(units=CLASSES)), ("loss", CrossEntropy()))
        return graph


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


VARIANTS: dict[str, _Variant] = {
    "one_tower": _Variant(channels=(64, 192, 384, 256, 256), first_padding=2),
    "wide_tower": _Variant(channels=(64, 192, 384, 384, 256), first_padding=0, image_size=227),
    "grouped": _Variant(channels=(96, 256, 384, 384, 256), image_size=227, groups=(1, 2, 1, 2, 2), is_normed=True),
    "shi2016": _Variant(channels=(96, 256, 384, 384, 256)),
}
"""Name to what is special about it."""
POOLED = (1, 2, 5)
"""Convolutions that a pool follows [-]."""


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
    chosen = VARIANTS[variant]
    if variant == "shi2016":
        first: Padding = padding if first_padding is None else first_padding
        # only Caffe's pools count the overhanging window, so that its 54 x 54 maps end at 6 x 6 as the others do
        pool = MaxPool2d(kernel_size=3, stride=2, padding=padding, ceil_mode=first == "valid")
        return chosen.graph("alexnet_shi2016", first_padding=first, padding="same", pool=pool, dropout=dropout)
    _refuse_padding(variant, padding, first_padding)
    name = "alexnet" if variant == "one_tower" else f"alexnet_{variant}"
    pool = MaxPool2d(kernel_size=3, stride=2)
    return chosen.graph(name, first_padding=chosen.first_padding, padding=0, pool=pool, dropout=dropout)
