"""LeNet-5: LeCun et al., Proceedings of the IEEE 86 (1998), figure 2, with full connections between maps."""

from torch import nn


def lenet5():
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Conv2d(16, 120, 5), nn.Tanh(), nn.Flatten()),
        *(nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
    )
