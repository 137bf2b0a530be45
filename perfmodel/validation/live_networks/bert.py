"""BERT in plain torch: Devlin, Chang, Lee, Toutanova, arXiv:1810.04805, with attention written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from perfmodel.validation.live_networks.attention import attend, join_heads, split_heads


class Layer(nn.Module):
    """Attention and feed-forward part, each norm after its residual addition."""

    def __init__(self, width: int, heads: int, intermediate: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, intermediate), nn.Linear(intermediate, width)
        self.activation = nn.GELU()
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.attention_dropout, self.dropout = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Any:
        """Return (samples, positions, width) from the same."""
        query, key, value = (split_heads(project(x), self.heads) for project in (self.query, self.key, self.value))
        y = join_heads(attend(query, key, value, dropout=self.rate if self.training else 0.0))
        x = self.attention_norm(self.attention_dropout(self.output(y)) + x)
        y = self.down(self.activation(self.up(x)))
        return self.norm(self.dropout(y) + x)


class Bert(nn.Module):
    """The encoder with its pooler: tokens and segments of (samples, positions) to (samples, width)."""

    def __init__(
        self,
        *,
        layers: int,
        width: int,
        heads: int,
        vocabulary: int = 30522,
        positions: int = 512,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(width, heads, 4 * width, dropout) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def encode(self, tokens: Tensor, segments: Tensor) -> Any:
        """Return (samples, positions, width) of tokens and segments."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.segments(segments) + self.positions(places)
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """Return (samples, width) of the first position."""
        return torch.tanh(self.pooler(self.encode(tokens, segments)[:, 0]))


class Classifier(nn.Module):
    """Scores of classes from the pooled first position, as BERT is fine-tuned."""

    def __init__(self, bert: Bert, *, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.bert, self.dropout = bert, nn.Dropout(dropout)
        self.scores = nn.Linear(bert.pooler.out_features, classes)

    def forward(self, tokens: Tensor, segments: Tensor) -> Any:
        """Return (samples, classes)."""
        return self.scores(self.dropout(self.bert(tokens, segments)))


def bert_classifier(*, layers: int, width: int, heads: int, classes: int) -> nn.Module:
    """Return a BERT that tells classes of pairs of sentences apart.

    Parameters
    ----------
    layers, width, heads : int
        Transformer blocks, features of a position, heads of attention. [1]
    classes : int
        Classes. [1]

    Returns
    -------
    Module
        Takes tokens and segments. [-]
    """
    return Classifier(Bert(layers=layers, width=width, heads=heads), classes=classes)
