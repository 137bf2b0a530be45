"""A picture of parts and the links between them, in layers by distance from the sockets."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from perfmodel.presentation.figures import new_figure
from perfmodel.units import GIGA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from perfmodel.hardware.wires import Place, Wire

COLOUR_BY_KIND: Final = {
    "fabric": "#cc79a7",
    "memory": "#e0e0e0",
    "socket": "#56b4e9",
    "root": "#f0e442",
    "switch": "#f0e442",
    "device": "#8fd3a8",
    "storage": "#e8b98a",
    "nic": "#d9b8d9",
}
"""Tints of Okabe and Ito's colours, light enough for dark text."""

INCHES_PER_LEAF: Final = 0.95
INCHES_PER_LAYER: Final = 1.15
NARROWEST_LEAF: Final = 0.66
WIDEST_INCHES: Final = 16.0
SHORT_LABEL: Final = 5
"""Most letters of a label with one number; longer labels are placed lower, beside those of their neighbours."""


def wiring_figure(nodes: Sequence[Place], lines: Sequence[Wire], *, title: str = "") -> Figure:
    """Draw parts in layers below the sockets, and the links between them with their labels."""
    places = layered_places(nodes, lines)
    columns = max((x for x, _ in places.values()), default=0.0) + 1
    top = max((y for _, y in places.values()), default=0.0) + 0.5
    bottom = min((y for _, y in places.values()), default=0.0) - 0.55
    arcs = any(line.peer and places[line.lower][1] == places[line.upper][1] for line in lines)
    bottom -= 1.1 if arcs else 0.0
    spacing = max(NARROWEST_LEAF, min(INCHES_PER_LEAF, WIDEST_INCHES / columns))
    width = max(6.4, 0.4 + spacing * columns)
    figure, axes = new_figure(width, 1.0 + INCHES_PER_LAYER * (top - bottom))
    size = 8.0
    _draw_groups(axes, nodes, places, size=size)
    _draw_lines(axes, lines, places, size=size)
    for node in nodes:
        text = node.name.removeprefix(f"{node.node}/")
        box = {"boxstyle": "round,pad=0.35", "facecolor": COLOUR_BY_KIND.get(node.kind, "white"), "edgecolor": "0.35"}
        axes.text(*places[node.name], text, ha="center", va="center", fontsize=size, bbox=box, zorder=4)
    axes.set(xlim=(-0.8, columns - 0.2), ylim=(bottom, top))
    axes.axis("off")
    axes.set_title(title, fontsize="medium", loc="left")
    letters = int(15 * width)
    figure.supxlabel(_legend(nodes, lines, letters=letters), fontsize=size, x=0.01, ha="left")
    return figure


def label_of(wire: Wire) -> str:
    """Write the bandwidth of large copies over a wire in GB/s: one number, or two if the directions differ."""
    rates = [channel.capacity_bytes_per_s / GIGA for channel in (wire.upward, wire.downward)]
    return " / ".join(dict.fromkeys(f"{rate:.3g}" for rate in rates))


