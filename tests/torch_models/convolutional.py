"""Convolutional networks without a name of their own: a classifier, an auto-encoder, a deconvolutional network."""

from torch import nn


def digits():
    """Return the classifier of https://github.com/pytorch/examples/blob/main/mnist/main.py."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    )


def autoencoder():
    def up(inputs, outputs):
        return nn.ConvTranspose2d(inputs, outputs, 3, 2, 1, output_padding=1)

    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()),
        *(up(32, 16), nn.ReLU(), up(16, 1), nn.Sigmoid()),
    )


def zeiler_fergus():
    """Return arXiv:1311.2901's five convolutions in reverse; maps of 13, 26, 55, 110 and 224."""
    return nn.Sequential(
        *(nn.ReLU(), nn.ConvTranspose2d(256, 384, 3, padding=1)),
        *(nn.ReLU(), nn.ConvTranspose2d(384, 384, 3, padding=1)),
        *(nn.ReLU(), nn.ConvTranspose2d(384, 256, 3, padding=1)),
        *(nn.Upsample(size=26), nn.ReLU(), nn.ConvTranspose2d(256, 96, 5, 2)),
        *(nn.Upsample(size=110), nn.ReLU(), nn.ConvTranspose2d(96, 3, 7, 2, 1, output_padding=1)),
    )
