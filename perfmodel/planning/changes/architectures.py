"""Other networks of the same size: depth against width, and layers that become narrower towards the output.

A network that ``pm.zoo`` built knows its builder and options. Its width is solved anew for another depth, so that
parameters, or FLOP of a step, stay as they are: both are polynomials of second degree in the width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any, Final, TypeAlias

import numpy as np

from perfmodel import zoo
from perfmodel.errors import ArgumentError, ShapeError
from perfmodel.graph import LayerGraph
from perfmodel.graph.structure import changed_like, changes_of
from perfmodel.measurements.table import Run
from perfmodel.planning.changes.arguments import Change, Situation
from perfmodel.presentation.quantities import counted, percent_text
from perfmodel.zoo.encoders import BERT_SIZES
from perfmodel.zoo.options import recipes
from perfmodel.zoo.transformer import LLAMA_SIZES

Options: TypeAlias = Mapping[str, Any]

DEPTHS: Final = {"layers": "layer", "hidden_layers": "hidden layer", "layer_count": "recurrent layer"}
"""Options that are a number of equal layers or blocks -> the word for one of these."""
WIDTHS: Final = ("width", "hidden_size")
"""Options that are the width of all layers."""
WITH_WIDTH: Final = ("intermediate", "head_size")
"""Options that follow the width where they are stated."""
LISTS: Final = ("hidden",)
"""Options that list the width of each layer."""
FAMILIES: Final = (
    ("resnet18", "resnet34"),
    ("resnet50", "resnet101", "resnet152"),
    ("vgg11", "vgg13", "vgg16", "vgg19"),
)
"""Builders of one family by depth, each with a width."""
PUBLISHED: Final[Mapping[str, Mapping[str, Options]]] = {"llama": LLAMA_SIZES, "bert": BERT_SIZES}
"""Builder -> published size -> the options that it stands for."""

TAPER: Final = 4.0
"""First width over last of a network whose layers become narrower. [1]"""
CLOSE: Final = 0.15
"""Largest deviation of parameters or FLOP that still counts as equal. [1]"""
ALIKE: Final = 0.01
"""Relative difference of two widths below which they are one alternative. [1]"""
NO_SIZES: Final = (
    "needs a network that pm.zoo builds with a depth and a width, e.g. pm.zoo.feed_forward(hidden=(512, 512)), "
    "pm.zoo.gpt(layers=12) or pm.zoo.resnet50(); layers added to it since, and imported networks, have neither"
)
BY_NAME: Final = "needs a network whose layers were not pruned by name: another depth has other layers"

MEASURES: Final[Mapping[str, Callable[[LayerGraph], float]]] = {
    "parameters": lambda graph: float(graph.parameter_count),
    "FLOP": lambda graph: float(graph.work(batch_size=1, phase="forward").flop_count),
}
"""What stays as it is -> its amount in a network, per sample. [1 or FLOP]"""


@dataclass(frozen=True, kw_only=True)
class Design:
    """A network of another depth or shape, open in its width: ``build(width)`` makes it in whole ``step`` of width."""

    what: str
    build: Callable[[int], LayerGraph]
    width: int
    step: int = 1

    def sized(self, amount: Callable[[LayerGraph], float], wanted: float) -> tuple[int, LayerGraph]:
        """Return the width at which the amount is closest to the wanted one, and the network of that width."""
        units = [max(1, round(self.width * factor / self.step)) for factor in (0.5, 1.0, 2.0)]
        units = sorted({*units, units[-1] + 1, units[-1] + 2})[:3] if len(set(units)) < 3 else units
        amounts = [amount(self.build(unit * self.step)) for unit in units]
        square, linear, constant = np.polyfit(np.array(units, float), np.array(amounts), 2)
        root = linear**2 - 4 * square * (constant - wanted)
        exact = (math.sqrt(max(root, 0.0)) - linear) / (2 * square) if square > 0 else (wanted - constant) / linear
        nearest = {max(1, math.floor(exact)), max(1, math.ceil(exact))}
        made = [(unit * self.step, self.build(unit * self.step)) for unit in sorted(nearest)]
        return min(made, key=lambda pair: abs(amount(pair[1]) - wanted))


def _deviation(off: float) -> str:
    """Say in words by how much an amount deviates. [1]"""
    share = percent_text(abs(off))
    if share.startswith("<"):
        return f"within {share.removeprefix('<').strip()}"
    return f"{'+' if off >= 0 else '-'}{share}" if off else "exactly"


def _is_alike(one: LayerGraph, other: LayerGraph) -> bool:
    return [(node.layer, node.input_names) for node in one.layers] == [
        (node.layer, node.input_names) for node in other.layers
    ]


def _changed_like(graph: LayerGraph, design: Design) -> Design:
    """Apply to a design the quantisation, pruning or inference mode of a graph."""
    return replace(design, build=lambda width: changed_like(design.build(width), graph))


def _stated(name: str, options: Options) -> dict[str, Any]:
    """All options of a builder: those given, those that its published size implies, and its defaults."""
    defaults = {option: parameter.default for option, parameter in signature(zoo.BUILDERS[name]).parameters.items()}
    stated = defaults | dict(options)
    published = PUBLISHED.get(name, {}).get(stated.get("size", ""), {})
    return {option: published.get(option) if value is None else value for option, value in stated.items()}


def _by_count(name: str, options: Options) -> Iterator[Design]:
    """Yield half and twice the number of equal layers."""
    stated = _stated(name, options)
    depth = next((option for option in DEPTHS if isinstance(stated.get(option), int)), None)
    width = next((option for option in WIDTHS if isinstance(stated.get(option), int)), None)
    if depth is None or width is None:
        return
    now, wide = stated[depth], stated[width]
    step = 2 * stated["heads"] if isinstance(stated.get("heads"), int) else 1
    followers = {option: stated[option] for option in WITH_WIDTH if isinstance(stated.get(option), int)}

    def build(count: int, size: int) -> LayerGraph:
        follow = {option: max(1, round(value * size / wide)) for option, value in followers.items()}
        return zoo.build(name, **{**options, **follow, depth: count, width: size})

    for count in dict.fromkeys((max(1, now // 2), 2 * now)):
        if count != now:
            yield Design(what=counted(count, DEPTHS[depth]), build=partial(build, count), width=wide, step=step)


def _of_family(name: str, options: Options) -> Iterator[Design]:
    """Yield the family's other depths."""
    stated = _stated(name, options)
    for family in FAMILIES:
        if name in family and isinstance(stated.get("width"), int):
            for other in family:
                if other != name:
                    build = partial(_of_width, other, options)
                    yield Design(what=other, build=build, width=stated["width"])


