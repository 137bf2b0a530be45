"""Residual networks: He et al., arXiv:1512.03385, which the live check times, and, pre-activated, arXiv:1603.05027."""

from torch import nn

from perfmodel.validation.live.modules import convolution, resnet, stages


class PreActivatedBlock(nn.Module):
    """Norm and rectifier before each convolution; the first block of a stage projects the normalised input.

    The very first block finds its input normalised already (appendix of arXiv:1603.05027).
    """

    def __init__(self, inputs, width, stride):
        super().__init__()
        is_first = inputs == width
        self.first = nn.Identity() if is_first else nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.branch = nn.Sequential(
            *(convolution(inputs, width, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(convolution(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            convolution(width, 4 * width, 1),
        )
        self.shortcut = convolution(inputs, 4 * width, 1, stride) if inputs != 4 * width else None

    def forward(self, x):
        normalised = self.first(x)
        shortcut = x if self.shortcut is None else self.shortcut(normalised)
        return self.branch(normalised) + shortcut


def resnet18():
    return resnet(depth=18)


def resnet34():
    return resnet(depth=34)


def resnet50(stride_on="3x3"):
    return resnet(depth=50, stride_on=stride_on)


def resnet101(stride_on="3x3"):
    return resnet(depth=101, stride_on=stride_on)


def resnet152(stride_on="3x3"):
    return resnet(depth=152, stride_on=stride_on)


def resnet200(classes=1000):
    """Return the pre-activated network of arXiv:1603.05027."""
    return nn.Sequential(
        *(convolution(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)),
        *stages(200, PreActivatedBlock, 4),
        *(nn.BatchNorm2d(2048), nn.ReLU(inplace=True)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes)),
    )
