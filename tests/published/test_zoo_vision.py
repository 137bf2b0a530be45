"""The zoo's networks on images beside the parameters that others publish, and torch's count of plain torch versions."""

from dataclasses import dataclass, field
from importlib import import_module

import pytest
import sympy
import torch
from torch import nn

from perfmodel import zoo
from perfmodel.errors import ArgumentError
from torch_models.flop_count import CORRECTED, flop_counts, parameter_count


@dataclass(frozen=True)
class Published:
    """A network of the zoo, what others say of it, and its plain torch version."""

    name: str
    parameters: int
    torch_version: str
    shape: tuple = (3, 224, 224)
    options: dict = field(default_factory=dict)
    torch_options: dict = field(default_factory=dict)
    multiply_adds: float | None = None
    digit: float = 0.001e9

    def __str__(self):
        return "-".join([self.name, *(f"{name}={value}" for name, value in self.options.items())])

    def graph(self):
        return zoo.build(self.name, **self.options)

    def module_and_input(self, batch_size):
        module_name, function = self.torch_version.split(".")
        with torch.device("meta"):
            module = getattr(import_module(f"torch_models.{module_name}"), function)(**self.torch_options)
            return module, torch.empty(batch_size, *self.shape)


# torchvision: num_params and _ops (multiply-adds, 1e9, three decimals) of each model's weights, torchvision 0.15 on
TORCHVISION = [
    Published("alexnet", 61_100_840, "alexnet.alexnet", multiply_adds=0.714e9),
    Published("vgg11", 132_863_336, "vgg.vgg11", multiply_adds=7.609e9),
    Published("vgg13", 133_047_848, "vgg.vgg13", multiply_adds=11.308e9),
    Published("vgg16", 138_357_544, "vgg.vgg16", multiply_adds=15.470e9),
    Published("vgg19", 143_667_240, "vgg.vgg19", multiply_adds=19.632e9),
    *(
        Published(
            f"vgg{depth}",
            parameters,
            f"vgg.vgg{depth}",
            options={"batch_norm": True},
            torch_options={"batch_norm": True},
        )
        for depth, parameters in ((11, 132_868_840), (13, 133_053_736), (16, 138_365_992), (19, 143_678_248))
    ),
    Published("googlenet", 6_624_904, "googlenet.googlenet", multiply_adds=1.498e9),
    Published(
        "googlenet",
        13_004_888,  # printed where torchvision builds it with its auxiliary classifiers
        "googlenet.googlenet",
        options={"auxiliary": True},
        torch_options={"auxiliary": True},
    ),
    Published("inception_v3", 23_834_568, "inception_v3.inception_v3", (3, 299, 299), multiply_adds=5.713e9),
    Published(
        "inception_v3",
        27_161_264,  # num_params of the weights, which hold the auxiliary classifier
        "inception_v3.inception_v3",
        (3, 299, 299),
        options={"auxiliary": True},
        torch_options={"auxiliary": True},
    ),
    Published("resnet18", 11_689_512, "resnet.resnet18", multiply_adds=1.814e9),
    Published("resnet34", 21_797_672, "resnet.resnet34", multiply_adds=3.664e9),
    Published("resnet50", 25_557_032, "resnet.resnet50", options={"stride_on": "3x3"}, multiply_adds=4.089e9),
    Published("resnet101", 44_549_160, "resnet.resnet101", options={"stride_on": "3x3"}, multiply_adds=7.801e9),
    Published("resnet152", 60_192_808, "resnet.resnet152", options={"stride_on": "3x3"}, multiply_adds=11.514e9),
    Published("densenet121", 7_978_856, "densenet.densenet121", multiply_adds=2.834e9),
    Published("mobilenet_v2", 3_504_872, "mobilenet_v2.mobilenet_v2", multiply_adds=0.301e9),
    Published("vit", 86_567_656, "vit.vit_b_16", options={"attention": "materialised"}, multiply_adds=17.564e9),
]
PAPERS = [
    # He et al., arXiv:1512.03385, table 1: 3.8, 7.6, 11.3 e9 multiply-adds, rounded down for ResNet-50 (3.86)
    Published(
        "resnet50", 25_557_032, "resnet.resnet50", torch_options={"stride_on": "1x1"}, multiply_adds=3.85e9, digit=0.1e9
    ),
    Published(
        "resnet101",
        44_549_160,
        "resnet.resnet101",
        torch_options={"stride_on": "1x1"},
        multiply_adds=7.6e9,
        digit=0.1e9,
    ),
    Published(
        "resnet152",
        60_192_808,
        "resnet.resnet152",
        torch_options={"stride_on": "1x1"},
        multiply_adds=11.3e9,
        digit=0.1e9,
    ),
    # arXiv:1603.05027: the post-activated ResNet-200 has 64,673,832 (timm, resnet200); pre-activated, as many norms
    # stand elsewhere, but the four projections have none: 2 x (256 + 512 + 1024 + 2048) = 7,680 less
    Published("resnet200", 64_673_832 - 7_680, "resnet.resnet200"),
    # LeCun et al. 1998, figure 2: 156 + 2,416 (C3 fully connected) + 48,120 + 10,164, and 84 x 10 + 10 scores.
    # Multiply-adds: 28^2 x 6 x 25 + 10^2 x 16 x 150 + 120 x 400 + 120 x 84 + 84 x 10
    Published("lenet5", 61_706, "lenet.lenet5", (1, 32, 32), multiply_adds=416_520, digit=1),
    # Caffe's bvlc_alexnet; Krizhevsky et al. 2012: "60 million parameters"
    Published("alexnet", 60_965_224, "alexnet.alexnet_grouped", (3, 227, 227), options={"variant": "grouped"}),
    # the authors' gist: a snapshot of 29 MB, 7,595,176 x 4 B = 28.97 MiB; layer by layer: stage 1 34,944 + 2 x 9,312,
    # 2 614,656 + 2 x 65,792, 3 885,120 + 2 x 147,840, 4 3,539,968 + 1,049,600 + 1,025,000
    Published("nin", 7_595_176, "nin.nin_imagenet"),
    # 14,592 + 30,880 + 15,456, 460,992 + 2 x 37,056, 331,968 + 37,056 + 1,930
    Published("nin", 966_986, "nin.nin_cifar10", (3, 32, 32), options={"variant": "cifar10"}),
    # Caffe's bvlc_googlenet, without and with its two auxiliary classifiers
    Published(
        "googlenet",
        6_998_552,
        "googlenet.googlenet_lrn",
        options={"variant": "lrn"},
    ),
    Published(
        "googlenet",
        13_378_280,
        "googlenet.googlenet_lrn",
        options={"variant": "lrn", "auxiliary": True},
        torch_options={"auxiliary": True},
    ),
]
OTHERS = [
    # https://github.com/zhixuhao/unet prints 31,031,685 for one channel in; it ends in 3x3 to 2 maps and 1x1 to one,
    # (9 x 64 x 2 + 2) + (2 + 1), where the paper has 1x1 to 2 maps, 64 x 2 + 2
    Published("unet", 31_031_685 - 1_154 - 3 + 130, "unet.unet", (1, 572, 572)),
    Published(
        "unet",
        31_030_658,
        "unet.unet",
        (1, 256, 256),
        options={"padding": "same", "image_size": 256},
        torch_options={"padding": 1},
    ),
    # https://github.com/pytorch/examples/blob/main/dcgan/main.py with nz = 100, ngf = ndf = 64, nc = 3:
    # 16 (100 x 512 + 512 x 256 + 256 x 128 + 128 x 64 + 64 x 3) + 2 (512 + 256 + 128 + 64), and
    # 16 (3 x 64 + 64 x 128 + 128 x 256 + 256 x 512 + 512) + 2 (128 + 256 + 512)
    Published("dcgan_generator", 3_576_704, "dcgan.dcgan_generator", (100, 1, 1)),
    Published("dcgan_discriminator", 2_765_568, "dcgan.dcgan_discriminator", (3, 64, 64)),
    # https://github.com/pytorch/examples/blob/main/mnist/main.py: 320 + 18,496 + (9,216 x 128 + 128) + 1,290
    Published("convolutional", 1_199_882, "convolutional.digits", (1, 28, 28)),
    # VGG-11 again, from a general builder
    Published(
        "convolutional",
        132_863_336,
        "vgg.vgg11",
        options={
            "channels": (64, 128, (256, 256), (512, 512), (512, 512)),
            "padding": "same",
            "hidden": (4096, 4096),
            "stage_dropout": 0.0,
            "classes": 1000,
            "image_size": 224,
            "in_channels": 3,
        },
    ),
    # 9 x 16 + 16, 9 x 16 x 32 + 32, 9 x 32 x 16 + 16, 9 x 16 + 1
    Published("convolutional_autoencoder", 160 + 4_640 + 4_624 + 145, "convolutional.autoencoder", (1, 28, 28)),
    # 9 (256 x 384 + 384 x 384 + 384 x 256) + 25 x 256 x 96 + 49 x 96 x 3, and biases 384 + 384 + 256 + 96 + 3
    Published("deconvolutional", 3_725_088 + 1_123, "convolutional.zeiler_fergus", (256, 13, 13)),
]
NETWORKS = [*TORCHVISION, *PAPERS, *OTHERS]
every_network = pytest.mark.parametrize("network", NETWORKS, ids=str)


