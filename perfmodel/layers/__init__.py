"""Layers: what is computed. One file per kind, in a folder per family; the imports here are the list of them all.

``base`` is the contract, ``shapes`` the shapes of samples, ``window`` the geometry of convolution and pooling,
``passes`` the memory passes that layers share, ``checks`` the checks of their options, ``translation`` how they read
operators of other programs, ``optimizers`` the updates.
"""

from __future__ import annotations

from inspect import isabstract

from perfmodel.layers.activation.gelu import GELU as GELU
from perfmodel.layers.activation.glu import GLU as GLU
from perfmodel.layers.activation.leaky_relu import LeakyReLU as LeakyReLU
from perfmodel.layers.activation.log_softmax import LogSoftmax as LogSoftmax
from perfmodel.layers.activation.relu import ReLU as ReLU
from perfmodel.layers.activation.relu6 import ReLU6 as ReLU6
from perfmodel.layers.activation.sigmoid import Sigmoid as Sigmoid
from perfmodel.layers.activation.silu import SiLU as SiLU
from perfmodel.layers.activation.softmax import Softmax as Softmax
from perfmodel.layers.activation.tanh import Tanh as Tanh
from perfmodel.layers.attention.multi_head_attention import MultiHeadAttention as MultiHeadAttention
from perfmodel.layers.attention.scaled_dot_product_attention import (
    ScaledDotProductAttention as ScaledDotProductAttention,
)
from perfmodel.layers.base import Layer as Layer
from perfmodel.layers.convolution.convolution_1d import Convolution1d as Convolution1d
from perfmodel.layers.convolution.convolution_2d import Convolution2d as Convolution2d
from perfmodel.layers.convolution.convolution_3d import Convolution3d as Convolution3d
from perfmodel.layers.convolution.transposed_convolution_1d import TransposedConvolution1d as TransposedConvolution1d
from perfmodel.layers.convolution.transposed_convolution_2d import TransposedConvolution2d as TransposedConvolution2d
from perfmodel.layers.convolution.transposed_convolution_3d import TransposedConvolution3d as TransposedConvolution3d
from perfmodel.layers.elementwise.add import Add as Add
from perfmodel.layers.elementwise.binary import Binary as Binary
from perfmodel.layers.elementwise.unary import Unary as Unary
from perfmodel.layers.elementwise.where import Where as Where
from perfmodel.layers.embedding.embedding import Embedding as Embedding
from perfmodel.layers.embedding.positional_embedding import PositionalEmbedding as PositionalEmbedding
from perfmodel.layers.embedding.rotary_embedding import RotaryEmbedding as RotaryEmbedding
from perfmodel.layers.indexing.scatter import Scatter as Scatter
from perfmodel.layers.indexing.take import Take as Take
from perfmodel.layers.indexing.top_k import TopK as TopK
from perfmodel.layers.linear.dense import Dense as Dense
from perfmodel.layers.linear.matmul import MatMul as MatMul
from perfmodel.layers.loss.accuracy import Accuracy as Accuracy
from perfmodel.layers.loss.binary_cross_entropy import BinaryCrossEntropy as BinaryCrossEntropy
from perfmodel.layers.loss.class_softmax import ClassSoftmax as ClassSoftmax
from perfmodel.layers.loss.cross_entropy import CrossEntropy as CrossEntropy
from perfmodel.layers.loss.huber import Huber as Huber
from perfmodel.layers.loss.kl_divergence import KLDivergence as KLDivergence
from perfmodel.layers.loss.mean_absolute_error import MeanAbsoluteError as MeanAbsoluteError
from perfmodel.layers.loss.mean_squared_error import MeanSquaredError as MeanSquaredError
from perfmodel.layers.normalisation.batch_norm import BatchNorm as BatchNorm
from perfmodel.layers.normalisation.group_norm import GroupNorm as GroupNorm
from perfmodel.layers.normalisation.layer_norm import LayerNorm as LayerNorm
from perfmodel.layers.normalisation.local_response_norm import LocalResponseNorm as LocalResponseNorm
from perfmodel.layers.normalisation.rms_norm import RMSNorm as RMSNorm
from perfmodel.layers.normalisation.scale import Scale as Scale
from perfmodel.layers.opaque.opaque import Opaque as Opaque
from perfmodel.layers.optimizers import OPTIMIZERS as OPTIMIZERS
from perfmodel.layers.optimizers import Optimizer as Optimizer
from perfmodel.layers.optimizers import load_optimizer as load_optimizer
from perfmodel.layers.pooling.adaptive_average_pool import AdaptiveAveragePool as AdaptiveAveragePool
from perfmodel.layers.pooling.adaptive_max_pool import AdaptiveMaxPool as AdaptiveMaxPool
from perfmodel.layers.pooling.average_pool_1d import AveragePool1d as AveragePool1d
from perfmodel.layers.pooling.average_pool_2d import AveragePool2d as AveragePool2d
from perfmodel.layers.pooling.average_pool_3d import AveragePool3d as AveragePool3d
from perfmodel.layers.pooling.max_pool_1d import MaxPool1d as MaxPool1d
from perfmodel.layers.pooling.max_pool_2d import MaxPool2d as MaxPool2d
from perfmodel.layers.pooling.max_pool_3d import MaxPool3d as MaxPool3d
from perfmodel.layers.random.contrastive_divergence import ContrastiveDivergence as ContrastiveDivergence
from perfmodel.layers.random.dropout import Dropout as Dropout
from perfmodel.layers.random.gaussian_sample import GaussianSample as GaussianSample
from perfmodel.layers.recurrent.gru import GRU as GRU
from perfmodel.layers.recurrent.lstm import LSTM as LSTM
from perfmodel.layers.recurrent.recurrent_state import RecurrentState as RecurrentState
from perfmodel.layers.recurrent.rnn import RNN as RNN
from perfmodel.layers.reduction.cumulative import Cumulative as Cumulative
from perfmodel.layers.reduction.reduction import Reduction as Reduction
from perfmodel.layers.shape.batch_view import BatchView as BatchView
from perfmodel.layers.shape.concat import Concat as Concat
from perfmodel.layers.shape.copy import Copy as Copy
from perfmodel.layers.shape.detach import Detach as Detach
from perfmodel.layers.shape.expand import Expand as Expand
from perfmodel.layers.shape.flatten import Flatten as Flatten
from perfmodel.layers.shape.overwrite import Overwrite as Overwrite
from perfmodel.layers.shape.pad import Pad as Pad
from perfmodel.layers.shape.rearrange import Rearrange as Rearrange
from perfmodel.layers.shape.reshape import Reshape as Reshape
from perfmodel.layers.shape.shard_view import ShardView as ShardView
from perfmodel.layers.shape.slice import Slice as Slice
from perfmodel.layers.shape.transpose import Transpose as Transpose
from perfmodel.layers.shape.upsample import Upsample as Upsample
from perfmodel.layers.shapes import Shape as Shape
from perfmodel.layers.shapes import ShapeMismatchError as ShapeMismatchError
from perfmodel.layers.shapes import SharedShape as SharedShape
from perfmodel.layers.sink.output import Output as Output
from perfmodel.layers.source.constant import Constant as Constant
from perfmodel.layers.source.fill import Fill as Fill
from perfmodel.layers.source.parameter import Parameter as Parameter

LAYERS: dict[str, type[Layer]] = {
    each.kind: each
    for each in tuple(globals().values())
    if isinstance(each, type) and issubclass(each, Layer) and not isabstract(each)
}
"""Kind to class: the only dispatch on layers."""
