"""LSTM networks in plain torch: a language model, and a translator of two LSTMs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class LanguageModel(nn.Module):
    """Zaremba, Sutskever, Vinyals, arXiv:1409.2329: scores of every word at every step."""

    def __init__(self, *, vocabulary: int, features: int, hidden_size: int, layer_count: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, features)
        self.lstm = nn.LSTM(features, hidden_size, layer_count, batch_first=True)
        self.scores = nn.Linear(hidden_size, vocabulary)

    def forward(self, words: Tensor) -> Any:
        """Return (samples, steps, words of the vocabulary)."""
        return self.scores(self.lstm(self.embedding(words))[0])


class SequenceToSequence(nn.Module):
    """Sutskever, Vinyals, Le, arXiv:1409.3215: scores of every word at every step of the target."""

    def __init__(
        self, source_vocabulary: int, target_vocabulary: int, features: int, hidden_size: int, layer_count: int
    ) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(source_vocabulary, features), nn.Embedding(target_vocabulary, features)
        self.encoder = nn.LSTM(features, hidden_size, layer_count, batch_first=True)
        self.decoder = nn.LSTM(features, hidden_size, layer_count, batch_first=True)
        self.scores = nn.Linear(hidden_size, target_vocabulary)

    def forward(self, source: Tensor, target: Tensor) -> Any:
        """Return (samples, steps of the target, words of its vocabulary)."""
        states = self.encoder(self.source(source))[1]
        return self.scores(self.decoder(self.target(target), states)[0])
