"""Copies between host and device, as numbers from which a time follows, with or without other traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfmodel.cost.transfer import copy_time
from perfmodel.numeric import minimum
from perfmodel.symbolic import Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Arrays of a mini-batch on their way to a device."""

    host_s: Quantity = 0.0
    latency_s: float = 0.0
    copied_bytes: Quantity = 0.0
    bytes_per_s: Quantity = math.inf

    @property
    def is_empty(self) -> bool:
        """Whether nothing is staged or copied."""
        if self.latency_s:
            return False
        is_staged = not isinstance(self.host_s, float) or self.host_s
        return not (is_staged or np.any(self.copied_bytes))

    def repeated(self, count: int) -> Copy:
        """Return ``count`` such copies in a row as one."""
        if count == 1 or self is NO_COPY:
            return self
        return Copy(
            host_s=count * self.host_s,
            latency_s=count * self.latency_s,
            copied_bytes=count * self.copied_bytes,
            bytes_per_s=self.bytes_per_s,
        )

    def time(self, *, shared_bytes_per_s: Quantity = math.inf) -> Quantity:
        """Duration, where other copies may leave only a share of the bandwidth. [s]"""
        if self is NO_COPY or self.is_empty:
            return 0.0
        return self.host_s + copy_time(
            size_bytes=self.copied_bytes,
            bandwidth_bytes_per_s=minimum(self.bytes_per_s, shared_bytes_per_s),
            latency_s=self.latency_s,
        )


NO_COPY = Copy()
"""Nothing is staged or copied."""
