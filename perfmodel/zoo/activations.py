"""Names that builders take for non-linearities."""

from __future__ import annotations

from perfmodel.layers import GELU, Layer, LeakyReLU, ReLU, Sigmoid, SiLU, Tanh
from perfmodel.layers.checks import check_choice

ACTIVATIONS: dict[str, Layer] = {
    "gelu": GELU(),
    "gelu_tanh": GELU(approximation="tanh"),
    "leaky_relu": LeakyReLU(slope=0.2),
    "relu": ReLU(),
    "sigmoid": Sigmoid(),
    "silu": SiLU(),
    "tanh": Tanh(),
}
"""Name to layer; ``gelu_tanh`` is GELU by its approximation with a tanh."""


def activation_layer(name: str) -> Layer:
    """Return the layer of a non-linearity; ArgumentError with the nearest name where there is none.

    Examples
    --------
    >>> activation_layer("relu")
    ReLU()
    """
    check_choice("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]
