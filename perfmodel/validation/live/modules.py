"""Networks that the live check measures: plain torch modules, written as a user would."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perfmodel.validation.live.prediction import LiveNetwork


ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid}


def dense_stack(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Return dense layers of these ``widths`` [1] with a non-linearity after each but the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def classifier(*, widths: Sequence[int], activation: str) -> nn.Module:
    """Return dense layers from features to scores of classes, with a non-linearity named in ACTIVATIONS."""
    return dense_stack(*widths, activation=ACTIVATIONS[activation])


def alexnet_classifier() -> tuple[nn.Module, ...]:
    """Return the three dense layers of AlexNet, from maps to scores."""
    return (
        *(nn.Flatten(), nn.Linear(9216, 4096), nn.ReLU(inplace=True), nn.Dropout()),
        *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout()),
        nn.Linear(4096, 1000),
    )


def alexnet() -> nn.Module:
    """Return AlexNet for images of 3 x 224 x 224."""
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(64, 192, 5, 1, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(192, 384, 3, 1, 1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(inplace=True)),
        *(nn.Conv2d(256, 256, 3, 1, 1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)),
        *alexnet_classifier(),
    )


BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}
"""Depth to the blocks of each of the four stages."""


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias, padded so that only its stride changes the size of maps."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """Residual block of ResNet: two 3x3 convolutions, or 1x1, 3x3, 1x1, and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool, stride_on: str = "3x3") -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        layers: list[nn.Module]
        if bottleneck:
            outputs = 4 * width
            first, second = (stride, 1) if stride_on == "1x1" else (1, stride)
            layers = [
                *(convolution(inputs, width, 1, first), nn.BatchNorm2d(width), self.relu),
                *(convolution(width, width, 3, second), nn.BatchNorm2d(width), self.relu),
                *(convolution(width, outputs, 1), nn.BatchNorm2d(outputs)),
            ]
        else:
            outputs = width
            layers = [
                *(convolution(inputs, width, 3, stride), nn.BatchNorm2d(width), self.relu),
                *(convolution(width, width, 3), nn.BatchNorm2d(width)),
            ]
        self.branch = nn.Sequential(*layers)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Any:
        """Return ReLU(branch + shortcut)."""
        return self.relu(self.branch(x) + self.shortcut(x))


def stages(depth: int, block: Callable[[int, int, int], nn.Module], expansion: int) -> Iterator[nn.Module]:
    """Yield the residual blocks of a ResNet, stage by stage."""
    inputs = 64
    for stage, count in enumerate(BLOCKS[depth]):
        width = 64 * 2**stage
        for index in range(count):
            yield block(inputs, width, 2 if stage and not index else 1)
            inputs = expansion * width


def resnet(*, depth: int, stride_on: str = "3x3", classes: int = 1000) -> nn.Module:
    """Return a ResNet for images of 3 x 224 x 224."""
    bottleneck = depth >= 50
    expansion = 4 if bottleneck else 1
    return nn.Sequential(
        *(convolution(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)),
        *stages(depth, partial(Block, bottleneck=bottleneck, stride_on=stride_on), expansion),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512 * expansion, classes)),
    )


_Size: TypeAlias = int | tuple[int, int]


def _conv(inputs: int, outputs: int, size: _Size, stride: int = 1, padding: _Size = 0) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def _average() -> nn.Module:
    return nn.AvgPool2d(3, 1, 1)


def _chain(inputs: int, *steps: tuple[int, _Size, _Size]) -> nn.Sequential:
    """Return convolutions of (outputs, size, padding) one after the other."""
    layers = []
    for outputs, size, padding in steps:
        layers.append(_conv(inputs, outputs, size, 1, padding))
        inputs = outputs
    return nn.Sequential(*layers)


