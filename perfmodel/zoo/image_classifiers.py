"""Plain convolutional classifiers: LeNet-5, AlexNet, VGG, network in network, and chains of your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from perfmodel import layers as nn
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import check_widths, is_open_size, one_of, refuse
from perfmodel.layers.window import Padding, Window
from perfmodel.zoo.blocks import ACTIVATIONS, chain, dropped, image_graph, published_sizes
from perfmodel.zoo.options import checked, member

NO_ACTIVATION = "none"
"""Layers without a non-linearity."""

SQUASHES: dict[str, nn.Layer] = {"tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "relu": nn.ReLU()}
"""Name to non-linearity."""


@checked(activation=one_of(SQUASHES))
def lenet5(*, activation: str = "tanh", classes: Any = 10, image_size: Any = 32, in_channels: Any = 1) -> LayerGraph:
    """Return LeNet-5 [1]_ for digits of 32 x 32: 61,706 parameters, 416,520 multiply-adds forward.

    The usual modern form: every map of the second convolution sees all six maps before it (the paper
    connects some, 1,516 parameters in place of 2,416), pools have no coefficients, and ten scores with softmax stand
    for the radial basis functions.

    Parameters
    ----------
    activation : str
        ``tanh`` as in the paper, ``sigmoid`` or ``relu``. [-]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image; on images above 35 the third convolution yields more than one column, as the
        paper explains. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    References
    ----------
    .. [1] LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document recognition, Proceedings of the
       IEEE 86 (1998), figure 2, doi:10.1109/5.726791.
    """
    graph = image_graph("lenet5", image_size=image_size, in_channels=in_channels)
    squash = SQUASHES[activation]
    x = chain(
        graph,
        graph.input,
        ("conv1", nn.Convolution2d(out_channels=6, kernel_size=5)),
        ("squash1", squash),
        ("pool2", nn.AveragePool2d(kernel_size=2)),
        ("conv3", nn.Convolution2d(out_channels=16, kernel_size=5)),
        ("squash3", squash),
        ("pool4", nn.AveragePool2d(kernel_size=2)),
        ("conv5", nn.Convolution2d(out_channels=120, kernel_size=5)),
        ("squash5", squash),
        ("flatten", nn.Flatten()),
        ("fc6", nn.Dense(units=84)),
        ("squash6", squash),
        ("fc7", nn.Dense(units=classes)),
    )
    graph.add("loss", nn.CrossEntropy(), inputs=x)
    return graph


IMAGENET_CLASSES = 1000
PADDINGS = ("valid", "same")


@dataclass(frozen=True, kw_only=True)
class _Tower:
    """Options in which the published forms differ."""

    channels: Sequence[int]
    image_size: int = 224
    groups: Sequence[int] = (1, 1, 1, 1, 1)
    first_padding: Padding = "valid"
    second_stride: int = 1
    pools: Sequence[Mapping[str, Any]] = ()
    is_normed: bool = False

    def graph(
        self, name: str, *, first_padding: Padding, padding: str | int, pool: nn.MaxPool2d, dropout: bool
    ) -> LayerGraph:
        """Return the five convolutions, the three dense layers and the loss."""
        graph = LayerGraph(name, input_shape=(3, self.image_size, self.image_size))
        pools = [nn.MaxPool2d(**options) for options in self.pools] or [pool] * len(POOLED)
        sizes = ((11, 4, first_padding), (5, self.second_stride, padding or 2), *((3, 1, padding or 1),) * 3)
        x = graph.input
        for index, (channels, groups, (taps, stride, zeros)) in enumerate(
            zip(self.channels, self.groups, sizes, strict=True), start=1
        ):
            layer = nn.Convolution2d(
                out_channels=channels, kernel_size=taps, stride=stride, padding=zeros, groups=groups
            )
            norm = nn.LocalResponseNorm() if self.is_normed and index <= 2 else None
            pooled = pools[POOLED.index(index)] if index in POOLED else None
            x = chain(graph, x, (f"conv{index}", layer), (f"relu{index}", nn.ReLU()), (f"norm{index}", norm))
            x = chain(graph, x, (f"pool{index}", pooled))
        x = graph.add("flatten", nn.Flatten(), inputs=x)
        drop = nn.Dropout() if dropout else None
        for index in (6, 7):
            dense = nn.Dense(units=4096)
            x = chain(graph, x, (f"fc{index}", dense), (f"relu{index}", nn.ReLU()), (f"dropout{index}", drop))
        chain(graph, x, ("fc8", nn.Dense(units=IMAGENET_CLASSES)), ("loss", nn.CrossEntropy()))
        return graph


def _refuse_padding(variant: str, padding: str, first_padding: Padding | None) -> None:
    allowed = f"is fixed for variant={variant!r}; padding and first_padding are options of 'shi2016'"
    if padding != "valid":
        refuse("padding", padding, allowed)
    if first_padding is not None:
        refuse("first_padding", first_padding, allowed)


def _check_first_padding(argument: str, padding: Any) -> None:
    try:
        Window.of(axis_count=2, kernel_size=1, stride=1, padding=padding)
    except ArgumentError as error:
        raise ArgumentError(argument, padding, error.allowed) from None


TOWERS: dict[str, _Tower] = {name: _Tower(**options) for name, options in published_sizes("alexnet").items()}
"""Name -> its special options."""
POOLED = (1, 2, 5)
"""Convolutions that a pool follows [-]."""


@checked(variant=one_of(TOWERS), padding=one_of(PADDINGS), first_padding=_check_first_padding)
def alexnet(
    *,
    variant: str = "one_tower",
    padding: str = "valid",
    first_padding: Padding | None = None,
    dropout: bool = True,
) -> LayerGraph:
    """Return AlexNet for 1,000 classes of ImageNet.

    Parameters
    ----------
    variant : str
        ``one_tower`` [1]_ (64-192-384-256-256 channels, 61,100,840 parameters, 0.714 G multiply-adds
        forward); ``wide_tower`` [4]_ (the same with 384 channels in the fourth convolution, 227 x 227: 61,838,248
        parameters, 0.838 G); ``grouped`` [2]_ (two towers as groups, 96-256-384-384-256, local response norm, 227 x
        227: 60,965,224 parameters, 0.724 G, of which convolutions 0.666 G); ``shi2016`` [3]_ (96-256-384-384-256,
        neither groups nor norm, 224 x 224: 62,378,344 parameters, 6x6x256 before the dense layers, 1.13 G);
        ``deeplearning4j`` [5]_ (the channels of ``one_tower``, a stride of two in the second convolution and of seven
        in the last pool: 1x1x256 before the dense layers, 24,400,680 parameters). [-]
    padding : str
        ``shi2016`` only. ``valid``: Caffe's script, the first convolution and the pools without padding (54 x
        54 maps after it); ``same``: TensorFlow's, SAME throughout (56 x 56 maps, 7x7x256 before the dense
        layers, 76,009,832 parameters, 1.27 G). The other convolutions keep their map's size in either. [-]
    first_padding : str, int, tuple or None
        ``shi2016`` only: padding of the first convolution, where it is not ``padding``; 2 in Torch's script
        (55 x 55 maps, 1.14 G), ``same`` in CNTK's (56 x 56, 1.14 G), whose pools leave the overhang out. [-]
    dropout : bool
        Whether dropout follows the first two dense layers; of Shi et al.'s scripts only Caffe's has it. [-]

    References
    ----------
    .. [1] Krizhevsky, One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997.
    .. [2] Krizhevsky, Sutskever, Hinton, ImageNet classification with deep convolutional neural networks,
       NIPS 2012.
    .. [3] Shi, Wang, Xu, Chu, arXiv:1608.07249, and https://github.com/hclhkbu/dlbench.
    .. [4] TensorFlow, https://github.com/tensorflow/benchmarks, scripts/tf_cnn_benchmarks, alexnet_model.py.
    .. [5] Deeplearning4j, https://github.com/deeplearning4j/dl4j-benchmark, models/cnn/AlexNet.java.
    """
    chosen = TOWERS[variant]
    if variant == "shi2016":
        first: Padding = padding if first_padding is None else first_padding
        # only Caffe's pools count the overhanging window, so that its 54 x 54 maps end at 6 x 6 as the others do
        pool = nn.MaxPool2d(kernel_size=3, stride=2, padding=padding, ceil_mode=first == "valid")
        return chosen.graph("alexnet_shi2016", first_padding=first, padding="same", pool=pool, dropout=dropout)
    _refuse_padding(variant, padding, first_padding)
    name = "alexnet" if variant == "one_tower" else f"alexnet_{variant}"
    pool = nn.MaxPool2d(kernel_size=3, stride=2)
    return chosen.graph(name, first_padding=chosen.first_padding, padding=0, pool=pool, dropout=dropout)


MULTIPLES = (1, 2, 4, 8, 8)
"""Channels of each stage over those of the first [1]."""
HIDDEN_UNITS = 4096


def _configuration(convolutions: tuple[int, ...], **published: str) -> Callable[..., LayerGraph]:
    """Return the builder of the network with the given convolutions per stage, and its published figures."""
    layers = sum(convolutions) + 3

    def build(
        *,
        batch_norm: bool = False,
        dropout: bool = True,
        classes: Any = 1000,
        image_size: Any = 224,
        in_channels: Any = 3,
        width: Any = 64,
    ) -> LayerGraph:
        """Return VGG-{layers}, configuration {letter} [1]_: {parameters} parameters, {work} multiply-adds forward.

        Parameters
        ----------
        batch_norm : bool
            Whether batch normalisation follows each convolution ({with_norms} parameters). [-]
        dropout : bool
            Whether dropout follows the first two dense layers. [-]
        classes : int or sympy.Symbol
            Classes. [1]
        image_size : int or sympy.Symbol
            Height and width of the image. [1]
        in_channels : int or sympy.Symbol
            Channels of the image. [1]
        width : int or sympy.Symbol
            Channels of the first stage; the others have 2, 4, 8 and 8 times as many. [1]

        References
        ----------
        .. [1] Simonyan, Zisserman, Very deep convolutional networks for large-scale image recognition, ICLR 2015,
           arXiv:1409.1556, tables 1 and 2.
        """
        name = f"vgg{layers}{'_batch_norm' if batch_norm else ''}"
        graph = image_graph(name, image_size=image_size, in_channels=in_channels)
        norm, drop = nn.BatchNorm() if batch_norm else None, nn.Dropout() if dropout else None
        x = graph.input
        for stage, (count, multiple) in enumerate(zip(convolutions, MULTIPLES, strict=True), start=1):
            layer = nn.Convolution2d(out_channels=multiple * width, kernel_size=3, padding=1)
            for place in (f"{stage}_{index}" for index in range(1, count + 1)):
                x = chain(graph, x, (f"conv{place}", layer), (f"norm{place}", norm), (f"relu{place}", nn.ReLU()))
            x = graph.add(f"pool{stage}", nn.MaxPool2d(kernel_size=2), inputs=x)
        x = graph.add("flatten", nn.Flatten(), inputs=x)
        for index in (1, 2):
            dense = nn.Dense(units=HIDDEN_UNITS)
            x = chain(graph, x, (f"fc{index}", dense), (f"fc{index}_relu", nn.ReLU()), (f"dropout{index}", drop))
        chain(graph, x, ("fc3", nn.Dense(units=classes)), ("loss", nn.CrossEntropy()))
        return graph

    return checked()(member(build, f"vgg{layers}", layers=layers, **published))


vgg11 = _configuration((1, 1, 2, 2, 2), letter="A", parameters="132,863,336", with_norms="132,868,840", work="7.61 G")
vgg13 = _configuration((2, 2, 2, 2, 2), letter="B", parameters="133,047,848", with_norms="133,053,736", work="11.3 G")
vgg16 = _configuration((2, 2, 3, 3, 3), letter="D", parameters="138,357,544", with_norms="138,365,992", work="15.5 G")
vgg19 = _configuration((2, 2, 4, 4, 4), letter="E", parameters="143,667,240", with_norms="143,678,248", work="19.6 G")


NIN_POOLS: dict[str, nn.Layer] = {
    "max": nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
    "average": nn.AveragePool2d(kernel_size=3, stride=2, ceil_mode=True),
    "global": nn.AveragePool2d(kernel_size=None),
}
"""Name -> end of a stage."""
NIN_SIZES: dict[str, dict[str, Any]] = published_sizes("nin")
"""Variant -> stages, classes, and height and width of the images it was published for."""


@checked(variant=one_of(NIN_SIZES))
def nin(
    *,
    variant: str = "imagenet",
    dropout: bool = True,
    classes: Any = None,
    image_size: Any = None,
    in_channels: Any = 3,
) -> LayerGraph:
    """Return a network in network [1]_, which has no dense layer: scores are averages over the last maps.

    Parameters
    ----------
    variant : str
        ``imagenet`` [2]_ (four stages, 224 x 224, 1,000 classes: 7,595,176 parameters, 1.10 G multiply-adds
        forward); ``cifar10`` [3]_ (three stages, 32 x 32, 10 classes: 966,986 parameters, 0.223 G). [-]
    dropout : bool
        Whether dropout follows where the authors' files have it. [-]
    classes : int, sympy.Symbol or None
        Classes; None for those of the variant. [1]
    image_size : int, sympy.Symbol or None
        Height and width of the image; None for those of the variant. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    References
    ----------
    .. [1] Lin, Chen, Yan, Network in network, ICLR 2014, arXiv:1312.4400.
    .. [2] The authors' nin_imagenet, https://gist.github.com/mavenlin/d802a5849de39225bcc6
    .. [3] The authors' nin_cifar10, https://gist.github.com/mavenlin/e56253735ef32c3c296d
    """
    published = NIN_SIZES[variant]
    classes = published["classes"] if classes is None else classes
    image_size = published["image_size"] if image_size is None else image_size
    graph = image_graph(f"nin_{variant}", image_size=image_size, in_channels=in_channels)
    x = graph.input
    for index, stage in enumerate(published["stages"], start=1):
        mixers = [nn.Convolution2d(out_channels=width or classes, kernel_size=1) for width in stage["widths"]]
        for letter, layer in zip("abc", (nn.Convolution2d(**stage["convolution"]), *mixers), strict=True):
            x = chain(graph, x, (f"conv{index}{letter}", layer), (f"relu{index}{letter}", nn.ReLU()))
        drop = nn.Dropout() if dropout and stage["dropout"] else None
        x = chain(graph, x, (f"pool{index}", NIN_POOLS[stage["pool"]]), (f"dropout{index}", drop))
    chain(graph, x, ("flatten", nn.Flatten()), ("loss", nn.CrossEntropy()))
    return graph


POOLS: dict[str, nn.Layer | None] = {
    "max": nn.MaxPool2d(kernel_size=2),
    "average": nn.AveragePool2d(kernel_size=2),
    "none": None,
}
"""Name -> layer that halves the map after a stage."""


def _check_channels(argument: str, channels: object) -> None:
    if not isinstance(channels, Sequence) or isinstance(channels, str) or not channels:
        refuse(argument, channels, "must hold, for each stage, its channels or a sequence of them: ((32, 64), 128)")
    for stage in channels:
        check_widths(argument, stage if isinstance(stage, Sequence) else (stage,))


@checked(
    channels=_check_channels,
    padding=one_of(PADDINGS),
    pool=one_of(POOLS),
    activation=one_of((*ACTIVATIONS, NO_ACTIVATION)),
    hidden=partial(check_widths, fewest=0),
)
def convolutional(
    *,
    channels: Sequence[Any] = ((32, 64),),
    kernel_size: int = 3,
    stride: int = 1,
    padding: str = "valid",
    pool: str = "max",
    batch_norm: bool = False,
    activation: str = "relu",
    global_pool: bool = False,
    hidden: Sequence[Any] = (128,),
    stage_dropout: float = 0.25,
    dropout: float = 0.5,
    classes: Any = 10,
    image_size: Any = 28,
    in_channels: Any = 1,
) -> LayerGraph:
    """Return a deep convolutional classifier: stages of convolutions and a pool, then dense layers.

    As it stands the classifier of digits of PyTorch's examples [1]_: 1,199,882 parameters.

    Parameters
    ----------
    channels : sequence
        For each stage its channels, or a sequence of them, one for each convolution. [1]
    kernel_size : int
        Taps of each convolution in height and width. [1]
    stride : int
        Step of the last convolution of each stage, where no pool shall halve the map. [1]
    padding : str
        ``valid``: none; ``same``: as many zeros as keep the map's size, of odd kernels. [-]
    pool : str
        What halves the map after each stage: ``max``, ``average`` or ``none``. [-]
    batch_norm : bool
        Whether batch normalisation follows each convolution, which then has no bias. [-]
    activation : str
        Non-linearity of all layers but the last, e.g. ``relu``; ``none``. [-]
    global_pool : bool
        Whether each map is averaged to one number before the dense layers. [-]
    hidden : sequence of int or sympy.Symbol
        Units of dense layers before the scores; may be empty. [1]
    stage_dropout, dropout : float
        Rate of dropout behind the last stage, and behind each hidden dense layer; zero for none. [1]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    References
    ----------
    .. [1] https://github.com/pytorch/examples/blob/main/mnist/main.py
    """
    stages = [tuple(stage) if isinstance(stage, Sequence) else (stage,) for stage in channels]
    if padding == "same" and not is_open_size(kernel_size) and kernel_size % 2 == 0:
        refuse("kernel_size", kernel_size, "must be odd with padding='same'")
    nonlinear = None if activation == NO_ACTIVATION else ACTIVATIONS[activation]
    graph = image_graph("convolutional", image_size=image_size, in_channels=in_channels)
    zeros = kernel_size // 2 if padding == "same" else 0
    x, norm = graph.input, nn.BatchNorm() if batch_norm else None
    for stage, outputs in enumerate(stages, start=1):
        for index, out_channels in enumerate(outputs, start=1):
            layer = nn.Convolution2d(
                out_channels=out_channels,
                kernel_size=kernel_size,
                stride=stride if index == len(outputs) else 1,
                padding=zeros,
                bias=not batch_norm,
            )
            place = f"{stage}_{index}"
            x = chain(graph, x, (f"conv{place}", layer), (f"norm{place}", norm), (f"activation{place}", nonlinear))
        x = chain(graph, x, (f"pool{stage}", POOLS[pool]))
    x = chain(graph, x, ("global_pool", nn.AveragePool2d(kernel_size=None) if global_pool else None))
    x = chain(graph, x, ("dropout", dropped(stage_dropout)), ("flatten", nn.Flatten()))
    for index, units in enumerate(hidden, start=1):
        x = chain(graph, x, (f"fc{index}", nn.Dense(units=units)), (f"fc{index}_activation", nonlinear))
        x = chain(graph, x, (f"fc{index}_dropout", dropped(dropout)))
    chain(graph, x, ("scores", nn.Dense(units=classes)), ("loss", nn.CrossEntropy()))
    return graph
