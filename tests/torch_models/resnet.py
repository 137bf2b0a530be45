"""Residual networks: He et al., arXiv:1512.03385 and, pre-activated, arXiv:1603.05027."""

from functools import partial

from torch import nn

BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}


def _conv(inputs, outputs, size, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3, 1x1, beside a shortcut."""

    def __init__(self, inputs, width, stride, *, bottleneck, stride_on="3x3"):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        if bottleneck:
            outputs = 4 * width
            first, second = (stride, 1) if stride_on == "1x1" else (1, stride)
            layers = [
                *(_conv(inputs, width, 1, first), nn.BatchNorm2d(width), self.relu),
                *(_conv(width, width, 3, second), nn.BatchNorm2d(width), self.relu),
                *(_conv(width, outputs, 1), nn.BatchNorm2d(outputs)),
            ]
        else:
            outputs = width
            layers = [
                *(_conv(inputs, width, 3, stride), nn.BatchNorm2d(width), self.relu),
                *(_conv(width, width, 3), nn.BatchNorm2d(width)),
            ]
        self.branch = nn.Sequential(*layers)
        self.shortcut = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return self.relu(self.branch(x) + self.shortcut(x))


class PreActivatedBlock(nn.Module):
    """Norm and rectifier before each convolution; the first block of a stage projects the normalised input.

    The very first block finds its input normalised already (appendix of arXiv:1603.05027).
    """

    def __init__(self, inputs, width, stride):
        super().__init__()
        is_first = inputs == width
        self.first = nn.Identity() if is_first else nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.branch = nn.Sequential(
            *(_conv(inputs, width, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(_conv(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            _conv(width, 4 * width, 1),
        )
        self.shortcut = _conv(inputs, 4 * width, 1, stride) if inputs != 4 * width else None

    def forward(self, x):
        normalised = self.first(x)
        shortcut = x if self.shortcut is None else self.shortcut(normalised)
        return self.branch(normalised) + shortcut


def _stages(depth, block, expansion):
    inputs = 64
    for stage, count in enumerate(BLOCKS[depth]):
        width = 64 * 2**stage
        for index in range(count):
            yield block(inputs, width, 2 if stage and not index else 1)
            inputs = expansion * width


def _resnet(depth, *, stride_on="3x3", classes=1000):
    bottleneck = depth >= 50
    expansion = 4 if bottleneck else 1
    return nn.Sequential(
        *(_conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)),
        *_stages(depth, partial(Block, bottleneck=bottleneck, stride_on=stride_on), expansion),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512 * expansion, classes)),
    )


def resnet18():
    return _resnet(18)


def resnet34():
    return _resnet(34)


def resnet50(stride_on="3x3"):
    return _resnet(50, stride_on=stride_on)


def resnet101(stride_on="3x3"):
    return _resnet(101, stride_on=stride_on)


def resnet152(stride_on="3x3"):
    return _resnet(152, stride_on=stride_on)


def resnet200(classes=1000):
    """Return the pre-activated network of arXiv:1603.05027."""
    return nn.Sequential(
        *(_conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)),
        *_stages(200, PreActivatedBlock, 4),
        *(nn.BatchNorm2d(2048), nn.ReLU(inplace=True)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes)),
    )
