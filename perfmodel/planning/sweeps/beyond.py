"""Rows of a sweep that are predicted although their framework cannot run the job."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.errors import PerfmodelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.planning.sweeps.space import Space

DECIDES: Final = (
    "framework", "device", "system", "machines", "phase", "dtype", "workers", "devices", "stages", "tensor_size",
    "parallelism", "sync", "weight_dtype", "optimizer",
)  # fmt: skip
"""Axes that decide whether a framework can run a job."""

ROWS_AT_ONCE: Final = 1_000_000
"""Rows whose axes are looked at together. [1]"""


def rows_beyond(space: Space, rows: NDArray[np.int64]) -> dict[str, int]:
    """Count rows of a space by the limit of their framework that they exceed; one row is checked for its kind.

    Rows of a kind share framework, class of device, phase, data type and layout.
    """
    limited = _limited_frameworks(space)
    if not limited.any():
        return {}
    names = [name for name in DECIDES if name in space.by_name]
    kinds: dict[tuple[Any, ...], tuple[str, ...]] = {}
    totals: Counter[str] = Counter()
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE]
        some = some[limited[space.codes("framework", some)]]
        if not len(some):
            continue
        codes, first, counts = np.unique(
            np.stack([space.codes(name, some) for name in names]), axis=1, return_index=True, return_counts=True
        )
        for combination, place, count in zip(codes.T.tolist(), first.tolist(), counts.tolist(), strict=True):
            kind = _kind(space, dict(zip(names, combination, strict=True)))
            if kind not in kinds:
                kinds[kind] = _missing_features(space, int(some[place]))
            totals.update(dict.fromkeys(kinds[kind], count))
    return dict(totals)


def _limited_frameworks(space: Space) -> NDArray[np.bool_]:
    """Tell for each value of the framework axis whether its file states limits."""
    axis = space.by_name.get("framework")
    if axis is None:
        return np.zeros(1, dtype=bool)
    return np.array([bool(getattr(space.value("framework", code), "cannot", ())) for code in range(len(axis))])


def _kind(space: Space, codes: dict[str, int]) -> tuple[Any, ...]:
    """Return the values of a combination, with a device replaced by its class, which alone makes a difference."""
    device = space.value("device", codes.pop("device", 0))
    return (type(device), *codes.items())


def _missing_features(space: Space, row: int) -> tuple[str, ...]:
    """Return the limits of the framework that a row exceeds, without the evidence."""
    try:
        shortfalls = space.predicted(row).basis.prepared.shortfalls
    except PerfmodelError:
        return ()
    return tuple(line.partition(": ")[0] for line in shortfalls)
