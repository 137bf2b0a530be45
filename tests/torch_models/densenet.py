"""DenseNet-121: Huang et al., arXiv:1608.06993, table 1."""

import torch
from torch import nn


class DenseLayer(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), nn.Conv2d(inputs, 4 * growth, 1, bias=False)),
            *(nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True)),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x):
        return torch.cat([x, self.layers(x)], 1)


def densenet121():
    growth, channels = 32, 64
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    for block, count in enumerate((6, 12, 24, 16)):
        if block:
            convolution = nn.Conv2d(channels, channels // 2, 1, bias=False)
            layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), convolution, nn.AvgPool2d(2)]
            channels //= 2
        for _ in range(count):
            layers.append(DenseLayer(channels, growth))
            channels += growth
    layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
