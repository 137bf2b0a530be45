"""What the composition of a step is given: plain numbers of each stage, and of each device when it has computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from perfmodel.derived import derived_property
from perfmodel.symbolic import named

if TYPE_CHECKING:
    from perfmodel.cost.pipeline_order import PipelineEnds
    from perfmodel.prediction.device.step_time import StepTime
    from perfmodel.prediction.job.gradients import GradientSchedule

Quantity = Any


class PhaseTimes(Protocol):
    """Times of a stage for one micro-batch, without copies and exchanges; its phases are asked for where they count."""

    @property
    def whole(self) -> StepTime:
        """All phases, the update among them. [s]"""

    @property
    def forward(self) -> StepTime:
        """The forward phase. [s]"""

    @property
    def backward(self) -> StepTime:
        """The backward phase; zero where it does not run. [s]"""

    @property
    def update(self) -> StepTime:
        """The update, done once for all micro-batches; zero where it does not run. [s]"""

    @property
    def gradients(self) -> GradientSchedule:
        """When the gradients of its layers are ready. [s]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class StageWork:
    """What a stage takes for one micro-batch: floats, arrays of shape (configurations,), or expressions."""

    times: PhaseTimes
    device: int = 0
    exchanges_gradients: bool = False
    group_s: tuple[Quantity, Quantity] = (0.0, 0.0)
    exchanged_s: Quantity = 0.0
    send_s: tuple[Quantity, Quantity] = (0.0, 0.0)
    gather_s: tuple[Quantity, Quantity] = (0.0, 0.0)
    tied_s: Quantity = 0.0
    gathered_s: Quantity = 0.0

    @derived_property
    def forward_s(self) -> Quantity:
        """Turn of a micro-batch going forward. [s]"""
        return named(self.times.forward.step_s + self.group_s[0], "forward turn")

    @derived_property
    def backward_s(self) -> Quantity:
        """Turn of a micro-batch going back. [s]"""
        return named(self.times.backward.step_s + self.group_s[1], "backward turn")

    @derived_property
    def computed(self) -> StepTime:
        """What its device computes for one micro-batch. [s]"""
        return self.times.forward + self.times.backward


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gather:
    """Parameters that data-parallel workers gather for a phase, while the phase before it runs."""

    seconds: Quantity
    hidden_by_s: Quantity


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeviceWork:
    """What a device of a worker exchanges with those of other workers."""

    place: int
    schedule: GradientSchedule | None
    gathers: tuple[Gather, ...] = ()
    gathered_s: Quantity = 0.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WorkerWork:
    """What the devices of a worker do with one micro-batch."""

    device_of_chunk: tuple[int, ...]
    forward_s: tuple[Quantity, ...]
    backward_s: tuple[Quantity, ...]
    there_s: tuple[Quantity, ...]
    back_s: tuple[Quantity, ...]
    works_s: tuple[Quantity, ...]
    updates: tuple[tuple[Quantity, Quantity], ...]
    tied_s: tuple[Quantity, ...]
    longest: int
    longest_places: Quantity
    once: StepTime
    update: StepTime


@dataclass(frozen=True, slots=True, eq=False)
class Turned:
    """When the devices of a pipeline are through with a pass of all micro-batches."""

    ends: PipelineEnds | None
    free: PipelineEnds | None
