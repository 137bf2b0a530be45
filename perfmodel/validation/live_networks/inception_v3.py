"""Inception v3 in plain torch: Szegedy et al., arXiv:1512.00567, with the channels that torchvision has."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

_Size: TypeAlias = int | tuple[int, int]


def _conv(inputs: int, outputs: int, size: _Size, stride: int = 1, padding: _Size = 0) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def _average() -> nn.Module:
    return nn.AvgPool2d(3, 1, 1)


def _chain(inputs: int, *steps: tuple[int, _Size, _Size]) -> nn.Sequential:
    """Return convolutions of (outputs, size, padding) one after the other."""
    layers = []
    for outputs, size, padding in steps:
        layers.append(_conv(inputs, outputs, size, 1, padding))
        inputs = outputs
    return nn.Sequential(*layers)


class Branches(nn.Module):
    """Modules that read the same maps, their outputs side by side."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' maps, one after the other along the channels."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def _module_a(inputs: int, pool: int) -> nn.Module:
    return Branches(
        _conv(inputs, 64, 1),
        _chain(inputs, (48, 1, 0), (64, 5, 2)),
        _chain(inputs, (64, 1, 0), (96, 3, 1), (96, 3, 1)),
        nn.Sequential(_average(), _conv(inputs, pool, 1)),
    )


def _module_b(inputs: int) -> nn.Module:
    double = nn.Sequential(_chain(inputs, (64, 1, 0), (96, 3, 1)), _conv(96, 96, 3, 2))
    return Branches(_conv(inputs, 384, 3, 2), double, nn.MaxPool2d(3, 2))


def _module_c(c: int) -> nn.Module:
    wide, tall = ((1, 7), (0, 3)), ((7, 1), (3, 0))
    return Branches(
        _conv(768, 192, 1),
        _chain(768, (c, 1, 0), (c, *wide), (192, *tall)),
        _chain(768, (c, 1, 0), (c, *tall), (c, *wide), (c, *tall), (192, *wide)),
        nn.Sequential(_average(), _conv(768, 192, 1)),
    )


def _module_d() -> nn.Module:
    three = nn.Sequential(_conv(768, 192, 1), _conv(192, 320, 3, 2))
    seven = _chain(768, (192, 1, 0), (192, (1, 7), (0, 3)), (192, (7, 1), (3, 0)))
    return Branches(three, nn.Sequential(seven, _conv(192, 192, 3, 2)), nn.MaxPool2d(3, 2))


def _module_e(inputs: int) -> nn.Module:
    def sides(channels: int) -> nn.Module:
        return Branches(_conv(channels, 384, (1, 3), 1, (0, 1)), _conv(channels, 384, (3, 1), 1, (1, 0)))

    return Branches(
        _conv(inputs, 320, 1),
        nn.Sequential(_conv(inputs, 384, 1), sides(384)),
        nn.Sequential(_conv(inputs, 448, 1), _conv(448, 384, 3, 1, 1), sides(384)),
        nn.Sequential(_average(), _conv(inputs, 192, 1)),
    )


class InceptionV3(nn.Module):
    """The network; with ``auxiliary`` it gives the scores of the auxiliary classifier too."""

    def __init__(self, *, auxiliary: bool) -> None:
        super().__init__()
        self.lower = nn.Sequential(
            *(_conv(3, 32, 3, 2), _conv(32, 32, 3), _conv(32, 64, 3, 1, 1), nn.MaxPool2d(3, 2)),
            *(_conv(64, 80, 1), _conv(80, 192, 3), nn.MaxPool2d(3, 2)),
            *(_module_a(192, 32), _module_a(256, 64), _module_a(288, 64), _module_b(288)),
            *(_module_c(128), _module_c(160), _module_c(160), _module_c(192)),
        )
        self.upper = nn.Sequential(
            *(_module_d(), _module_e(1280), _module_e(2048)),
            *(nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(2048, 1000)),
        )
        self.auxiliary = None
        if auxiliary:
            reduction = (nn.AvgPool2d(5, 3), _conv(768, 128, 1), _conv(128, 768, 5))
            self.auxiliary = nn.Sequential(*reduction, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(768, 1000))

    def forward(self, x: Tensor) -> Any:
        """Return scores of (samples, 1000), or two of them."""
        x = self.lower(x)
        scores = self.upper(x)
        return scores if self.auxiliary is None else (scores, self.auxiliary(x))


def inception_v3(*, auxiliary: bool = False) -> nn.Module:
    """Return Inception v3 for images of 3 x 299 x 299; ``auxiliary`` adds its second classifier."""
    return InceptionV3(auxiliary=auxiliary)