def _product_flop_count(graph, *, batch_size, phase):
    return sum(operation.product_flop_count for _, operation in graph.operations(batch_size=batch_size, phase=phase))


@every_network
def test_parameters_are_the_published_ones(network):
    assert network.graph().parameter_count == network.parameters
    assert parameter_count(network.module_and_input(1)[0]) == network.parameters


@pytest.mark.parametrize("network", [each for each in NETWORKS if each.multiply_adds], ids=str)
def test_multiply_adds_are_the_published_ones(network):
    # half of the last digit printed
    assert network.graph().multiply_add_count() == pytest.approx(network.multiply_adds, abs=network.digit / 2)


@every_network
def test_products_are_those_that_torch_counts(network):
    graph, batch_size = network.graph(), 3
    forward, backward = flop_counts(*network.module_and_input(batch_size), corrections=CORRECTED)
    assert _product_flop_count(graph, batch_size=batch_size, phase="forward") == forward
    assert _product_flop_count(graph, batch_size=batch_size, phase="backward") == backward


SIZE, C, W = (sympy.Symbol(letter, integer=True, positive=True) for letter in "ICW")
LEFT_OPEN = [
    *((name, "classes", C, 1000) for name in ("vgg16", "resnet50", "googlenet", "inception_v3", "mobilenet_v2", "vit")),
    *((name, "width", W, 64) for name in ("vgg16", "resnet18", "resnet50", "resnet200", "unet", "dcgan_discriminator")),
    *((name, "image_size", SIZE, 224) for name in ("vgg16", "resnet18", "googlenet", "densenet121", "mobilenet_v2")),
    ("lenet5", "image_size", SIZE, 32),
    ("nin", "image_size", SIZE, 224),
    ("inception_v3", "image_size", SIZE, 299),
    ("unet", "image_size", SIZE, 572),
    ("vit", "image_size", 16 * SIZE, 14),
    ("convolutional_autoencoder", "image_size", 4 * SIZE, 7),
    ("convolutional", "image_size", 2 * SIZE, 14),
]


