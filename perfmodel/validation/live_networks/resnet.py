"""Residual networks in plain torch: He et al., arXiv:1512.03385."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor, nn

BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}
"""Depth to the blocks of each of the four stages."""


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that keeps the size of maps but for its stride.

    Parameters
    ----------
    inputs, outputs : int
        Channels. [1]
    size, stride : int
        Edge of the filters, and step between outputs. [1]

    Returns
    -------
    Conv2d
        The layer. [-]
    """
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1, beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool, stride_on: str = "3x3") -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        layers: list[nn.Module]
        if bottleneck:
            outputs = 4 * width
            first, second = (stride, 1) if stride_on == "1x1" else (1, stride)
            layers = [
                *(convolution(inputs, width, 1, first), nn.BatchNorm2d(width), self.relu),
                *(convolution(width, width, 3, second), nn.BatchNorm2d(width), self.relu),
                *(convolution(width, outputs, 1), nn.BatchNorm2d(outputs)),
            ]
        else:
            outputs = width
            layers = [
                *(convolution(inputs, width, 3, stride), nn.BatchNorm2d(width), self.relu),
                *(convolution(width, width, 3), nn.BatchNorm2d(width)),
            ]
        self.branch = nn.Sequential(*layers)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Any:
        """Return the rectified sum of branch and shortcut."""
        return self.relu(self.branch(x) + self.shortcut(x))


def stages(depth: int, block: Callable[[int, int, int], nn.Module], expansion: int) -> Iterator[nn.Module]:
    """Yield the blocks of a network.

    Parameters
    ----------
    depth : int
        A key of BLOCKS. [1]
    block : callable
        Makes a block from channels in, width and stride. [-]
    expansion : int
        Channels that leave a block, over its width. [1]

    Yields
    ------
    Module
        A block. [-]
    """
    inputs = 64
    for stage, count in enumerate(BLOCKS[depth]):
        width = 64 * 2**stage
        for index in range(count):
            yield block(inputs, width, 2 if stage and not index else 1)
            inputs = expansion * width


def resnet(*, depth: int, stride_on: str = "3x3", classes: int = 1000) -> nn.Module:
    """Return a residual network for images of 3 x 224 x 224.

    Parameters
    ----------
    depth : int
        A key of BLOCKS; from 50 on with bottlenecks. [1]
    stride_on : str
        Which convolution of a bottleneck has the stride: ``3x3``, or ``1x1`` as in the paper. [-]
    classes : int
        Classes. [1]

    Returns
    -------
    Module
        The network. [-]
    """
    bottleneck = depth >= 50
    expansion = 4 if bottleneck else 1
    return nn.Sequential(
        *(convolution(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)),
        *stages(depth, partial(Block, bottleneck=bottleneck, stride_on=stride_on), expansion),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512 * expansion, classes)),
    )
