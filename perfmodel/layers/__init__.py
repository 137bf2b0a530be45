"""Layers: what is computed. One file per kind; this list is the only place that knows them all.

``base`` is the contract, ``window`` the geometry of convolution and pooling, ``pooling`` what the poolings share,
``passes`` the memory passes that layers share, ``checks`` the checks of their options, ``optimizers`` the updates.
"""

from __future__ import annotations

from perfmodel.layers.accuracy import Accuracy
from perfmodel.layers.add import Add
from perfmodel.layers.average_pool import AveragePool2d
from perfmodel.layers.base import Layer, Shape, ShapeMismatchError
from perfmodel.layers.batch_norm import BatchNorm
from perfmodel.layers.class_softmax import ClassSoftmax
from perfmodel.layers.concat import Concat
from perfmodel.layers.convolution import Convolution2d
from perfmodel.layers.cross_entropy import CrossEntropy
from perfmodel.layers.dense import Dense
from perfmodel.layers.dropout import Dropout
from perfmodel.layers.embedding import Embedding
from perfmodel.layers.flatten import Flatten
from perfmodel.layers.local_response_norm import LocalResponseNorm
from perfmodel.layers.lstm import LSTM
from perfmodel.layers.max_pool import MaxPool2d
from perfmodel.layers.optimizers import OPTIMIZERS, Optimizer, load_optimizer
from perfmodel.layers.relu import ReLU
from perfmodel.layers.scale import Scale
from perfmodel.layers.sigmoid import Sigmoid
from perfmodel.layers.softmax import Softmax
from perfmodel.layers.tanh import Tanh

LAYERS: dict[str, type[Layer]] = {
    layer.kind: layer
    for layer in (
        Accuracy,
        Add,
        AveragePool2d,
        BatchNorm,
        ClassSoftmax,
        Concat,
        Convolution2d,
        CrossEntropy,
        Dense,
        Dropout,
        Embedding,
        Flatten,
        LocalResponseNorm,
        LSTM,
        MaxPool2d,
        ReLU,
        Scale,
        Sigmoid,
        Softmax,
        Tanh,
    )
}
"""Kind to class: the only dispatch on layers."""

__all__ = [
    "LAYERS",
    "LSTM",
    "OPTIMIZERS",
    "Accuracy",
    "Add",
    "AveragePool2d",
    "BatchNorm",
    "ClassSoftmax",
    "Concat",
    "Convolution2d",
    "CrossEntropy",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "Layer",
    "LocalResponseNorm",
    "MaxPool2d",
    "Optimizer",
    "ReLU",
    "Scale",
    "Shape",
    "ShapeMismatchError",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "load_optimizer",
]
