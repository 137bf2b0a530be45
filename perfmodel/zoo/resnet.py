"""Networks with shortcuts: ResNet (original and pre-activated), DenseNet and MobileNet v2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import Add, AveragePool2d, BatchNorm, Concat, Convolution2d, MaxPool2d, ReLU, ReLU6, Scale
from perfmodel.layers.checks import check_count, one_of
from perfmodel.layers.normalisation import STATISTICS_KINDS
from perfmodel.zoo.blocks import chain, classified, image_graph, normalised, published_sizes
from perfmodel.zoo.options import check_factor, checked, member

EXPANSION = 4
"""Output channels of a bottleneck block over its width [1]."""
BLOCKS_18 = (2, 2, 2, 2)
BLOCKS_34 = BLOCKS_50 = (3, 4, 6, 3)
BLOCKS_101 = (3, 4, 23, 3)
BLOCKS_152 = (3, 8, 36, 3)
BLOCKS_200 = (3, 24, 36, 3)
"""Blocks in each of the four stages [1]."""
STRIDES_BY_PLACE = {"1x1": (2, 1), "3x3": (1, 2)}
"""Strides of a bottleneck block's first two convolutions, where the block halves the map [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Builder:
    graph: LayerGraph
    stride_on: str = "3x3"
    is_bottleneck: bool = True
    separate_scale: bool = False
    statistics: str = "batch"

    def convolution(self, name: str, x: str, layer: Convolution2d) -> str:
        """Add a convolution and its normalisation."""
        x = self.graph.add(f"{name}_conv", layer, inputs=x)
        norm = BatchNorm(affine=not self.separate_scale, statistics=self.statistics)
        x = self.graph.add(f"{name}_norm", norm, inputs=x)
        return self.graph.add(f"{name}_scale", Scale(), inputs=x) if self.separate_scale else x

    def _branch(self, width: Any, *, halves: bool) -> tuple[Convolution2d, ...]:
        """Return 1x1, 3x3, 1x1 of a bottleneck block, or two times 3x3."""
        if not self.is_bottleneck:
            return (
                Convolution2d(out_channels=width, kernel_size=3, stride=2 if halves else 1, padding=1, bias=False),
                Convolution2d(out_channels=width, kernel_size=3, padding=1, bias=False),
            )
        first, second = STRIDES_BY_PLACE[self.stride_on] if halves else (1, 1)
        return (
            Convolution2d(out_channels=width, kernel_size=1, stride=first, bias=False),
            Convolution2d(out_channels=width, kernel_size=3, stride=second, padding=1, bias=False),
            Convolution2d(out_channels=EXPANSION * width, kernel_size=1, bias=False),
        )

    def block(self, name: str, x: str, *, width: Any, halves: bool, projects: bool) -> str:
        """Add a block: its branch and the shortcut."""
        branch = self._branch(width, halves=halves)
        projection = _projection(branch, halves=halves)
        shortcut = self.convolution(f"{name}_shortcut", x, projection) if projects else x
        for letter, layer in zip("abc", branch, strict=False):
            x = self.convolution(f"{name}_{letter}", x, layer)
            if layer is not branch[-1]:
                x = self.graph.add(f"{name}_{letter}_relu", ReLU(), inputs=x)
        x = self.graph.add(f"{name}_add", Add(), inputs=(x, shortcut))
        return self.graph.add(f"{name}_relu", ReLU(), inputs=x)

    def network(self, blocks: Sequence[int], *, classes: Any, width: Any, first_padding: int = 3) -> LayerGraph:
        """Add everything from the image to the loss."""
        first = Convolution2d(out_channels=width, kernel_size=7, stride=2, padding=first_padding, bias=False)
        x = self.convolution("first", self.graph.input, first)
        x = self.graph.add("first_relu", ReLU(), inputs=x)
        pool_padding = 1 if first_padding else 0
        pool = MaxPool2d(kernel_size=3, stride=2, padding=pool_padding, ceil_mode=not first_padding)
        x = self.graph.add("first_pool", pool, inputs=x)
        for stage, block_count in enumerate(blocks):
            for block in range(block_count):
                x = self.block(
                    f"stage{stage + 1}_block{block + 1}",
                    x,
                    width=width * 2**stage,
                    halves=stage > 0 and block == 0,
                    projects=block == 0 and (self.is_bottleneck or stage > 0),
                )
        return classified(self.graph, self.after_blocks(x), classes=classes)

    def after_blocks(self, x: str) -> str:
        """Add the layers after the last block: none."""
        return x


