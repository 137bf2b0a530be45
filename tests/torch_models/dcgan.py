"""DCGAN: Radford et al., arXiv:1511.06434, with the sizes of pytorch's example (nz = 100, ngf = ndf = 64)."""

from torch import nn


def dcgan_generator():
    def step(inputs, outputs, stride, padding):
        convolution = nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False)
        return (convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

    return nn.Sequential(
        *(*step(100, 512, 1, 0), *step(512, 256, 2, 1), *step(256, 128, 2, 1), *step(128, 64, 2, 1)),
        *(nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh()),
    )


def dcgan_discriminator():
    def step(inputs, outputs):
        convolution = nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False)
        return (convolution, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, inplace=True))

    return nn.Sequential(
        *(nn.Conv2d(3, 64, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)),
        *(*step(64, 128), *step(128, 256), *step(256, 512)),
        *(nn.Conv2d(512, 1, 4, 1, 0, bias=False), nn.Sigmoid()),
    )
