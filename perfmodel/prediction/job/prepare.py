"""Preparation of jobs: the network is placed on devices, stages are lowered, exchanges placed on the system."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.derived import derived_property, kept
from perfmodel.errors import ArgumentError, NotYetAvailableError
from perfmodel.parallelism.base import Layout, Placement, Request, StageGraph
from perfmodel.prediction.job.lowered import gradient_dtype, lowered_graph
from perfmodel.prediction.job.prepared import Prepared
from perfmodel.prediction.job.stage import Stage
from perfmodel.prediction.job.subject import LABELS, attends, habitual_feed
from perfmodel.records import ELEMENT_BYTES, Phase

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from pathlib import Path

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.measurements.table import FeedItem
    from perfmodel.prediction.device.target import Target
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.data_path import DataPath
    from perfmodel.prediction.job.exchange_times import PlacedExchanges
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.lowered import LoweredGraph
    from perfmodel.prediction.job.subject import Subject

LIBRARY: Final = "all_reduce"
"""Value of ``sync`` that leaves the choice at each size to the framework's library of collectives."""
WHOLE: Final = Layout()
"""One device with the whole network and mini-batch."""
MOST_PLACEMENTS: Final = 32
"""Placements kept per uncut graph. [1]"""
MOST_PREPARED: Final = 32
"""Single-device jobs kept per graph, for use at other batch sizes. [1]"""


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
    image_layout: str | None = None,
    data_path: DataPath | None = None,
    job: Job | None = None,
    parallelism: str = "data",
    layout: Layout = WHOLE,
    placement: Placement | None = None,
) -> Prepared:
    """Place a network on the devices of a job and lower every stage."""
    lowering = _lowering(
        subject,
        target=target.behind(subject.hosts),
        profile=profile,
        dtype=dtype,
        library=library,
        recompute=recompute,
        image_layout=image_layout,
        layout=layout if job is None else job.layout,
        parallelism=parallelism if job is None else job.parallelism,
    )
    how: dict[str, Any] = {"pinned": pinned, "data_path": data_path}
    is_plain = job is not None and not job.is_of_several and subject.feed is None and placement is None
    if not is_plain or lowering.target.system_part is not None:
        return lowering.prepared(batch_size, **how, job=job, placement=placement)
    return lowering.alike(batch_size, **how, job=job)


def lowering_of(job: Job, *, known: Known) -> Lowering:
    """Start lowering a job."""
    return _lowering(
        job.subject,
        target=job.target.behind(job.subject.hosts),
        profile=job.profile,
        dtype=job.element_type,
        library=job.library,
        recompute=job.recompute,
        image_layout=job.image_layout,
        layout=job.layout,
        parallelism=job.parallelism,
        known=known,
    )


def _lowering(subject: Subject, *, target: Target, recompute: str | None, **how: Any) -> Lowering:
    profile: FrameworkProfile = how["profile"]
    if (
        recompute is not None
        and Phase.BACKWARD in subject.phase.parts
        and profile.memory.activation_gradients == "kept"
    ):
        allowed = f"None with {profile.name}, which keeps every activation for the whole step"
        raise ArgumentError("recompute", recompute, allowed)
    return Lowering(subject, target=target, recompute=recompute, **how)


@dataclass(frozen=True, eq=False)
class Known:
    """Results that jobs share if they differ only in layout; filled in while jobs are prepared."""

    layer_seconds: dict[tuple[int, int], dict[str, float]] = field(default_factory=dict)
    cuts: dict[Hashable, tuple[int, ...]] = field(default_factory=dict)
    lowered: dict[int, tuple[LayerGraph, Stage]] = field(default_factory=dict)
    feeding: dict[tuple[int, int, int], Mapping[int, Target]] = field(default_factory=dict)
    timed: dict[Any, Any] = field(default_factory=dict)
    exchanges: dict[Hashable, PlacedExchanges] = field(default_factory=dict)


