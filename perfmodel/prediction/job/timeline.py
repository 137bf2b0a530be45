"""Steps of a job simulated in time: what workers read, decode, copy, compute and exchange."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.prediction.job.compose import StageWork, is_served
from perfmodel.prediction.job.data_path import HOST_PASSES, DataPath
from perfmodel.prediction.job.played_kernels import lanes_of, played_kernels, shows_kernels
from perfmodel.simulation import Stage, Task, Timeline, input_pipeline_tasks, simulate
from perfmodel.simulation.pipeline import Hop
from perfmodel.simulation.synchronous import PlayedDevice, PlayedStep, synchronous_tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perfmodel.parallelism.base import Layout
    from perfmodel.prediction.certainty.basis import Basis
    from perfmodel.prediction.device.step_time import StepTime
    from perfmodel.prediction.job.prepared import Prepared

DECODING, HOST_COPIES, STORAGE = "decoding", "host copies", "storage"
"""Channels other than links: decoding cores, host memory, storage."""

OF_AGREEMENT: Final = (1,)
"""Seed offset that separates the random draws of workers and servers from those of input. [-]"""


def job_timeline(basis: Basis, *, step_count: int, seed: int = 0) -> Timeline:
    """Simulate steps of a job.

    Notes
    -----
    Valid for: data-parallel workers, with or without an agreement. The period differs from the closed form if flows
    share channels unequally (the closed form gives every worker the slowest rate) or copies share links with gradients.
    As in the closed form, only the slowest input stage varies, by the same factor for all workers. A network on several
    devices is simulated micro-batch by micro-batch; exchanges of its tensor groups and workers take the closed-form
    time. With asynchronous schemes the devices of a worker count as one.
    """
    prepared, timed, parts = basis.prepared, basis.timed, basis.timed.parts
    path = prepared.data_path
    path = DataPath(system_part=None, prefetch=1) if path is None else path
    channels = _channels(path)
    names = ("device",) if path.system_part is None else path.system_part.names
    workers = {
        name: _stages(basis, parts, path, worker=place, name=name, channels=channels)
        for place, name in enumerate(names)
    }
    resources = dict.fromkeys(names, 1) | {f"{name} copies": 1 for name in names}
    tasks: Iterable[Task] = input_pipeline_tasks(workers, step_count=step_count, prefetch=path.prefetch, seed=seed)
    draws = int(np.random.SeedSequence(seed, spawn_key=OF_AGREEMENT).generate_state(1)[0])
    played, agreement = _played_step(basis, names), prepared.agreement
    if agreement is not None:
        tasks, held, shared = agreement.played(tasks, timed.composed, step=played, step_count=step_count, seed=draws)
        resources |= held
        channels |= shared
    elif len(prepared.names) > prepared.layout.data_size:
        tasks = synchronous_tasks(tasks, played, relative=np.ones((step_count, len(names))), together=False)
        resources |= played.resources
    timeline = simulate(tasks, channels=channels, resources=resources)
    return _with_kernels(basis, timeline, names[0], step_count=step_count) if shows_kernels(basis) else timeline


def _with_kernels(basis: Basis, timeline: Timeline, device: str, *, step_count: int) -> Timeline:
    """Add the kernels of a lone device, and the dispatch it waits for, on lanes below its own."""
    starts_s = [timeline.span(f"{device}/compute/{number}").start_s for number in range(step_count)]
    kernels = tuple(played_kernels(basis, device=device, starts_s=starts_s))
    used = {span.resource for span in kernels}
    lanes = {lane: 1 for lane in lanes_of(device) if lane in used}
    resources = {device: 1} | lanes | dict(timeline.resources)
    return replace(timeline, kernels=kernels, resources=resources)


def _played_step(basis: Basis, workers: Sequence[str]) -> PlayedStep:
    """Return a worker's own part of a step."""
    prepared, composed = basis.prepared, basis.timed.composed
    layout = prepared.layout
    passes = layout.accumulation_steps
    works, places = composed.stages, range(len(composed.orders))
    forward, backward = (
        [(float(kernels), max(0.0, float(turn - kernels))) for kernels, turn in turns]
        for turns in (
            [(_kernels(work)[0], work.forward_s) for work in works],
            [(_kernels(work)[1], work.backward_s + _added_s(work, layout)) for work in works],
        )
    )
    serves = is_served(prepared.agreement)
    path, devices = prepared.data_path, []
    parts = _before_input(basis.timed.parts)
    beside_s = 0.0 if path is None else path.decoding_beside_s(parts, batch_size=prepared.batch_size)
    for place in places:
        chunks = [work for work in works if work.device == place]
        update = sum((work.times.update.step_s - serves * work.times.update.update_s) for work in chunks)
        waits_s = sum(float(work.tied_s) for work in chunks)
        adding_s = layout.adding_share * sum(work.times.adding.step_s for work in chunks) if passes > 1 else 0.0
        after_s = beside_s + (passes - 1) * adding_s + sum(float(work.copied_s + work.cast_s) for work in chunks)
        devices.append(PlayedDevice(update_s=max(0.0, layout.update_share * float(update) + after_s), waits_s=waits_s))
    return PlayedStep(
        orders=composed.orders,
        passes=passes,
        forward_s=forward,
        backward_s=backward,
        forward_hops=[Hop(float(work.send_s[0])) for work in works[:-1]],
        backward_hops=[Hop(float(work.send_s[1])) for work in works[1:]],
        joined_s=[float(work.joined_s) for work in works],
        devices=devices,
        lanes={worker: _lanes(prepared, place, worker) for place, worker in enumerate(workers)},
        cores=None if path is None else path.shared_cores(prepared.batch_size),
    )


