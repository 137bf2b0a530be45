"""BERT: Devlin, Chang, Lee, Toutanova, arXiv:1810.04805, with the parameters of its published checkpoints."""

import torch
from torch import nn

from torch_models.attention import attend, join_heads, split_heads


class Layer(nn.Module):
    """Attention and feed-forward part, each norm after its residual addition."""

    def __init__(self, width, heads, intermediate, dropout):
        super().__init__()
        self.heads, self.rate = heads, dropout
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, intermediate), nn.Linear(intermediate, width)
        self.activation = nn.GELU()
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.attention_dropout, self.dropout = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x):
        operands = (split_heads(project(x), self.heads) for project in (self.query, self.key, self.value))
        y = join_heads(attend(*operands, dropout=self.rate))
        x = self.attention_norm(self.attention_dropout(self.output(y)) + x)
        y = self.down(self.activation(self.up(x)))
        return self.norm(self.dropout(y) + x)


class Bert(nn.Module):
    """The encoder with its pooler: tokens and segments of (samples, positions) to (samples, width)."""

    def __init__(self, *, layers, width, heads, vocabulary=30522, positions=512, dropout=0.1):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(width, heads, 4 * width, dropout) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def encode(self, tokens, segments):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.segments(segments) + self.positions(places)
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, tokens, segments):
        return torch.tanh(self.pooler(self.encode(tokens, segments)[:, 0]))


class MaskedLanguageModel(nn.Module):
    """Scores of every word at every position; the last product shares the table of words."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert
        del bert.pooler
        vocabulary, width = bert.tokens.weight.shape
        self.transform, self.norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.activation = nn.GELU()
        self.scores = nn.Linear(width, vocabulary)
        self.scores.weight = bert.tokens.weight

    def forward(self, tokens, segments):
        x = self.bert.encode(tokens, segments)
        return self.scores(self.norm(self.activation(self.transform(x))))


def bert_base(**options):
    return Bert(layers=12, width=768, heads=12, **options)


def bert_large(**options):
    return Bert(layers=24, width=1024, heads=16, **options)
