"""Parameters that a device holds whole for a while although workers share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfmodel.parallelism.base import ALL_SHARED, Layout
from perfmodel.records import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitBytes:
    """Sizes of parameters that a device holds whole for a while although workers share them.

    Parameters
    ----------
    root_bytes : float
        Parameters outside blocks, gathered for the whole step. [B]
    block_bytes, blocks_bytes : float
        Parameters of the largest block, and of all. [B]
    copied_bytes : float
        Narrow copies of parameters; where parameters are shared, the copies are gathered. [B]
    casts_shares : bool
        Whether a device casts its share of a unit before it is gathered, on a stream that keeps this memory. [-]
    copies_out : bool
        Whether parameters are copied out of the buffer that gathered them, which stays until the next copy [1]. [-]

    References
    ----------
    .. [1] PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_all_gather (the output is
       allocated in the stream that copies shares in) and foreach_all_gather_copy_out; _fsdp_param_group.py,
       wait_for_unshard ("free the all-gather result" at the copy-out that follows). Flat parameters:
       torch/distributed/fsdp/_flat_param.py, _use_low_precision_shard and _alloc_padded_unsharded_flat_param.
    """

    root_bytes: float
    block_bytes: float
    blocks_bytes: float
    copied_bytes: float
    casts_shares: bool = False
    copies_out: bool = False

    def gathered(self, layout: Layout) -> float:
        """Parameters beside a device's own shares: all that stay, or the blocks gathered ahead of one. [B]"""
        is_freed, all_bytes = layout.shard_stage == ALL_SHARED, self.root_bytes + self.blocks_bytes
        ahead_bytes = layout.prefetch_limit * self.block_bytes
        share_bytes = max(self.root_bytes, self.block_bytes) / layout.sharing_size if self.casts_shares else 0.0
        if not self.copies_out:
            in_use_bytes = self.root_bytes + self.block_bytes + ahead_bytes
            return share_bytes + (min(in_use_bytes, all_bytes) if is_freed else all_bytes)
        in_use_bytes = self.root_bytes + self.block_bytes if is_freed else all_bytes
        # a unit's buffer is there until the next unit is copied out of its own
        return share_bytes + in_use_bytes + min(max(self.root_bytes, ahead_bytes) + self.block_bytes, all_bytes)


def unit_bytes(prepared: Prepared, stages: Sequence[Stage]) -> UnitBytes:
    """Sizes of the units whose parameters are gathered together. [B]"""
    from perfmodel.parallelism.units import sharded_units

    memory = prepared.profile.memory
    element_bytes, overhead = ELEMENT_BYTES[prepared.dtype], memory.pool_overhead
    root = block = blocks = 0
    for stage in stages:
        for unit in sharded_units(stage.placed.graph):
            root += 0 if unit.is_block else unit.parameter_count
            block = max(block, unit.parameter_count if unit.is_block else 0)
            blocks += unit.parameter_count if unit.is_block else 0
    rules = [stage.lowered.memory(stage.subject.graph).rules for stage in stages]
    copied = sum(0 if rule.types is None else rule.types.copied_weight_bytes for rule in rules)
    return UnitBytes(
        root_bytes=overhead * element_bytes * root,
        block_bytes=overhead * element_bytes * block,
        blocks_bytes=overhead * element_bytes * blocks,
        copied_bytes=float(overhead * copied),
        casts_shares=any(rule.parameter_bytes != element_bytes for rule in rules),
        copies_out=memory.shared_units == "by_parameter",
    )
