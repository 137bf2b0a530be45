"""Kernels of a lone device's step, played one after the other inside its computation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.prediction.device.step_time import StepTime, concurrent_time
from perfmodel.records import Phase, Role
from perfmodel.simulation.timeline import Span

if TYPE_CHECKING:
    from perfmodel.prediction.certainty.basis import Basis
    from perfmodel.prediction.job.stage import TimedStage

MOST_KERNELS: Final = 100_000
"""Kernels of a timeline after which no further step shows any, to bound the size of a trace. [1]"""

RECOMPUTED: Final = "recomputed forward"
"""Kind of a forward operation that the backward phase runs again."""


class Played(NamedTuple):
    """An operation of a step: the dispatch that the device waits for, and then its kernels. [s]"""

    name: str
    kind: str
    dispatch_s: float
    kernel_s: float


def shows_kernels(basis: Basis) -> bool:
    """Whether each step consists of the kernels of one device and nothing else."""
    prepared = basis.prepared
    is_alone = len(prepared.names) == len(prepared.stages) == prepared.layout.micro_batches == 1
    return is_alone and prepared.agreement is None


def lanes_of(device: str) -> tuple[str, str]:
    """Lanes of a device's kernels and of the dispatch that it waits for."""
    return f"{device} kernels", f"{device} dispatch"


def played_kernels(basis: Basis, *, device: str, starts_s: list[float]) -> Iterator[Span]:
    """Yield the kernels of the steps that begin to compute at these times. [s]"""
    step = _step(basis)
    of_kernels, of_dispatch = lanes_of(device)
    shown = 0
    for start_s in starts_s:
        if shown and shown + len(step) > MOST_KERNELS:
            return
        shown += len(step)
        end_s = start_s
        for name, kind, dispatch_s, kernel_s in step:
            for lane, of_kind, seconds in ((of_dispatch, "dispatch", dispatch_s), (of_kernels, kind, kernel_s)):
                begin_s, end_s = end_s, end_s + seconds
                if seconds:
                    yield Span(
                        task=name, kind=of_kind, start_s=begin_s, flow_start_s=begin_s, end_s=end_s, resource=lane
                    )


def _step(basis: Basis) -> list[Played]:
    """List the operations of a step; their times add up to the device's time in the composition. [s]"""
    (times,), passes = basis.timed.stages, basis.prepared.layout.accumulation_steps
    operations = _operations(times)
    overhead_s = float(times.numbers.step_overhead_s)
    subnormal_s = float(times.how["subnormal_s"])
    first_step_s = float(basis.timed.parts.overhead_s - basis.timed.alone.overhead_s)
    # what a framework does once a step, apart from operations, counts with the forward phase of each pass
    begun = Played("begin of a step", "subnormal numbers", overhead_s, subnormal_s)
    adding = [_as_played("sum of gradients", "adding gradients", times.adding)] if passes > 1 else []
    listed = [Played("first step, its share", "forward", first_step_s, 0.0)] if first_step_s > 0 else []
    for number in range(passes):
        listed += [begun, *operations[Phase.FORWARD], *operations[Phase.BACKWARD]]
        listed += adding if number else []
    return [*listed, *operations[Phase.UPDATE]]


def _as_played(name: str, kind: str, parts: StepTime) -> Played:
    exposed_s = float(parts.overhead_s - parts.launch_s)
    return Played(name, kind, exposed_s, float(parts.step_s) - exposed_s)


def _operations(times: TimedStage) -> dict[Phase, list[Played]]:
    """Operations of each phase in the order in which they run. [s]"""
    stage, groups, table = times.stage, times.groups, times.stage.lowered.table
    busy_s: Any = groups.compute_s + groups.memory_s
    threads = times.how["scheduler_threads"]
    if threads > 1:  # operations that run at the same time are drawn in a row, each shortened alike
        together_s = concurrent_time(table, busy_s, scheduler_threads=threads)
        busy_s = busy_s * (together_s / (table.multiplicity @ busy_s))
    kernel_s = np.asarray(busy_s + groups.launches * times.numbers.launch_s, dtype=float).tolist()
    dispatch_s = np.broadcast_to(np.asarray(groups.exposed_dispatch_s, dtype=float), len(kernel_s)).tolist()
    chosen = groups.chosen.tolist()
    lowered, placed = stage.subject.graph, stage.placed.graph
    names = {one.name: other.name for one, other in zip(lowered.layers, placed.layers, strict=True)}
    operations: dict[Phase, list[Played]] = {phase: [] for phase in Phase}
    for layer, phase, role, group in table.occurrences:
        again = phase is Phase.BACKWARD and role is Role.OUTPUT
        kernel = table.alternative_names[chosen[group]]
        operations[phase].append(
            Played(
                f"{names.get(layer, layer)}, {role.value.replace('_', ' ')}: {kernel}",
                RECOMPUTED if again else phase.value,
                dispatch_s[group],
                kernel_s[group],
            )
        )
    return operations
