"""Network in network: Lin et al., arXiv:1312.4400, and the authors' files for Caffe."""

from torch import nn


def _mlpconv(inputs, widths, size, stride=1, padding=0):
    layers, kernels = [], [(size, stride, padding), (1, 1, 0), (1, 1, 0)]
    for outputs, (size, stride, padding) in zip(widths, kernels, strict=True):
        layers += [nn.Conv2d(inputs, outputs, size, stride, padding), nn.ReLU(inplace=True)]
        inputs = outputs
    return layers


def nin_imagenet():
    return nn.Sequential(
        *(*_mlpconv(3, (96, 96, 96), 11, 4), nn.MaxPool2d(3, 2, ceil_mode=True)),
        *(*_mlpconv(96, (256, 256, 256), 5, 1, 2), nn.MaxPool2d(3, 2, ceil_mode=True)),
        *(*_mlpconv(256, (384, 384, 384), 3, 1, 1), nn.MaxPool2d(3, 2, ceil_mode=True), nn.Dropout()),
        *(*_mlpconv(384, (1024, 1024, 1000), 3, 1, 1), nn.AvgPool2d(6), nn.Flatten()),
    )


def nin_cifar10():
    return nn.Sequential(
        *(*_mlpconv(3, (192, 160, 96), 5, 1, 2), nn.MaxPool2d(3, 2, ceil_mode=True), nn.Dropout()),
        *(*_mlpconv(96, (192, 192, 192), 5, 1, 2), nn.AvgPool2d(3, 2, ceil_mode=True), nn.Dropout()),
        *(*_mlpconv(192, (192, 192, 10), 3, 1, 1), nn.AvgPool2d(8), nn.Flatten()),
    )
