"""Which networks the live check measures, at which sizes: plain data, known without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import MissingPackageError, UnknownNameError

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTensor:
    """A tensor that a network reads, without its samples.

    Parameters
    ----------
    shape : tuple of int
        Extents of one sample. [1]
    below : int
        Whole numbers below this; 0 for numbers drawn from a normal distribution. [1]
    """

    shape: tuple[int, ...]
    below: int = 0

    def drawn(self, batch_size: int) -> Tensor:
        """Return a tensor of ``batch_size`` samples [samples], drawn at random."""
        import torch

        extents = (batch_size, *self.shape)
        return torch.randint(self.below, extents) if self.below else torch.randn(extents)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNetwork:
    """A network of the live check.

    Parameters
    ----------
    name : str
        What it is called in reports and on the command line. [-]
    builder : str
        Function or class of ``live_modules.py`` that makes the module. [-]
    options : mapping of str to object
        What that is called with; read-only by convention. [-]
    inputs : tuple of InputTensor
        What the module reads. [-]
    target : InputTensor
        Classes that its scores are held against. [-]
    optimizer : str
        ``sgd``, or ``adam`` as transformers are trained. [-]
    batch_sizes : mapping of str to int
        Samples of a step on a CPU of a few cores and on a GPU. [samples]
    zoo_builder : str
        The same network in ``pm.zoo``: what a saved table names. [-]
    zoo_options : mapping of str to object
        What that is called with; read-only by convention. [-]
    """

    name: str
    builder: str
    inputs: tuple[InputTensor, ...]
    target: InputTensor
    batch_sizes: Mapping[str, int]
    zoo_builder: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    zoo_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    optimizer: str = "sgd"

    def module(self) -> nn.Module:
        """Return the network with weights drawn as torch draws them.

        Raises
        ------
        MissingPackageError
            If torch is not installed.
        """
        require_torch()
        made = getattr(import_module("perfmodel.validation.live_modules"), self.builder)(**self.options)
        assert made is not None
        return made  # type: ignore[no-any-return]

    @property
    def positions(self) -> int:
        """Scores of a sample: 1, or one for each step of a sequence. [1]"""
        return math.prod(self.target.shape)


def require_torch() -> None:
    """Refuse to go on without torch.

    Raises
    ------
    MissingPackageError
        If it is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError("torch", "the live check", "torch") from error
    del torch


def _images(size: int) -> dict[str, Any]:
    return {"inputs": (InputTensor(shape=(3, size, size)),), "target": InputTensor(shape=(), below=1000)}


def _words(steps: int, vocabulary: int, *, count: int = 1) -> dict[str, Any]:
    words = InputTensor(shape=(steps,), below=vocabulary)
    return {"inputs": (words,) * count, "target": words}


_MNIST = (784, 64, 64, 10)
_FCN5 = {"features": 6688, "width": 2048}
_LSTM32 = {"vocabulary": 10_000, "features": 256, "hidden_size": 256, "layer_count": 2}
_SEQ2SEQ = {
    "source_vocabulary": 8000, "target_vocabulary": 8000, "features": 256, "hidden_size": 512, "layer_count": 2,
}  # fmt: skip
_BERT = {"layers": 4, "width": 512, "heads": 8, "classes": 2}
_VIT = {"patch_size": 16, "layers": 12, "heads": 6, "width": 384}


def _network(name: str, *, cpu: int, gpu: int, builder: str = "", zoo_builder: str = "", **facts: Any) -> LiveNetwork:
    """Return a network with its mini-batches on a CPU and a GPU [samples]; what is not named is called as it is."""
    return LiveNetwork(
        name=name,
        builder=builder or name,
        batch_sizes={"cpu": cpu, "gpu": gpu},
        zoo_builder=zoo_builder or name,
        **facts,
    )


_NETWORKS: Final = (
    _network(
        "mnist_classifier",
        cpu=4096,
        gpu=65_536,
        builder="classifier",
        options={"widths": _MNIST, "activation": "relu"},
        inputs=(InputTensor(shape=_MNIST[:1]),),
        target=InputTensor(shape=(), below=_MNIST[-1]),
        zoo_builder="feed_forward",
    ),
    _network(
        "fcn5",
        cpu=64,
        gpu=1024,
        builder="classifier",
        options={"widths": (6688, 2048, 2048, 2048, 6688), "activation": "sigmoid"},
        inputs=(InputTensor(shape=(6688,)),),
        target=InputTensor(shape=(), below=6688),
        zoo_options=_FCN5,
    ),
    _network("alexnet", cpu=16, gpu=256, **_images(224)),
    _network("resnet18", cpu=8, gpu=128, builder="resnet", options={"depth": 18}, **_images(224)),
    _network(
        "resnet50",
        cpu=4,
        gpu=64,
        builder="resnet",
        options={"depth": 50},
        **_images(224),
        zoo_options={"stride_on": "3x3"},
    ),
    _network("inception_v3", cpu=4, gpu=64, **_images(299)),
    _network(
        "lstm32",
        cpu=16,
        gpu=256,
        builder="LanguageModel",
        options=_LSTM32,
        **_words(32, 10_000),
        zoo_options={"bias_vectors": 2},
    ),
    _network(
        "seq2seq",
        cpu=16,
        gpu=256,
        builder="SequenceToSequence",
        options=_SEQ2SEQ,
        **_words(24, 8000, count=2),
        zoo_options={**_SEQ2SEQ, "source_steps": 24, "target_steps": 24, "bias_vectors": 2},
    ),
    _network(
        "bert_small",
        cpu=8,
        gpu=128,
        builder="bert_classifier",
        options=_BERT,
        inputs=(InputTensor(shape=(128,), below=30_522), InputTensor(shape=(128,), below=2)),
        target=InputTensor(shape=(), below=2),
        optimizer="adam",
        zoo_builder="bert",
        zoo_options={**_BERT, "head": "classification", "sequence_length": 128, "attention": "materialised"},
    ),
    _network(
        "vit_small",
        cpu=4,
        gpu=128,
        builder="VisionTransformer",
        options={**_VIT, "hidden": 1536, "fused": True},
        **_images(224),
        optimizer="adam",
        zoo_builder="vit",
        zoo_options={**_VIT, "mlp": 1536},
    ),
)
LIVE_NETWORKS: Final[Mapping[str, LiveNetwork]] = {network.name: network for network in _NETWORKS}
"""Networks by name, in the order in which they are measured."""


def find_networks(names: Sequence[str] | None) -> tuple[LiveNetwork, ...]:
    """Return networks of the live check.

    Parameters
    ----------
    names : sequence of str or None
        Which; None for all. [-]

    Returns
    -------
    tuple of LiveNetwork
        Each once, in the order of the catalogue. [-]

    Raises
    ------
    UnknownNameError
        If there is no such network; names the nearest.
    """
    for name in names or ():
        if name not in LIVE_NETWORKS:
            raise UnknownNameError(kind="network of the live check", name=name, known=LIVE_NETWORKS)
    return tuple(each for each in _NETWORKS if not names or each.name in names)
