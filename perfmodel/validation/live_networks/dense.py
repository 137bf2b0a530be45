"""Dense layers in a row, in plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid}


def dense_stack(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Return dense layers of these ``widths`` [1] with a non-linearity after each but the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def classifier(*, widths: Sequence[int], activation: str) -> nn.Module:
    """Return dense layers from features to scores of classes, with a non-linearity named in ACTIVATIONS."""
    return dense_stack(*widths, activation=ACTIVATIONS[activation])
