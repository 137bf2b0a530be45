"""Building blocks of image networks: input, chains, normalised convolutions, classifier; activations by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from perfmodel import layers as nn
from perfmodel.files import file_toml
from perfmodel.graph import LayerGraph

ACTIVATIONS: dict[str, nn.Layer] = {
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU(approximation="tanh"),
    "leaky_relu": nn.LeakyReLU(slope=0.2),
    "relu": nn.ReLU(),
    "sigmoid": nn.Sigmoid(),
    "silu": nn.SiLU(),
    "tanh": nn.Tanh(),
}
"""Name -> layer; ``gelu_tanh`` is GELU approximated with a tanh."""
TEXT_ACTIVATIONS = (*ACTIVATIONS, "gelu_new")
"""Activations of feed-forward parts; ``gelu_new`` is ``gelu_tanh`` in eight passes, as in GPT-2's code."""


@cache
def _published_sizes() -> dict[str, Any]:
    return file_toml(Path(__file__).with_name("published_sizes.toml"))


def published_sizes(family: str) -> dict[str, Any]:
    """Map each published size of a family in ``published_sizes.toml`` to its options.

    Examples
    --------
    >>> published_sizes("bert")["large"]["layers"]
    24
    """
    sizes: dict[str, Any] = _published_sizes()[family]
    return sizes


def image_graph(name: str, *, image_size: Any, in_channels: Any) -> LayerGraph:
    """Return an empty graph whose only input is a square image.

    Examples
    --------
    >>> image_graph("resnet50", image_size=224, in_channels=3).input_shapes
    {'input': (3, 224, 224)}
    """
    return LayerGraph(name, input_shape=(in_channels, image_size, image_size))


def add_activation(graph: LayerGraph, x: str, activation: str, *, name: str) -> str:
    """Add a non-linearity, a word of ``TEXT_ACTIVATIONS``; its name is that of the last of its layers."""
    if activation in ACTIVATIONS:
        return graph.add(name, ACTIVATIONS[activation], inputs=x)
    # x / 2 (1 + tanh(a (x + b x^3)))
    half = graph.add(f"{name}_half", nn.Unary(function="multiply_by_number"), inputs=x)
    y = graph.add(f"{name}_cube", nn.Unary(function="power"), inputs=x)
    y = graph.add(f"{name}_cube_scaled", nn.Unary(function="multiply_by_number"), inputs=y)
    y = graph.add(f"{name}_sum", nn.Add(), inputs=(x, y))
    y = graph.add(f"{name}_scaled", nn.Unary(function="multiply_by_number"), inputs=y)
    y = graph.add(f"{name}_tanh", nn.Tanh(), inputs=y)
    y = graph.add(f"{name}_plus_one", nn.Unary(function="add_number"), inputs=y)
    return graph.add(name, nn.Binary(function="multiply"), inputs=(half, y))


def dropped(rate: float) -> nn.Dropout | None:
    """Return a dropout; None where nothing is dropped.

    Examples
    --------
    >>> dropped(0.0) is None
    True
    """
    return nn.Dropout(rate=rate) if rate else None


def chain(graph: LayerGraph, x: str, *named_layers: tuple[str, nn.Layer | None]) -> str:
    """Add layers, each reading the one before; skip None. Return the name of the last."""
    for name, layer in named_layers:
        x = x if layer is None else graph.add(name, layer, inputs=x)
    return x


def shared_dense(graph: LayerGraph, name: str, x: str, *, units: Any, owner: str, is_trained: bool = True) -> str:
    """Add a dense layer whose parameters are the owner's, unless it is the owner."""
    shared = None if name == owner else {parameter: (owner, parameter) for parameter in ("weight", "bias")}
    return graph.add(name, nn.Dense(units=units), inputs=x, shared_parameters=shared, is_trained=is_trained)


def normalised(
    graph: LayerGraph, name: str, x: str, layer: nn.Convolution2d, *, activation: nn.Layer | None = None
) -> str:
    """Add a convolution, its batch normalisation and a rectifier or another activation; return the last one's name."""
    last = nn.ReLU() if activation is None else activation
    return chain(graph, x, (f"{name}_conv", layer), (f"{name}_norm", nn.BatchNorm()), (f"{name}_relu", last))


def classified(graph: LayerGraph, x: str, *, classes: Any, dropout: float = 0.0, name: str = "") -> LayerGraph:
    """Add the end of a classifier: average over the map, dropout if its rate is not zero, one dense layer, the loss."""
    x = chain(graph, x, (f"{name}pool", nn.AveragePool2d(kernel_size=None)), (f"{name}flatten", nn.Flatten()))
    ends = ((f"{name}fc", nn.Dense(units=classes)), (f"{name}loss", nn.CrossEntropy()))
    chain(graph, x, (f"{name}dropout", dropped(dropout)), *ends)
    return graph
