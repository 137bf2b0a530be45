"""Inputs of the composition: plain numbers of each stage, and of each device once it has computed."""

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
    """Times of a stage for one micro-batch, without copies and exchanges, worked out when read."""

    @property
    def whole(self) -> StepTime:
        """All phases, with the update. [s]"""

    @property
    def forward(self) -> StepTime:
        """The forward phase. [s]"""

    @property
    def backward(self) -> StepTime:
        """The backward phase; zero where there is none. [s]"""

    @property
    def update(self) -> StepTime:
        """The update, once for all micro-batches; zero where there is none. [s]"""

    @property
    def gradients(self) -> GradientSchedule:
        """Times at which the gradients of its layers are ready. [s]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class StageWork:
    """Work of a stage for one micro-batch: floats, arrays of shape (configurations,), or expressions."""

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
        """Forward turn of a micro-batch. [s]"""
        return named(self.times.forward.step_s + self.group_s[0], "forward turn")

    @derived_property
    def backward_s(self) -> Quantity:
        """Backward turn of a micro-batch. [s]"""
        return named(self.times.backward.step_s + self.group_s[1], "backward turn")

    @derived_property
    def computed(self) -> StepTime:
        """Device time for one micro-batch. [s]"""
        return self.times.forward + self.times.backward


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gather:
    """Parameters that data-parallel workers gather for a phase, during the phase before it."""

    seconds: Quantity
    hidden_by_s: Quantity


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeviceWork:
    """Exchanges of a device with those of other workers."""

    place: int
    schedule: GradientSchedule | None
    gathers: tuple[Gather, ...] = ()
    gathered_s: Quantity = 0.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WorkerWork:
    """Work of a worker's devices for one micro-batch."""

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
    """Times at which devices of a pipeline finish a pass of all micro-batches. [s]"""

    ends: PipelineEnds | None
    free: PipelineEnds | None
