"""The small frozen records that travel through the library: work, phases, roles and operations."""

from __future__ import annotations

from perfmodel.records.operations import (
    ELEMENT_BYTES,
    Attention,
    Contraction,
    Convolution,
    Gather,
    MemoryPass,
    Operation,
    Phase,
    Quantity,
    Recurrence,
    Role,
    Work,
)

__all__ = [
    "ELEMENT_BYTES",
    "Attention",
    "Contraction",
    "Convolution",
    "Gather",
    "MemoryPass",
    "Operation",
    "Phase",
    "Quantity",
    "Recurrence",
    "Role",
    "Work",
]
