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
    names: Sequence[str] | None = None,
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
    names : sequence of str or None
        Names of the devices; ``stage0``, ``stage1`` and so on unless given. [-]
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
    lanes = stage_lanes(len(orders)) if names is None else names
    if len(lanes) != len(orders):
        raise ArgumentError("names", len(lanes), f"{len(orders)} of them, one for each device")
    return tuple(_tasks(orders, times, hops, chunk_count=chunk_count, names=lanes, prefix=prefix, after=after))


def stage_lanes(device_count: int) -> list[str]:
    """Return what the devices of a pipeline are called where nobody names them. [-]"""
    return [f"stage{device}" for device in range(device_count)]


def _tasks(
    orders: Orders,
    times: Mapping[str, Sequence[float]],
    hops: Mapping[str, Sequence[Hop]],
    *,
    chunk_count: int,
    names: Sequence[str],
    prefix: str,
    after: tuple[str, ...],
) -> Iterator[Task]:
    sends: dict[Turn, str] = {}
    for device, order in enumerate(orders):
        for turn in order:
            following = following_turn(turn, chunk_count=chunk_count)
            if following is not None:
                own = _task_name(prefix + names[device], turn)
                sends[following] = own if following.chunk == turn.chunk else f"{own}/send"
    for device, order in enumerate(orders):
        earlier = after
        for turn in order:
            own = _task_name(prefix + names[device], turn)
            needs = (sends[turn],) if turn in sends else ()
            yield Task(
                own,
                resource=names[device],
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
                    resource=_link_name(names, turn.phase, boundary),
                    duration_s=hop.duration_s,
                    flow_bytes=hop.flow_bytes,
                    channels=hop.channels,
                    after=(own,),
                    kind="send",
                )


def _task_name(label: str, turn: Turn) -> str:
    return f"{label}/{turn.phase}/{turn.chunk}/{turn.micro_batch}"


def _link_name(names: Sequence[str], phase: str, boundary: int) -> str:
    """Return the resource of a boundary's transfers in one direction."""
    first, second = names[boundary % len(names)], names[(boundary + 1) % len(names)]
    ends = (first, second) if phase == "forward" else (second, first)
    return f"{ends[0]} to {ends[1]}, boundary {boundary}"


def pipeline_resources(orders: Orders, *, chunk_count: int, names: Sequence[str] | None = None) -> dict[str, int]:
    """Return the resources that the tasks of a pipeline hold: devices, and boundaries in each direction.

    Parameters
    ----------
    orders : tuple of tuple of Turn
        Turns of each device. [-]
    chunk_count : int
        Chunks of layers in all. [1]
    names : sequence of str or None
        Names of the devices; ``stage0``, ``stage1`` and so on unless given. [-]

    Returns
    -------
    dict of str to int
        One unit each. [1]
    """
    lanes = stage_lanes(len(orders)) if names is None else names
    links = (
        _link_name(lanes, phase, boundary) for phase in ("forward", "backward") for boundary in range(chunk_count - 1)
    )
    return dict.fromkeys([*lanes, *links], 1)
