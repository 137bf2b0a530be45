"""U-Net: Ronneberger et al., arXiv:1505.04597, figure 1."""

import torch
from torch import nn


def _double(inputs, outputs, padding):
    return nn.Sequential(
        *(nn.Conv2d(inputs, outputs, 3, padding=padding), nn.ReLU(inplace=True)),
        *(nn.Conv2d(outputs, outputs, 3, padding=padding), nn.ReLU(inplace=True)),
    )


class UNet(nn.Module):
    def __init__(self, *, padding):
        super().__init__()
        widths = (64, 128, 256, 512)
        self.down = nn.ModuleList(
            _double(inputs, outputs, padding) for inputs, outputs in zip((1, *widths[:-1]), widths, strict=True)
        )
        self.bottom = _double(512, 1024, padding)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(widths))
        self.merge = nn.ModuleList(_double(2 * width, width, padding) for width in reversed(widths))
        self.last = nn.Conv2d(64, 2, 1)

    def forward(self, x):
        skips = []
        for double in self.down:
            x = double(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x, skip = up(x), skips.pop()
            cut = (skip.shape[-1] - x.shape[-1]) // 2
            skip = skip[:, :, cut : cut + x.shape[-2], cut : cut + x.shape[-1]]
            x = merge(torch.cat([skip, x], 1))
        return self.last(x)


def unet(*, padding=0):
    return UNet(padding=padding)
