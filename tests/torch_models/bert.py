"""BERT, which the live check times, with the parameters of its published checkpoints and the head of its training."""

from torch import nn

from perfmodel.validation.live.modules import Bert


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
