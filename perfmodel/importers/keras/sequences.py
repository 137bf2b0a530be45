"""Keras layers over sequences: recurrences, attention, and wrappers of other layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from perfmodel.errors import short_repr
from perfmodel.importers.assembly import Tensor, decline
from perfmodel.importers.keras.call import LayerCall, Result, Translator
from perfmodel.importers.keras.dense import projected, scalar_parameter
from perfmodel.importers.keras.pointwise import activation_name
from perfmodel.layers import GRU, LSTM, RNN, RecurrentState, ScaledDotProductAttention, Unary
from perfmodel.layers.recurrent import RecurrentLayer

CELLS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("LSTM", "CuDNNLSTM", "LSTMCell"), "LSTM"),
    **dict.fromkeys(("GRU", "CuDNNGRU", "GRUCell"), "GRU"),
    **dict.fromkeys(("SimpleRNN", "SimpleRNNCell"), "SimpleRNN"),
}
"""Class of a recurrence or cell -> kind of cell. ``RNN`` with a cell is the layer of that cell."""


def _gru(config: Mapping[str, Any], options: dict[str, Any]) -> RecurrentLayer:
    has_two = bool(config.get("reset_after", False)) and options["bias_vectors"]
    return GRU(**(options | {"bias_vectors": 2 if has_two else options["bias_vectors"]}))


def _simple(config: Mapping[str, Any], options: dict[str, Any]) -> RecurrentLayer:
    return RNN(function="relu" if activation_name(config.get("activation")) == "relu" else "tanh", **options)


MAKERS: Final = {"LSTM": lambda _, options: LSTM(**options), "GRU": _gru, "SimpleRNN": _simple}
"""Kind of cell -> its layer."""


def _cell_of(class_name: str, config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the kind of cell of a recurrent layer and its configuration."""
    if class_name == "RNN":
        cell = config.get("cell") or {}
        class_name, config = str(cell.get("class_name")), cell.get("config") or {}
    if class_name not in CELLS:
        decline(f"its cell {class_name!r} is not known")
    return CELLS[class_name], config


def _recurrence(
    call: LayerCall, *, bidirectional: bool, return_sequences: bool, part: str = ""
) -> tuple[RecurrentLayer, Tensor]:
    """Return the layer of a recurrence, and its sequence after dropout."""
    kind, config = _cell_of(call.class_name, call.config)
    cell = call.of(config)
    layer = MAKERS[kind](
        config,
        {
            "hidden_size": cell.count("units"),
            "bias_vectors": int(bool(config.get("use_bias", True))),
            "return_sequences": return_sequences,
            "bidirectional": bidirectional,
        },
    )
    return layer, call.dropped(call.plain(call.first), cell.number("dropout", 0.0), f"{part}.dropout".lstrip("."))


def _stacked(call: LayerCall, cells: Any, *, return_sequences: bool) -> Tensor:
    """Plan a recurrence of stacked cells: one recurrence per cell, each over all the steps of the one before."""
    if not isinstance(cells, list | tuple) or not cells:
        call.refuse(f"cells={short_repr(cells)}: must be a list of cells")
    if call.get("return_state", False) or len(call.tensors) > 1:
        decline("the states of its stacked cells are read or given")
    tensor = call.first
    for place, cell in enumerate(cells):
        within = call.of({"cell": cell}, class_name="RNN", tensors=(tensor,))
        keeps_steps = return_sequences or place < len(cells) - 1
        part = f"cell_{place}"
        tensor = call.made(
            *_recurrence(within, bidirectional=False, return_sequences=keeps_steps, part=part), part=part
        )
    return tensor


def _recurrent(call: LayerCall) -> Result:
    """Plan a recurrence; its states after the last step where somebody reads them."""
    sequences = bool(call.get("return_sequences", False))
    cell = call.get("cell") if call.class_name == "RNN" else None
    if isinstance(cell, Mapping) and cell.get("class_name") == "StackedRNNCells":
        stacked = cell.get("config")
        cells = stacked.get("cells") if isinstance(stacked, Mapping) else None
        return _stacked(call, cells, return_sequences=sequences)
    layer, sequence = _recurrence(call, bidirectional=False, return_sequences=sequences)
    states = tuple(map(call.plain, call.tensors[1:]))[: layer.state_count]
    output = call.made(layer, sequence, *states)
    if not call.get("return_state", False):
        return output
    return (output, *_states(call, output, layer.state_count))


def _states(call: LayerCall, output: Tensor, count: int) -> list[Tensor | None]:
    """Return the final states of a recurrence, which are views of its results."""
    units = output.shape[-1]
    return [
        call.assembly.tensor(call.add(RecurrentState(shape=(units,)), output, part=f"state_{index}"))
        if 1 + index in call.read
        else None
        for index in range(count)
    ]


