"""Scaled dot-product attention written out, with its matrix of scores in memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def attend(query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False, dropout: float = 0.0) -> Tensor:
    """Return softmax(Q K^T / sqrt(d)) V.

    Parameters
    ----------
    query, key, value : Tensor, shape (samples, heads, positions, features)
        Operands; keys and values may have fewer heads. [1]
    causal : bool
        Whether a position sees only itself and those before it. [-]
    dropout : float
        Rate of dropout on the probabilities. [1]

    Returns
    -------
    Tensor, shape (samples, heads, positions, features)
        Values, mixed. [1]
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = nn.functional.dropout(scores.softmax(-1), dropout, training=dropout > 0)
    return weights @ value


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Turn (samples, positions, features) into (samples, heads, positions, features of a head)."""
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Turn (samples, heads, positions, features of a head) into (samples, positions, features)."""
    return x.transpose(1, 2).flatten(2)
