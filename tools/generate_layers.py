"""Write docs/layers.md from the layer registry: what each layer counts, what back-propagation keeps, other names of it.

Run:  python tools/generate_layers.py

Every formula is computed, not typed: a layer's example in symbolic_examples.toml is counted with letters for its sizes
and a batch of N samples, so the page cannot disagree with the code. tests/test_pages.py holds the committed page to
this script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sympy

from markdown_text import TEXTS
from perfmodel.files import file_toml
from perfmodel.graph.node import INDEX_BYTES
from perfmodel.layers import LAYERS, Layer
from perfmodel.layers.shapes import shape_text

PAGE = Path(__file__).parent.parent / "docs" / "layers.md"
EXAMPLES = file_toml(Path(__file__).with_name("symbolic_examples.toml"))
BATCH_SIZE = sympy.Symbol("N", positive=True, integer=True)


def _plain(value: Any) -> Any:
    """Return a value of the file as Python's: lists as tuples."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return None if value == "None" else value


def symbolic_example(kind: str) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return options and input shapes of a kind of layer, with letters for sizes."""
    stated = EXAMPLES.get(kind, {})
    options = {name: _plain(value) for name, value in stated.get("options", {}).items()}
    return options, _plain(stated.get("shapes", [["F"]]))


def _size(value: Any) -> Any:
    """Replace single capital letters by symbols, also in a shape."""
    if isinstance(value, str) and len(value) == 1 and value.isupper():
        return sympy.Symbol(value, positive=True, integer=True)
    return tuple(map(_size, value)) if isinstance(value, tuple) else value


def _formula(count: object) -> str:
    """Write a count as LaTeX."""
    return f"${sympy.latex(sympy.factor_terms(sympy.expand(sympy.sympify(count))))}$"


def _kept(layer: Layer, input_count: int, saved_bytes: object) -> str:
    """Name the tensors that stay in memory until back-propagation."""
    kept = {place for place, keeps in enumerate(layer.kept_inputs([True] * input_count, is_trained=True)) if keeps}
    words = {
        "mask": kept & set(layer.mask_inputs),
        "inputs": kept - set(layer.mask_inputs),
        "output": layer.keeps_output,
    }
    parts = [word for word, keeps in words.items() if keeps]
    if saved_bytes != 0:
        parts.append(f"{_formula(saved_bytes)} B")
    return ", ".join(parts) or "nothing"


def _names(operators: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in operators) or "-"


def _example_text(options: dict[str, object], shapes: tuple[tuple[Any, ...], ...]) -> str:
    text = ", ".join(f"{name}={value}" for name, value in options.items())
    return (f"`{text}`" if text else "no options") + " on " + " and ".join(f"`{shape_text(shape)}`" for shape in shapes)


def _summary(kind: type[Layer]) -> str:
    """First paragraph of a layer's docstring as Markdown, with links to the classes that it inherits from."""
    bases = {base.__name__: base for base in kind.__mro__}

    def markdown(name: re.Match[str]) -> str:
        if name[1] not in bases:
            return f"`{name[1]}`"
        return f"[`{name[1]}`](../{bases[name[1]].__module__.replace('.', '/')}.py)"

    first = (kind.__doc__ or "").strip().split("\n\n")[0]
    return re.sub("``(.+?)``", markdown, " ".join(first.split()))


def _section(kind: type[Layer]) -> list[str]:
    """Write the section of one layer."""
    letters, letter_shapes = symbolic_example(kind.kind)
    options = {name: _size(value) for name, value in letters.items()}
    shapes = tuple(_size(shape) for shape in letter_shapes)
    layer = kind(**options)
    forward, backward = (layer.work(shapes, batch_size=BATCH_SIZE, phase=part) for part in ("forward", "backward"))
    saved_bytes = layer.saved_bytes(shapes, batch_size=BATCH_SIZE, element_bytes=4)
    saved_bytes += INDEX_BYTES * layer.saved_index_count(shapes, batch_size=BATCH_SIZE)
    rows = [
        ("example", _example_text(letters, letter_shapes)),
        ("parameters", _formula(layer.parameter_count(shapes))),
        ("FLOP forward", _formula(forward.flop_count)),
        ("FLOP backward", _formula(backward.flop_count)),
        ("bytes forward, fp32", _formula(forward.moved_bytes)),
        ("kept for backward", _kept(layer, len(shapes), saved_bytes)),
        ("in torch", _names(name for name in kind.operators if "." in name)),
        ("in ONNX", _names(name for name in kind.operators if "." not in name)),
    ]
    table = ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]
    return [f"### `{kind.kind}`: {kind.__name__}", "", _summary(kind), "", *table, ""]


def page() -> str:
    """Write the whole page."""
    families: dict[str, list[type[Layer]]] = {}
    for kind in LAYERS.values():
        families.setdefault(kind.__module__.split(".")[2], []).append(kind)
    lines = [TEXTS["layers"]["introduction"]]
    for family in sorted(families):
        lines += [f"## {family}", ""]
        for kind in sorted(families[family], key=lambda layer: layer.kind):
            lines += _section(kind)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