def _bidirectional(call: LayerCall) -> Result:
    """Plan a recurrence in both directions of time, and the layer that joins the two."""
    inner = call.required("layer")
    config = inner["config"]
    backward = (call.get("backward_layer") or inner)["config"]
    if backward.get("units") != config.get("units") or call.get("return_state", config.get("return_state")):
        decline("its directions differ, or their states are results")
    sequences = bool(config.get("return_sequences", False))
    within = call.of(config, class_name=str(inner["class_name"]))
    if len(call.tensors) > 1:
        decline("states before the first step are given")
    both = call.made(*_recurrence(within, bidirectional=True, return_sequences=sequences))
    mode = call.config.get("merge_mode", "concat")
    if mode == "concat":
        return both
    halves = call.halves(both)
    if mode is None:
        return tuple(halves)
    function = {"sum": "add", "ave": "add", "mul": "multiply"}[mode]
    made = replace(call, path=f"{call.path}.merge").joined(function, halves)
    return call.each(Unary(function="multiply_by_number"), made, "mean") if mode == "ave" else made


def _named_or_placed(call: LayerCall, place: int, name: str) -> Tensor | None:
    """Return a tensor among the arguments, by its name or its place; None where there is none."""
    value = call.options.get(name, call.arguments[place] if place < len(call.arguments) else None)
    return value if isinstance(value, Tensor) else None


def _heads(call: LayerCall, *, heads: int, key_heads: int, head_size: int, value_size: int) -> Result:
    """Plan projections, the attention of all heads, and the projection of its output; like Keras, one product each."""
    query = _named_or_placed(call, 0, "query")
    value = _named_or_placed(call, 1, "value")
    if query is None or value is None:
        decline("it has no query or no value")
    key = _named_or_placed(call, 2, "key") or value
    mask = call.options.get("attention_mask")
    if any(len(tensor.shape) != len(("steps", "features")) for tensor in (query, key, value)):
        decline("its inputs are not (steps, features)")
    if call.options.get("return_attention_scores") or call.get("use_gate", False):
        decline("it returns its scores, or gates its values")
    bias, dropout = bool(call.get("use_bias", True)), call.number("dropout", 0.0)
    parts = [
        projected(call, tensor, units, bias=bias, part=part)
        for tensor, units, part in (
            (query, heads * head_size, "query"),
            (key, key_heads * head_size, "key"),
            (value, key_heads * value_size, "value"),
        )
    ]
    attention = ScaledDotProductAttention(
        heads=heads,
        key_heads=key_heads,
        causal=bool(call.options.get("use_causal_mask", False)),
        dropout=dropout,
        scores="materialised" if dropout else "recomputed",  # with dropout Keras computes the scores apart
    )
    masks = [call.plain(mask)] if isinstance(mask, Tensor) else []
    mixed = call.like(call.add(attention, *parts, *masks, part="attention"), parts[0])
    shape = call.get("output_shape")
    units = query.shape[-1] if shape is None else shape if isinstance(shape, int) else shape[0]
    return projected(call, mixed, units, bias=bias, part="output")


def _multi_head(call: LayerCall) -> Result:
    heads, head_size = call.count("num_heads"), call.count("key_dim")
    value_size = call.count("value_dim", head_size)
    return _heads(call, heads=heads, key_heads=heads, head_size=head_size, value_size=value_size)


def _grouped(call: LayerCall) -> Result:
    size = call.count("head_dim")
    heads, key_heads = call.count("num_query_heads"), call.count("num_key_value_heads")
    return _heads(call, heads=heads, key_heads=key_heads, head_size=size, value_size=size)


def _attended(call: LayerCall) -> Result:
    """Plan the attention of a query to values without projections."""
    if call.get("score_mode", "dot") != "dot" or call.options.get("return_attention_scores"):
        decline("its scores are not those of products, or are a result")
    query, value, *rest = map(call.plain, call.tensors[:3])
    key = rest[0] if rest else value
    query = scalar_parameter(call, query, "scale") if call.get("use_scale", False) else query
    dropout = call.number("dropout", 0.0)
    layer = ScaledDotProductAttention(
        heads=1, causal=bool(call.options.get("use_causal_mask", False)), dropout=dropout, scores="materialised"
    )
    return call.made(layer, query, key, value)


TRANSLATORS: Final[Mapping[str, Translator]] = {
    **dict.fromkeys((*(name for name in CELLS if not name.endswith("Cell")), "RNN"), _recurrent),
    "Bidirectional": _bidirectional,
    "MultiHeadAttention": _multi_head,
    **dict.fromkeys(("GroupQueryAttention", "GroupedQueryAttention"), _grouped),
    "Attention": _attended,
}
"""Class -> the function that plans its layers."""