class Lowering:
    """Lowering of one network for one target."""

    def __init__(
        self,
        subject: Subject,
        *,
        target: Target,
        profile: FrameworkProfile,
        dtype: str,
        library: str | Path | LibraryProfile | None,
        recompute: str | None,
        image_layout: str | None,
        layout: Layout,
        parallelism: str,
        known: Known | None = None,
    ) -> None:
        if known is not None:
            self.known = known
        self.subject, self.target, self.profile = subject, target, profile
        self.dtype, self.recompute = dtype, recompute
        self.layout, self.parallelism = layout, parallelism
        self.libraries = target.libraries(profile, library, attends=attends(subject.graph))
        self.support = target.support(profile, self.libraries, dtype=dtype)
        if (layout_of_images := image_layout or subject.graph.image_layout) is not None:
            self.support = replace(self.support, image_layout=layout_of_images)
        self._agreements: dict[int, tuple[Job, Placement, Agreement | None]] = {}

    @property
    def gradient_dtype(self) -> str:
        """Type of gradients that workers exchange. [-]"""
        return gradient_dtype(self.profile, self.target.processor, dtype=self.dtype, asked=self.layout.gradient_dtype)

    @derived_property
    def known(self) -> Known:
        """What it has in common with other jobs."""
        return Known()

    def prepared(
        self,
        batch_size: int,
        *,
        pinned: bool,
        data_path: DataPath | None,
        job: Job | None,
        placement: Placement | None = None,
        cuts: tuple[int, ...] = (),
    ) -> Prepared:
        """Prepare the job with the given cuts, or else cut so that stage times balance."""
        subject, layout, target = self.subject, self.layout, self.target
        system_part = target.system_part
        samples = subject.graph.samples(layout.micro_batch_size(batch_size) if layout.parts > 1 else batch_size)
        placement = self._placement(samples, cuts) if placement is None else placement
        if len(placement.stages) * layout.parts > 1 and not target.takes_parts:
            available = "whole networks and mini-batches; to cut either, use the data-sheet device"
            raise NotYetAvailableError("device", target.name, available)
        if data_path is not None and system_part is not None and layout.stages * layout.tensor_size > 1:
            heads = system_part.names[:: layout.stages * layout.tensor_size]
            data_path = replace(data_path, system_part=system_part.only(heads))
        feeding = self._feeding()
        agreement = self._agreement(placement, job)
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

    def _agreement(self, placement: Placement, job: Job | None) -> Agreement | None:
        if job is None or not job.is_of_several:
            return None
        from perfmodel.prediction.job.agreement_options import WITH_SERVER, resolve_agreement

        key = id(placement) if job.sync in WITH_SERVER else id(job)  # only servers depend on where the network is cut
        if key not in self._agreements:
            agreement = resolve_agreement(
                job,
                system_part=self.target.system_part,
                subject=self.subject,
                profile=self.profile,
                dtype=self.gradient_dtype,
                placement=placement,
            )
            self._agreements[key] = (job, placement, agreement)
        return self._agreements[key][-1]

    def shared(self, prepared: Prepared, job: Job) -> Prepared:
        """Adapt a prepared training job to one that differs only in what workers share."""
        from perfmodel.parallelism.combine import KINDS, shared_as
        from perfmodel.prediction.job.exchange_times import PlacedExchanges

        known = prepared.exchanges
        first_alike = KINDS.index(KINDS[self.layout.shard_stage])  # stages with the same exchanges share them
        sizes = {"data_size": min(self.layout.data_size, 2), "shard_stage": first_alike}
        how = {
            **sizes,
            "element_bytes": ELEMENT_BYTES[self.dtype],
            "gradient_bytes": ELEMENT_BYTES[self.gradient_dtype],
        }
        stages = tuple([replace(stage, placed=shared_as(stage.placed, **how)) for stage in prepared.stages])
        placement = replace(prepared.placement, layout=self.layout, stages=tuple(stage.placed for stage in stages))
        return replace(
            prepared,
            placement=placement,
            stages=stages,
            exchanges=replace(known, placement=placement)
            if isinstance(known, PlacedExchanges)
            else self._exchanges(placement, job),
            agreement=self._agreement(placement, job),
        )

    def alike(self, batch_size: int, *, job: Job | None, **how: Any) -> Prepared:
        """Adapt a prepared single-device job to a device with the same kernels."""
        subject, target, profile = self.subject, self.target, self.profile
        # the cache keeps profile and subject alive, so that their ids are not reused
        key = (
            id(profile), id(subject), self.dtype, self.recompute, self.support, target.processor, target.lowered_for
        )  # fmt: skip
        prepared: Prepared = kept(
            subject.graph.kept("prepared"),
            key,
            lambda: self.prepared(batch_size, **how, job=job),
            most=MOST_PREPARED,
        )
        samples = subject.graph.samples(batch_size)
        return prepared.like(target=target, libraries=self.libraries, batch_size=samples, **how)

    def lowered(self, graph: LayerGraph, *, input_gradient: bool | None) -> LoweredGraph:
        """Lower a graph."""
        return lowered_graph(
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

    def _placement(self, samples: int, cuts: tuple[int, ...]) -> Placement:
        """Place the network on devices: balanced if it is cut, and made once if it is not."""
        layout, graph = self.layout, self.subject.graph
        if layout.stages * layout.interleave > 1:
            return self._placed(samples, cuts)
        key = (self.parallelism, layout, self.dtype, self.subject.phase, self.recompute)
        placement: Placement = kept(
            graph.kept("placements"), key, lambda: self._placed(samples, cuts), most=MOST_PLACEMENTS
        )
        return placement

    def cut(self, samples: int) -> tuple[int, ...]:
        """Cuts of the network for micro-batches of this many samples [samples]."""
        layout, known = self.layout, self.known.cuts
        count = layout.stages * layout.interleave
        if count == 1:
            return ()
        from perfmodel.parallelism.registry import PARALLELISMS

        # two stages of three chunks each are cut like six stages
        width = (layout.tensor_size, layout.sequence_parallel)
        key = (self.parallelism, count, layout.stages > 1, width, self._way_out(), samples)
        if key not in known:
            known[key] = PARALLELISMS[self.parallelism].cut(self._request(samples))
        return known[key]

    def _way_out(self) -> tuple[float, float] | None:
        """Latency [s] and capacity [B/s] of the way from a stage to the next; None without a system."""
        system_part = self.target.system_part
        if system_part is None or self.layout.stages == 1:
            return None
        from perfmodel.sync.ring_order import way_between

        ends = system_part.names[0], system_part.names[self.layout.tensor_size]
        way = way_between(system_part.system.topology.stated, *ends)
        return way.latency_s, way.capacity_bytes_per_s

    def _request(self, samples: int, cuts: tuple[int, ...] = ()) -> Request:
        layout, graph, way = self.layout, self.subject.graph, None if cuts else self._way_out()
        trains = Phase.BACKWARD in self.subject.phase.parts
        layer_s = send_s = None
        if cuts:
            sizes: dict[str, Any] = {
                "element_bytes": ELEMENT_BYTES[self.dtype],
                "gradient_bytes": ELEMENT_BYTES[self.gradient_dtype],
            }
            return Request(graph=graph, layout=layout, cuts=cuts, **sizes)
        if layout.stages > 1:
            layer_s = self._share_seconds(graph, samples)
        if way is not None:
            latency_s, capacity_bytes_per_s = way

            def send_s(bytes_per_sample: int) -> float:
                """Time to send a tensor and, in training, to return its gradient. [s]"""
                return (1 + trains) * (latency_s + bytes_per_sample * samples / capacity_bytes_per_s)

        return Request(
            graph=graph,
            layout=layout,
            element_bytes=ELEMENT_BYTES[self.dtype],
            gradient_bytes=ELEMENT_BYTES[self.gradient_dtype],
            layer_s=layer_s,
            send_s=send_s,
        )

    def _placed(self, samples: int, cuts: tuple[int, ...]) -> Placement:
        layout = self.layout
        if layout.workers == layout.interleave == 1:
            whole = StageGraph(graph=self.subject.graph)
            return Placement(parallelism=self.parallelism, layout=layout, stages=(whole,))
        from perfmodel.parallelism.base import placement_of_phase, with_repeated_exchanges
        from perfmodel.parallelism.registry import PARALLELISMS

        placed = PARALLELISMS[self.parallelism].place(self._request(samples, cuts))
        placement = placement_of_phase(placed, self.subject.phase)
        if Phase.BACKWARD not in self.subject.phase.parts:
            return placement
        stages = tuple(with_repeated_exchanges(stage, recompute=self.recompute) for stage in placement.stages)
        return replace(placement, stages=stages)

    def _share_seconds(self, graph: LayerGraph, samples: int) -> dict[str, float]:
        """Time of each layer if the devices of a tensor group share it evenly. [s]"""
        known, width = self.known.layer_seconds, self.layout.tensor_size
        if (samples, width) not in known:
            known[samples, width] = {
                name: seconds / width for name, seconds in self.layer_seconds(graph, samples).items()
            }
        return known[samples, width]

    def layer_seconds(self, graph: LayerGraph, samples: int) -> dict[str, float]:
        """Time of each layer's forward and backward phase on one device, with launches and dispatch. [s]"""
        if (samples, 1) in self.known.layer_seconds:
            return self.known.layer_seconds[samples, 1]
        whole = copy.copy(self)
        whole.layout, whole.parallelism = WHOLE, "data"
        timed = whole.prepared(samples, pinned=True, data_path=None, job=None).timed_stages()[0]
        groups = timed.groups
        seconds = groups.compute_s + groups.memory_s + groups.launches * timed.numbers.launch_s
        seconds = seconds + groups.exposed_dispatch_s
        seconds_of = dict.fromkeys((node.name for node in graph.layers), 0.0)
        for occurrence in timed.stage.lowered.table.occurrences:
            if occurrence.phase is not Phase.UPDATE:
                seconds_of[occurrence.layer] = seconds_of.get(occurrence.layer, 0.0) + float(seconds[occurrence.group])
        self.known.layer_seconds[samples, 1] = seconds_of
        return seconds_of

    def _feeding(self) -> Mapping[int, Target]:
        """Devices of each pipeline place, which share the host's links; empty if all devices share them."""
        layout, system_part = self.layout, self.target.system_part
        if system_part is None or layout.stages * layout.tensor_size == 1:
            return {}

        def at(place_: int) -> tuple[str, ...]:
            every = enumerate(system_part.names)
            return tuple(name for index, name in every if index // layout.tensor_size % layout.stages == place_)

        key, known = (system_part.worker_count, layout.stages, layout.tensor_size), self.known.feeding
        if key not in known:
            known[key] = {each: self.target.on(system_part.only(at(each))) for each in range(layout.stages)}
        return known[key]

    def _stage(self, placed: StageGraph, feeding: Mapping[int, Target]) -> Stage:
        lowered = self.known.lowered.get(id(placed.graph))
        if lowered is None or lowered[1].placed.input_gradient != placed.input_gradient:
            lowered = self.known.lowered[id(placed.graph)] = (placed.graph, self._lowered(placed))
        stage = lowered[1]
        target = feeding.get(placed.device) if stage.feed else None
        return stage if placed is stage.placed and target is None else replace(stage, placed=placed, target=target)

    def _lowered(self, placed: StageGraph) -> Stage:
        whole = self.subject
        is_fed = placed.graph is whole.graph or set(placed.graph.input_shapes) <= set(whole.graph.input_shapes)
        graph = whole.graph
        if placed.graph is not graph:
            from perfmodel.parallelism.stages import first_alike

            graph = first_alike(placed.graph, of=whole.graph)
        subject = whole
        if graph is not whole.graph:
            input_gradient = whole.input_gradient if is_fed else placed.input_gradient
            subject = replace(whole, graph=graph, name=placed.graph.name, input_gradient=input_gradient)
        return Stage(
            placed=placed,
            subject=subject,
            lowered=self.lowered(graph, input_gradient=subject.input_gradient),
            feed=self._feed(placed.graph, is_fed=is_fed),
            is_fed=is_fed,
        )

    def _feed(self, own: LayerGraph, *, is_fed: bool) -> tuple[FeedItem, ...]:
        """Return the inputs a stage copies from the host: those of the network, and labels of its own losses."""
        whole = self.subject.graph
        items = habitual_feed(own, self.profile.feed) if self.subject.feed is None else self.subject.feed
        if own is whole:
            return items
        has_labels = bool(own.label_bytes_per_sample) or (is_fed and not whole.label_bytes_per_sample)
        return tuple(item for item in items if (has_labels if item.name == LABELS else is_fed))

    def _exchanges(self, placement: Placement, job: Job | None) -> PlacedExchanges | None:
        system_part = self.target.system_part
        if system_part is None or self.layout.workers == 1:
            return None
        from perfmodel.prediction.job.agreements import collectives_of
        from perfmodel.prediction.job.exchange_times import PlacedExchanges

        calls_library = job is not None and job.sync == LIBRARY
        topology, names, known = system_part.system.topology, system_part.names, self.known.exchanges
        key = (id(topology), names, self.layout, calls_library)
        if key not in known:
            library = collectives_of(self.profile) if calls_library else None
            known[key] = PlacedExchanges(placement=placement, topology=topology, names=names, library=library)
        return replace(known[key], placement=placement)