def layered_places(nodes: Sequence[Place], lines: Sequence[Wire]) -> dict[str, tuple[float, float]]:
    """Return the position of each box: a tree below each socket, a fabric above, memory beside its socket."""
    kind = {node.name: node.kind for node in nodes}
    above = {
        line.lower: line.upper
        for line in lines
        if not line.peer and kind[line.lower] not in ("socket", "fabric") and kind[line.upper] != "fabric"
    }
    joined = {line.upper for line in lines if kind[line.lower] == "fabric" and kind[line.upper] != "fabric"}
    below: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        if node.name in above and node.name not in joined:
            below[above[node.name]].append(node.name)
    has_fabric = "fabric" in kind.values()
    places: dict[str, tuple[float, float]] = {}
    column = 0.0

    def place(name: str, depth: int) -> float:
        """Place a box above the middle of those below it, and return its column."""
        nonlocal column
        columns = [place(other, depth + 1) for other in below[name]]
        if columns:
            middle = (columns[0] + columns[-1]) / 2
        else:
            middle, column = column, column + 1.0
        places[name] = (middle, -float(depth))
        return middle

    tops = [node for node in nodes if node.name not in above and node.kind not in ("fabric", "switch")]
    groups = list(dict.fromkeys(node.node for node in tops))
    for index, group in enumerate(groups):
        column += 0.4 if index else 0.0
        for node in tops:
            if node.node == group:
                place(node.name, 2 if has_fabric else 0)
    bottom = min((y for _, y in places.values()), default=0.0)
    for node in nodes:  # switches among devices are centred below them
        if node.name not in places and node.kind == "switch":
            ends = [places[line.lower][0] for line in lines if line.upper == node.name and line.lower in places]
            places[node.name] = (sum(ends) / max(len(ends), 1), bottom - 1.3)
    for group in groups:  # parts joined to a fabric are above the sockets, across the width of their group
        adapters = [node.name for node in nodes if node.node == group and node.name in joined]
        columns = [places[node.name][0] for node in nodes if node.node == group and node.name in places]
        for index, name in enumerate(adapters):
            share = (index + 0.5) / len(adapters)
            places[name] = (min(columns) + share * (max(columns) - min(columns)), -1.1)
    fabrics = [node.name for node in nodes if node.kind == "fabric"]
    for index, name in enumerate(fabrics):
        ends = [places[line.upper][0] for line in lines if line.lower == name and line.upper in joined]
        middle = sum(ends) / len(ends) if ends else (column - 1) / 2
        places[name] = (middle, 0.75 if index == 0 and len(fabrics) > 1 else 0.0)
    return places


def _draw_groups(axes: Axes, nodes: Sequence[Place], places: Mapping[str, tuple[float, float]], *, size: float) -> None:
    from matplotlib.patches import Rectangle

    for group in dict.fromkeys(node.node for node in nodes if node.node):
        of_group = [places[node.name] for node in nodes if node.node == group]
        left, right = min(x for x, _ in of_group) - 0.6, max(x for x, _ in of_group) + 0.6
        low, high = min(y for _, y in of_group) - 0.4, max(y for _, y in of_group) + 0.4
        frame = Rectangle((left, low), right - left, high - low, facecolor="0.97", edgecolor="0.75", zorder=0)
        axes.add_patch(frame)
        axes.text(left + 0.08, high - 0.04, group, fontsize=size, va="top", color="0.35", zorder=1)


def _draw_lines(axes: Axes, lines: Sequence[Wire], places: Mapping[str, tuple[float, float]], *, size: float) -> None:
    """Draw straight lines, peer links between neighbours as arcs below; each line has its label, even if equal."""
    from matplotlib.patches import FancyArrowPatch

    for line in lines:
        (x, y), (to_x, to_y) = places[line.lower], places[line.upper]
        box = {"boxstyle": "round,pad=0.08", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        if line.peer and y == to_y:
            bend = 0.45 if abs(to_x - x) < 2 else 0.3
            arc = FancyArrowPatch(
                (min(x, to_x), y - 0.14),
                (max(x, to_x), y - 0.14),
                arrowstyle="-",
                connectionstyle=f"arc3,rad={bend}",
                color="#009e73",
                linewidth=0.9,
                zorder=1,
            )
            axes.add_patch(arc)
            continue
        colour = "#009e73" if line.peer else "0.45"
        axes.plot([x, to_x], [y, to_y], color=colour, linewidth=1.1, zorder=1)
        nearer = (
            0.42 if len(label_of(line)) <= SHORT_LABEL else 0.24
        )  # share of the way up, to separate the labels of a fan
        at = (x + nearer * (to_x - x), y + nearer * (to_y - y))
        axes.text(*at, label_of(line), bbox=box, fontsize=size - 1.0, ha="center", va="center", zorder=3)


def _legend(nodes: Sequence[Place], lines: Sequence[Wire], *, letters: int) -> str:
    """Return the meaning of boxes and lines, and the rates of links without a label."""
    details = dict.fromkeys(f"{node.kind}: {node.detail}" for node in nodes if node.detail and node.kind != "memory")
    links = dict.fromkeys(
        f"{line.upward.link}{' (green)' if line.peer else ''} {label_of(line)}" for line in lines if line.upward.link
    )
    texts = ("; ".join(details), f"GB/s per direction that large copies reach: {'; '.join(links)}")
    return "\n".join(textwrap.fill(text, letters) for text in texts)
