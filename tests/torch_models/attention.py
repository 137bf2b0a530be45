"""Scaled dot-product attention written out, with its matrix of scores in memory."""

import math

import torch
from torch import nn


def attend(query, key, value, *, causal=False, dropout=0.0):
    """Return softmax(Q K^T / sqrt(d)) V of operands of shape (samples, heads, positions, features)."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = nn.functional.dropout(scores.softmax(-1), dropout)
    return weights @ value


def split_heads(x, heads):
    """Turn (samples, positions, features) into (samples, heads, positions, features of a head)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x):
    return x.transpose(1, 2).flatten(2)
