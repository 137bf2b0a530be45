"""Vision transformer: Dosovitskiy et al., arXiv:2010.11929; attention written as two products and a softmax."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x):
        batch, positions, width = x.shape
        split = self.query_key_value(x).reshape(batch, positions, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        weights = torch.softmax(query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5, -1)
        return self.output((weights @ value).transpose(1, 2).reshape(batch, positions, width))


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width, eps=1e-6), Attention(width, heads))
        mlp = (nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.mlp = nn.Sequential(nn.LayerNorm(width, eps=1e-6), *mlp)

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.mlp(x)


class VisionTransformer(nn.Module):
    def __init__(self, *, patch_size, layers, heads, width, hidden, image_size=224, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch_size, patch_size)
        self.class_token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, (image_size // patch_size) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, hidden) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit_b_16():
    return VisionTransformer(patch_size=16, layers=12, heads=12, width=768, hidden=3072)
