"""Tasks of data-parallel workers whose network is spread over devices: stages, transfers, and what all agree on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from perfmodel.cost.pipeline_order import Orders
from perfmodel.simulation.pipeline_schedule import Hop, pipeline_resources, pipeline_schedule_tasks, stage_lanes
from perfmodel.simulation.tasks import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AGREEING: Final = "workers' exchange"
"""Lane of what workers exchange when all of them have computed."""


@dataclass(frozen=True, kw_only=True)
class ReplicaStep:
    """A step of a worker whose network several devices have, or that several micro-batches make up.

    Parameters
    ----------
    orders : tuple of tuple of Turn
        What each of its devices does, in order. [-]
    forward_s, backward_s : sequence of float
        Of one micro-batch in each chunk of layers. [s]
    forward_hops, backward_hops : sequence of Hop
        From each chunk to the next, and back. [-]
    agreeing_s : float
        What is left of the workers' exchange when all of them have computed. [s]
    rest_s : float
        What follows it on each device of a worker, of the one where it lasts longest: the update. [s]
    agrees : bool
        Whether workers wait for one another in every step. [-]
    lanes : mapping of str to sequence of str
        Worker to the names of its devices, by their place in the pipeline; of one that is not named after itself. [-]
    """

    orders: Orders
    forward_s: Sequence[float]
    backward_s: Sequence[float]
    forward_hops: Sequence[Hop]
    backward_hops: Sequence[Hop]
    agreeing_s: float = 0.0
    rest_s: float = 0.0
    agrees: bool = False
    lanes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def lanes_of(self, worker: str) -> Sequence[str]:
        """Return the names of a worker's devices. [-]"""
        return self.lanes.get(worker) or [f"{worker} {lane}" for lane in stage_lanes(len(self.orders))]


def replica_tasks(
    fed: Iterable[Task], step: ReplicaStep, *, workers: Sequence[str], relative: NDArray[np.float64]
) -> Iterator[Task]:
    """Tasks of workers that read on their own, each on several devices.

    Parameters
    ----------
    fed : iterable of Task
        What brings their mini-batches (``input_pipeline_tasks``), with a task ``worker/compute/step`` of each step. [-]
    step : ReplicaStep
        What takes the place of these. [-]
    workers : sequence of str
        Names. [-]
    relative : ndarray, shape (steps, workers)
        Time of each worker in each step, relative to that in ``step``. [1]

    Yields
    ------
    Task
        ``worker/compute/step`` ends a step of a worker; those of its devices are named as the pipeline's, with the step
        before them.

    Notes
    -----
    A step of a worker begins once its last one has ended on all of its devices. A factor holds for all that a worker
    does in a step, its transfers among them, not for what workers agree on.

    Examples
    --------
    >>> import numpy as np
    >>> from perfmodel.cost.pipeline_order import one_forward_one_backward_order
    >>> from perfmodel.simulation import Stage, input_pipeline_tasks, simulate
    >>> orders = one_forward_one_backward_order(stage_count=4, micro_batch_count=8)
    >>> step = ReplicaStep(orders=orders, forward_s=[1.0] * 4, backward_s=[2.0] * 4, forward_hops=[Hop()] * 3,
    ...     backward_hops=[Hop()] * 3, rest_s=1.0)
    >>> fed = input_pipeline_tasks({"worker0": [Stage("compute")]}, step_count=2)
    >>> tasks = replica_tasks(fed, step, workers=["worker0"], relative=np.ones((2, 1)))
    >>> simulate(tasks, channels={}, resources=replica_resources(step, ["worker0"])).makespan_s
    68.0
    """
    after: dict[str, tuple[str, ...]] = {}
    for task in fed:
        if task.kind == "compute":
            after[task.name] = task.after
        else:
            yield task
    for number, factors in enumerate(relative.tolist()):
        ends = []
        for worker, factor in zip(workers, factors, strict=True):
            earlier = (f"{worker}/compute/{number - 1}",) if number else ()
            begin = f"{worker}/begin/{number}"
            yield Task(begin, after=(*after[f"{worker}/compute/{number}"], *earlier), kind="begin")
            tasks = _stages(step, factor, lanes=step.lanes_of(worker), prefix=f"{number}/", after=begin)
            yield from tasks
            followed = {name for task in tasks for name in task.after}
            ends.append(tuple(task.name for task in tasks if task.name not in followed))
        agreed: tuple[str, ...] = ()
        if step.agrees:
            agreed = (f"sync/{number}",)
            all_ends = tuple(name for each in ends for name in each)
            yield Task(agreed[0], resource=AGREEING, duration_s=step.agreeing_s, after=all_ends, kind="sync")
        for worker, factor, own in zip(workers, factors, ends, strict=True):
            updates = [
                Task(
                    f"{number}/{lane}/update",
                    resource=lane,
                    duration_s=factor * step.rest_s,
                    after=agreed or own,
                    kind="update",
                )
                for lane in step.lanes_of(worker)
            ]
            yield from updates
            yield Task(f"{worker}/compute/{number}", after=tuple(task.name for task in updates), kind="end")


def _stages(step: ReplicaStep, factor: float, *, lanes: Sequence[str], prefix: str, after: str) -> tuple[Task, ...]:
    """Return the pipeline of one worker in one step, none of whose tasks begins earlier than another has ended."""

    def scaled(hops: Sequence[Hop]) -> list[Hop]:
        return [replace(hop, duration_s=factor * hop.duration_s) for hop in hops]

    return pipeline_schedule_tasks(
        step.orders,
        forward_s=[factor * seconds for seconds in step.forward_s],
        backward_s=[factor * seconds for seconds in step.backward_s],
        forward_hops=scaled(step.forward_hops),
        backward_hops=scaled(step.backward_hops),
        names=lanes,
        prefix=prefix,
        after=(after,),
    )


def replica_resources(step: ReplicaStep, workers: Sequence[str]) -> Mapping[str, int]:
    """Return what the tasks of workers hold: their devices, and boundaries in each direction.

    Parameters
    ----------
    step : ReplicaStep
        A step of each. [-]
    workers : sequence of str
        Names. [-]

    Returns
    -------
    mapping of str to int
        One unit each. [1]
    """
    found: dict[str, int] = {}
    for worker in workers:
        found |= pipeline_resources(step.orders, chunk_count=len(step.forward_s), names=step.lanes_of(worker))
    return found | ({AGREEING: 1} if step.agrees else {})
