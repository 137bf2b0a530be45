"""Vision transformer in plain torch: Dosovitskiy et al., arXiv:2010.11929."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Attention of several heads; fused in torch's own operator, or written out as two products and a softmax."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Any:
        """Return (samples, positions, width) from the same."""
        batch, positions, width = x.shape
        split = self.query_key_value(x).reshape(batch, positions, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        else:
            mixed = torch.softmax(query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5, -1) @ value
        return self.output(mixed.transpose(1, 2).reshape(batch, positions, width))


class Block(nn.Module):
    """Attention and feed-forward part, each after its norm."""

    def __init__(self, width: int, heads: int, hidden: int, *, fused: bool) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width, eps=1e-6), Attention(width, heads, fused=fused))
        mlp = (nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.mlp = nn.Sequential(nn.LayerNorm(width, eps=1e-6), *mlp)

    def forward(self, x: Tensor) -> Any:
        """Return (samples, positions, width) from the same."""
        x = x + self.attention(x)
        return x + self.mlp(x)


class VisionTransformer(nn.Module):
    """Patches of an image and a class token, through blocks, to scores of classes."""

    def __init__(
        self,
        *,
        patch_size: int,
        layers: int,
        heads: int,
        width: int,
        hidden: int,
        image_size: int = 224,
        classes: int = 1000,
        fused: bool = False,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch_size, patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (image_size // patch_size) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, hidden, fused=fused) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Any:
        """Return (samples, classes) of (samples, 3, image_size, image_size)."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])
