"""GPT-2: Radford, Wu, Child, Luan, Amodei, Sutskever, 2019, with the parameters of its published checkpoints."""

import math

import torch
from torch import nn

from perfmodel.validation.live.modules import attend, join_heads, split_heads

SIZES = {"small": (12, 768, 12), "medium": (24, 1024, 16), "large": (36, 1280, 20), "xl": (48, 1600, 25)}


def gelu(x):
    """GELU approximated with a tanh, in the passes of the published code."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class Block(nn.Module):
    """Causal attention and feed-forward part, each norm before it; queries, keys and values in one product."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.operands, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention_dropout, self.dropout = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x):
        operands = (split_heads(part, self.heads) for part in self.operands(self.attention_norm(x)).chunk(3, -1))
        y = join_heads(attend(*operands, causal=True, dropout=self.rate))
        x = x + self.attention_dropout(self.output(y))
        return x + self.dropout(self.down(gelu(self.up(self.norm(x)))))


class GPT(nn.Module):
    """Tokens of (samples, positions) to scores of every word; the last product shares the table of words."""

    def __init__(self, *, layers, width, heads, vocabulary=50257, positions=1024, dropout=0.1):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, vocabulary, bias=False)
        self.scores.weight = self.tokens.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


def gpt2(size="small", **options):
    layers, width, heads = SIZES[size]
    return GPT(layers=layers, width=width, heads=heads, **options)
