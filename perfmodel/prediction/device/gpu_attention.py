"""Time of fused attention on a GPU, with the constants of the library that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfmodel.cost.attention import attention_time, keys_seen_in_all
from perfmodel.cost.gpu import stream_time
from perfmodel.framework.lowering import ATTENTION_KERNELS
from perfmodel.prediction.device.named_rows import by_row, rows_named
from perfmodel.symbolic import Quantity, is_symbolic

if TYPE_CHECKING:
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.prediction.device.gpu_target import GpuNumbers


_NAMES = tuple(ATTENTION_KERNELS)


class PassConstants(NamedTuple):
    """Constants of a library for attention, or for its gradients."""

    clock_ratio: Quantity
    efficiency: Quantity
    softmax_instructions: Quantity
    ramp_rows: Quantity
    most_splits: Quantity


class AttentionLibrary(NamedTuple):
    """Constants of fused attention of a library on one device; its ratios are of rates at the boost clock."""

    peak_ratio: Quantity
    lane_ratio: Quantity
    exponentials_per_lane: Quantity
    tile_rows: Quantity
    block_rows: Quantity
    dropout_instructions: Quantity
    bandwidth_fraction: Quantity
    forward: PassConstants
    backward: PassConstants

    @property
    def values(self) -> tuple[Quantity, ...]:
        """Every number. [unit of each]"""
        return (*self[:-2], *self.forward, *self.backward)

    def times(
        self, columns: Mapping[str, Quantity], names: tuple[str, ...], numbers: GpuNumbers
    ) -> list[tuple[Any, Quantity, Quantity]]:
        """Compute and memory seconds of one launch of each row of fused attention. [s]"""
        if (rows_here := rows_named(names, _NAMES)) is None:
            return []
        picked = {name: values[rows_here.rows] for name, values in columns.items()}
        axes = picked["m"].ndim
        of_rows = _stated_rows if numbers.is_plain and axes == 1 else _of_rows
        constants = dict(of_rows(self, rows_here.name_of_row, axes))
        clock_ratio = constants.pop("clock_ratio")
        if is_symbolic(picked["m"], numbers.peak_flop_per_s, *self.values):
            constants |= {name: constants[name].astype(object) for name in ("causal", "backward")}
        instructions_per_s = numbers.lane_peak_flop_per_s / 2 * self.lane_ratio
        boosted_s = attention_time(
            queries=picked["m"],
            keys=keys_seen_in_all(queries=picked["m"], visible=picked["n"], causal=constants["causal"]),
            summed=picked["k"],
            count=picked["count"],
            peak_flop_per_s=numbers.peak_flop_per_s * self.peak_ratio,
            unit_count=numbers.unit_count,
            exponentials_per_s=instructions_per_s * self.exponentials_per_lane,
            instructions_per_s=instructions_per_s,
            tile_rows=self.tile_rows,
            block_rows=self.block_rows,
            **constants,
        )
        memory_s = stream_time(
            moved_bytes=picked["read_bytes"] + picked["written_bytes"],
            bandwidth_bytes_per_s=numbers.bandwidth_bytes_per_s,
            efficiency=self.bandwidth_fraction,
        )
        return [(rows_here.rows, boosted_s / clock_ratio, memory_s)]


def _of_rows(library: AttentionLibrary, names: tuple[str, ...], axes: int) -> dict[str, Any]:
    """Constants of each row, and whether it is causal and computes gradients, as 1 or 0."""
    traits = np.array([ATTENTION_KERNELS[name] for name in names], dtype=int).T
    code = traits[2]
    constants = {
        name: by_row(of_passes, code, axes=axes)
        for name, *of_passes in zip(PassConstants._fields, library.forward, library.backward, strict=True)
    }
    causal, drops, backward = traits if axes == 1 else traits[:, :, None]
    constants["softmax_instructions"] = constants["softmax_instructions"] + drops * library.dropout_instructions
    return constants | {"causal": causal, "backward": backward}


_stated_rows = lru_cache(maxsize=256)(_of_rows)
"""The same for constants as their files state them, which are plain numbers."""


def busy_shares(constants: Mapping[str, Any]) -> tuple[Quantity, Quantity]:
    """Shares of the peak that attention, and its gradients, keep busy. [1]"""
    return constants["forward_efficiency"], constants["backward_efficiency"]


def attention_library(
    constants: Mapping[str, Any],
    device: Gpu,
    *,
    peak_ratio: Quantity,
    lane_ratio: Quantity,
    clock_of: Callable[[Quantity], Quantity],
) -> AttentionLibrary:
    """Join a library's constants and a device's lanes; ``clock_of`` a busy share is the clock over that of boost."""
    forward, backward = (
        PassConstants(
            clock_ratio=clock_of(busy_share),
            efficiency=constants[f"{part}_efficiency"],
            softmax_instructions=constants[f"{part}_softmax_instructions"],
            ramp_rows=constants[f"{part}_ramp_rows"],
            most_splits=constants["most_splits"] if part == "forward" else 1.0,
        )
        for part, busy_share in zip(("forward", "backward"), busy_shares(constants), strict=True)
    )
    return AttentionLibrary(
        peak_ratio=peak_ratio,
        lane_ratio=lane_ratio,
        exponentials_per_lane=constants["exponentials_per_cycle"] / device.lanes_per_unit,
        tile_rows=constants["tile_rows"],
        block_rows=constants["block_rows"],
        dropout_instructions=constants["dropout_instructions"],
        bandwidth_fraction=constants["bandwidth_fraction"],
        forward=forward,
        backward=backward,
    )
