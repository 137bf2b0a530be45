"""What data-parallel workers on stages of a network exchange, and what of it computing hides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfmodel.cost.overlap import bucket_sums, buckets, ends, exposed_exchange
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.parallelism import Exchange, Placement, StageGraph
    from perfmodel.prediction.parallel_stage import StageTimes

ExchangeTime = Callable[["Exchange", float, "StageGraph"], float]
"""Seconds of an exchange of so many bytes, on the devices of a stage."""


@dataclass(frozen=True, slots=True)
class DataSync:
    """What data-parallel workers spend on gradients and parameters.

    Parameters
    ----------
    total_s : float
        Hidden or not. [s]
    exposed_s : float
        What is left when computing ends. [s]
    """

    total_s: float
    exposed_s: float


SyncOfDevice = Callable[[Sequence["StageGraph"], Sequence["StageTimes"]], DataSync]
"""What the workers' exchange of the stages of one device costs."""


def exchange_count(exchange: Exchange, *, micro_batches: int) -> int:
    """Return how often a step has an exchange: what depends on samples, and shared parameters, for every micro-batch.

    Parameters
    ----------
    exchange : Exchange
        The exchange. [-]
    micro_batches : int
        Parts of a mini-batch. [1]

    Returns
    -------
    int
        Times. [1]
    """
    if exchange.phase is Phase.UPDATE or (exchange.group == "data" and exchange.kind != "all_gather"):
        return 1
    return micro_batches


def data_sync_of(
    placement: Placement, exchange_time: ExchangeTime, *, overlap: bool = False, bucket_bytes: float = 0.0
) -> SyncOfDevice:
    """Return the cost of workers that exchange gradients and parameters.

    Parameters
    ----------
    placement : Placement
        The network on devices. [-]
    exchange_time : callable
        Seconds of an exchange. [s]
    overlap : bool
        Whether gradients leave while the last micro-batch's backward phase runs, and shared parameters are gathered
        while those of the layer before are in use; without, all of it is exposed. [-]
    bucket_bytes : float
        Gradients leave once so many bytes of them are ready. [B]

    Returns
    -------
    callable
        Seconds of the stages of one device. [s]

    Notes
    -----
    Valid for: a device whose last work of a step is the backward phase of its stages, the last one first. Ignores:
    that gathering parameters and scattering gradients of one backward phase share links.
    """
    repeats = placement.layout.micro_batches

    def sync(stages: Sequence[StageGraph], times: Sequence[StageTimes]) -> DataSync:
        total_s = exposed_s = computed_s = 0.0
        ready_s: list[float] = []
        message_s: list[float] = []
        for stage, each in reversed(list(zip(stages, times, strict=True))):
            of_stage = _messages(stage, each, exchange_time, bucket_bytes=bucket_bytes)
            ready_s += [computed_s + ready for ready, _ in of_stage]
            message_s += [seconds for _, seconds in of_stage]
            computed_s += each.backward_s
            gathered = _gathered(stage, each, exchange_time, repeats=repeats, overlap=overlap)
            total_s, exposed_s = total_s + gathered.total_s, exposed_s + gathered.exposed_s
        sent_s = sum(message_s)
        if message_s and overlap:
            last_s = ends(ready_s=ready_s, message_s=message_s)[-1]
            exposed_s += float(exposed_exchange(last_end_s=last_s, computed_s=computed_s))
        else:
            exposed_s += sent_s
        return DataSync(total_s + sent_s, exposed_s)

    return sync


def _messages(
    stage: StageGraph, times: StageTimes, exchange_time: ExchangeTime, *, bucket_bytes: float
) -> list[tuple[float, float]]:
    """Return when each message of gradients of a stage may leave, and what it takes. [s]"""
    found = [each for each in stage.exchanges if each.group == "data" and each.kind != "all_gather"]
    if not found:
        return []
    ready = dict(zip(stage.graph.trained_parameter_counts, times.gradient_ready_s, strict=True))
    found.sort(key=lambda exchange: ready[exchange.after_layer])
    sizes = [exchange.size_bytes(0) for exchange in found]
    merged = buckets(sizes, bucket_bytes=bucket_bytes)
    return [
        (ready[found[each.stop - 1].after_layer], exchange_time(found[each.start], float(size), stage))
        for each, size in zip(merged, bucket_sums(sizes, merged), strict=True)
    ]


def _gathered(
    stage: StageGraph, times: StageTimes, exchange_time: ExchangeTime, *, repeats: int, overlap: bool
) -> DataSync:
    """Return what gathering parameters takes in all micro-batches and after the update. [s]"""
    total_s = exposed_s = 0.0
    for phase, lasting_s in ((Phase.FORWARD, times.forward.step_s), (Phase.BACKWARD, times.backward.step_s)):
        gathers = _gathers(stage, phase)
        once_s = sum(exchange_time(each, each.size_bytes(0), stage) for each in gathers)
        total_s += repeats * once_s
        exposed_s += repeats * (max(0.0, once_s - float(lasting_s)) if overlap else once_s)
    after_s = sum(exchange_time(each, each.size_bytes(0), stage) for each in _gathers(stage, Phase.UPDATE))
    return DataSync(total_s + after_s, exposed_s + after_s)


def _gathers(stage: StageGraph, phase: Phase) -> list[Exchange]:
    return [
        each for each in stage.exchanges if each.group == "data" and each.kind == "all_gather" and each.phase is phase
    ]
