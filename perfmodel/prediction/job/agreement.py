"""Agreement of a job's workers: the interface, and the schemes without waiting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfmodel.simulation.asynchronous import fed_asynchronous_tasks, server_resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perfmodel.hardware.source import SpecFile
    from perfmodel.prediction.device.step_time import StepTime
    from perfmodel.prediction.job.compose import Composed
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.parameter_server import ServerMemory
    from perfmodel.prediction.job.work import DeviceWork
    from perfmodel.simulation import Task
    from perfmodel.simulation.synchronous import PlayedStep
    from perfmodel.symbolic import Quantity
    from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers, AsynchronousScheme, AsynchronousTimes


@dataclass(frozen=True, eq=False, kw_only=True)
class Agreement(ABC):
    """How workers that train one network agree on its parameters."""

    name: str
    worker_count: int
    sources: tuple[SpecFile, ...] = ()
    server: ServerMemory | None = None
    asked: Job | None = None

    @property
    def counted_workers(self) -> int:
        """Workers whose gradients of a step are used. [1]"""
        return self.worker_count

    @property
    def batches_per_update(self) -> int:
        """Mini-batches of one worker behind each update. [1]"""
        return self.counted_workers

    @property
    def delays_copies(self) -> bool:
        """Whether copies of mini-batches can no longer hide behind the computing of other steps."""
        return False

    @property
    def hides_copies(self) -> bool:
        """Whether copies can hide while workers wait; not where they share the way to a server. [-]"""
        return False

    @property
    def serves(self) -> bool:
        """Whether a parameter server applies updates instead of the workers."""
        return self.server is not None

    def visits(self, own: StepTime) -> AsynchronousTimes | None:
        """Return the times of server visits, with knee and utilisation; None where workers wait for one another."""
        del own
        return None

    def exchanged(self, device: DeviceWork) -> tuple[Quantity, Quantity]:
        """Exchange time of a device with other workers in a step, total and exposed. [s]"""
        del device
        return 0.0, 0.0

    def gathered(self, device: DeviceWork) -> tuple[Quantity, Quantity]:
        """Time to gather shared parameters for one micro-batch, total and exposed. [s]"""
        del device
        return 0.0, 0.0

    def sent_bytes(self, size_bytes: float, place: int) -> float:
        """Bytes that one device of a worker sends for this many bytes of gradients [B]. [B]"""
        del size_bytes, place
        return 0.0

    @abstractmethod
    def applied(self, own: StepTime, exchanged: tuple[Quantity, Quantity]) -> StepTime:
        """Add the agreement to the parts of a step."""

    @abstractmethod
    def played(
        self, fed: Iterable[Task], composed: Composed, *, step: PlayedStep, step_count: int, seed: int
    ) -> tuple[Iterable[Task], Mapping[str, int], Mapping[str, float]]:
        """Return the steps of all workers as tasks, with their resources and channels beyond the system's links."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Asynchronous(Agreement):
    """Workers visit a parameter server without waiting for others, except for those far behind."""

    scheme: AsynchronousScheme
    numbers: AsynchronousNumbers

    @property
    def batches_per_update(self) -> int:
        """Mini-batches of one worker, or one group, behind each update. [1]"""
        return int(self.times(1.0).batches_per_update)

    def times(self, computing_s: Quantity) -> AsynchronousTimes:
        """Return the times of the scheme for workers that compute this long. [s]"""
        return self.scheme.times(replace(self.numbers, compute_s=computing_s))

    def visits(self, own: StepTime) -> AsynchronousTimes:
        """Return the times of the scheme, given one worker's own step."""
        return self.times(self.computing_s(own))

    @staticmethod
    def computing_s(own: StepTime) -> Quantity:
        """Return the computing time of a worker without the update, which the server applies. [s]"""
        return own.device_s - own.update_s

    def applied(self, own: StepTime, exchanged: tuple[Quantity, Quantity]) -> StepTime:  # noqa: D102
        del exchanged
        times = self.visits(own)
        visit_s = times.group_sync_s + times.wait_s
        return replace(
            own,
            update_s=0.0,
            straggler_s=times.straggler_s,
            sync_s=own.sync_s + visit_s,
            exposed_sync_s=own.exposed_sync_s + visit_s,
        )

    def played(  # noqa: D102
        self, fed: Iterable[Task], composed: Composed, *, step: PlayedStep, step_count: int, seed: int
    ) -> tuple[Iterable[Task], Mapping[str, int], Mapping[str, float]]:
        numbers = self.scheme.in_effect(replace(self.numbers, compute_s=float(self.computing_s(composed.own))))
        tasks = fed_asynchronous_tasks(fed, numbers, workers=list(step.lanes), step_count=step_count, seed=seed)
        return tasks, server_resources(numbers), {}
