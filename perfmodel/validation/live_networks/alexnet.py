"""AlexNet in plain torch: one tower, as arXiv:1404.5997."""

from __future__ import annotations

from torch import nn


def classifier() -> tuple[nn.Module, ...]:
    """Return the three dense layers of AlexNet, from maps to scores."""
    return (
        *(nn.Flatten(), nn.Linear(9216, 4096), nn.ReLU(inplace=True), nn.Dropout()),
        *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout()),
        nn.Linear(4096, 1000),
    )


def alexnet() -> nn.Module:
    """Return AlexNet for images of 3 x 224 x 224."""
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(64, 192, 5, 1, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(192, 384, 3, 1, 1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *classifier(),
    )