def _projection(branch: Sequence[Convolution2d], *, halves: bool) -> Convolution2d:
    """Return the convolution of a shortcut to the maps that a branch makes."""
    outputs = branch[-1].out_channels
    return Convolution2d(out_channels=outputs, kernel_size=1, stride=2 if halves else 1, bias=False)


class _Preactivated(_Builder):
    def block(self, name: str, x: str, *, width: Any, halves: bool, projects: bool) -> str:
        """Add norm, rectifier and 1x1, 3x3, 1x1; a projected shortcut reads the normalised maps, others the maps."""
        shortcut = x
        if x != "first_pool":  # whose maps are normalised already
            x = chain(self.graph, x, (f"{name}_norm", BatchNorm()), (f"{name}_relu", ReLU()))
        first, second, last = branch = self._branch(width, halves=halves)
        if projects:
            shortcut = self.graph.add(f"{name}_shortcut", _projection(branch, halves=halves), inputs=x)
        x = normalised(self.graph, f"{name}_a", x, first)
        x = normalised(self.graph, f"{name}_b", x, second)
        x = self.graph.add(f"{name}_c_conv", last, inputs=x)
        return self.graph.add(f"{name}_add", Add(), inputs=(x, shortcut))

    def after_blocks(self, x: str) -> str:
        """Add a norm and a rectifier: the last block ends in a sum."""
        return chain(self.graph, x, ("last_norm", BatchNorm()), ("last_relu", ReLU()))


def _of_basic_blocks(blocks: Sequence[int], *, layers: int, **published: str) -> Callable[..., LayerGraph]:
    def build(*, classes: Any = 1000, image_size: Any = 224, in_channels: Any = 3, width: Any = 64) -> LayerGraph:
        """Return ResNet-{layers} [1]_, of blocks of two 3x3 convolutions: {parameters} parameters.

        {work} multiply-adds forward. Its shortcuts are projected where the channels change (option B of the paper).

        Parameters
        ----------
        classes : int or sympy.Symbol
            Classes. [1]
        image_size : int or sympy.Symbol
            Height and width of the image. [1]
        in_channels : int or sympy.Symbol
            Channels of the image. [1]
        width : int or sympy.Symbol
            Channels of the first convolution and of the first stage's blocks; doubles with each stage. [1]

        References
        ----------
        .. [1] He, Zhang, Ren, Sun, Deep residual learning for image recognition, CVPR 2016, arXiv:1512.03385.
        """
        graph = image_graph(f"resnet{layers}", image_size=image_size, in_channels=in_channels)
        return _Builder(graph=graph, is_bottleneck=False).network(blocks, classes=classes, width=width)

    return checked()(member(build, f"resnet{layers}", layers=layers, **published))


def _of_bottlenecks(blocks: Sequence[int], *, layers: int, **published: str) -> Callable[..., LayerGraph]:
    def build(
        *,
        stride_on: str = "1x1",
        classes: Any = 1000,
        image_size: Any = 224,
        in_channels: Any = 3,
        width: Any = 64,
    ) -> LayerGraph:
        """Return ResNet-{layers} [1]_: {parameters} parameters.

        {work} multiply-adds forward ({later} with the stride on the 3x3).

        Parameters
        ----------
        stride_on : str
            Which convolution halves the map: ``1x1`` as in the paper, ``3x3`` as in later versions (v1.5). [-]
        classes : int or sympy.Symbol
            Classes. [1]
        image_size : int or sympy.Symbol
            Height and width of the image. [1]
        in_channels : int or sympy.Symbol
            Channels of the image. [1]
        width : int or sympy.Symbol
            Channels of the first convolution and of the first stage's blocks; doubles with each stage. [1]

        References
        ----------
        .. [1] He, Zhang, Ren, Sun, Deep residual learning for image recognition, CVPR 2016, arXiv:1512.03385.
        """
        graph = image_graph(f"resnet{layers}", image_size=image_size, in_channels=in_channels)
        return _Builder(graph=graph, stride_on=stride_on).network(blocks, classes=classes, width=width)

    return checked(stride_on=one_of(STRIDES_BY_PLACE))(member(build, f"resnet{layers}", layers=layers, **published))


resnet18 = _of_basic_blocks(BLOCKS_18, layers=18, parameters="11,689,512", work="1.81 G")
resnet34 = _of_basic_blocks(BLOCKS_34, layers=34, parameters="21,797,672", work="3.66 G")
resnet101 = _of_bottlenecks(BLOCKS_101, layers=101, parameters="44,549,160", work="7.57 G", later="7.80 G")
resnet152 = _of_bottlenecks(BLOCKS_152, layers=152, parameters="60,192,808", work="11.3 G", later="11.5 G")