@pytest.mark.parametrize(("name", "option", "size", "published"), LEFT_OPEN)
def test_a_size_left_open_gives_the_published_counts_back(name, option, size, published):
    samples = sympy.Symbol("N", integer=True, positive=True)
    graph, open_graph = zoo.build(name), zoo.build(name, **{option: size})
    (symbol,) = size.free_symbols
    values = {symbol: published, samples: 5}
    assert open_graph.free_sizes == (symbol.name,)
    assert sympy.sympify(open_graph.parameter_count).subs(values) == graph.parameter_count
    for phase in ("forward", "backward"):
        counted = open_graph.work(batch_size=samples, phase=phase)
        expected = graph.work(batch_size=5, phase=phase)
        assert counted.flop_count.subs(values) == expected.flop_count
        assert counted.read_bytes.subs(values) == expected.read_bytes
        assert counted.written_bytes.subs(values) == expected.written_bytes
    assert open_graph.with_sizes(**{symbol.name: published}).fingerprint == graph.fingerprint


def test_parameters_of_resnet50_by_width():
    # W^2: the first stage's blocks of width w = W have 1 + 9 + 4 + 4 (shortcut), then 4 + 9 + 4 w^2; those that halve
    # the map 2 + 9 + 4 + 8 w^2. 18 + 2 x 17, 4 (23 + 3 x 17), 16 (23 + 5 x 17), 64 (23 + 2 x 17)
    squares = 52 + 4 * 74 + 16 * 108 + 64 * 57
    # W: 7 x 7 x 3 taps, 32 W scores of 1,000 classes, norms of 2 W + 12 w a block and 8 w a shortcut
    linear = 147 + 32_000 + 2 + 44 + 2 * 56 + 4 * 80 + 8 * 44
    assert sympy.expand(zoo.resnet50(width=W).parameter_count - (squares * W**2 + linear * W + 1000)) == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lenet5", {"activation": "tan"}),
        ("nin", {"variant": "cifar100"}),
        ("vgg16", {"batch_norm": 1}),
        ("vgg16", {"classes": 0}),
        ("resnet101", {"stride_on": "7x7"}),
        ("resnet18", {"width": -64}),
        ("googlenet", {"variant": "batchnorm"}),
        ("inception_v3", {"auxiliary": "yes"}),
        ("densenet121", {"growth": 0}),
        ("mobilenet_v2", {"width": 0}),
        ("unet", {"padding": "full"}),
        ("dcgan_generator", {"image_size": 60}),
        ("vit", {"image_size": 225}),
        ("vit", {"heads": 7}),
        ("convolutional", {"channels": ()}),
        ("convolutional", {"kernel_size": 4, "padding": "same"}),
        ("convolutional_autoencoder", {"image_size": 30}),
        ("deconvolutional", {"image_size": 8}),
    ],
)
def test_options_that_are_not_allowed(name, options):
    with pytest.raises(ArgumentError, match=" must "):
        zoo.build(name, **options)


def test_torch_takes_every_pair_of_channels_for_the_filters_gradient_of_groups():
    """Why CORRECTED: the same convolution, its groups apart, is what each gradient really computes."""

    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(nn.Conv2d(4, 6, 3) for _ in range(2))

        def forward(self, x):
            return torch.cat([part(half) for part, half in zip(self.parts, x.chunk(2, 1), strict=True)], 1)

    with torch.device("meta"):
        image = torch.empty(5, 8, 10, 10, requires_grad=True)
        apart, grouped = Apart(), nn.Conv2d(8, 12, 3, groups=2)
    # 2 FLOP x 5 samples x 8 x 8 windows x 12 filters x 4 channels x 9 taps
    products = 2 * 5 * 8 * 8 * 12 * 4 * 9
    assert flop_counts(apart, image) == (products, 2 * products)
    assert flop_counts(grouped, image, corrections=CORRECTED) == (products, 2 * products)
    assert flop_counts(grouped, image) == (products, (1 + 2) * products)
