"""A deep convolutional classifier of any size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    AveragePool2d,
    BatchNorm,
    Convolution2d,
    CrossEntropy,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool2d,
)
from perfmodel.layers.checks import check_widths, is_open_size, one_of, refuse
from perfmodel.zoo.activations import ACTIVATIONS
from perfmodel.zoo.blocks import chain, image_graph
from perfmodel.zoo.options import checked

POOLS: dict[str, Layer | None] = {
    "max": MaxPool2d(kernel_size=2),
    "average": AveragePool2d(kernel_size=2),
    "none": None,
}
"""Name to what halves the map after a stage."""
PADDINGS = ("valid", "same")


def _stage_channels(channels: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the channels of each convolution, stage by stage."""
    return [tuple(each) if isinstance(each, Sequence) else (each,) for each in channels]


def _check_channels(argument: str, given: object) -> None:
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        refuse(argument, given, "must hold, for each stage, its channels or a sequence of them: ((32, 64), 128)")
    for stage in given:
        check_widths(argument, stage if isinstance(stage, Sequence) else (stage,))


@checked(
    channels=_check_channels,
    padding=one_of(PADDINGS),
    pool=one_of(POOLS),
    activation=one_of(ACTIVATIONS),
    hidden=partial(check_widths, fewest=0),
)
def convolutional(
    *,
    channels: Sequence[Any] = ((32, 64),),
    kernel_size: int = 3,
    stride: int = 1,
    padding: str = "valid",
    pool: str = "max",
    batch_norm: bool = False,
    activation: str = "relu",
    global_pool: bool = False,
    hidden: Sequence[Any] = (128,),
    stage_dropout: float = 0.25,
    dropout: float = 0.5,
    classes: Any = 10,
    image_size: Any = 28,
    in_channels: Any = 1,
) -> LayerGraph:
    """Return a deep convolutional classifier: stages of convolutions and a pool, then dense layers.

    As it stands the classifier of digits of PyTorch's examples [1]_: 1,199,882 parameters.

    Parameters
    ----------
    channels : sequence
        For each stage its channels, or a sequence of them, one for each convolution. [1]
    kernel_size : int
        Taps of each convolution in height and width. [1]
    stride : int
        Step of the last convolution of each stage, where no pool shall halve the map. [1]
    padding : str
        ``valid``: none; ``same``: as many zeros as keep the map's size, of odd kernels. [-]
    pool : str
        What halves the map after each stage: ``max``, ``average`` or ``none``. [-]
    batch_norm : bool
        Whether batch normalisation follows each convolution, which then has no bias. [-]
    activation : str
        Non-linearity of all layers but the last, e.g. ``relu``. [-]
    global_pool : bool
        Whether each map is averaged to one number before the dense layers. [-]
    hidden : sequence of int or sympy.Symbol
        Units of dense layers before the scores; may be empty. [1]
    stage_dropout, dropout : float
        Rate of dropout behind the last stage, and behind each hidden dense layer; zero for none. [1]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] https://github.com/pytorch/examples/blob/main/mnist/main.py
    """
    stages = _stage_channels(channels)
    if padding == "same" and not is_open_size(kernel_size) and kernel_size % 2 == 0:
        refuse("kernel_size", kernel_size, "must be odd where padding is 'same'")
    nonlinear = ACTIVATIONS[activation]
    graph = image_graph("convolutional", image_size=image_size, in_channels=in_channels)
    zeros = kernel_size // 2 if padding == "same" else 0
    x, halving = graph.input, POOLS[pool]
    for stage, outputs in enumerate(stages, start=1):
        for index, out_channels in enumerate(outputs, start=1):
            layer = Convolution2d(
                out_channels=out_channels,
                kernel_size=kernel_size,
                stride=stride if index == len(outputs) else 1,
                padding=zeros,
                bias=not batch_norm,
            )
            x = graph.add(f"conv{stage}_{index}", layer, inputs=x)
            x = graph.add(f"norm{stage}_{index}", BatchNorm(), inputs=x) if batch_norm else x
            x = graph.add(f"activation{stage}_{index}", nonlinear, inputs=x)
        x = graph.add(f"pool{stage}", halving, inputs=x) if halving else x
    x = graph.add("global_pool", AveragePool2d(kernel_size=None), inputs=x) if global_pool else x
    x = chain(graph, x, ("dropout", Dropout(rate=stage_dropout) if stage_dropout else None), ("flatten", Flatten()))
    for index, units in enumerate(hidden, start=1):
        x = chain(graph, x, (f"fc{index}", Dense(units=units)), (f"fc{index}_activation", nonlinear))
        x = graph.add(f"fc{index}_dropout", Dropout(rate=dropout), inputs=x) if dropout else x
    chain(graph, x, ("scores", Dense(units=classes)), ("loss", CrossEntropy()))
    return graph
