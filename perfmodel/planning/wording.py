"""Values as text and as JSON, shared by reports of differences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perfmodel.presentation.quantities import seconds_text


def signed_seconds_text(seconds: float) -> str:
    """Write a change of time with its sign.

    Examples
    --------
    >>> signed_seconds_text(-0.0125), signed_seconds_text(2.0)
    ('-12.50 ms', '+2.000 s')
    """
    return f"{'-' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"


def plain(value: Any) -> Any:
    """Convert an argument's value to JSON types; an object is replaced by its name.

    Examples
    --------
    >>> from pathlib import Path
    >>> plain({"batch_size": 16, "device": Path("my_gpu.toml"), "least_bytes": float("inf")})
    {'batch_size': 16, 'device': 'my_gpu.toml', 'least_bytes': 'inf'}
    """
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return str(value) if isinstance(value, float) and math.isinf(value) else value
    return str(getattr(value, "name", value))


def at_least(value: float) -> str:
    """Round up to four digits, so that a requirement stays sufficient.

    Examples
    --------
    >>> at_least(11.25998), at_least(1.2341), at_least(0.5)
    ('11.26', '1.235', '0.5')
    """
    step = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(round(value / step, 6)) * step:,.4g}"


def cents_up(usd: float) -> str:
    """Round an amount of money up to whole cents.

    Examples
    --------
    >>> cents_up(34.4555), cents_up(2.0)
    ('34.46', '2.00')
    """
    return f"{math.ceil(round(usd * 100, 6)) / 100:,.2f}"
