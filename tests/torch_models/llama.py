"""Llama 2 (arXiv:2307.09288) and Llama 3 (arXiv:2407.21783), with the parameters of their published checkpoints."""

import torch
from torch import nn

from perfmodel.validation.live.modules import attend, join_heads, split_heads

SIZES = {
    "llama2_7b": {"intermediate": 11008},
    "llama3_8b": {"intermediate": 14336, "key_heads": 8, "vocabulary": 128256},
}


def rotate(x):
    """Rotate pairs of features by angles that grow with the position."""
    positions, half = x.shape[-2], x.shape[-1] // 2
    rates = 10000.0 ** -(torch.arange(half, device=x.device) / half)
    angles = torch.arange(positions, device=x.device)[:, None] * rates
    cosine, sine = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    return x * cosine + torch.cat((-x[..., half:], x[..., :half]), -1) * sine


class Block(nn.Module):
    """Grouped-query attention with rotated queries and keys, and a gated feed-forward part."""

    def __init__(self, width, heads, key_heads, intermediate):
        super().__init__()
        self.heads, self.key_heads = heads, key_heads
        keys = width // heads * key_heads
        self.query, self.key, self.value = (nn.Linear(width, units, bias=False) for units in (width, keys, keys))
        self.output = nn.Linear(width, width, bias=False)
        self.attention_norm, self.norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.gate, self.up = (nn.Linear(width, intermediate, bias=False) for _ in range(2))
        self.down = nn.Linear(intermediate, width, bias=False)

    def forward(self, x):
        normalised = self.attention_norm(x)
        query = rotate(split_heads(self.query(normalised), self.heads))
        key = rotate(split_heads(self.key(normalised), self.key_heads))
        value = split_heads(self.value(normalised), self.key_heads)
        x = x + self.output(join_heads(attend(query, key, value, causal=True)))
        normalised = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(normalised)) * self.up(normalised))


class Llama(nn.Module):
    """Tokens of (samples, positions) to scores of every word."""

    def __init__(self, *, intermediate, layers=32, width=4096, heads=32, key_heads=None, vocabulary=32000):
        super().__init__()
        key_heads = key_heads or heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, key_heads, intermediate) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.scores = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


def llama(size):
    return Llama(**SIZES[size])
