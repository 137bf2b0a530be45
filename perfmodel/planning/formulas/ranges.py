"""How far a number may be moved before the step is another one, of which its formula says nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from perfmodel.hardware.gpu import FASTEST_LANES, Gpu
from perfmodel.prediction.gpu_target import product_dtype
from perfmodel.units import TERA

if TYPE_CHECKING:
    from perfmodel.prediction.prepared import Prepared


class Range(NamedTuple):
    """What a symbol may be.

    ``smallest`` and ``largest`` are its ends [unit of the symbol], ``why`` the reason [-].
    """

    smallest: float
    largest: float
    why: str

    def holds(self, numbers: Any) -> bool:
        """Tell whether all numbers lie in it."""
        return bool(((numbers >= self.smallest) & (numbers <= self.largest)).all())

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        ends = [f"at least {self.smallest:.6g}"] if self.smallest > 0 else []
        ends += [f"at most {self.largest:.6g}"] if math.isfinite(self.largest) else []
        return f"{' and '.join(ends)}, {self.why}"


def range_of_peak(prepared: Prepared, device: Any, dtype: str) -> Range | None:
    """Return how far a listed peak may be moved before a library computes in another type.

    Whether half precision runs on lanes or on tensor cores follows from its peak over that of single precision, and a
    library without kernels for tensor cores computes in a wider type: a step at the other side has other kernels.

    Parameters
    ----------
    prepared : Prepared
        The step. [-]
    device : Gpu
        The device whose peak is free; all its other peaks are those of its file. [-]
    dtype : str
        Data type of that peak. [-]

    Returns
    -------
    Range or None
        In FLOP/s; None where nothing changes. [-]
    """
    if not isinstance(device, Gpu) or dtype not in ("fp16", "fp32") or "fp16" not in device.dtypes:
        return None
    half, single = (device.peak_flop_per_s(name) for name in ("fp16", "fp32"))
    border, value = (FASTEST_LANES * single, half) if dtype == "fp16" else (half / FASTEST_LANES, single)

    def types_at(peak: float) -> list[str]:
        peaks = device.peak_tflop_per_s.model_copy(update={dtype: peak / TERA})
        changed = device.model_copy(update={"peak_tflop_per_s": peaks})
        known = (changed, prepared.profile, prepared.libraries)
        return [product_dtype(*known, role, dtype=prepared.dtype) for role in prepared.libraries]

    below, above = border * (1 - 1e-9), border * (1 + 1e-9)
    if types_at(below) == types_at(above):
        return None
    why = "where half precision stays on plain lanes" if half <= FASTEST_LANES * single else "that of tensor cores"
    return Range(0.0, below, why) if value <= border else Range(above, math.inf, why)
