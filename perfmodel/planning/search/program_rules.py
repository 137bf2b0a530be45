"""Layouts that a training program does not have, in one layout or in columns of many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np


class Rule(NamedTuple):
    """Layouts that a program refuses: the argument at fault, whether a layout is one, and what is allowed instead."""

    argument: str
    refuses: Callable[[Mapping[str, Any]], Any]
    allowed: str


def _is_set(value: Any) -> Any:
    """Tell whether a flag is set, of one layout or of each."""
    return np.asarray(value, dtype=bool)


def _reruns_parts(layout: Mapping[str, Any]) -> Any:
    return [value not in (None, 0, "full") for value in np.ravel(np.array(layout["recompute"], dtype=object))]


def _adds_up_each_pass(layout: Mapping[str, Any]) -> Any:
    """Tell whether a pipeline scatters gradients: torch's does so behind the last micro-batch of each pass [1]_.

    References
    ----------
    .. [1] PyTorch, torch/distributed/pipelining/stage.py, backward_maybe_with_nosync.
    """
    copies = layout["workers"] * layout["context_size"]
    return (layout["stages"] > 1) & (layout["shard_stage"] == 2) & (copies > 1)


# torch's "allgather" gathers keys, but attends to one part after another and lets gradients go round, in neither way
# as gathered keys are predicted (torch/distributed/tensor/experimental/_context_parallel/_attention.py)
OF_TORCHTITAN: Final = (
    Rule(
        "shard_stage", lambda at: at["shard_stage"] == 1,
        "0, 2 or 3 for torchtitan, which shards gradients with the optimizer's state",
    ),
    Rule(
        "shard_stage", lambda at: (at["context_size"] > 1) & (at["shard_stage"] == 0),
        "2 or 3 for torchtitan with context_size, whose devices share parameters too",
    ),
    Rule(
        "sequence_parallel", lambda at: (at["tensor_size"] > 1) & ~_is_set(at["sequence_parallel"]),
        "True for torchtitan with tensor_size",
    ),
    Rule("context_method", lambda at: at["context_method"] != "ring", "'ring' for torchtitan"),
    Rule("recompute", _reruns_parts, "None or 'full' for torchtitan"),
    Rule(
        "no_sync", lambda at: (at["stages"] == 1) & _is_set(at["no_sync"]),
        "False for torchtitan, which adds up gradients in every pass",
    ),
    Rule(
        "accumulation_steps", lambda at: _adds_up_each_pass(at) & (at["accumulation_steps"] > 1),
        "1 for torchtitan with shard_stage=2 in a pipeline, each pass of which ends in a sum",
    ),
    Rule(
        "no_sync", lambda at: _adds_up_each_pass(at) & (at["micro_batches"] > 1) & ~_is_set(at["no_sync"]),
        "True for torchtitan in a pipeline, which adds up gradients behind its last micro-batch",
    ),
)  # fmt: skip
"""What torchtitan has no flags for, or does otherwise than it is predicted."""

OF_PROGRAM: Final[Mapping[str | None, tuple[Rule, ...]]] = {"torchtitan": OF_TORCHTITAN}
"""Training program -> the layouts that it does not have."""
