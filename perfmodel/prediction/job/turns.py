"""Turns of a worker's devices in a pipeline: when each ends, with and without the messages that slow it down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.pipeline_ends import NO_MESSAGES, TurnMessages, pipeline_ends, pipelines_ends
from perfmodel.prediction.job.stacking import stacked, taken
from perfmodel.symbolic import Quantity, is_symbolic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.cost.pipeline_ends import PipelineEnds
    from perfmodel.cost.pipeline_order import Orders
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.compose import DeviceWork, WorkerWork


@dataclass(frozen=True, slots=True, eq=False)
class Turned:
    """Times at which devices of a pipeline finish a pass of all micro-batches. [s]"""

    ends: PipelineEnds | None
    free: PipelineEnds | None
    slowed: Turned | None = None
    """Times with the messages that slow turns down; None if there are none."""


Messages = Sequence[TurnMessages]
"""Messages of each chunk of layers; empty if they slow down no turn."""


def turned(worker: WorkerWork, orders: Orders, messages: Messages = ()) -> Turned:
    """Compute the ends of a pass of all micro-batches, by device and chunk, with and without transfers. [s]"""
    return all_turned([worker], [orders], [messages])[0]


def all_turned(
    workers: Sequence[WorkerWork], orders: Sequence[Orders], messages: Sequence[Messages] | None = None
) -> list[Turned]:
    """Compute the ends of a pass for each worker as ``turned`` does, arrays of all workers at once. [s]"""
    turned_of, pipelines, together = [Turned(None, None)] * len(orders), [], []
    messages = [()] * len(orders) if messages is None else messages
    for place, (worker, order, sent) in enumerate(zip(workers, orders, messages, strict=True)):
        times_s = (*worker.forward_send_s, *worker.backward_send_s)
        if len(order) > 1 and any(isinstance(send_s, np.ndarray) for send_s in times_s):
            sends_s = [np.reshape(send_s, (1, -1)) for send_s in times_s]
            if any(map(np.any, sends_s)):  # with and without transfers
                sends_s = [np.concatenate([send_s, np.zeros_like(send_s)]) for send_s in sends_s]
            pipelines.append((order, (*worker.forward_s, *worker.backward_s), sends_s, sent))
            together.append(place)
        elif len(order) > 1:
            turned_of[place] = _turned_apart(worker, order, sent)
    for place, both in zip(together, pipelines_ends(pipelines), strict=True):
        turned_of[place] = Turned(*(taken(both, row) for row in (0, -1)))
    return turned_of


def _turned_apart(worker: WorkerWork, orders: Orders, messages: Messages) -> Turned:
    how: dict[str, Any] = {"forward_s": worker.forward_s, "backward_s": worker.backward_s, "messages": messages}
    free = (0.0,) * len(worker.forward_send_s)
    return Turned(
        ends=pipeline_ends(orders, forward_send_s=worker.forward_send_s, backward_send_s=worker.backward_send_s, **how),
        free=pipeline_ends(orders, forward_send_s=free, backward_send_s=free, **how),
    )


def messages_of_chunks(
    agreement: Agreement, devices: Sequence[DeviceWork], *, chunk_count: int
) -> tuple[TurnMessages, ...]:
    """Messages of each chunk that slow the turns of its device down."""
    messages = [NO_MESSAGES] * chunk_count
    for device in devices:
        for chunk, sent in agreement.messages_of_device(device):
            messages[chunk] = sent
    return tuple(messages)


def slow_turns(messages: Messages) -> bool:
    """Whether any messages slow turns down."""
    return any(is_symbolic(sent.slowdown) or bool(np.any(sent.slowdown)) for sent in messages)


def slow_places(messages: Messages, *, count: int) -> NDArray[np.intp]:
    """Places of the configurations, of ``count`` [1], whose turns messages slow down."""
    return np.flatnonzero(np.any([np.broadcast_to(sent.slowdown, count) for sent in messages], axis=0))


def slowed_at(places: NDArray[np.intp], *, of: Turned, to: Turned) -> Turned:
    """Replace the turns ``of`` all configurations, at these places, by turns that messages slow down."""
    assert of.ends is not None
    assert of.free is not None
    count = len(of.ends.device_s[0])
    ends, free = (replace(ends, left_s=(np.zeros(count),) * len(ends.device_s)) for ends in (of.ends, of.free))
    quiet = Turned(ends, free)
    at = np.arange(count)
    at[places] = count + np.arange(len(places))
    return taken(stacked([quiet, to], [count, len(places)]), at)  # type: ignore[no-any-return]


def sent_s(ends: PipelineEnds) -> tuple[Quantity, ...]:
    """Time at which each device has finished its turns and sent all messages. [s]"""
    if not ends.left_s:
        return ends.device_s
    return tuple([end_s + left_s for end_s, left_s in zip(ends.device_s, ends.left_s, strict=True)])
