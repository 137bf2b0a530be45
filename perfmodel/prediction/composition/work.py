"""What the composition of a step is given: plain numbers of each stage, and of each device when it has computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from perfmodel.derived import derived_property
from perfmodel.symbolic import named

if TYPE_CHECKING:
    from perfmodel.cost.pipeline_order import PipelineEnds
    from perfmodel.prediction.gradients import GradientSchedule
    from perfmodel.prediction.step_time import StepTime

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
    """What a stage takes for one micro-batch: floats, arrays of shape (configurations,), or expressions.

    Parameters
    ----------
    times : PhaseTimes
        What its device computes. [s]
    device : int
        The device of a worker that has the stage. [1]
    exchanges_gradients : bool
        Whether data-parallel workers add up the gradients of its layers. [-]
    group_s : tuple of 2 float, ndarray or sympy.Expr
        What exchanges inside a tensor group add to the forward and to the backward phase. [s]
    exchanged_s : float, ndarray or sympy.Expr
        Exchanges of a micro-batch with devices of the same worker, hidden or not. [s]
    send_s : tuple of 2 float, ndarray or sympy.Expr
        Transfer of a micro-batch to the next stage, and of its gradient to the one before. [s]
    gather_s : tuple of 2 float, ndarray or sympy.Expr
        Gathering of shared parameters for the forward and for the backward phase of each micro-batch. [s]
    tied_s : float, ndarray or sympy.Expr
        Sums of the gradients of tied tables among stages, after the last backward phase. [s]
    gathered_s : float, ndarray or sympy.Expr
        Gathering of shared parameters after the update. [s]
    """

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
    """Parameters that data-parallel workers gather for a phase, while the phase before it runs.

    Parameters
    ----------
    seconds : float, ndarray or sympy.Expr
        Of one phase. [s]
    hidden_by_s : float, ndarray or sympy.Expr
        Length of the phase that it may hide behind. [s]
    """

    seconds: Quantity
    hidden_by_s: Quantity


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeviceWork:
    """What a device of a worker exchanges with those of other workers.

    Parameters
    ----------
    place : int
        Its place among the devices of a worker. [1]
    schedule : GradientSchedule or None
        When its gradients are ready; None where it exchanges none. [s]
    gathers : tuple of Gather
        Parameters gathered while phases of one micro-batch run. [s]
    gathered_s : float, ndarray or sympy.Expr
        Parameters gathered after the update. [s]
    """

    place: int
    schedule: GradientSchedule | None
    gathers: tuple[Gather, ...] = ()
    gathered_s: Quantity = 0.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WorkerWork:
    """What the devices of a worker do with one micro-batch.

    Parameters
    ----------
    device_of_chunk : tuple of int
        Device of each stage of the network. [1]
    forward_s, backward_s : tuple of float, ndarray or sympy.Expr
        Turns of each stage; none where one device has all. [s]
    there_s, back_s : tuple of float, ndarray or sympy.Expr
        Transfers from each stage to the next, and of the gradient back. [s]
    works_s : tuple of float, ndarray or sympy.Expr
        Turns of each device together. [s]
    updates : tuple of tuple of 2
        Update of each device: host time and launches, and kernels. [s]
    tied_s : tuple of float, ndarray or sympy.Expr
        Sums of the gradients of tied tables of each device. [s]
    longest : int
        The device that works longest; of several configurations the first one's. [1]
    longest_places : ndarray of int or None
        That device in each configuration; None where it is the same in all. [1]
    once : StepTime
        What it does for one micro-batch, exchanges within the worker among it. [s]
    update : StepTime
        Its update. [s]
    """

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
    """When the devices of a pipeline are through with a pass of all micro-batches.

    Parameters
    ----------
    ends, free : PipelineEnds or None
        With transfers, and if these took no time; None for one device, whose turns follow one another. [s]
    """

    ends: PipelineEnds | None
    free: PipelineEnds | None