def _of_width(name: str, options: Options, size: int) -> LayerGraph:
    """Build a network of a width, without the options that its builder does not have."""
    known = signature(zoo.BUILDERS[name]).parameters
    return zoo.build(name, **{key: value for key, value in options.items() if key in known} | {"width": size})


def _listed(name: str, options: Options) -> Iterator[Design]:
    """Yield half and twice as many hidden layers of one width, and the same number of layers that become narrower."""
    stated = _stated(name, options)
    for option in LISTS:
        widths = stated.get(option)
        if not isinstance(widths, Sequence) or not widths or not all(isinstance(width, int) for width in widths):
            continue

        def build(option: str, shape: Sequence[float], size: int) -> LayerGraph:
            return zoo.build(name, **{**options, option: tuple(max(1, round(size * share)) for share in shape)})

        count = len(widths)
        for other in dict.fromkeys((max(1, count // 2), count, 2 * count)):
            if other != count or len(set(widths)) > 1:
                equal = partial(build, option, [1.0] * other)
                yield Design(what=counted(other, "hidden layer"), build=equal, width=max(widths))
        for other in dict.fromkeys((max(2, count), 2 * count)):
            shape = [TAPER ** (-index / (other - 1)) for index in range(other)]
            yield Design(
                what=f"{counted(other, 'hidden layer')} that become {TAPER:g} times narrower, the first",
                build=partial(build, option, shape),
                width=max(widths),
            )


DESIGNS: Final = (_by_count, _of_family, _listed)
"""Ways to vary the network of a builder."""


def architecture(now: Situation) -> Iterator[Change]:
    """Yield networks of other depths and shapes with as many parameters, and with as many FLOP, as the job's."""
    graph = now.job.graph
    now.needs(not isinstance(graph, Run), "a Run is what somebody executed; predict its network by itself")
    assert isinstance(graph, LayerGraph)
    made = [design for name, options in recipes(graph) for vary in DESIGNS for design in vary(name, options)]
    now.needs(made and not graph.free_sizes, NO_SIZES)
    now.needs(all(options.get("layers") is None for _, options in changes_of(graph)), BY_NAME)
    designs = [_changed_like(graph, design) for design in made]
    different, wanted_of = [graph], {measure: amount(graph) for measure, amount in MEASURES.items()}
    for design in designs:
        widths: list[int] = []
        for measure, amount in MEASURES.items():
            wanted = wanted_of[measure]
            try:
                width, network = design.sized(amount, wanted)
            except (ArgumentError, ShapeError, ZeroDivisionError):
                continue
            off = amount(network) / wanted - 1
            if abs(off) > CLOSE or any(abs(width - other) <= ALIKE * other for other in widths):
                continue
            widths.append(width)
            if any(_is_alike(network, other) for other in different):
                continue
            different.append(network)
            yield Change(
                what=f"{design.what} of width {width:,}: as many {measure} ({_deviation(off)})",
                graph=network,
                presumes="another network: what it learns is not predicted",
            )