class Branches(nn.Module):
    """Inception module: branches that read the same maps, concatenated along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches' maps, concatenated along the channels."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def _module_a(inputs: int, pool: int) -> nn.Module:
    return Branches(
        _conv(inputs, 64, 1),
        _chain(inputs, (48, 1, 0), (64, 5, 2)),
        _chain(inputs, (64, 1, 0), (96, 3, 1), (96, 3, 1)),
        nn.Sequential(_average(), _conv(inputs, pool, 1)),
    )


def _module_b(inputs: int) -> nn.Module:
    double = nn.Sequential(_chain(inputs, (64, 1, 0), (96, 3, 1)), _conv(96, 96, 3, 2))
    return Branches(_conv(inputs, 384, 3, 2), double, nn.MaxPool2d(3, 2))


def _module_c(c: int) -> nn.Module:
    wide, tall = ((1, 7), (0, 3)), ((7, 1), (3, 0))
    return Branches(
        _conv(768, 192, 1),
        _chain(768, (c, 1, 0), (c, *wide), (192, *tall)),
        _chain(768, (c, 1, 0), (c, *tall), (c, *wide), (c, *tall), (192, *wide)),
        nn.Sequential(_average(), _conv(768, 192, 1)),
    )


def _module_d() -> nn.Module:
    three = nn.Sequential(_conv(768, 192, 1), _conv(192, 320, 3, 2))
    seven = _chain(768, (192, 1, 0), (192, (1, 7), (0, 3)), (192, (7, 1), (3, 0)))
    return Branches(three, nn.Sequential(seven, _conv(192, 192, 3, 2)), nn.MaxPool2d(3, 2))


def _module_e(inputs: int) -> nn.Module:
    def sides(channels: int) -> nn.Module:
        return Branches(_conv(channels, 384, (1, 3), 1, (0, 1)), _conv(channels, 384, (3, 1), 1, (1, 0)))

    return Branches(
        _conv(inputs, 320, 1),
        nn.Sequential(_conv(inputs, 384, 1), sides(384)),
        nn.Sequential(_conv(inputs, 448, 1), _conv(448, 384, 3, 1, 1), sides(384)),
        nn.Sequential(_average(), _conv(inputs, 192, 1)),
    )


def inception_v3() -> nn.Module:
    """Return Inception v3 for images of 3 x 299 x 299."""
    return nn.Sequential(
        *(_conv(3, 32, 3, 2), _conv(32, 32, 3), _conv(32, 64, 3, 1, 1), nn.MaxPool2d(3, 2)),
        *(_conv(64, 80, 1), _conv(80, 192, 3), nn.MaxPool2d(3, 2)),
        *(_module_a(192, 32), _module_a(256, 64), _module_a(288, 64), _module_b(288)),
        *(_module_c(128), _module_c(160), _module_c(160), _module_c(192)),
        *(_module_d(), _module_e(1280), _module_e(2048)),
        *(nn.AdaptiveAvgPool2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(2048, 1000)),
    )


class LanguageModel(nn.Module):
    """LSTM language model (Zaremba, Sutskever, Vinyals, arXiv:1409.2329): scores of every word at every step."""

    def __init__(self, *, vocabulary: int, features: int, hidden_size: int, layer_count: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, features)
        self.lstm = nn.LSTM(features, hidden_size, layer_count, batch_first=True)
        self.scores = nn.Linear(hidden_size, vocabulary)

    def forward(self, words: Tensor) -> Any:
        """Return (samples, steps, words of the vocabulary)."""
        return self.scores(self.lstm(self.embedding(words))[0])


class SequenceToSequence(nn.Module):
    """Encoder-decoder LSTM (Sutskever, Vinyals, Le, arXiv:1409.3215): scores of every word at every target step."""

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


def attend(query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False, dropout: float = 0.0) -> Tensor:
    """Return softmax(Q K^T / sqrt(d)) V."""
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


class Layer(nn.Module):
    """Post-norm transformer layer: attention and feed-forward part, each norm after its residual addition."""

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
    """BERT encoder with its pooler: tokens and segments of (samples, positions) to (samples, width)."""

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
    """BERT classifier: scores of classes from the pooled first position, as it is fine-tuned."""

    def __init__(self, bert: Bert, *, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.bert, self.dropout = bert, nn.Dropout(dropout)
        self.scores = nn.Linear(bert.pooler.out_features, classes)

    def forward(self, tokens: Tensor, segments: Tensor) -> Any:
        """Return (samples, classes)."""
        return self.scores(self.dropout(self.bert(tokens, segments)))


def bert_classifier(*, layers: int, width: int, heads: int, classes: int) -> nn.Module:
    """Return a BERT that classifies pairs of sentences."""
    return Classifier(Bert(layers=layers, width=width, heads=heads), classes=classes)


class Attention(nn.Module):
    """Multi-head attention: torch's fused operator, or two products and a softmax."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Any:
        """Return (samples, positions, width) from the same."""
        batch, positions, width = x.shape
        split = self.query_key_value(x).reshape(batch, positions, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        else:
            mixed = torch.softmax(query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5, -1) @ value
        return self.output(mixed.transpose(1, 2).reshape(batch, positions, width))


class EncoderBlock(nn.Module):
    """Pre-norm transformer layer: attention and feed-forward part, each after its norm."""

    def __init__(self, width: int, heads: int, hidden: int, *, fused: bool) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width, eps=1e-6), Attention(width, heads, fused=fused))
        mlp = (nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.mlp = nn.Sequential(nn.LayerNorm(width, eps=1e-6), *mlp)

    def forward(self, x: Tensor) -> Any:
        """Return (samples, positions, width) from the same."""
        x = x + self.attention(x)
        return x + self.mlp(x)


class VisionTransformer(nn.Module):
    """Vision transformer: patches of an image and a class token, through blocks, to scores of classes."""

    def __init__(
        self,
        *,
        patch_size: int,
        layers: int,
        heads: int,
        width: int,
        hidden: int,
        image_size: int = 224,
        classes: int = 1000,
        fused: bool = False,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch_size, patch_size)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (image_size // patch_size) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads, hidden, fused=fused) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Any:
        """Return (samples, classes) of (samples, 3, image_size, image_size)."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


OPTIMIZERS: Final[Mapping[str, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
}
"""Optimizer by perfmodel's name for it; at rates at which the loss stays finite on random data."""


class WithLoss(nn.Module):
    """Network with its cross-entropy loss: what training runs forward."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, target: Tensor, *inputs: Tensor) -> dict[str, Any]:
        """Return the loss under the name that the importer recognises."""
        scores = self.network(*inputs)
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, -2), target.flatten())}


def tensors(network: LiveNetwork, *, batch_size: int, device: str = "cpu") -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the targets and inputs of a step."""
    inputs = tuple(tensor.drawn(batch_size).to(device) for tensor in network.inputs)
    return network.target.drawn(batch_size).to(device), inputs
