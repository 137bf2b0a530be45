"""Generative adversarial networks: a dense one for vectors and a convolutional one for images (DCGAN)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel import layers as nn
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import numbered, one_of, refuse
from perfmodel.zoo.blocks import chain, image_graph, shared_dense
from perfmodel.zoo.options import checked

SAMPLES = ("fresh", "reused")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One pass through the layers of a network that several passes share; the first pass owns the parameters."""

    graph: LayerGraph
    name: str
    owner: str
    is_trained: bool = True

    def dense(self, x: str, units: Any, *, layer: str) -> str:
        name, owner = f"{self.name}_{layer}", f"{self.owner}_{layer}"
        return shared_dense(self.graph, name, x, units=units, owner=owner, is_trained=self.is_trained)

    def generator(self, x: str, *, hidden: Sequence[Any], features: Any) -> str:
        for index, units in enumerate(hidden, start=1):
            x = self.dense(x, units, layer=f"fc{index}")
            x = self.graph.add(f"{self.name}_relu{index}", nn.ReLU(), inputs=x)
        x = self.dense(x, features, layer="sample")
        return self.graph.add(f"{self.name}_sigmoid", nn.Sigmoid(), inputs=x)

    def discriminator(self, x: str, *, hidden: Sequence[Any], pieces: int) -> None:
        for index, units in enumerate(hidden, start=1):
            x = self.dense(x, units * pieces, layer=f"fc{index}")
            x = self.graph.add(f"{self.name}_pieces{index}", nn.Reshape(shape=(units, pieces)), inputs=x)
            x = self.graph.add(f"{self.name}_maxout{index}", nn.Reduction(function="max", axes=(1,)), inputs=x)
        x = self.dense(x, 1, layer="score")
        self.graph.add(f"{self.name}_loss", nn.BinaryCrossEntropy(over="logits"), inputs=x)


@checked(discriminator_steps=numbered(), samples=one_of(SAMPLES))
def generative_adversarial_network(
    *,
    features: Any = 784,
    noise: Any = 100,
    generator_hidden: Sequence[Any] = (1200, 1200),
    discriminator_hidden: Sequence[Any] = (240, 240),
    pieces: int = 5,
    discriminator_steps: int = 1,
    samples: str = "fresh",
) -> LayerGraph:
    """Return a whole training step of a generative adversarial network, by default that of [1]_ for MNIST [2]_.

    The generator (rectifiers, sigmoid; 2,503,984 parameters) makes samples from noise, the discriminator (maxout of
    five pieces; 1,231,441) tells them from real ones.

    Parameters
    ----------
    features : int or sympy.Symbol
        Features of a sample. [1]
    noise : int or sympy.Symbol
        Random numbers from which a sample is made. [1]
    generator_hidden : sequence of int or sympy.Symbol
        Units of the generator's hidden layers. [1]
    discriminator_hidden : sequence of int or sympy.Symbol
        Units of the discriminator's hidden layers. [1]
    pieces : int
        Linear pieces of which a maxout unit takes the largest. [1]
    discriminator_steps : int
        Steps of the discriminator for one of the generator, k. [1]
    samples : str
        ``fresh``: as algorithm 1 of [1]_, every step makes samples from its own noise; ``reused``: the generator's
        step takes the samples that the last step of the discriminator has judged, as most programs do. [-]

    Returns
    -------
    LayerGraph
        The step, with its 2 k + 1 losses; inputs ``noise``, ``real_1_input`` to ``real_k_input``, and ``noise_1`` to
        ``noise_k`` (``reused``: one less). [-]

    Notes
    -----
    One step of the two networks passes

    - k + 1 times forward through the generator (``reused``: k), of which the last alone goes backward: the others
      make samples for the discriminator, to which no gradient returns;
    - 2 k + 1 times forward through the discriminator: k times real samples, k times made ones, and once more for the
      generator;
    - 2 k times backward through the discriminator for its parameters' gradients, without its input's, and once for
      its input's gradient alone, on to the generator.

    The graph names the generator's own pass first, because it owns the parameters; nothing is counted differently
    for it. The k updates of the discriminator count as one.

    References
    ----------
    .. [1] Goodfellow et al., Generative adversarial networks, arXiv:1406.2661.
    .. [2] https://github.com/goodfeli/adversarial/blob/master/mnist.yaml
    """
    makes: dict[str, Any] = {"hidden": generator_hidden, "features": features}
    judges: dict[str, Any] = {"hidden": discriminator_hidden, "pieces": pieces}
    shapes = _input_shapes(features, noise, steps=discriminator_steps, samples=samples)
    graph = LayerGraph("generative_adversarial_network", inputs=shapes)
    made = _Pass(graph=graph, name="generator", owner="generator").generator("noise", **makes)
    for step in range(1, discriminator_steps + 1):
        _Pass(graph=graph, name=f"real_{step}", owner="real_1").discriminator(f"real_{step}_input", **judges)
        if f"noise_{step}" in shapes:
            name = f"generator_{step}"
            once = _Pass(graph=graph, name=name, owner="generator", is_trained=False)
            judged = once.generator(f"noise_{step}", **makes)
        else:
            judged = graph.add("detached", nn.Detach(), inputs=made)
        _Pass(graph=graph, name=f"made_{step}", owner="real_1").discriminator(judged, **judges)
    _Pass(graph=graph, name="judged", owner="real_1", is_trained=False).discriminator(made, **judges)
    return graph


