"""A network put on devices: cut, placed on the system, and every stage lowered."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from perfmodel.errors import NotYetAvailableError
from perfmodel.parallelism import place
from perfmodel.parallelism.phases import placement_of_phase
from perfmodel.prediction.exchange_times import PlacedExchanges
from perfmodel.prediction.group_server import ServedGroups, group_agreement, served_groups
from perfmodel.prediction.parallel_stage import StagePredictor
from perfmodel.prediction.prepared import Prepared
from perfmodel.prediction.reading_devices import reading_devices
from perfmodel.prediction.spread import Spread, SpreadAsked
from perfmodel.records import ELEMENT_BYTES, Phase
from perfmodel.sync.ring_order import way_between

if TYPE_CHECKING:
    from pathlib import Path

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.parallelism import Layout, Placement, StageGraph
    from perfmodel.prediction.data_path import DataPath
    from perfmodel.prediction.parallel_step import ParallelStep
    from perfmodel.prediction.subject import Subject
    from perfmodel.prediction.target import Target


def prepare_spread(
    subject: Subject,
    asked: SpreadAsked,
    *,
    target: Target,
    profile: FrameworkProfile,
    batch_size: int,
    dtype: str,
    library: str | Path | LibraryProfile | None,
    pinned: bool,
    recompute: str | None,
    data_path: DataPath | None = None,
) -> Spread:
    """Place a network on devices and lower each stage.

    Parameters
    ----------
    subject : Subject
        What runs. [-]
    asked : SpreadAsked
        How it is spread. [-]
    target : Target
        Each device, and the machine it stands in. [-]
    profile : FrameworkProfile
        With what. [-]
    batch_size : int
        Samples of a data-parallel worker per step. [samples]
    dtype : str
        Data type. [-]
    library : str, Path, LibraryProfile or None
        A library in place of the one of its kind that the framework names. [-]
    pinned : bool
        Whether host buffers are page-locked where the framework does so. [-]
    recompute : str or None
        Where checkpoints lie; None where the graph marks them, if anywhere. [-]
    data_path : DataPath or None
        What brings the mini-batches of all devices; None for ones that are in host memory. [-]

    Returns
    -------
    Spread
        Ready to be timed. [-]

    Raises
    ------
    ArgumentError
        If the network cannot be spread so, micro-batches do not divide the batch, or no link joins two devices.

    Notes
    -----
    Stages are cut where the longest is shortest by the constants of the files, not by those of a calibration. A
    mini-batch is read and decoded once for each data-parallel worker, in the machine of the first device of its first
    stage; every device of that stage's group copies it, and those of the last one copy the labels.
    """
    if not target.takes_parts:
        available = "networks that are whole and mini-batches in one; a data sheet's device serves the others"
        raise NotYetAvailableError("device", target.name, available)
    layout, machine = asked.layout, target.machine
    names = (target.name,) if machine is None else machine.names
    width, depth = layout.tensor_size, layout.stages
    if data_path is not None and machine is not None:
        data_path = replace(data_path, machine=reading_devices(machine.system, names[:: width * depth]))
    predictor = StagePredictor(
        subject=subject,
        target=target,
        profile=profile,
        dtype=dtype,
        recompute=recompute,
        options={"library": library, "pinned": pinned},
        prefetch=1 if data_path is None else data_path.prefetch,
        feeding=_feeding(target, layout),
    )
    placement = placement_of_phase(_placement(predictor, asked, batch_size=batch_size), subject.phase)
    exchanges = _exchanges(predictor, asked, placement)
    agreement = None
    if machine is not None and Phase.BACKWARD in subject.phase.parts:
        agreement = group_agreement(asked, placement, machine, subject, profile=profile, dtype=dtype)

    known: dict[str, ParallelStep] = {}

    def spread(stage: StageGraph) -> Spread:
        samples = layout.micro_batch_size(batch_size) * stage.batch_factor
        own = predictor.whole(stage, samples)
        given = {each.name: getattr(own, each.name) for each in fields(Prepared)}
        given |= {"target": target, "data_path": data_path, "agreement": agreement, "known": known}
        return Spread(
            **given,
            placement=placement,
            predictor=predictor,
            exchanges=exchanges,
            asked=asked,
            worker_batch_size=batch_size,
            lowered=own,
        )

    longest = spread(placement.stages[0]).nominal
    found = spread(next(stage for stage in placement.stages if stage.device == longest.longest))
    if agreement is None:
        return found
    return replace(found, agreement=replace(agreement, inner_s=longest.parts.exposed_sync_s))


def _feeding(target: Target, layout: Layout) -> dict[int, Target]:
    """Return the devices at each place of the pipeline, which share the way from the host; none without a system."""
    machine = target.machine
    if machine is None:
        return {}

    def at(place: int) -> tuple[str, ...]:
        every = enumerate(machine.names)
        return tuple(name for index, name in every if index // layout.tensor_size % layout.stages == place)

    return {place: target.on(reading_devices(machine.system, at(place))) for place in range(layout.stages)}


def _exchanges(predictor: StagePredictor, asked: SpreadAsked, placement: Placement) -> PlacedExchanges:
    """Return what devices exchange, on the system."""
    target, subject = predictor.target, predictor.subject
    machine, served = target.machine, ServedGroups()
    if machine is not None and Phase.BACKWARD in subject.phase.parts:
        element_bytes = ELEMENT_BYTES[predictor.dtype]
        served = served_groups(asked, placement, machine, subject, element_bytes=element_bytes)
    return PlacedExchanges(
        placement=placement,
        topology=None if machine is None else machine.system.topology,
        names=(target.name,) if machine is None else machine.names,
        all_reduce=asked.all_reduce,
        options=asked.options,
        library=asked.library,
        served=served,
    )


def _placement(predictor: StagePredictor, asked: SpreadAsked, *, batch_size: int) -> Placement:
    """Return the network on devices, cut so that the longest stage is shortest."""
    layout, graph, machine = asked.layout, predictor.subject.graph, predictor.target.machine
    size = layout.micro_batch_size(batch_size)
    layer_s = send_s = None
    if layout.stages > 1 and machine is not None:
        alone_s = predictor.layer_seconds(graph, size)
        layer_s = {name: seconds / layout.tensor_size for name, seconds in alone_s.items()}
        way = way_between(machine.system.topology, machine.names[0], machine.names[layout.tensor_size])
        times = 2 if Phase.BACKWARD in predictor.subject.phase.parts else 1

        def send_s(bytes_per_sample: int) -> float:
            """Return a tensor's way there and, in training, its gradient's way back. [s]"""
            return times * (way.latency_s + bytes_per_sample * size / way.capacity_bytes_per_s)

    return place(
        graph,
        parallelism=asked.parallelism,
        layout=layout,
        element_bytes=ELEMENT_BYTES[predictor.dtype],
        layer_s=layer_s,
        send_s=send_s,
    )
