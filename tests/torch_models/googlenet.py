"""GoogLeNet: Szegedy et al., arXiv:1409.4842; with batch normalisation as torchvision has it."""

import torch
from torch import nn


class Inception(nn.Module):
    """Table 1: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool proj."""

    def __init__(self, conv, inputs, one, reduce3, three, reduce5, five, pool, *, large):
        super().__init__()
        self.branches = nn.ModuleList(
            [
                conv(inputs, one, 1),
                nn.Sequential(conv(inputs, reduce3, 1), conv(reduce3, three, 3, padding=1)),
                nn.Sequential(conv(inputs, reduce5, 1), conv(reduce5, five, large, padding=large // 2)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(inputs, pool, 1)),
            ]
        )

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


class GoogLeNet(nn.Module):
    def __init__(self, conv, *, norm, large, auxiliary):
        super().__init__()

        def module(*channels):
            return Inception(conv, *channels, large=large)

        def head(channels):
            return nn.Sequential(
                *(nn.AdaptiveAvgPool2d(4), conv(channels, 128, 1), nn.Flatten()),
                *(nn.Linear(2048, 1024), nn.ReLU(inplace=True), nn.Dropout(0.7), nn.Linear(1024, 1000)),
            )

        def pool():
            return nn.MaxPool2d(3, 2, ceil_mode=True)

        self.lower = nn.Sequential(
            *(conv(3, 64, 7, stride=2, padding=3), pool(), norm()),
            *(conv(64, 64, 1), conv(64, 192, 3, padding=1), norm(), pool()),
            *(module(192, 64, 96, 128, 16, 32, 32), module(256, 128, 128, 192, 32, 96, 64), pool()),
            module(480, 192, 96, 208, 16, 48, 64),
        )
        self.middle = nn.Sequential(
            module(512, 160, 112, 224, 24, 64, 64),
            module(512, 128, 128, 256, 24, 64, 64),
            module(512, 112, 144, 288, 32, 64, 64),
        )
        self.upper = nn.Sequential(
            *(module(528, 256, 160, 320, 32, 128, 128), pool()),
            *(module(832, 256, 160, 320, 32, 128, 128), module(832, 384, 192, 384, 48, 128, 128)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(1024, 1000)),
        )
        self.heads = nn.ModuleList([head(512), head(528)] if auxiliary else [])

    def forward(self, x):
        low = self.lower(x)
        middle = self.middle(low)
        scores = self.upper(middle)
        return (scores, *(head(maps) for head, maps in zip(self.heads, (low, middle), strict=False)))


def _plain(inputs, outputs, size, **options):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, **options), nn.ReLU(inplace=True))


def _normalised(inputs, outputs, size, **options):
    convolution = nn.Conv2d(inputs, outputs, size, bias=False, **options)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def googlenet(*, auxiliary=False):
    """Return torchvision's, which has 3x3 where the paper has 5x5."""
    return GoogLeNet(_normalised, norm=nn.Identity, large=3, auxiliary=auxiliary)


def googlenet_lrn(*, auxiliary=False):
    """Return the paper's."""
    return GoogLeNet(_plain, norm=lambda: nn.LocalResponseNorm(5), large=5, auxiliary=auxiliary)
