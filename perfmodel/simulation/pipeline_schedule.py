"""Tasks of a pipeline of devices: forward and backward phases of micro-batches in a schedule's order, and transfers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.cost.pipeline_order import Orders, Turn, following_turn
from perfmodel.errors import ArgumentError
from perfmodel.simulation.tasks import Task


@dataclass(frozen=True, slots=True)
class Hop:
    """What brings a micro-batch's tensor from one chunk of layers to the next.

    Parameters
    ----------
    duration_s : float
        Time it takes whatever else is going on. [s]
    flow_bytes : float
        Bytes over each channel. [B]
    channels : tuple of str
        Channels they pass. [-]
    """

    duration_s: float = 0.0
    flow_bytes: float = 0.0
    channels: tuple[str, ...] = ()


def pipeline_schedule_tasks(
    orders: Orders,
    *,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    forward_hops: Sequence[Hop],
    backward_hops: Sequence[Hop],
    name: str = "stage",
    prefix: str = "",
    after: tuple[str, ...] = (),
) -> tuple[Task, ...]:
    """Tasks of the devices of a pipeline and of the transfers between them.

    Parameters
    ----------
    orders : tuple of tuple of Turn
        Turns of each device, from ``perfmodel.cost.pipeline_order``. [-]
    forward_s, backward_s : sequence of float
        Of one micro-batch in each chunk. [s]
    forward_hops, backward_hops : sequence of Hop
        From each chunk to the next, and back; one less than chunks. [-]
    name : str
        Beginning of the devices' names. [-]
    prefix : str
        What the names of tasks begin with. [-]
    after : tuple of str
        Tasks that must have ended before any of these begins. [-]

    Returns
    -------
    tuple of Task
        Named ``stage0/forward/chunk/micro-batch``; transfers end in ``/send``. [-]

    Raises
    ------
    ArgumentError
        If there are not as many times as chunks, or hops as boundaries.

    Notes
    -----
    Valid for: transfers that keep no device busy; one at a time in each direction of each boundary.

    Examples
    --------
    >>> from perfmodel.cost.pipeline_order import one_forward_one_backward_order
    >>> from perfmodel.simulation import simulate
    >>> orders = one_forward_one_backward_order(stage_count=4, micro_batch_count=8)
    >>> tasks = pipeline_schedule_tasks(orders, forward_s=[1.0] * 4, backward_s=[2.0] * 4,
    ...     forward_hops=[Hop()] * 3, backward_hops=[Hop()] * 3)
    >>> simulate(tasks, channels={}, resources=pipeline_resources(orders, chunk_count=4)).makespan_s
    33.0
    """
    times = {"forward": forward_s, "backward": backward_s}
    hops = {"forward": forward_hops, "backward": backward_hops}
    chunk_count = 1 + max(turn.chunk for order in orders for turn in order)
    for argument, given, count in (
        *((f"{phase}_s", values, chunk_count) for phase, values in times.items()),
        *((f"{phase}_hops", values, chunk_count - 1) for phase, values in hops.items()),
    ):
        if len(given) != count:
            raise ArgumentError(argument, len(given), f"{count} of them for {chunk_count} chunks")
    return tuple(_tasks(orders, times, hops, chunk_count=chunk_count, name=name, prefix=prefix, after=after))


def _tasks(
    orders: Orders,
    times: Mapping[str, Sequence[float]],
    hops: Mapping[str, Sequence[Hop]],
    *,
    chunk_count: int,
    name: str,
    prefix: str,
    after: tuple[str, ...],
) -> Iterator[Task]:
    device_count = len(orders)
    label = f"{prefix}{name}"
    sends: dict[Turn, str] = {}
    for device, order in enumerate(orders):
        for turn in order:
            following = following_turn(turn, chunk_count=chunk_count)
            if following is not None:
                own = _task_name(label, device, turn)
                sends[following] = own if following.chunk == turn.chunk else f"{own}/send"
    for device, order in enumerate(orders):
        earlier = after
        for turn in order:
            own = _task_name(label, device, turn)
            needs = (sends[turn],) if turn in sends else ()
            yield Task(
                own,
                resource=f"{name}{device}",
                duration_s=times[turn.phase][turn.chunk],
                after=tuple(dict.fromkeys((*earlier, *needs))),
                kind=turn.phase,
            )
            earlier = (own,)
            following = following_turn(turn, chunk_count=chunk_count)
            if following is not None and following.chunk != turn.chunk:
                boundary = min(turn.chunk, following.chunk)
                hop = hops[turn.phase][boundary]
                yield Task(
                    f"{own}/send",
                    resource=_link_name(name, turn.phase, boundary, device_count),
                    duration_s=hop.duration_s,
                    flow_bytes=hop.flow_bytes,
                    channels=hop.channels,
                    after=(own,),
                    kind="send",
                )


def _task_name(name: str, device: int, turn: Turn) -> str:
    return f"{name}{device}/{turn.phase}/{turn.chunk}/{turn.micro_batch}"


def _link_name(name: str, phase: str, boundary: int, device_count: int) -> str:
    """Return the resource of a boundary's transfers in one direction."""
    first, second = boundary % device_count, (boundary + 1) % device_count
    ends = (first, second) if phase == "forward" else (second, first)
    return f"{name}{ends[0]} to {name}{ends[1]}, boundary {boundary}"


def pipeline_resources(orders: Orders, *, chunk_count: int, name: str = "stage") -> dict[str, int]:
    """Return the resources that the tasks of a pipeline hold: devices, and boundaries in each direction.

    Parameters
    ----------
    orders : tuple of tuple of Turn
        Turns of each device. [-]
    chunk_count : int
        Chunks of layers in all. [1]
    name : str
        Beginning of the devices' names. [-]

    Returns
    -------
    dict of str to int
        One unit each. [1]
    """
    links = (
        _link_name(name, phase, boundary, len(orders))
        for phase in ("forward", "backward")
        for boundary in range(chunk_count - 1)
    )
    return dict.fromkeys([*(f"{name}{device}" for device in range(len(orders))), *links], 1)