def _input_shapes(features: Any, noise: Any, *, steps: int, samples: str) -> Mapping[str, tuple[Any, ...]]:
    makes_own = steps if samples == "fresh" else steps - 1
    shapes = {"noise": (noise,)}
    shapes |= {f"real_{step}_input": (features,) for step in range(1, steps + 1)}
    return shapes | {f"noise_{step}": (noise,) for step in range(1, makes_own + 1)}


SMALLEST_MAP = 4
"""Height and width of the map between the dense product and the first doubling [1]."""
KERNEL_SIZE = 4
SLOPE = 0.2


def _halvings(image_size: int) -> int:
    """Return the number of halvings from the image to the smallest map [1]."""
    count = 0
    while SMALLEST_MAP * 2**count < image_size:
        count += 1
    if SMALLEST_MAP * 2**count != image_size or not count:
        refuse("image_size", image_size, f"must be {SMALLEST_MAP} times a power of two, e.g. 64")
    return count


@checked(image_size=numbered())
def dcgan_generator(*, noise: Any = 100, width: Any = 64, image_size: int = 64, out_channels: Any = 3) -> LayerGraph:
    """Return the generator of DCGAN [1]_ with the sizes of PyTorch's example [2]_: 3,576,704 parameters.

    105 M multiply-adds forward. Transposed convolutions spread a vector of noise to an image; what scores the image is
    :func:`dcgan_discriminator`, so the graph ends without a loss.

    Parameters
    ----------
    noise : int or sympy.Symbol
        Elements of the noise. [1]
    width : int or sympy.Symbol
        Channels before the image; double with each halving of the map. [1]
    image_size : int
        Height and width of the image, 4 times a power of two. [1]
    out_channels : int or sympy.Symbol
        Channels of the image. [1]

    References
    ----------
    .. [1] Radford, Metz, Chintala, Unsupervised representation learning with deep convolutional generative adversarial
       networks, ICLR 2016, arXiv:1511.06434, figure 1.
    .. [2] https://github.com/pytorch/examples/blob/main/dcgan/main.py
    """
    halvings = _halvings(image_size)
    graph = LayerGraph("dcgan_generator", input_shape=(noise, 1, 1))
    x = graph.input
    for index in range(halvings):
        stride, padding = (2, 1) if index else (1, 0)
        layer = nn.TransposedConvolution2d(
            out_channels=width * 2 ** (halvings - 1 - index),
            kernel_size=KERNEL_SIZE,
            stride=stride,
            padding=padding,
            bias=False,
        )
        x = chain(graph, x, (f"up{index}", layer), (f"up{index}_norm", nn.BatchNorm()), (f"up{index}_relu", nn.ReLU()))
    last = nn.TransposedConvolution2d(
        out_channels=out_channels, kernel_size=KERNEL_SIZE, stride=2, padding=1, bias=False
    )
    chain(graph, x, (f"up{halvings}", last), ("image", nn.Tanh()))
    return graph


@checked(image_size=numbered())
def dcgan_discriminator(*, width: Any = 64, image_size: int = 64, in_channels: Any = 3) -> LayerGraph:
    """Return the discriminator of DCGAN [1]_ with the sizes of PyTorch's example: 2,765,568 parameters.

    104 M multiply-adds forward. It tells made images from real ones; a step of training runs it on both.

    Parameters
    ----------
    width : int or sympy.Symbol
        Channels of the first convolution; double with each halving of the map. [1]
    image_size : int
        Height and width of the image, 4 times a power of two. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    References
    ----------
    .. [1] Radford, Metz, Chintala, Unsupervised representation learning with deep convolutional generative adversarial
       networks, ICLR 2016, arXiv:1511.06434.
    """
    graph = image_graph("dcgan_discriminator", image_size=image_size, in_channels=in_channels)
    x = graph.input
    for index in range(_halvings(image_size)):
        layer = nn.Convolution2d(
            out_channels=width * 2**index, kernel_size=KERNEL_SIZE, stride=2, padding=1, bias=False
        )
        name, norm = f"down{index + 1}", nn.BatchNorm() if index else None  # the paper has none behind the image
        relu = nn.LeakyReLU(slope=SLOPE)
        x = chain(graph, x, (name, layer), (f"{name}_norm", norm), (f"{name}_relu", relu))
    chain(
        graph,
        x,
        ("score", nn.Convolution2d(out_channels=1, kernel_size=SMALLEST_MAP, bias=False)),
        ("flatten", nn.Flatten()),
        ("probability", nn.Sigmoid()),
        ("loss", nn.BinaryCrossEntropy(over="probabilities")),
    )
    return graph
