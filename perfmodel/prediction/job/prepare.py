"""Preparation of jobs: the network is placed on devices, stages are lowered, exchanges placed on the system."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived_property, kept, record
from perfmodel.errors import ArgumentError, NotYetAvailableError
from perfmodel.graph.execution import BLOCKS, StopsEarly, blocks_of, check_recomputable, reruns_blocks
from perfmodel.graph.repeats import first_alike, shorten
from perfmodel.parallelism.base import ONE_DEVICE, Layout, Placement, Request, StageGraph, TensorHabits
from perfmodel.prediction.job.lowered import GradientSizes, exchanged_dtype, gradient_sizes, lowered_graph, whole_dtype
from perfmodel.prediction.job.prepared import Prepared
from perfmodel.prediction.job.stage import Stage
from perfmodel.prediction.job.subject import LABELS, attends, habitual_feed
from perfmodel.records import ELEMENT_BYTES, Phase

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph
    from perfmodel.graph.execution import Recompute, Way
    from perfmodel.hardware.library import LibraryProfile, LibrarySupport
    from perfmodel.measurements.table import FeedItem
    from perfmodel.prediction.device.target import Libraries, Target
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.data_path import DataPath
    from perfmodel.prediction.job.exchange_times import PlacedExchanges
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.lowered import LoweredGraph
    from perfmodel.prediction.job.subject import Subject
    from perfmodel.symbolic import Quantity

MOST_PLACEMENTS: Final = 32
"""Placements kept per uncut graph. [1]"""
MOST_PREPARED: Final = 32
"""Single-device jobs kept per graph, for use at other batch sizes. [1]"""


def prepare(subject: Subject, *, target: Target, batch_size: int, pinned: bool = True, **how: Any) -> Prepared:
    """Place a network on devices and lower every stage, without a job; ``how`` are further fields of a Lowering."""
    lowering = Lowering(subject=subject, target=target.behind(subject.hosts), **how)
    return lowering.prepared(batch_size, pinned=pinned)


def prepare_job(job: Job, placement: Placement | None = None) -> Prepared:
    """Place the network of a job on its devices and lower every stage."""
    subject = job.subject
    if placement is None and subject.feed is None and not job.is_of_several:
        target = job.target.behind(subject.hosts)
        if target.system_part is None:
            return refused_if_strict(_prepared_alike(job, subject, target), job)
    lowering = lowering_of(job)
    return lowering.prepared(job.samples, pinned=job.pinned, data_path=job.data_path, job=job, placement=placement)


def refused_if_strict(prepared: Prepared, job: Job | None) -> Prepared:
    """Return a prepared job; raise if it is strict and its framework cannot do all that it asks for."""
    if job is not None and job.strict and (beyond := prepared.shortfalls):
        allowed = f"one that can run this job, or pass strict=False to predict it as if this one could: {beyond[0]}"
        raise ArgumentError("framework", prepared.profile, allowed)
    return prepared


def _prepared_alike(job: Job, subject: Subject, target: Target) -> Prepared:
    """Adapt a prepared single-device job to a device with the same kernels."""
    profile, dtype, batch_size, graph = job.profile, job.element_type, job.samples, subject.graph
    libraries, support = _software(
        subject, target, profile, dtype=dtype, library=job.library, image_layout=job.image_layout
    )
    pinned, data_path = job.pinned, job.data_path
    # the cache keeps profile and subject alive, so that their ids are not reused
    key = (
        id(profile), id(subject), dtype, job.recompute, support, target.processor, target.lowered_for,
        job.shard_stage > 1,
    )  # fmt: skip
    prepared: Prepared = kept(
        graph.kept("prepared"),
        key,
        lambda: lowering_of(job).prepared(batch_size, pinned=pinned, data_path=data_path, job=job),
        most=MOST_PREPARED,
        weighed=True,
    )
    samples = graph.samples(batch_size)
    return prepared.like(target=target, libraries=libraries, batch_size=samples, pinned=pinned, data_path=data_path)


def _software(
    subject: Subject,
    target: Target,
    profile: FrameworkProfile,
    *,
    dtype: str,
    library: str | Path | LibraryProfile | None,
    image_layout: str | None,
) -> tuple[Libraries, LibrarySupport]:
    """Libraries in use by role, and what the DNN library supports in the layout of the images."""
    libraries = target.libraries(profile, library, attends=attends(subject.graph))
    support = target.support(profile, libraries, dtype=dtype)
    image_layout = image_layout or subject.graph.image_layout
    return libraries, support if image_layout is None else replace(support, image_layout=image_layout)


def lowering_of(job: Job, *, known: Known | None = None) -> Lowering:
    """Start lowering a job."""
    subject = job.subject
    return Lowering(
        subject=subject,
        target=job.target.behind(subject.hosts),
        profile=job.profile,
        dtype=job.element_type,
        library=job.library,
        recompute=job.recompute,
        image_layout=job.image_layout,
        layout=replace(job.layout, stage_2_gathers=job.profile.exchange.stage_2_gathers),
        parallelism=job.parallelism,
        shared_results=known,
    )


@dataclass(frozen=True, eq=False)
class Known:
    """Results that jobs share if they differ only in layout; filled in while jobs are prepared."""

    software: list[tuple[Libraries, LibrarySupport]] = field(default_factory=list)
    layer_seconds: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    balances: dict[Hashable, dict[Hashable, Any]] = field(default_factory=dict)
    alike: dict[int, tuple[LayerGraph, LayerGraph]] = field(default_factory=dict)
    cuts: dict[Hashable, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    lowered: dict[tuple[int, bool, GradientSizes], tuple[LayerGraph, Stage]] = field(default_factory=dict)
    feeding: dict[tuple[tuple[str, ...], int, int, int], Target] = field(default_factory=dict)
    timed: dict[Any, Any] = field(default_factory=dict)
    exchanges: dict[Hashable, PlacedExchanges] = field(default_factory=dict)


@record
class Lowering:
    """Lowering of one network for one target."""

    subject: Subject
    target: Target
    profile: FrameworkProfile
    dtype: str = "fp32"
    library: str | Path | LibraryProfile | None = None
    recompute: Way = None
    image_layout: str | None = None
    layout: Layout = ONE_DEVICE
    parallelism: str = "data"
    shared_results: Known | None = None

    @derived_property
    def software(self) -> tuple[Libraries, LibrarySupport]:
        """The libraries in use by role, and what the DNN library supports."""
        known, how = self.known.software, {"dtype": self.dtype, "image_layout": self.image_layout}
        if not known:
            known.append(_software(self.subject, self.target, self.profile, library=self.library, **how))  # type: ignore[arg-type]
        return known[0]

    @derived_property
    def runs_again(self) -> Recompute:
        """What runs again in the backward phase, in the framework's reading of ``recompute``."""
        memory, nodes = self.profile.memory, self.subject.graph.layers
        is_whole = self.recompute == "full" and memory.full_recomputation == BLOCKS and blocks_of(nodes)
        way = BLOCKS if is_whole else self.recompute
        return StopsEarly(way) if memory.recomputation_stops_early and reruns_blocks(way, nodes) else way

    @property
    def exchanged_dtype(self) -> str:
        """Type of gradients that workers exchange. [-]"""
        return exchanged_dtype(self.profile, self.target.processor, dtype=self.dtype, asked=self.layout.gradient_dtype)

    @derived_property
    def gathers_narrow(self) -> bool:
        """Whether gathered parameters are in a narrower type than parameters that a device holds whole."""
        held = whole_dtype(self.profile, self.target.processor, dtype=self.dtype)
        return self.layout.scatters and held != self.dtype

    @derived_property
    def gradient_sizes(self) -> GradientSizes:
        """Sizes of an element of gradients that are added up over micro-batches. [B]"""
        how: dict[str, Any] = {"asked": self.layout.gradient_dtype, "gathers": self.gathers_narrow}
        how |= {"dtype": self.dtype, "shared": self.layout.reduces_each}
        return gradient_sizes(self.profile, self.target.processor, **how)

    @property
    def _element_sizes(self) -> dict[str, Any]:
        """Sizes of an element of a tensor, of a gradient that workers exchange, and of a parameter held whole. [B]"""
        return {
            "element_bytes": ELEMENT_BYTES[self.dtype],
            "gradient_bytes": ELEMENT_BYTES[self.exchanged_dtype],
            "whole_bytes": ELEMENT_BYTES[whole_dtype(self.profile, self.target.processor, dtype=self.dtype)],
        }

    @property
    def _habits(self) -> TensorHabits:
        """Ways in which the framework departs from Megatron-LM's tensor groups."""
        exchange = self.profile.exchange
        lowering = getattr(self.profile, self.target.processor).lowering
        return TensorHabits(
            gathers_scores=exchange.scores == "gathered",
            sums_gates_apart=exchange.gate_sums == "each",
            keeps_gathered=self.profile.memory.gathered_inputs == "kept",
            cuts_products=exchange.tensor_products == "cut",
            sums_beside_weights="weight_gradient" in exchange.tensor_beside,
            operand_bytes=lowering.narrow.gathered_bytes(self.dtype),
            copies_keys=lowering.key_heads == "repeated",
        )

    @derived_property
    def known(self) -> Known:
        """Results shared with jobs of other layouts."""
        return Known() if self.shared_results is None else self.shared_results

    @derived_property
    def _agreements(self) -> dict[int | None, tuple[Job, Placement, Agreement | None]]:
        return {}

    def _refuse_useless_recomputing(self) -> None:
        """Raise if activations are to be recomputed that the framework keeps in any case."""
        trains = Phase.BACKWARD in self.subject.phase.parts
        check_recomputable(self.recompute, self.subject.graph.layers)
        if self.recompute is not None and trains and self.profile.memory.activation_gradients == "kept":
            allowed = f"None with {self.profile.name}, which keeps every activation for the whole step"
            raise ArgumentError("recompute", self.recompute, allowed)

    def _refuse_repeated_exchanges(self, job: Job | None) -> None:
        """Raise if devices, or a worker and its server, would exchange more than once in a step."""
        evaluations = self.subject.optimizer.evaluation_count
        if evaluations == 1:
            return
        from perfmodel.prediction.job.agreement_options import WITH_SERVER

        has_server = job is not None and job.is_of_several and job.sync in WITH_SERVER
        if self.layout.workers > 1 or has_server:
            others = "a server" if has_server else "several devices"
            allowed = f"1 with {others}, because every evaluation exchanges gradients; predict one evaluation per step"
            raise ArgumentError("evaluations", evaluations, allowed)

    def _refuse_cut_products_between_machines(self) -> None:
        """Raise if parts of a product would run beside copies from the memory of another machine's device."""
        part, size = self.target.system_part, self.layout.tensor_size
        if part is None or size == 1 or not (self.layout.sequence_parallel and self._habits.cuts_products):
            return
        machines = [*map(part.node_of, part.names)]
        if any(len({*machines[first : first + size]}) > 1 for first in range(0, len(machines), size)):
            allowed = (
                f"such that each group is in one machine with {self.profile.name}, which cuts products beside copies"
            )
            raise ArgumentError("tensor_size", size, allowed)

    def prepared(
        self,
        batch_size: int,
        *,
        pinned: bool = True,
        data_path: DataPath | None = None,
        job: Job | None = None,
        placement: Placement | None = None,
        cuts: tuple[int, ...] = (),
    ) -> Prepared:
        """Prepare the job with the network cut at ``cuts``; without any, cut so that stage times balance."""
        self._refuse_useless_recomputing()
        self._refuse_repeated_exchanges(job)
        self._refuse_cut_products_between_machines()
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
        agreement = self._agreement(placement, job)
        prepared = Prepared(
            subject=subject,
            target=target,
            profile=self.profile,
            libraries=self.software[0],
            batch_size=samples * layout.parts,
            dtype=self.dtype,
            pinned=pinned,
            placement=placement,
            stages=tuple([self._stage(stage) for stage in placement.stages]),
            exchanges=self._exchanges(placement, job),
            recompute=self.runs_again,
            data_path=data_path,
            agreement=agreement,
        )
        return refused_if_strict(prepared, job)

    def _agreement(self, placement: Placement, job: Job | None) -> Agreement | None:
        if job is None or not job.is_of_several:
            return None
        from perfmodel.prediction.job.agreement_options import WITH_SERVER
        from perfmodel.prediction.job.agreements import agreement_of

        key = id(placement) if job.sync in WITH_SERVER else None  # only servers depend on where the network is cut
        if key not in self._agreements:
            agreement = agreement_of(
                job,
                system_part=self.target.system_part,
                subject=self.subject,
                profile=self.profile,
                dtype=self.exchanged_dtype,
                placement=placement,
            )
            self._agreements[key] = (job, placement, agreement)
        return self._agreements[key][-1]

    def shared(self, prepared: Prepared, job: Job) -> Prepared:
        """Adapt a prepared training job to one that differs only in what workers share."""
        from perfmodel.parallelism.combine import shared_as, shared_in
        from perfmodel.prediction.job.exchange_times import PlacedExchanges

        self._refuse_repeated_exchanges(job)
        known = prepared.exchanges
        how = {**shared_in(self.layout), **self._element_sizes}
        stages = tuple([self._stage(shared_as(stage.placed, **how)) for stage in prepared.stages])
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
            support=self.software[1],
            recompute=self.runs_again,
            gathers=self.gathers_narrow,
            gradients=self.gradient_sizes,
        )

    def _placement(self, samples: int, cuts: tuple[int, ...]) -> Placement:
        """Place the network on devices: in balanced stages if it is cut, otherwise once for all jobs."""
        layout, graph = self.layout, self.subject.graph
        if layout.stages * layout.interleave > 1:
            return self._placed(samples, cuts)
        sizes = tuple(self._element_sizes.values())  # decided by the framework
        key = (self.parallelism, layout, sizes, self.subject.phase, self.runs_again, self._habits)
        placement: Placement = kept(
            graph.kept("placements"), key, lambda: self._placed(samples, cuts), most=MOST_PLACEMENTS, weighed=True
        )
        return placement

    def cuts(self, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """Cuts of the network for micro-batches of each of these sizes [samples]."""
        if self.layout.stages * self.layout.interleave == 1:
            return [()] * len(sizes)
        known = self._cuts
        if missing := [size for size in sizes if size not in known]:
            from perfmodel.parallelism.registry import PARALLELISMS

            cuts = PARALLELISMS[self.parallelism].cut(self._request_to_cut(missing))
            rows = np.broadcast_to(cuts, (len(missing), cuts.shape[-1])).tolist()
            known |= zip(missing, map(tuple, rows), strict=True)
        return [known[size] for size in sizes]

    @derived_property
    def _cuts(self) -> dict[int, tuple[int, ...]]:
        """Cuts known from jobs that are cut alike: two stages of three chunks each are cut like six stages."""
        layout = self.layout
        width = (layout.tensor_size, layout.sequence_parallel, layout.context_size, layout.context_method)
        count, is_pipeline = layout.stages * layout.interleave, layout.stages > 1
        key = (self.parallelism, count, is_pipeline, width, layout.stage_cut, self._way_out)
        return self.known.cuts.setdefault(key, {})

    @derived_property
    def _way_out(self) -> tuple[float, float] | None:
        """Latency [s] and capacity [B/s] of the way from a stage to the next; None without a system."""
        system_part = self.target.system_part
        if system_part is None or self.layout.stages == 1:
            return None
        from perfmodel.sync.ring_order import way_between

        ends = system_part.names[0], system_part.names[self.layout.tensor_size]
        way = way_between(system_part.system.topology.stated, *ends)
        return way.latency_s, way.capacity_bytes_per_s

    def _request_to_cut(self, sizes: Sequence[int]) -> Request:
        """Request that knows the times of layers and transfers for micro-batches of these sizes [samples]."""
        layout, samples = self.layout, np.array(sizes)
        layer_s, send_s, way = None, None, self._way_out
        if layout.stages > 1:
            layer_s = self._layer_seconds(sizes, layout.tensor_size * layout.context_size)
        if way is not None:
            latency_s, capacity_bytes_per_s = way
            directions = 1 + (Phase.BACKWARD in self.subject.phase.parts)

            def send_s(bytes_per_sample: int) -> Quantity:
                """Time to send a tensor and, in training, to return its gradient. [s]"""
                return directions * (latency_s + bytes_per_sample * samples / capacity_bytes_per_s)

        width = (layout.tensor_size, layout.context_size)
        known = self.known.balances.setdefault((layout.stages > 1, width, way, *sizes), {})
        return replace(self._request(()), layer_s=layer_s, send_s=send_s, known=known)

    def _request(self, cuts: tuple[int, ...]) -> Request:
        graph, habits = self.subject.graph, self._habits
        return Request(graph=graph, layout=self.layout, cuts=cuts, habits=habits, **self._element_sizes)

    def _placed(self, samples: int, cuts: tuple[int, ...]) -> Placement:
        layout = self.layout
        if layout.workers == layout.interleave == 1:
            whole = StageGraph(graph=self.subject.graph)
            return Placement(parallelism=self.parallelism, layout=layout, stages=(whole,))
        from perfmodel.parallelism.base import placement_of_phase, with_repeated_exchanges
        from perfmodel.parallelism.registry import PARALLELISMS

        (cuts,) = [cuts] if cuts else self.cuts([samples])
        placed = PARALLELISMS[self.parallelism].place(self._request(cuts))
        placement = placement_of_phase(placed, self.subject.phase)
        if Phase.BACKWARD not in self.subject.phase.parts:
            return placement
        stages = tuple(
            with_repeated_exchanges(stage, recompute=self.runs_again, alike=self._first_alike(stage.graph))
            for stage in placement.stages
        )
        return replace(placement, stages=stages)

    def _layer_seconds(self, sizes: Sequence[int], device_count: int) -> dict[str, NDArray[np.float64]]:
        """Time of each layer's forward and backward phase for micro-batch sizes, shared by some devices. [s]"""
        known = self.known.layer_seconds
        if missing := [size for size in sizes if size not in known]:
            known |= zip(missing, self._layer_seconds_alone(missing), strict=True)
        seconds = np.array([known[size] for size in sizes]) / device_count
        return dict(zip([node.name for node in self.subject.graph.layers], seconds.T, strict=True))

    def _layer_seconds_alone(self, sizes: Sequence[int]) -> NDArray[np.float64]:
        """Time of each layer's forward and backward phase, with launches and dispatch, in a row for each size. [s]"""
        whole = replace(self, layout=ONE_DEVICE, parallelism="data", shared_results=self.known)
        if isinstance(self.recompute, int):  # blocks that run again are the same in each stage and move no cut
            whole = replace(whole, recompute=None, shared_results=None)
        prepared = whole.prepared(sizes[0])
        if len(sizes) > 1:
            columns: Any = np.array(sizes, dtype=float)
            prepared = replace(prepared, batch_size=columns)
        timed = prepared.timed_stages()[0]
        groups = timed.groups
        seconds = groups.compute_s + groups.memory_s + groups.launches * timed.numbers.launch_s
        seconds = (seconds + groups.exposed_dispatch_s).reshape(-1, len(sizes))
        place_of = {node.name: place for place, node in enumerate(self.subject.graph.layers)}
        timed_in = [
            (place_of[layer], group)
            for layer, phase, _, group in timed.stage.lowered.table.occurrences
            if phase is not Phase.UPDATE and layer in place_of
        ]
        layer_s = np.zeros((len(place_of), len(sizes)))
        places, of_groups = np.array(timed_in).T
        np.add.at(layer_s, places, seconds[of_groups])
        return layer_s.T

    def _feeding(self, stage: int) -> Target | None:
        """Devices of a pipeline place, which share the host's links; None if all devices share them."""
        layout, system_part, known = self.layout, self.target.system_part, self.known.feeding
        width, depth = layout.tensor_size, layout.stages
        if system_part is None or depth * width == 1:
            return None
        names = system_part.names
        key = (names, depth, width, stage)
        if key not in known:
            starts = range(stage * width, len(names), depth * width)
            devices = tuple([name for start in starts for name in names[start : start + width]])
            known[key] = self.target.on(system_part.only(devices))
        return known[key]

    def _stage(self, placed: StageGraph) -> Stage:
        key = (id(placed.graph), self.gathers_narrow, self.gradient_sizes)
        lowered = self.known.lowered.get(key)
        if lowered is None or lowered[1].placed.input_gradient != placed.input_gradient:
            lowered = self.known.lowered[key] = (placed.graph, self._lowered(placed))
        stage = lowered[1]
        target = self._feeding(placed.device) if stage.feed else None
        return stage if placed is stage.placed and target is None else replace(stage, placed=placed, target=target)

    def _lowered(self, placed: StageGraph) -> Stage:
        whole = self.subject
        is_fed = placed.graph is whole.graph or set(placed.graph.input_shapes) <= set(whole.graph.input_shapes)
        graph, subject = self._first_alike(placed.graph), whole
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

    def _first_alike(self, part: LayerGraph) -> LayerGraph:
        """Return the first part of the network with the structure of this one, looked up once per part.

        It is shortened where it repeats a block.
        """
        known, whole = self.known.alike, self.subject.graph
        if id(part) not in known:
            first = first_alike(part, of=whole)
            shorten(first, of=whole)
            known[id(part)] = part, first
        return known[id(part)][1]

    def _feed(self, graph: LayerGraph, *, is_fed: bool) -> tuple[FeedItem, ...]:
        """Return the inputs a stage copies from the host: those of the network, and labels of its own losses."""
        whole = self.subject.graph
        items = habitual_feed(graph, self.profile.feed) if self.subject.feed is None else self.subject.feed
        if graph is whole:
            return items
        has_labels = bool(graph.label_bytes_per_sample) or (is_fed and not whole.label_bytes_per_sample)
        return tuple(item for item in items if (has_labels if item.name == LABELS else is_fed))

    def _exchanges(self, placement: Placement, job: Job | None) -> PlacedExchanges | None:
        system_part = self.target.system_part
        if system_part is None or self.layout.workers == 1:
            return None
        from perfmodel.prediction.job.agreement_options import LIBRARY
        from perfmodel.prediction.job.agreements import collectives_of
        from perfmodel.prediction.job.exchange_times import PlacedExchanges

        calls_library = job is not None and job.sync == LIBRARY
        topology, names, known = system_part.system.topology, system_part.names, self.known.exchanges
        layout = self.layout
        sharing_size = layout.sharing_size if layout.shard_stage else layout.data_size
        grid = (layout.workers, layout.stages, layout.tensor_size, layout.context_size, sharing_size)
        key = (id(topology), names, grid, calls_library)  # whose groups are the same
        if key not in known:
            library = collectives_of(self.profile, on_hosts=system_part.computes_on_hosts) if calls_library else None
            known[key] = PlacedExchanges(
                placement=placement,
                topology=topology,
                names=names,
                library=library,
                unit_count=system_part.unit_count,
            )
        return replace(known[key], placement=placement)
