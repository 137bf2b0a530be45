"""When the gradient of each layer is ready, and when its weights are wanted: what exchanging them can hide behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.numeric import running_total
from perfmodel.records import Phase
from perfmodel.symbolic import named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.prediction.step_time import GroupTimes, ProcessorNumbers


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientSchedule:
    """Gradients of a step in the order in which they become ready.

    Parameters
    ----------
    layers : tuple of str
        Layers with parameters that are trained, the first one ready first. [-]
    sizes_bytes : ndarray, shape (layers,)
        Their gradients. [B]
    ready_s : ndarray, shape (layers,) or (layers, configurations)
        When each is ready, counted from the end of the forward phase. [s]
    wanted_s : ndarray, shape (layers,) or (layers, configurations)
        When the forward phase first wants the layer's weights, counted from its start. [s]
    forward_s, backward_s : float or ndarray of shape (configurations,)
        Length of the two phases. [s]
    """

    layers: tuple[str, ...]
    sizes_bytes: NDArray[np.float64]
    ready_s: NDArray[np.float64]
    wanted_s: NDArray[np.float64]
    forward_s: Any
    backward_s: Any

    def slowed(self, factor: Any) -> GradientSchedule:
        """Return the schedule of a worker whose phases take a factor as long. [s]"""
        return replace(
            self,
            ready_s=self.ready_s * factor,
            wanted_s=self.wanted_s * factor,
            forward_s=self.forward_s * factor,
            backward_s=self.backward_s * factor,
        )

    def taken(self, places: Any) -> GradientSchedule:
        """Return the schedule of some configurations."""
        varied = ("ready_s", "wanted_s", "forward_s", "backward_s")
        return replace(self, **{name: getattr(self, name)[..., places] for name in varied})


def gradient_schedule(
    table: KernelTable,
    groups: GroupTimes,
    numbers: ProcessorNumbers,
    *,
    parameter_counts: Mapping[str, int],
    element_bytes: float,
) -> GradientSchedule:
    """Follow a step's operations in the order they run.

    Parameters
    ----------
    table : KernelTable
        The lowered graph. [-]
    groups : GroupTimes
        What each operation costs. [s]
    numbers : ProcessorNumbers
        What a launch costs. [s]
    parameter_counts : mapping of str to int
        Parameters that are trained, by layer. [1]
    element_bytes : float
        Size of one element of a gradient. [B]

    Returns
    -------
    GradientSchedule
        Gradients in the order in which they become ready. [-]

    Notes
    -----
    Valid for: operations one after the other, in the order of the table. A layer's gradient is ready once its last
    operation of the backward phase has ended; parameters that several layers share count as those of the layer that
    owns them, ready with the last operation of that layer.
    """
    busy_s = groups.compute_s + groups.memory_s + groups.launches * numbers.launch_s
    seconds = named(busy_s + groups.exposed_dispatch_s, "operation")
    by_phase = {
        phase: [each for each in table.occurrences if each.phase is phase] for phase in (Phase.FORWARD, Phase.BACKWARD)
    }
    ends = {phase: running_total(seconds[[each.group for each in listed]]) for phase, listed in by_phase.items()}
    first = {}
    for place, each in reversed(list(enumerate(by_phase[Phase.FORWARD]))):
        first[each.layer] = place
    last = {each.layer: place for place, each in enumerate(by_phase[Phase.BACKWARD]) if each.layer in parameter_counts}
    layers = tuple(sorted(last, key=lambda name: last[name]))
    starts = np.concatenate([np.zeros_like(ends[Phase.FORWARD][:1]), ends[Phase.FORWARD]])
    return GradientSchedule(
        layers=layers,
        sizes_bytes=element_bytes * np.array([parameter_counts[name] for name in layers], dtype=float),
        ready_s=ends[Phase.BACKWARD][[last[name] for name in layers]],
        wanted_s=starts[[first[name] for name in layers]],
        forward_s=ends[Phase.FORWARD][-1],
        backward_s=ends[Phase.BACKWARD][-1],
    )


def joined(
    schedules: Sequence[GradientSchedule],
    *,
    forward_from_s: Sequence[Any],
    backward_from_s: Sequence[Any],
    forward_s: Any,
    backward_s: Any,
) -> GradientSchedule:
    """Join the schedules of chunks of layers on one device, the gradients of later layers first.

    Parameters
    ----------
    schedules : sequence of GradientSchedule
        Of the chunks, in the order of the network. [s]
    forward_from_s, backward_from_s : sequence of float, ndarray or sympy.Expr
        When each chunk begins in the forward, and in the last backward phase of the device. [s]
    forward_s, backward_s : float, ndarray or sympy.Expr
        Length of these phases of the device. [s]

    Returns
    -------
    GradientSchedule
        Of all gradients of the device. [s]
    """
    last_first = list(zip(schedules, forward_from_s, backward_from_s, strict=True))[::-1]
    return GradientSchedule(
        layers=tuple(name for each, _, _ in last_first for name in each.layers),
        sizes_bytes=np.concatenate([each.sizes_bytes for each, _, _ in last_first]),
        ready_s=np.concatenate([each.ready_s + start for each, _, start in last_first]),
        wanted_s=np.concatenate([each.wanted_s + start for each, start, _ in last_first]),
        forward_s=forward_s,
        backward_s=backward_s,
    )
