"""A job made ready: the network placed on devices, every stage lowered, exchanges put on the system."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError, NotYetAvailableError
from perfmodel.parallelism import Layout, Placement, StageGraph
from perfmodel.prediction.plan import kept as _kept
from perfmodel.prediction.plan import plan_for
from perfmodel.prediction.prepared import Prepared
from perfmodel.prediction.stage import Stage
from perfmodel.prediction.subject import LABELS, habitual_feed
from perfmodel.records import ELEMENT_BYTES, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.measurements.run import FeedItem
    from perfmodel.prediction.data_path import DataPath
    from perfmodel.prediction.exchange_times import PlacedExchanges
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.plan import Plan
    from perfmodel.prediction.subject import Subject
    from perfmodel.prediction.target import Target

LIBRARY: Final = "all_reduce"
"""Value of ``sync`` for what the framework's library of collectives chooses at each size."""
WHOLE: Final = Layout()
"""One device with the whole network, which takes its mini-batch in one."""
MOST_PLACEMENTS: Final = 32
"""Placements kept of a graph that is not cut. [1]"""
MOST_PREPARED: Final = 32
"""Jobs of one device kept of a graph, so that other batch sizes of them are at hand. [1]"""


def prepare(
    subject: Subject,
    *,
    target: Target,
    profile: FrameworkProfile,
    batch_size: int,
    dtype: str = "fp32",
    library: str | Path | LibraryProfile | None = None,
    pinned: bool = True,
    recompute: str | None = None,
    data_path: DataPath | None = None,
    job: Job | None = None,
    parallelism: str = "data",
    layout: Layout = WHOLE,
) -> Prepared:
    """Place a network on the devices of a job, and lower every stage.

    Parameters
    ----------
    subject : Subject
        What runs. [-]
    target : Target
        On what, with how many threads. [-]
    profile : FrameworkProfile
        With what. [-]
    batch_size : int
        Samples per worker and step. [samples]
    dtype : str
        Data type. [-]
    library : str, Path, LibraryProfile or None
        A library in place of the one of its kind that the framework names. [-]
    pinned : bool
        False forces pageable copies where the framework would pin its buffers. [-]
    recompute : str or None
        Where checkpoints lie; None where the graph marks them, if anywhere. [-]
    data_path : DataPath or None
        What brings the mini-batches; None for ones that are in host memory. [-]
    job : Job or None
        What says how many devices do what, and how workers agree; None for one device by itself. [-]
    parallelism : str
        What devices share, where no job says it. [-]
    layout : Layout
        How many devices do what, where no job says it. [-]

    Returns
    -------
    Prepared
        Ready to be timed.

    Raises
    ------
    ArgumentError
        If the network, sizes and system do not fit one another, or activations are to be recomputed by a framework
        that keeps them all.
    """
    if (
        recompute is not None
        and Phase.BACKWARD in subject.phase.parts
        and profile.memory.activation_gradients == "kept"
    ):
        allowed = f"None with {profile.name}, which keeps every activation for the whole step"
        raise ArgumentError("recompute", recompute, allowed)
    target = target.behind(subject.hosts)

    def lowered() -> Prepared:
        lowering = _Lowering(
            subject,
            target=target,
            profile=profile,
            dtype=dtype,
            library=library,
            recompute=recompute,
            layout=layout if job is None else job.layout,
            parallelism=parallelism if job is None else job.parallelism,
        )
        return lowering.prepared(batch_size, pinned=pinned, data_path=data_path, job=job)

    is_plain = job is not None and not job.is_of_several and subject.feed is None and library is None
    if not is_plain or target.machine is not None:
        return lowered()
    # what is kept holds target and profile, so that no other objects have their numbers
    key = (id(target), id(profile), subject.phase, subject.optimizer, dtype, recompute, pinned, id(data_path))
    found: Prepared = _kept(subject.graph.kept("prepared"), key, lowered, most=MOST_PREPARED)
    return found.with_samples(subject.graph.samples(batch_size))