def _added_s(work: StageWork, layout: Layout) -> Any:
    """Time of a backward turn's share of adding up the gradients of micro-batches. [s]"""
    share = layout.adding_share * (1 - 1 / layout.micro_batches)
    return share * work.times.adding.step_s if share else 0.0


def _kernels(work: StageWork) -> tuple[Any, Any]:
    """Time of a stage's forward and backward phase, during which its gradients become ready. [s]"""
    if not work.exchanges_gradients:
        return work.forward_s, work.backward_s
    return work.times.gradients.forward_s, work.times.gradients.backward_s


def _lanes(prepared: Prepared, worker: int, name: str) -> list[str]:
    """Lane names of a worker's devices, with their places in the pipeline. [-]"""
    layout, names = prepared.layout, prepared.names
    if layout.stages * layout.tensor_size == 1:
        return [name]
    lanes = []
    for place in range(layout.stages):
        first = (worker * layout.stages + place) * layout.tensor_size
        last = first + layout.tensor_size - 1
        devices = names[first] if first == last else f"{names[first]}..{names[last]}"
        lanes.append(f"{devices} stage {place}" if layout.stages > 1 else devices)
    return lanes


def _channels(path: DataPath) -> dict[str, float]:
    """Channels of the system, and those other than links. [B/s, or samples/s]"""
    links = {} if path.system_part is None else path.system_part.system.topology.channels
    reads = {channel.name: channel for way in path.read_routes for channel in way.channels}
    capacities = {name: channel.capacity_bytes_per_s for name, channel in {**links, **reads}.items()}
    others: dict[str, float] = {}
    for host in path.hosts:
        if path.decode_rate_per_core is not None:
            others[_of(host.name, DECODING)] = path.decode_core_count(host) * path.decode_rate_per_core
        others[_of(host.name, HOST_COPIES)] = host.memory_bytes_per_s
    if not path.read_routes:
        others[STORAGE] = path.read_bytes_per_s
    return capacities | {name: rate for name, rate in others.items() if math.isfinite(rate)}


def _of(node: str, pool: str) -> str:
    """Name of a pool on a machine."""
    return f"{node}/{pool}" if node else pool


def _stages(
    basis: Basis, parts: StepTime, path: DataPath, *, worker: int, name: str, channels: dict[str, float]
) -> list[Stage]:
    """Input stages of one worker, except those that take no time."""
    prepared = basis.prepared
    batch_size, data = prepared.batch_size, path.dataset
    stages = []
    if data is not None:
        slowest = path.slowest_stage(batch_size)
        if not path.is_cached and math.isfinite(path.read_bytes_per_s):
            way = path.read_routes[worker].channel_names if path.read_routes else (STORAGE,)
            stages.append(Stage("read", flow_bytes=batch_size * data.encoded_bytes_per_example, channels=way))
        node = "" if path.system_part is None else path.system_part.node_of(name)
        copied = batch_size * HOST_PASSES * data.decoded_bytes_per_example
        for kind, pool, amount in (("decode", DECODING, batch_size), ("host_copy", HOST_COPIES, copied)):
            if _of(node, pool) in channels:
                stages.append(Stage(kind, flow_bytes=amount, channels=(_of(node, pool),)))
        stages = [
            replace(stage, variation=path.input_variation) if stage.kind == slowest else stage for stage in stages
        ]
    before, meanwhile = prepared.copies(basis.factors)
    delays = prepared.agreement is not None and prepared.agreement.delays_copies
    ahead_of_step = 0 if delays else min(path.prefetch, 1)
    for kind, copy, ahead in (("transfer", meanwhile, ahead_of_step), ("feed", before, 0)):
        if copy.is_empty:
            continue
        how: dict[str, Any] = {"resource": f"{name} copies", "ahead": ahead}
        way = () if path.system_part is None else path.system_part.input_routes[worker].channel_names
        if (
            way and len(prepared.names) > prepared.layout.data_size
        ):  # other devices copy at once, which is not simulated
            shared = prepared.target_of(prepared.stages[0]).shared_bytes_per_s
            stages.append(Stage(kind, duration_s=float(copy.time(shared_bytes_per_s=shared)), **how))
            continue
        if not copy.copied_bytes:
            way = ()
        elif not way or float(copy.bytes_per_s) < channels[way[-1]]:  # pageable memory is copied slower than the link
            pageable = f"{name} {kind}"
            channels[pageable] = float(copy.bytes_per_s)
            way = (pageable, *way)
        latency_s = float(copy.host_s + copy.latency_s)
        stages.append(Stage(kind, latency_s=latency_s, flow_bytes=copy.copied_bytes, channels=way, **how))
    beside_s = path.decoding_beside_s(_before_input(parts), batch_size=batch_size)
    return [*stages, Stage("compute", resource=name, duration_s=float(parts.device_s + beside_s))]


def _before_input(parts: StepTime) -> StepTime:
    """Return the parts of a step without its wait for input. [s]"""
    return parts._replace(input_wait_s=0.0)
