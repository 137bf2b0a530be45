"""Names that builders take for non-linearities."""

from __future__ import annotations

from perfmodel.layers import GELU, Layer, LeakyReLU, ReLU, Sigmoid, SiLU, Tanh

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