@checked(
    stride_on=one_of(STRIDES_BY_PLACE),
    statistics=one_of(STATISTICS_KINDS),
    first_padding=partial(check_count, minimum=0),
)
def resnet50(
    *,
    stride_on: str = "1x1",
    separate_scale: bool = False,
    statistics: str = "batch",
    first_padding: int = 3,
    classes: Any = 1000,
    image_size: Any = 224,
    in_channels: Any = 3,
    width: Any = 64,
) -> LayerGraph:
    """Return ResNet-50 [1]_ for 1,000 classes of ImageNet, 224 x 224: 25,557,032 parameters.

    3.86 G multiply-adds forward (4.09 G with the stride on the 3x3).

    Parameters
    ----------
    stride_on : str
        Which convolution halves the map: ``1x1`` as in the paper, ``3x3`` as in later versions (v1.5). [-]
    separate_scale : bool
        Whether scale and shift are layers of their own after the normalisation, as in Caffe. [-]
    statistics : str
        ``batch``: normalised by the mini-batch; ``given``: by fixed mean and variance, as Caffe's
        ``use_global_stats``. [-]
    first_padding : int
        Zeros around the image; Caffe's script of Shi et al. has 0 (109 x 109 maps) and pools without padding,
        counting the overhanging window. [1]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]
    width : int or sympy.Symbol
        Channels of the first convolution and of the first stage's blocks; doubles with each stage. [1]

    References
    ----------
    .. [1] He, Zhang, Ren, Sun, Deep residual learning for image recognition, CVPR 2016, arXiv:1512.03385.
    """
    graph = image_graph("resnet50", image_size=image_size, in_channels=in_channels)
    builder = _Builder(graph=graph, stride_on=stride_on, separate_scale=separate_scale, statistics=statistics)
    return builder.network(BLOCKS_50, classes=classes, width=width, first_padding=first_padding)


@checked()
def resnet200(*, classes: Any = 1000, image_size: Any = 224, in_channels: Any = 3, width: Any = 64) -> LayerGraph:
    """Return ResNet-200, pre-activated [1]_: 64,666,152 parameters, 15.0 G multiply-adds forward.

    As ResNet-152 with 16 more blocks on the 28 x 28 maps. The first block finds its input normalised already, the
    last is followed by a norm (appendix of the paper); the 3x3 carries the stride, as in the authors' files [2]_.

    Parameters
    ----------
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]
    width : int or sympy.Symbol
        Channels of the first convolution and of the first stage's blocks; doubles with each stage. [1]

    References
    ----------
    .. [1] He, Zhang, Ren, Sun, Identity mappings in deep residual networks, ECCV 2016, arXiv:1603.05027, section 4.2.
    .. [2] https://github.com/facebookarchive/fb.resnet.torch, models/preresnet.lua
    """
    graph = image_graph("resnet200", image_size=image_size, in_channels=in_channels)
    return _Preactivated(graph=graph).network(BLOCKS_200, classes=classes, width=width)


BLOCKS_121 = (6, 12, 24, 16)
"""Layers in each of the four blocks [1]."""
BOTTLENECK = 4
"""Channels between the two convolutions of a layer over those that it adds [1]."""


def _dense_layer(graph: LayerGraph, name: str, x: str, *, growth: Any) -> str:
    """Add norm, rectifier, 1x1, norm, rectifier, 3x3."""
    x = chain(graph, x, (f"{name}_norm", BatchNorm()), (f"{name}_relu", ReLU()))
    bottleneck = Convolution2d(out_channels=BOTTLENECK * growth, kernel_size=1, bias=False)
    x = normalised(graph, f"{name}_a", x, bottleneck)
    return graph.add(
        f"{name}_b_conv", Convolution2d(out_channels=growth, kernel_size=3, padding=1, bias=False), inputs=x
    )


def _dense_block(graph: LayerGraph, name: str, x: str, *, layer_count: int, growth: Any) -> str:
    """Add layers that each read the outputs of all before them, side by side."""
    parts = [x]
    for index in range(1, layer_count + 1):
        parts.append(_dense_layer(graph, f"{name}_layer{index}", x, growth=growth))
        x = graph.add(f"{name}_concat{index}", Concat(), inputs=parts)
    return x


