"""Inception v3, which the live check times, and with the auxiliary classifier that its training has."""

from torch import nn

from perfmodel.validation.live.modules import inception_v3 as network

BEFORE_THE_LAST = 7
"""Layers that follow the maps which the auxiliary classifier reads. [1]"""


def convolution(inputs, outputs, size):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class WithAuxiliary(nn.Module):
    """Returns the scores of both classifiers."""

    def __init__(self, layers):
        super().__init__()
        self.lower, self.upper = layers[:-BEFORE_THE_LAST], layers[-BEFORE_THE_LAST:]
        reduction = (nn.AvgPool2d(5, 3), convolution(768, 128, 1), convolution(128, 768, 5))
        self.auxiliary = nn.Sequential(*reduction, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(768, 1000))

    def forward(self, x):
        x = self.lower(x)
        return self.upper(x), self.auxiliary(x)


def inception_v3(*, auxiliary=False):
    return WithAuxiliary(network()) if auxiliary else network()
