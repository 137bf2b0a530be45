"""Classic networks of vectors and sequences, each with its sizes as arguments."""

from itertools import pairwise

import torch
from torch import nn

from perfmodel.validation.live.modules import SequenceToSequence as SequenceToSequence
from perfmodel.validation.live.modules import dense_stack as dense_stack


def autoencoder(*widths):
    """Hinton and Salakhutdinov, Science 313, 2006: sigmoids, but for a linear code; the output is a sigmoid."""
    encoder = dense_stack(*widths, activation=nn.Sigmoid)
    return nn.Sequential(encoder, dense_stack(*widths[::-1], activation=nn.Sigmoid), nn.Sigmoid())


class VariationalAutoencoder(nn.Module):
    """Kingma and Welling, arXiv:1312.6114: reconstruction, mean and logarithm of the variance."""

    def __init__(self, features, hidden, latent):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, hidden), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(dense_stack(latent, hidden, features), nn.Sigmoid())

    def forward(self, x):
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        sample = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        return self.decoder(sample), mean, log_variance


class BoltzmannMachine(nn.Module):
    """Restricted; ``gradients`` are those of k steps of contrastive divergence (Hinton 2002)."""

    def __init__(self, visible, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(visible, hidden))
        self.visible_bias, self.hidden_bias = nn.Parameter(torch.empty(visible)), nn.Parameter(torch.empty(hidden))

    def hidden(self, visible):
        return torch.sigmoid(visible @ self.weight + self.hidden_bias)

    def gradients(self, visible, *, steps):
        first = last = self.hidden(visible)
        reconstruction = visible
        for _ in range(steps):
            sample = torch.bernoulli(last)
            reconstruction = torch.sigmoid(sample @ self.weight.T + self.visible_bias)
            last = self.hidden(reconstruction)
        return visible.T @ first - reconstruction.T @ last


class Maxout(nn.Module):
    """The largest of several linear pieces."""

    def __init__(self, inputs, units, pieces):
        super().__init__()
        self.linear, self.pieces = nn.Linear(inputs, units * pieces), pieces

    def forward(self, x):
        return self.linear(x).unflatten(-1, (-1, self.pieces)).amax(-1)


class AdversarialStep(nn.Module):
    """Algorithm 1 of arXiv:1406.2661 for one step of either network: what the discriminator says in its three passes.

    The scores' sum has the gradients of a step: the discriminator's from its own two passes alone, the generator's from
    the third alone.
    """

    def __init__(self, features, noise, generator, discriminator, pieces):
        super().__init__()
        self.generator = nn.Sequential(dense_stack(noise, *generator, features), nn.Sigmoid())
        widths = (features, *discriminator)
        maxouts = [Maxout(*pair, pieces) for pair in pairwise(widths)]
        self.discriminator = nn.Sequential(*maxouts, nn.Linear(widths[-1], 1))

    def forward(self, real, noise, own_noise):
        with torch.no_grad():
            made = self.generator(own_noise)
        frozen = {name: parameter.detach() for name, parameter in self.discriminator.named_parameters()}
        judged = torch.func.functional_call(self.discriminator, frozen, self.generator(noise))
        return self.discriminator(real), self.discriminator(made), judged


class RecurrentNetwork(nn.Module):
    """Elman, Cognitive Science 14, 1990: scores at every step."""

    def __init__(self, features, hidden_size, classes):
        super().__init__()
        self.rnn = nn.RNN(features, hidden_size, batch_first=True)
        self.scores = nn.Linear(hidden_size, classes)

    def forward(self, x):
        return self.scores(self.rnn(x)[0])


class TextClassifier(nn.Module):
    """Embedding, LSTM in both directions, and a logistic unit over the last h of both."""

    def __init__(self, vocabulary, features, hidden_size, layer_count):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, features)
        self.lstm = nn.LSTM(features, hidden_size, layer_count, batch_first=True, bidirectional=True)
        self.scores = nn.Linear(2 * hidden_size, 1)

    def forward(self, tokens):
        states = self.lstm(self.embedding(tokens))[1][0]
        return self.scores(torch.cat((states[-2], states[-1]), -1))


class RecursiveNetwork(nn.Module):
    """Socher et al., ICML 2011 and EMNLP 2013: scores of every node of a balanced tree, or of the root."""

    def __init__(self, vocabulary, features, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, features)
        self.composition, self.scores = nn.Linear(2 * features, features), nn.Linear(features, classes)

    def forward(self, words):
        level = list(self.embedding(words).unbind(1))
        nodes = list(level)
        while len(level) > 1:
            parents = [
                torch.tanh(self.composition(torch.cat(pair, -1))) for pair in zip(level[::2], level[1::2], strict=False)
            ]
            nodes += parents
            level = parents + level[2 * len(parents) :]
        return tuple(self.scores(node) for node in nodes)
