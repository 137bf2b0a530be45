"""Residual networks."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    Add,
    AveragePool2d,
    BatchNorm,
    Convolution2d,
    CrossEntropy,
    Dense,
    Flatten,
    MaxPool2d,
    ReLU,
    Scale,
)
from perfmodel.layers.checks import check_choice, check_count, check_flag

CLASSES = 1000
EXPANSION = 4
"""Output channels of a bottleneck block over its width [1]."""
BLOCKS_50 = (3, 4, 6, 3)
"""Blocks in each of the four stages [1]."""
STRIDES_BY_PLACE = {"1x1": (2, 1), "3x3": (1, 2)}
"""Strides of a block's first two convolutions, where the block halves the map [1]."""


@dataclass(frozen=True, slots=True)
class _Builder:
    graph: LayerGraph
    strides: tuple[int, int]
    separate_scale: bool
    statistics: str

    def convolution(self, name: str, x: str, layer: Convolution2d) -> str:
        """Add a convolution and its normalisation."""
        x = self.graph.add(f"{name}_conv", layer, inputs=x)
        norm = BatchNorm(affine=not self.separate_scale, statistics=self.statistics)
        x = self.graph.add(f"{name}_norm", norm, inputs=x)
        return self.graph.add(f"{name}_scale", Scale(), inputs=x) if self.separate_scale else x

    def block(self, name: str, x: str, *, width: int, halves: bool, projects: bool) -> str:
        """Add a bottleneck block: 1x1, 3x3, 1x1 and the shortcut."""
        first, second = self.strides if halves else (1, 1)
        outputs = EXPANSION * width
        shortcut = x
        if projects:
            projection = Convolution2d(out_channels=outputs, kernel_size=1, stride=first * second, bias=False)
            shortcut = self.convolution(f"{name}_shortcut", x, projection)
        branch = (
            Convolution2d(out_channels=width, kernel_size=1, stride=first, bias=False),
            Convolution2d(out_channels=width, kernel_size=3, stride=second, padding=1, bias=False),
            Convolution2d(out_channels=outputs, kernel_size=1, bias=False),
        )
        for letter, layer in zip("abc", branch, strict=True):
            x = self.convolution(f"{name}_{letter}", x, layer)
            if letter != "c":
                x = self.graph.add(f"{name}_{letter}_relu", ReLU(), inputs=x)
        x = self.graph.add(f"{name}_add", Add(), inputs=(x, shortcut))
        return self.graph.add(f"{name}_relu", ReLU(), inputs=x)


def resnet50(
    *,
    stride_on: str = "1x1",
    separate_scale: bool = False,
    statistics: str = "batch",
    first_padding: int = 3,
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

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] He, Zhang, Ren, Sun, Deep residual learning for image recognition, CVPR 2016, arXiv:1512.03385.
    """
    check_choice("stride_on", stride_on, STRIDES_BY_PLACE)
    check_flag("separate_scale", separate_scale)
    check_count("first_padding", first_padding, minimum=0)
    graph = LayerGraph("resnet50", input_shape=(3, 224, 224))
    builder = _Builder(graph, STRIDES_BY_PLACE[stride_on], separate_scale, statistics)
    first = Convolution2d(out_channels=64, kernel_size=7, stride=2, padding=first_padding, bias=False)
    x = builder.convolution("first", graph.input, first)
    x = graph.add("first_relu", ReLU(), inputs=x)
    pool_padding = 1 if first_padding else 0
    pool = MaxPool2d(kernel_size=3, stride=2, padding=pool_padding, ceil_mode=not first_padding)
    x = graph.add("first_pool", pool, inputs=x)
    for stage, block_count in enumerate(BLOCKS_50):
        for block in range(block_count):
            x = builder.block(
                f"stage{stage + 1}_block{block + 1}",
                x,
                width=64 * 2**stage,
                halves=stage > 0 and block == 0,
                projects=block == 0,
            )
    x = graph.add("pool", AveragePool2d(kernel_size=None), inputs=x)
    x = graph.add("flatten", Flatten(), inputs=x)
    x = graph.add("fc", Dense(units=CLASSES), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph
