"""MobileNet v2: Sandler et al., arXiv:1801.04381, table 2."""

from torch import nn


def _conv(inputs, outputs, size, stride=1, groups=1):
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, expansion):
        super().__init__()
        hidden = inputs * expansion
        expand = _conv(inputs, hidden, 1) if expansion > 1 else []
        project = (nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.branch = nn.Sequential(*expand, *_conv(hidden, hidden, 3, stride, groups=hidden), *project)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.branch(x) if self.is_residual else self.branch(x)


def mobilenet_v2():
    layers, inputs = _conv(3, 32, 3, 2), 32
    table = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, outputs, count, stride in table:
        for index in range(count):
            layers.append(InvertedResidual(inputs, outputs, 1 if index else stride, expansion))
            inputs = outputs
    layers += _conv(320, 1280, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))