class _Lowering:
    """A subject on its way to a target."""

    def __init__(
        self,
        subject: Subject,
        *,
        target: Target,
        profile: FrameworkProfile,
        dtype: str,
        library: str | Path | LibraryProfile | None,
        recompute: str | None,
        layout: Layout,
        parallelism: str,
    ) -> None:
        self.subject, self.target, self.profile = subject, target, profile
        self.dtype, self.recompute = dtype, recompute
        self.layout, self.parallelism = layout, parallelism
        self.libraries = target.libraries(profile, library)
        self.support = target.support(profile, self.libraries, dtype=dtype)

    def prepared(self, batch_size: int, *, pinned: bool, data_path: DataPath | None, job: Job | None) -> Prepared:
        """Return the job made ready."""
        subject, layout, target = self.subject, self.layout, self.target
        machine = target.machine
        samples = subject.graph.samples(layout.micro_batch_size(batch_size) if layout.parts > 1 else batch_size)
        placement = self._placement(samples)
        if len(placement.stages) * layout.parts > 1 and not target.takes_parts:
            available = "networks that are whole and mini-batches in one; a data sheet's device serves the others"
            raise NotYetAvailableError("device", target.name, available)
        if data_path is not None and machine is not None and layout.stages * layout.tensor_size > 1:
            heads = machine.names[:: layout.stages * layout.tensor_size]
            data_path = replace(data_path, machine=machine.only(heads))
        feeding = self._feeding()
        agreement = None
        if job is not None and job.is_of_several:
            from perfmodel.prediction.agreement_options import resolve_agreement

            agreement = resolve_agreement(
                job, machine=machine, subject=subject, profile=self.profile, dtype=self.dtype, placement=placement
            )
        return Prepared(
            subject=subject,
            target=target,
            profile=self.profile,
            libraries=self.libraries,
            batch_size=samples * layout.parts,
            dtype=self.dtype,
            pinned=pinned,
            placement=placement,
            stages=tuple([self._stage(stage, feeding) for stage in placement.stages]),
            exchanges=self._exchanges(placement, job),
            recompute=self.recompute,
            data_path=data_path,
            agreement=agreement,
        )

    def plan(self, graph: LayerGraph, *, input_gradient: bool | None) -> Plan:
        """Return kernel table and memory plan of a graph."""
        return plan_for(
            graph,
            phase=self.subject.phase,
            optimizer=self.subject.optimizer,
            input_gradient=self.profile.input_gradient if input_gradient is None else input_gradient,
            dtype=self.dtype,
            profile=self.profile,
            processor=self.target.processor,
            lowered_for=self.target.lowered_for,
            support=self.support,
            recompute=self.recompute,
        )

    def _placement(self, samples: int) -> Placement:
        """Return the network on devices, cut so that the longest stage is shortest; made once where nothing is cut."""
        layout, graph = self.layout, self.subject.graph
        if layout.stages * layout.interleave > 1:
            return self._placed(samples)
        key = (self.parallelism, layout, self.dtype, self.subject.phase, self.recompute)
        placement: Placement = _kept(graph.kept("placements"), key, lambda: self._placed(samples), most=MOST_PLACEMENTS)
        return placement

    def _placed(self, samples: int) -> Placement:
        layout, graph, machine = self.layout, self.subject.graph, self.target.machine
        if layout.workers == layout.interleave == 1:
            return Placement(parallelism=self.parallelism, layout=layout, stages=(StageGraph(graph=graph),))
        from perfmodel.parallelism.phases import placement_of_phase
        from perfmodel.parallelism.recompute import with_repeated_exchanges
        from perfmodel.parallelism.registry import place

        trains = Phase.BACKWARD in self.subject.phase.parts
        layer_s = send_s = None
        if layout.stages > 1:
            layer_s = {
                name: seconds / layout.tensor_size for name, seconds in self.layer_seconds(graph, samples).items()
            }
        if layout.stages > 1 and machine is not None:
            from perfmodel.sync.ring_order import way_between

            way = way_between(machine.system.topology, machine.names[0], machine.names[layout.tensor_size])

            def send_s(bytes_per_sample: int) -> float:
                """Return a tensor's way there and, in training, its gradient's way back. [s]"""
                return (1 + trains) * (way.latency_s + bytes_per_sample * samples / way.capacity_bytes_per_s)

        placement = placement_of_phase(
            place(
                graph,
                parallelism=self.parallelism,
                layout=layout,
                element_bytes=ELEMENT_BYTES[self.dtype],
                layer_s=layer_s,
                send_s=send_s,
            ),
            self.subject.phase,
        )
        if not trains:
            return placement
        stages = tuple(with_repeated_exchanges(stage, recompute=self.recompute) for stage in placement.stages)
        return replace(placement, stages=stages)

    def layer_seconds(self, graph: LayerGraph, samples: int) -> dict[str, float]:
        """Return what forward and backward phase of each layer take on one device, launches and dispatch too. [s]"""
        whole = copy.copy(self)
        whole.layout, whole.parallelism = WHOLE, "data"
        timed = whole.prepared(samples, pinned=True, data_path=None, job=None).timed_stages()[0]
        groups = timed.groups
        seconds = groups.compute_s + groups.memory_s + groups.launches * timed.numbers.launch_s
        seconds = seconds + groups.exposed_dispatch_s
        found = dict.fromkeys((node.name for node in graph.layers), 0.0)
        for occurrence in timed.stage.plan.table.occurrences:
            if occurrence.phase is not Phase.UPDATE:
                found[occurrence.layer] = found.get(occurrence.layer, 0.0) + float(seconds[occurrence.group])
        return found

    def _feeding(self) -> Mapping[int, Target]:
        """Return the devices at each place of the pipeline, which share the way from the host; none where all do."""
        layout, machine = self.layout, self.target.machine
        if machine is None or layout.stages * layout.tensor_size == 1:
            return {}

        def at(place_: int) -> tuple[str, ...]:
            every = enumerate(machine.names)
            return tuple(name for index, name in every if index // layout.tensor_size % layout.stages == place_)

        return {each: self.target.on(machine.only(at(each))) for each in range(layout.stages)}

    def _stage(self, placed: StageGraph, feeding: Mapping[int, Target]) -> Stage:
        whole = self.subject
        is_fed = placed.graph is whole.graph or set(placed.graph.input_shapes) <= set(whole.graph.input_shapes)
        graph = whole.graph
        if placed.graph is not graph:
            from perfmodel.parallelism.part import first_alike

            graph = first_alike(placed.graph, of=whole.graph)
        feed = self._feed(placed.graph, is_fed=is_fed)
        subject = whole
        if graph is not whole.graph:
            own = whole.input_gradient if is_fed else placed.input_gradient
            subject = replace(whole, graph=graph, name=placed.graph.name, input_gradient=own)
        return Stage(
            placed=placed,
            subject=subject,
            plan=self.plan(graph, input_gradient=subject.input_gradient),
            feed=feed,
            target=feeding.get(placed.device) if feed else None,
            is_fed=is_fed,
        )

    def _feed(self, own: LayerGraph, *, is_fed: bool) -> tuple[FeedItem, ...]:
        """Return what a stage takes from host memory: what the network reads, and the labels of its own losses."""
        whole = self.subject.graph
        items = habitual_feed(own, self.profile.feed) if self.subject.feed is None else self.subject.feed
        if own is whole:
            return items
        has_labels = bool(own.label_bytes_per_sample) or (is_fed and not whole.label_bytes_per_sample)
        return tuple(item for item in items if (has_labels if item.name == LABELS else is_fed))

    def _exchanges(self, placement: Placement, job: Job | None) -> PlacedExchanges | None:
        machine = self.target.machine
        if machine is None or self.layout.workers == 1:
            return None
        from perfmodel.prediction.agreements import collectives_of
        from perfmodel.prediction.exchange_times import PlacedExchanges

        calls_library = job is not None and job.sync == LIBRARY
        return PlacedExchanges(
            placement=placement,
            topology=machine.system.topology,
            names=machine.names,
            library=collectives_of(self.profile) if calls_library else None,
        )
