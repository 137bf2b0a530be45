"""Bring a torch network of your own: exact counts, time on several GPUs, and the largest mini-batch of each.

Run:  python examples/bring_your_own_network.py
"""

import torch
from torch import nn

import perfmodel as pm


class Classifier(nn.Module):
    """Convolutions with a residual connection, then attention over what is left of the map."""

    def __init__(self, width: int = 128, classes: int = 100) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, stride=4, padding=3), nn.BatchNorm2d(width), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.attention = nn.MultiheadAttention(width, num_heads=8, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores of the classes."""
        maps = self.stem(images)
        maps = maps + self.body(maps)
        places = nn.functional.avg_pool2d(maps, 4).flatten(2).transpose(1, 2)
        mixed, _ = self.attention(places, places, places, need_weights=False)
        return self.head(mixed.mean(1))


def main() -> None:
    """Print counts, their audit, and predictions."""
    module, images = Classifier(), torch.empty(2, 3, 224, 224)
    graph = pm.from_torch(module, images)
    print(graph.summary(batch_size=1))
    print(pm.audit(module, images))
    for device in ("gtx_1080", "v100_sxm2", "a100_80_sxm", "h100_sxm"):
        largest = pm.max_batch_size(graph, device=device, optimizer="adam")
        p = pm.predict(graph, batch_size=256, device=device, optimizer="adam")
        line = f"{device:12s} {1e3 * p.step_s:7.1f} ms a step of 256, bound by {p.bottleneck}; at most {largest} fit"
        print(line)


if __name__ == "__main__":
    main()
