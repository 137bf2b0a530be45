"""What a stage of a network on several devices takes and keeps, by the path of every prediction."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.graph.liveness import MemoryRules
from perfmodel.parallelism.part import first_alike
from perfmodel.prediction.data_path import DataPath
from perfmodel.prediction.prepared import Prepared, prepare
from perfmodel.prediction.scaling import NO_FACTORS, Factors
from perfmodel.prediction.step_time import StepTime
from perfmodel.prediction.subject import LABELS, habitual_feed
from perfmodel.records import ELEMENT_BYTES, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph
    from perfmodel.measurements.run import FeedItem
    from perfmodel.parallelism import StageGraph
    from perfmodel.prediction.memory import MemoryFootprint
    from perfmodel.prediction.prepared import TimedStep
    from perfmodel.prediction.subject import Subject
    from perfmodel.prediction.target import Target

UP_TO: Final = {
    Phase.FORWARD: (Phase.FORWARD,),
    Phase.FORWARD_BACKWARD: (Phase.FORWARD, Phase.FORWARD_BACKWARD),
    Phase.STEP: (Phase.FORWARD, Phase.FORWARD_BACKWARD, Phase.STEP),
}
"""Phase that is asked for -> all that are timed, so that their differences are those of single phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Time and memory of a stage for one micro-batch, without what it exchanges.

    Parameters
    ----------
    forward, backward, update : StepTime
        Parts of each phase, zero where it does not run; the update is done once for all micro-batches. [s]
    memory : MemoryFootprint
        Of one micro-batch, with its update. [B]
    kept_bytes : float
        What of a micro-batch waits from its forward to its backward phase, without the stage's input. [B]
    all_gradients_bytes : float
        Gradients of all parameters. [B]
    backward_s : float
        Kernels of the backward phase with their launches. [s]
    gradient_ready_s : tuple of float
        When in the backward phase the gradient of each layer with trained parameters is ready, in their order. [s]
    """

    forward: StepTime
    backward: StepTime
    update: StepTime
    memory: MemoryFootprint
    kept_bytes: float
    all_gradients_bytes: float
    backward_s: float = 0.0
    gradient_ready_s: tuple[float, ...] = ()


@dataclass(eq=False, kw_only=True)
class StagePredictor:
    """Predicts stages on one kind of device, those of the same structure once.

    Parameters
    ----------
    subject : Subject
        The whole network, with optimizer and feed. [-]
    target : Target
        The device. [-]
    profile : FrameworkProfile
        Framework. [-]
    dtype : str
        Data type. [-]
    recompute : str or None
        Where checkpoints lie; None where the graph marks them, if anywhere. [-]
    options : mapping of str
        Further arguments of ``prepare``. [-]
    prefetch : int
        Mini-batches fetched ahead. [1]
    feeding : mapping of int to Target
        The devices at a place of the pipeline, which share the way from the host; where none is given, all do. [-]
    factors : mapping of str to float
        Factors on constants. [1]
    """

    subject: Subject
    target: Target
    profile: FrameworkProfile
    dtype: str
    recompute: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    prefetch: int = 1
    feeding: Mapping[int, Target] = field(default_factory=dict)
    factors: Factors = field(default_factory=lambda: NO_FACTORS)
    _alike: dict[LayerGraph, LayerGraph] = field(default_factory=dict)
    _known: dict[object, StageTimes] = field(default_factory=dict)
    _lowered: dict[object, dict[Phase, Prepared]] = field(default_factory=dict)
    _kept_bytes: dict[object, tuple[float, float]] = field(default_factory=dict)

    def __call__(self, stage: StageGraph, batch_size: int) -> StageTimes:
        """Return time and memory of a stage.

        Parameters
        ----------
        stage : StageGraph
            The stage. [-]
        batch_size : int
            Samples of a micro-batch. [samples]

        Returns
        -------
        StageTimes
            Without exchanges. [s]
        """
        key = self._key(stage, batch_size)
        if key not in self._known:
            self._known[key] = self._predicted(stage, batch_size)
        return self._known[key]

    def with_factors(self, factors: Factors) -> StagePredictor:
        """Return the same with other factors on constants [1]; nothing is lowered again."""
        return self if not factors and not self.factors else replace(self, factors=factors, _known={})

    def prepared(self, stage: StageGraph, batch_size: int) -> dict[Phase, Prepared]:
        """Return a stage made ready, up to and with each phase.

        Parameters
        ----------
        stage : StageGraph
            The stage. [-]
        batch_size : int
            Samples of a micro-batch. [samples]

        Returns
        -------
        dict of Phase to Prepared
            ``forward``, ``forward_backward`` and ``step``, as far as the subject's phase goes. [-]
        """
        key = self._key(stage, batch_size)
        if key not in self._lowered:
            own = self.subject.input_gradient if self._is_fed(stage) else stage.input_gradient
            feed = self._feed(stage)
            graph = self._graph(stage)
            subject = replace(self.subject, graph=graph, name=stage.graph.name, input_gradient=own, feed=feed)
            target = self.feeding.get(stage.device, self.target) if feed else self.target
            self._lowered[key] = {
                phase: self._prepared(subject, phase, batch_size, target) for phase in UP_TO[self.subject.phase]
            }
        return self._lowered[key]

    def whole(self, stage: StageGraph, batch_size: int) -> Prepared:
        """Return a stage made ready with all that runs of it.

        Parameters
        ----------
        stage : StageGraph
            The stage. [-]
        batch_size : int
            Samples of a micro-batch. [samples]

        Returns
        -------
        Prepared
            In the subject's phase. [-]
        """
        return self.prepared(stage, batch_size)[self.subject.phase]

    def _key(self, stage: StageGraph, batch_size: int) -> object:
        feed = self._feed(stage)
        place = stage.device if feed else None
        return (self._graph(stage), stage.input_gradient, self._is_fed(stage), feed, place, batch_size)

    def _graph(self, stage: StageGraph) -> LayerGraph:
        """Return the graph of a stage, or one that differs in names alone and was lowered for an earlier one."""
        if stage.graph not in self._alike:
            self._alike[stage.graph] = first_alike(stage.graph, of=self.subject.graph)
        return self._alike[stage.graph]

    def _feed(self, stage: StageGraph) -> tuple[FeedItem, ...]:
        """Return what a stage takes from host memory: what the network reads, and the labels of its own losses."""
        whole, own = self.subject.graph, stage.graph
        items = habitual_feed(own, self.profile.feed) if self.subject.feed is None else self.subject.feed
        has_labels = bool(own.label_bytes_per_sample) or (self._is_fed(stage) and not whole.label_bytes_per_sample)
        return tuple(item for item in items if (has_labels if item.name == LABELS else self._is_fed(stage)))

    def layer_seconds(self, graph: LayerGraph, batch_size: int) -> dict[str, float]:
        """Return what each layer takes on one device, so that a network can be cut into equal stages.

        Parameters
        ----------
        graph : LayerGraph
            The network. [-]
        batch_size : int
            Samples of a micro-batch. [samples]

        Returns
        -------
        dict of str to float
            Forward and backward phase, as far as they run, with launches and exposed dispatch. [s]
        """
        phase = UP_TO[self.subject.phase][:2][-1]
        prepared = self._prepared(replace(self.subject, graph=graph), phase, batch_size, self.target)
        timed = prepared.step(self.factors)
        groups = timed.groups
        seconds = groups.compute_s + groups.memory_s + groups.launches * timed.numbers.launch_s
        seconds = seconds + groups.exposed_dispatch_s
        found = dict.fromkeys((node.name for node in graph.layers), 0.0)
        for occurrence in prepared.plan.table.occurrences:
            found[occurrence.layer] = found.get(occurrence.layer, 0.0) + float(seconds[occurrence.group])
        return found

    def _prepared(self, subject: Subject, phase: Phase, batch_size: int, target: Target) -> Prepared:
        return prepare(
            replace(subject, phase=phase),
            target=target,
            profile=self.profile,
            batch_size=batch_size,
            dtype=self.dtype,
            recompute=self.recompute if phase is not Phase.FORWARD else None,
            data_path=DataPath(machine=None, prefetch=self.prefetch),
            **self.options,
        )

    def _memory(self, stage: StageGraph, whole: Prepared, timed: TimedStep) -> MemoryFootprint:
        """Return what a stage keeps; of one that copies labels alone only these are there twice."""
        memory = whole.footprint(timed.groups)
        ahead_bytes = whole.copies()[1].copied_bytes
        if self._is_fed(stage) or not ahead_bytes:
            return memory
        return replace(memory, input_bytes=memory.input_bytes / 2 + ahead_bytes)

    def _kept(self, stage: StageGraph, batch_size: int) -> tuple[float, float]:
        """Return what is kept for the backward phase, and more of it for each sample; no constant changes it. [B]"""
        key = self._key(stage, batch_size)
        if key not in self._kept_bytes:
            policy = self.profile.memory
            rules = MemoryRules(
                element_bytes=ELEMENT_BYTES[self.dtype],
                index_bytes=policy.index_bytes,
                in_place_kinds=policy.in_place,
                recompute=self.recompute,
            )
            input_gradient = bool(self.whole(stage, batch_size).subject.input_gradient)
            constant, slope = self._graph(stage).liveness(rules=rules, input_gradient=input_gradient).kept
            self._kept_bytes[key] = float(constant), float(slope)
        return self._kept_bytes[key]

    def _is_fed(self, stage: StageGraph) -> bool:
        """Tell whether a stage reads what comes from the host: an input of the whole network."""
        return set(stage.graph.input_shapes) <= set(self.subject.graph.input_shapes)

    def _predicted(self, stage: StageGraph, batch_size: int) -> StageTimes:
        lowered = self.prepared(stage, batch_size)
        whole = self.whole(stage, batch_size)
        timed = whole.step(self.factors)
        if self.subject.phase is Phase.FORWARD:
            idle = _difference(timed.parts, timed.parts)
            return StageTimes(
                forward=timed.parts,
                backward=idle,
                update=idle,
                memory=self._memory(stage, whole, timed),
                kept_bytes=0.0,
                all_gradients_bytes=0.0,
            )
        forward, both = (lowered[phase].step(self.factors).parts for phase in UP_TO[Phase.FORWARD_BACKWARD])
        forward = replace(forward, exposed_transfer_s=both.exposed_transfer_s)
        element_bytes, policy = ELEMENT_BYTES[self.dtype], self.profile.memory
        constant, slope = self._kept(stage, batch_size)
        backward_s, ready_s = _gradients_ready(whole, timed)
        return StageTimes(
            forward=forward,
            backward=_difference(both, forward),
            update=_difference(replace(timed.parts, exposed_transfer_s=both.exposed_transfer_s), both),
            memory=self._memory(stage, whole, timed),
            kept_bytes=float(constant + slope * batch_size) * policy.pool_overhead,
            all_gradients_bytes=float(element_bytes * stage.graph.trained_parameter_count) * policy.pool_overhead,
            backward_s=backward_s,
            gradient_ready_s=ready_s,
        )


def _gradients_ready(prepared: Prepared, timed: TimedStep) -> tuple[float, tuple[float, ...]]:
    """Return the length of the backward phase, and when the gradient of each layer is ready in it. [s]"""
    counts = prepared.subject.graph.trained_parameter_counts
    if not counts:
        return 0.0, ()
    schedule = prepared.gradients(timed.groups, timed.numbers)
    ready = dict(zip(schedule.layers, schedule.ready_s.tolist(), strict=True))
    return float(schedule.backward_s), tuple(ready.get(name, float(schedule.backward_s)) for name in counts)


def _difference(longer: StepTime, shorter: StepTime) -> StepTime:
    """Return what one phase adds to another, part by part."""
    names = [each.name for each in fields(StepTime)]
    return StepTime(**{name: getattr(longer, name) - getattr(shorter, name) for name in names})
