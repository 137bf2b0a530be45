"""Messages of gradients: of a size, or one for each unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.cost.gradient_buckets import buckets
from perfmodel.derived import derived
from perfmodel.parallelism.units import unit_slices
from perfmodel.prediction.job.agreement_options import UNITS
from perfmodel.prediction.job.gradients import Buckets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfmodel.prediction.job.gradients import GradientSchedule


@derived
def messages_of(schedule: GradientSchedule, message_bytes: float | str) -> Buckets:
    """Group gradients into messages of a size, or one for each unit, once for all agreements."""
    return Buckets.of(schedule, slices_of(schedule, message_bytes))


def slices_of(schedule: GradientSchedule, message_bytes: float | str) -> Sequence[slice]:
    """Gradients of each message of a size, or of a unit."""
    if message_bytes == UNITS:
        return unit_slices(schedule.chunks)
    return buckets(schedule.sizes_bytes, least_bytes=float(message_bytes))
