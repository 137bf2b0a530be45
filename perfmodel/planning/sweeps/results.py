"""Result columns of a sweep, made from the parts of a step, and the reasons of impossible configurations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.money import hire_cost
from perfmodel.derived import derived_property, record
from perfmodel.errors import check_known
from perfmodel.prediction.device.step_time import PARTS, TOTALS
from perfmodel.prediction.memory.footprint import missing_bytes, missing_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from perfmodel.hardware.dataset import Dataset
    from perfmodel.prediction.device.step_time import StepTime

FITS: Final = "fits"
"""Column: whether a configuration is possible and fits in memory."""

REASON: Final = "reason"
"""Column: why a configuration is impossible or has no price."""

NO_FIT: Final = "it does not fit"
"""Start of the reason of a configuration that lacks memory."""

IMAGENET_EXAMPLES: Final = 1_281_167
"""Samples of an epoch without a data set or ``dataset_size``: the ILSVRC 2012 training set. [samples]"""


@record
class Needs:
    """Memory that possible configurations need, and what there is of it. [B]"""

    memory_bytes: Any
    capacity_bytes: Any
    missing_elsewhere_bytes: Any = 0.0
    """Memory that a parameter server lacks on machines without a worker. [B]"""

    @derived_property
    def fits(self) -> Any:
        """Whether the needed memory is within the capacity, and a parameter server's on its machines."""
        return missing_bytes(self.memory_bytes, self.capacity_bytes, self.missing_elsewhere_bytes) <= 0


@record
class Outcome:
    """Results of possible configurations; fields that differ between them are arrays."""

    parts: StepTime
    batch_size: Any
    counted_workers: Any
    device_count: Any
    needs: Needs
    usd_per_hour: Any
    dataset_size: Any
    energy_of: Callable[[Any], Any]
    """Energy of all devices in a step of this time; NaN where a power is unknown. [J]"""

    @derived_property
    def step_s(self) -> Any:
        """Time of one step. [s]"""
        return self.parts.step_s

    @derived_property
    def has_times(self) -> bool:
        """Whether the time of every step is finite."""
        step_s = np.asarray(self.step_s)
        return bool(step_s.min() >= 0 and step_s.max() < np.inf)

    @property
    def samples_per_s(self) -> Any:
        """Samples per second of all workers whose gradients count. [samples/s]"""
        return self.counted_workers * self.batch_size / self.step_s

    @property
    def epoch_s(self) -> Any:
        """Time of one pass over the data set. [s]"""
        return np.ceil(self.dataset_size / (self.counted_workers * self.batch_size)) * self.step_s

    @derived_property
    def usd_per_epoch(self) -> Any:
        """Hire of all devices for one epoch. [USD]"""
        return hire_cost(duration_s=self.epoch_s, usd_per_hour=self.usd_per_hour, instance_count=self.device_count)

    @property
    def energy_j(self) -> Any:
        """Energy of all devices in a step. [J]"""
        return self.energy_of(self.step_s)


RESULTS: Final[Mapping[str, Callable[[Outcome], Any]]] = {
    **{name: attrgetter(name) for name in ("step_s", "samples_per_s", "epoch_s", "usd_per_epoch", "energy_j")},
    **{name: attrgetter(f"needs.{name}") for name in ("memory_bytes", "capacity_bytes", FITS)},
    **{name: attrgetter(f"parts.{name}") for name in (*PARTS, *TOTALS)},
}
"""Column -> its formula; ``reason`` is stored as codes of texts."""

USUAL: Final = ("step_s", "samples_per_s", "usd_per_epoch", FITS, REASON)
"""Default columns."""

LARGER_IS_BETTER: Final = frozenset({"samples_per_s", "mfu"})
"""Columns in which larger values are better; in all others, smaller values are."""


def checked_columns(columns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the requested columns, checked, with ``fits`` and ``reason`` last."""
    asked = USUAL if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    for name in asked:
        check_known("column", name, (*RESULTS, REASON))
    return (*dict.fromkeys(name for name in asked if name not in (FITS, REASON)), FITS, REASON)


def epoch_size(dataset_size: int | None, dataset: Dataset | None) -> int:
    """Return the samples of an epoch: the stated number, else the data set's, else ImageNet's."""
    if dataset_size is not None:
        return dataset_size
    return IMAGENET_EXAMPLES if dataset is None else dataset.example_count


@lru_cache(maxsize=65_536)
def memory_reason(memory_bytes: float, capacity_bytes: float, missing_elsewhere_bytes: float = 0.0) -> str:
    """Reason why a configuration does not fit; empty if it does."""
    missing = missing_text(memory_bytes - capacity_bytes, missing_elsewhere_bytes, of=" of device memory")
    return f"{NO_FIT}: {missing}" if missing else ""


COMMON_PARTS: Final = (
    (re.compile(r"unknown dtype of .*? '(\w+)'\."), r"no \1"),
    (re.compile(r".*? (cannot run [^:]+):"), r"\1"),
)
"""Reasons that name a device or framework, and the part that they have in common."""


def common_part(reason: str) -> str:
    """Return the part of a reason that devices or frameworks have in common; empty for other reasons.

    >>> common_part("Torch7, cuDNN 5.0 cannot run a computation in bf16: Torch7, doc/tensor.md")
    'cannot run a computation in bf16'
    """
    return next((match.expand(part) for pattern, part in COMMON_PARTS if (match := pattern.match(reason))), "")


def short_reason(reason: str) -> str:
    """Return the common part of reasons: memory, the argument that they name, or their first sentence.

    >>> short_reason("shard_stage must be 0, 1 or 2 in a pipeline (got 3)")
    'shard_stage'
    >>> short_reason("unknown dtype of NVIDIA T4 'bf16'. Did you mean 'fp16'? Known: fp16, fp32, fp64.")
    'no bf16'
    """
    if reason.startswith(NO_FIT):
        return "memory"
    argument, refuses, _ = reason.partition(" must be ")
    return argument if refuses else common_part(reason) or reason.partition(". ")[0]


@dataclass(eq=False)
class Reasons:
    """Texts of reasons, each stored once under a code; code 0 is the empty text."""

    texts: list[str] = field(default_factory=lambda: [""])
    _codes: dict[str, int] = field(default_factory=lambda: {"": 0})

    def code(self, *reasons: str) -> int:
        """Return the code of some reasons joined to one text."""
        text = "; ".join(reason for reason in reasons if reason)
        if text not in self._codes:
            self._codes[text] = len(self.texts)
            self.texts.append(text)
        return self._codes[text]


def check_ranked(name: object, columns: Iterable[str]) -> None:
    """Reject a column that configurations cannot be ranked by."""
    kept = [column for column in columns if column not in (FITS, REASON)]
    check_known("column of results", name, kept, remedy="Others are kept if columns= (--column) names them.")


def front(ranked: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the Pareto front: the configurations that no other beats in every column."""
    order = np.lexsort(ranked[::-1])
    if not len(order):
        return order
    if len(ranked) <= 2:  # one or two columns need one pass over sorted rows
        last = ranked[-1][order]
        lowest_before = np.minimum.accumulate(np.r_[np.inf, last[:-1]])
        return order[last < lowest_before] if len(ranked) > 1 else order[:1]
    kept: list[int] = []
    while len(order):
        first, order = order[0], order[1:]
        kept.append(int(first))
        order = order[np.any(ranked[:, order] < ranked[:, [first]], axis=0)]
    return np.array(kept, dtype=np.intp)
