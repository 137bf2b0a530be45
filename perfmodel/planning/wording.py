"""Words and plain values that reports of differences share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perfmodel.presentation.quantities import seconds_text


def signed_seconds_text(seconds: float) -> str:
    """Write a change of time with its sign.

    Parameters
    ----------
    seconds : float
        Change. [s]

    Returns
    -------
    str
        In s, ms or us. [-]

    Examples
    --------
    >>> signed_seconds_text(-0.0125), signed_seconds_text(2.0)
    ('-12.50 ms', '+2.000 s')
    """
    return f"{'-' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"


def plain(value: Any) -> Any:
    """Return a value of an argument as JSON knows it: what was made in Python by its name.

    Parameters
    ----------
    value : object
        An argument's value. [-]

    Returns
    -------
    object
        A number, text, truth value, None, or a mapping or list of such; ``inf``, which JSON lacks, as text. [-]

    Examples
    --------
    >>> from pathlib import Path
    >>> plain({"batch_size": 16, "device": Path("my_gpu.toml"), "bucket_bytes": float("inf")})
    {'batch_size': 16, 'device': 'my_gpu.toml', 'bucket_bytes': 'inf'}
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
