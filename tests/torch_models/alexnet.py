"""AlexNet: one tower as torchvision and arXiv:1404.5997, and the groups of NIPS 2012."""

from torch import nn

from perfmodel.validation.live.modules import alexnet as alexnet
from perfmodel.validation.live.modules import alexnet_classifier


def alexnet_grouped():
    norm = nn.LocalResponseNorm(5, alpha=1e-4, beta=0.75)
    return nn.Sequential(
        *(nn.Conv2d(3, 96, 11, 4), nn.ReLU(inplace=True), norm, nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(96, 256, 5, 1, 2, groups=2), nn.ReLU(inplace=True), norm, nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(256, 384, 3, 1, 1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(384, 384, 3, 1, 1, groups=2), nn.ReLU(inplace=True)),
        *(nn.Conv2d(384, 256, 3, 1, 1, groups=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *alexnet_classifier(),
    )
