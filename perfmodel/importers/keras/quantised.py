"""Layers of a Keras model whose weights are quantised, or have low-rank adapters beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from warnings import warn

from perfmodel.errors import ParameterWarning, PrecisionWarning
from perfmodel.importers.build import listed
from perfmodel.importers.keras.configuration import LayerRecord
from perfmodel.records import PACKED_BYTES

BITS_STATED: Final = ("gptq", "awq")
"""Modes that say the bits of a weight behind them, as in ``gptq/4/128``."""


def _mode(config: Mapping[str, Any]) -> str | None:
    """Return the mode of a layer's quantised data-type policy, e.g. ``int8`` or ``int4/128``."""
    policy = config.get("dtype")
    inner = policy.get("config") if isinstance(policy, Mapping) else None
    mode = inner.get("mode") if isinstance(inner, Mapping) else None
    return mode if isinstance(mode, str) else None


def stored_dtype(config: Mapping[str, Any]) -> str | None:
    """Return the data type in which a layer stores its tables of weights; None for that of the network.

    Examples
    --------
    >>> stored_dtype({"dtype": {"config": {"mode": "gptq/4/128"}}}), stored_dtype({"dtype": "float32"})
    ('int4', None)
    """
    name, *details = (_mode(config) or "").split("/")
    dtype = f"int{details[0]}" if name in BITS_STATED and details else name
    return dtype if dtype in PACKED_BYTES else None


def warn_of_adapted_weights(records: Iterable[LayerRecord], *, where: str, stacklevel: int) -> None:
    """Warn of quantised layers, whose products need a ``dtype`` in a prediction, and of adapters that are left out."""
    quantised: dict[str, list[LayerRecord]] = {}
    adapted = []
    for record in records:
        if (mode := _mode(record.config)) is not None:
            quantised.setdefault(mode, []).append(record)
        if record.config.get("lora_rank"):
            adapted.append(record.name)
    for mode, layers in quantised.items():
        is_packed = stored_dtype(layers[0].config) is not None
        stored = "weights have their stored bytes" if is_packed else "weights count as those of other layers"
        names = listed([record.name for record in layers])
        told = "fp8" if mode.startswith("float8") else "int8"
        message = (
            f"{where}: {len(layers)} layers are quantised ({mode}): {names}: their {stored}; "
            f"products of eight bits are predicted with dtype={told!r} only"
        )
        warn(PrecisionWarning(message), stacklevel=stacklevel + 1)
    if adapted:
        message = (
            f"{where}: low-rank adapters (LoRA) of {len(adapted)} layers are left out: {listed(adapted)}; weights "
            "beside them, which Keras freezes, count as trained unless they are quantised"
        )
        warn(ParameterWarning(message), stacklevel=stacklevel + 1)
