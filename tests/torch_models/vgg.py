"""VGG: Simonyan, Zisserman, arXiv:1409.1556, table 1, configurations A, B, D, E."""

from torch import nn

CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def _vgg(depth, *, batch_norm=False, classes=1000):
    layers, inputs = [], 3
    for outputs, count in zip((64, 128, 256, 512, 512), CONVOLUTIONS[depth], strict=True):
        for _ in range(count):
            layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            layers += [nn.BatchNorm2d(outputs)] if batch_norm else []
            layers.append(nn.ReLU(inplace=True))
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        *(nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout()),
        *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout()),
        nn.Linear(4096, classes),
    )


def vgg11(**options):
    return _vgg(11, **options)


def vgg13(**options):
    return _vgg(13, **options)


def vgg16(**options):
    return _vgg(16, **options)


def vgg19(**options):
    return _vgg(19, **options)
