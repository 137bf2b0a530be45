"""What limits reads from a storage, as numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.symbolic import Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadLimits:
    """What limits reads from a storage; the arguments of ``cost.storage.read_rate``.

    Parameters
    ----------
    latency_s : float
        Time from asking to the first byte. [s]
    stream_bytes_per_s : float, ndarray or sympy.Expr
        What one stream delivers once it flows. [B/s]
    most_bytes_per_s : float, ndarray or sympy.Expr
        What the whole delivers at most. [B/s]
    most_reads_per_s : float, ndarray or sympy.Expr
        Reads that the whole serves at most. [1/s]
    most_outstanding_reads : float, ndarray or sympy.Expr
        Reads that can be under way at once for one host; infinity where only the reader decides. [1]
    """

    latency_s: float
    stream_bytes_per_s: Quantity
    most_bytes_per_s: Quantity
    most_reads_per_s: Quantity
    most_outstanding_reads: Quantity = math.inf