@checked()
def densenet121(*, classes: Any = 1000, image_size: Any = 224, in_channels: Any = 3, growth: int = 32) -> LayerGraph:
    """Return DenseNet-121 [1]_: 7,978,856 parameters, 2.83 G multiply-adds forward.

    Parameters
    ----------
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]
    growth : int
        Channels that each layer adds, even; the first convolution has twice as many. [1]

    References
    ----------
    .. [1] Huang, Liu, van der Maaten, Weinberger, Densely connected convolutional networks, CVPR 2017,
       arXiv:1608.06993, table 1.
    """
    graph = image_graph("densenet121", image_size=image_size, in_channels=in_channels)
    first = Convolution2d(out_channels=2 * growth, kernel_size=7, stride=2, padding=3, bias=False)
    x = normalised(graph, "first", graph.input, first)
    x = graph.add("first_pool", MaxPool2d(kernel_size=3, stride=2, padding=1), inputs=x)
    for index, layer_count in enumerate(BLOCKS_121, start=1):
        x = _dense_block(graph, f"block{index}", x, layer_count=layer_count, growth=growth)
        x = chain(graph, x, (f"block{index}_norm", BatchNorm()), (f"block{index}_relu", ReLU()))
        if index < len(BLOCKS_121):
            halved = Convolution2d(out_channels=graph.shape(x)[0] // 2, kernel_size=1, bias=False)
            pool = AveragePool2d(kernel_size=2)
            x = chain(graph, x, (f"transition{index}_conv", halved), (f"transition{index}_pool", pool))
    return classified(graph, x, classes=classes)


INVERTED_STAGES = published_sizes("mobilenet_v2")["stages"]
"""Table 2 of the paper: expansion, channels, blocks, stride of the first [1]."""
FIRST_CHANNELS = 32
LAST_CHANNELS = 1280
CHANNEL_STEP = 8
"""Channels are multiples of it [1]."""


def _scaled(channels: int, width: float) -> int:
    """Return the multiple of 8 nearest to width times channels, but not less than nine tenths of it."""
    wanted = width * channels
    nearest = max(CHANNEL_STEP, int(wanted + CHANNEL_STEP / 2) // CHANNEL_STEP * CHANNEL_STEP)
    return nearest + CHANNEL_STEP if nearest < 0.9 * wanted else nearest


def _inverted_block(graph: LayerGraph, name: str, x: str, *, channels: int, expansion: int, stride: int) -> str:
    """Add 1x1 that widens, 3x3 depth-wise, 1x1 that narrows without a non-linearity, and the shortcut."""
    shortcut, inputs = x, graph.shape(x)[0]
    hidden = expansion * inputs
    if expansion > 1:
        wide = Convolution2d(out_channels=hidden, kernel_size=1, bias=False)
        x = normalised(graph, f"{name}_a", x, wide, activation=ReLU6())
    deep = Convolution2d(out_channels=hidden, kernel_size=3, stride=stride, padding=1, groups=hidden, bias=False)
    x = normalised(graph, f"{name}_b", x, deep, activation=ReLU6())
    narrow = Convolution2d(out_channels=channels, kernel_size=1, bias=False)
    x = chain(graph, x, (f"{name}_c_conv", narrow), (f"{name}_c_norm", BatchNorm()))
    return graph.add(f"{name}_add", Add(), inputs=(shortcut, x)) if stride == 1 and inputs == channels else x


@checked(width=check_factor)
def mobilenet_v2(*, width: float = 1.0, classes: Any = 1000, image_size: Any = 224, in_channels: Any = 3) -> LayerGraph:
    """Return MobileNet v2 [1]_: 3,504,872 parameters, 0.301 G multiply-adds forward.

    Parameters
    ----------
    width : float
        Factor on the channels of every layer, which are then rounded to multiples of 8. [1]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    References
    ----------
    .. [1] Sandler, Howard, Zhu, Zhmoginov, Chen, MobileNetV2: inverted residuals and linear bottlenecks, CVPR 2018,
       arXiv:1801.04381, table 2.
    """
    graph = image_graph("mobilenet_v2", image_size=image_size, in_channels=in_channels)
    first = Convolution2d(out_channels=_scaled(FIRST_CHANNELS, width), kernel_size=3, stride=2, padding=1, bias=False)
    x = normalised(graph, "first", graph.input, first, activation=ReLU6())
    for stage, (expansion, channels, count, stride) in enumerate(INVERTED_STAGES, start=1):
        for index in range(count):
            x = _inverted_block(
                graph,
                f"stage{stage}_inverted_block{index + 1}",
                x,
                channels=_scaled(channels, width),
                expansion=expansion,
                stride=1 if index else stride,
            )
    last = Convolution2d(out_channels=_scaled(LAST_CHANNELS, max(width, 1.0)), kernel_size=1, bias=False)
    x = normalised(graph, "last", x, last, activation=ReLU6())
    return classified(graph, x, classes=classes, dropout=0.2)
