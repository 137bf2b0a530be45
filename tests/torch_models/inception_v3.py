"""Inception v3: Szegedy et al., arXiv:1512.00567, with the channels that torchvision has."""

import torch
from torch import nn


def conv(inputs, outputs, size, stride=1, padding=0):
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def average():
    return nn.AvgPool2d(3, 1, 1)


def chain(inputs, *steps):
    """Return convolutions of (outputs, size, padding) one after the other."""
    layers = []
    for outputs, size, padding in steps:
        layers.append(conv(inputs, outputs, size, 1, padding))
        inputs = outputs
    return nn.Sequential(*layers)


class Branches(nn.Module):
    """Modules that read the same maps, their outputs side by side."""

    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def module_a(inputs, pool):
    return Branches(
        conv(inputs, 64, 1),
        chain(inputs, (48, 1, 0), (64, 5, 2)),
        chain(inputs, (64, 1, 0), (96, 3, 1), (96, 3, 1)),
        nn.Sequential(average(), conv(inputs, pool, 1)),
    )


def module_b(inputs):
    double = nn.Sequential(chain(inputs, (64, 1, 0), (96, 3, 1)), conv(96, 96, 3, 2))
    return Branches(conv(inputs, 384, 3, 2), double, nn.MaxPool2d(3, 2))


def module_c(c):
    wide, tall = ((1, 7), (0, 3)), ((7, 1), (3, 0))
    return Branches(
        conv(768, 192, 1),
        chain(768, (c, 1, 0), (c, *wide), (192, *tall)),
        chain(768, (c, 1, 0), (c, *tall), (c, *wide), (c, *tall), (192, *wide)),
        nn.Sequential(average(), conv(768, 192, 1)),
    )


def module_d():
    three = nn.Sequential(conv(768, 192, 1), conv(192, 320, 3, 2))
    seven = chain(768, (192, 1, 0), (192, (1, 7), (0, 3)), (192, (7, 1), (3, 0)))
    return Branches(three, nn.Sequential(seven, conv(192, 192, 3, 2)), nn.MaxPool2d(3, 2))


def module_e(inputs):
    def sides(channels):
        return Branches(conv(channels, 384, (1, 3), 1, (0, 1)), conv(channels, 384, (3, 1), 1, (1, 0)))

    return Branches(
        conv(inputs, 320, 1),
        nn.Sequential(conv(inputs, 384, 1), sides(384)),
        nn.Sequential(conv(inputs, 448, 1), conv(448, 384, 3, 1, 1), sides(384)),
        nn.Sequential(average(), conv(inputs, 192, 1)),
    )


class InceptionV3(nn.Module):
    def __init__(self, *, auxiliary):
        super().__init__()
        self.lower = nn.Sequential(
            *(conv(3, 32, 3, 2), conv(32, 32, 3), conv(32, 64, 3, 1, 1), nn.MaxPool2d(3, 2)),
            *(conv(64, 80, 1), conv(80, 192, 3), nn.MaxPool2d(3, 2)),
            *(module_a(192, 32), module_a(256, 64), module_a(288, 64), module_b(288)),
            *(module_c(128), module_c(160), module_c(160), module_c(192)),
        )
        self.upper = nn.Sequential(
            *(module_d(), module_e(1280), module_e(2048)),
            *(nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(2048, 1000)),
        )
        self.auxiliary = None
        if auxiliary:
            reduction = (nn.AvgPool2d(5, 3), conv(768, 128, 1), conv(128, 768, 5))
            self.auxiliary = nn.Sequential(*reduction, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(768, 1000))

    def forward(self, x):
        x = self.lower(x)
        scores = self.upper(x)
        return scores if self.auxiliary is None else (scores, self.auxiliary(x))


def inception_v3(*, auxiliary=False):
    return InceptionV3(auxiliary=auxiliary)
