"""Tasks of a pipeline of devices: forward and backward phases of micro-batches in a schedule's order, and transfers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a turn.

    Parameters
    ----------
    seconds : float
        How long it works. [s]
    after : tuple of str
        Tasks that it waits for besides the piece before. [-]
    """

    seconds: float
    after: tuple[str, ...] = ()


def _task_name(lane: str, turn: Turn) -> str:
    return f"{lane}/{turn.phase}/{turn.chunk}/{turn.micro_batch}"


def _for_itself(lane: str, seconds: float) -> Mapping[str, Any]:
    del lane
    return {"duration_s": seconds}


def pipeline_schedule_tasks(
    orders: Orders,
    *,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    forward_hops: Sequence[Hop],
    backward_hops: Sequence[Hop],
    names: Sequence[str] | None = None,
    after: tuple[str, ...] = (),
    called: Callable[[str, Turn], str] = _task_name,
    pieces: Mapping[Turn, Sequence[Piece]] | None = None,
    computing: Callable[[str, float], Mapping[str, Any]] = _for_itself,
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
    after : tuple of str
        Tasks that must have ended before any of these begins. [-]
    called : callable
        Device and turn to the name of its task. [-]
    pieces : mapping of Turn to sequence of Piece or None
        Turns that are cut; their tasks are numbered after the name of the turn. [-]
    computing : callable
        Device and seconds to what a task takes of the device. [-]

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
    pieces = {} if pieces is None else pieces
    followed: dict[Turn, tuple[str, bool]] = {}
    for lane, order in zip(lanes, orders, strict=True):
        for turn in order:
            following = following_turn(turn, chunk_count=chunk_count)
            if following is not None:
                followed[following] = ending(called(lane, turn), turn, pieces), following.chunk != turn.chunk
    sends = {turn: f"{own}/send" if is_sent else own for turn, (own, is_sent) in followed.items()}
    found: list[Task] = []
    for lane, order in zip(lanes, orders, strict=True):
        earlier = after
        for turn in order:
            whole = [Piece(times[turn.phase][turn.chunk])]
            own, cut = called(lane, turn), pieces.get(turn)
            needs = (*earlier, *((sends[turn],) if turn in sends else ()))
            for place, piece in enumerate(whole if cut is None else cut):
                name = own if cut is None else f"{own}/{place}"
                waits = tuple(dict.fromkeys((*needs, *piece.after)))
                found.append(Task(name, resource=lane, after=waits, kind=turn.phase, **computing(lane, piece.seconds)))
                needs = earlier = (name,)
            following = following_turn(turn, chunk_count=chunk_count)
            if following is not None and followed[following][1]:
                boundary = min(turn.chunk, following.chunk)
                hop, link = hops[turn.phase][boundary], _link_name(lanes, turn.phase, boundary)
                found.append(_sent(hop, name=sends[following], after=earlier, link=link))
    return tuple(found)


def _sent(hop: Hop, *, name: str, after: tuple[str, ...], link: str) -> Task:
    return Task(
        name,
        resource=link,
        duration_s=hop.duration_s,
        flow_bytes=hop.flow_bytes,
        channels=hop.channels,
        after=after,
        kind="send",
    )


def stage_lanes(device_count: int) -> list[str]:
    """Return what the devices of a pipeline are called where nobody names them. [-]"""
    return [f"stage{device}" for device in range(device_count)]


def ending(own: str, turn: Turn, pieces: Mapping[Turn, Sequence[Piece]]) -> str:
    """Return the name of the task that ends a turn.

    Parameters
    ----------
    own : str
        Name of the turn. [-]
    turn : Turn
        The turn. [-]
    pieces : mapping of Turn to sequence of Piece
        Turns that are cut. [-]

    Returns
    -------
    str
        That of its last piece, if it is cut. [-]
    """
    return f"{own}/{len(pieces[turn]) - 1}" if turn in pieces else own


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
