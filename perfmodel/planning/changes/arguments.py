"""The job to be changed; and changes of batch size, micro-batches, accumulation, recomputation and sharding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.pipeline_order import SCHEDULES
from perfmodel.derived import derived_property
from perfmodel.graph.execution import BLOCKS, RECOMPUTE, SELECTIVE, blocks_of, has_core
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_library
from perfmodel.hardware.cluster import rewired
from perfmodel.hardware.gpu import Gpu
from perfmodel.measurements.table import Run
from perfmodel.numeric import divisors
from perfmodel.prediction.arguments.checks import DTYPES, NO_SYNC
from perfmodel.prediction.arguments.table import ARGUMENTS, DEFAULTS
from perfmodel.prediction.job.agreement_options import TAKEN_BY, WITH_SERVER, sync_names
from perfmodel.prediction.memory.batch_limit import max_batch_size, without_sizes
from perfmodel.presentation.quantities import counted
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.hardware.system import SystemFile
    from perfmodel.hardware.wiring import Wired
    from perfmodel.prediction.device.system_part import SystemPart
    from perfmodel.prediction.device.target import Target
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.prediction import Prediction

NO_GPU: Final = "no GPU computes"


class NotApplicableError(Exception):
    """A kind of change does not apply to the job; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of a job, and its assumption that no prediction checks."""

    what: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    presumes: str = ""
    graph: LayerGraph | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Situation:
    """The job that changes start from, and its prediction."""

    base: Prediction

    @property
    def job(self) -> Job:
        """The job as requested."""
        return self.base.job

    def __getitem__(self, argument: str) -> Any:
        """Return the value of an argument; the default if the job did not give it."""
        return getattr(self.job, argument)

    @derived_property
    def libraries(self) -> tuple[LibraryProfile, ...]:
        """All libraries that have a file."""
        return tuple(map(load_library, spec_files.names("libraries")))

    @property
    def prepared(self) -> Prepared:
        """The prepared step behind the prediction."""
        assert self.base.basis is not None
        return self.base.basis.prepared

    @property
    def target(self) -> Target:
        """The target that the job runs on."""
        return self.prepared.target

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases of the job's step."""
        return self.job.subject.phase.parts

    @property
    def system_part(self) -> SystemPart | None:
        """The job's part of a system; None for a device by itself, or CPUs."""
        return self.target.system_part

    @property
    def system(self) -> Wired:
        """The system whose GPUs run the job."""
        if self.system_part is None:
            alone = "needs system=, which says how devices are wired"
            reason = alone if self.target.processor == "gpu" else NO_GPU
            raise NotApplicableError(reason)
        return self.system_part.system

    @property
    def gpu(self) -> Gpu:
        """The GPU, or each of the equal GPUs, that the job uses."""
        spec = self.target.processor_spec
        if not isinstance(spec, Gpu):
            raise NotApplicableError(NO_GPU)
        return spec

    def rewired(
        self, what: str, change: Callable[..., SystemFile], *, presumes: str, named: str | None = None, **options: Any
    ) -> Change:
        """Return a change to a system with other machines; ``named`` is its name, by default ``what``."""
        network = {} if "network" not in options else {"network": options["network"]}
        machines = rewired(self.system, partial(change, **options), what=named or what, **network)
        return Change(what=what, changes={"system": machines}, presumes=presumes)

    def needs(self, condition: object, reason: str) -> None:
        """Reject the change, with a reason, unless a condition holds."""
        if not condition:
            raise NotApplicableError(reason)

    def needs_training(self) -> None:
        """Reject the change unless the job trains."""
        self.needs(Phase.BACKWARD in self.phases, "this phase does not train")

    def needs_training_together(self) -> None:
        """Reject the change unless several workers combine gradients."""
        self.needs_training()
        self.needs(self.base.worker_count > 1, "one worker exchanges nothing")
        self.needs(self["sync"] != "none", "the workers exchange nothing")


MOST_SHARD_STAGE: Final = 3
"""Largest ``shard_stage``: parameters are shared too. [1]"""


def _of_samples(now: Situation, samples: int, what: str) -> Change:
    """Return a change to another batch size, under the argument that the job gave."""
    workers = now.base.worker_count
    strong = now["global_batch_size"] is not None and now["batch_size"] is None
    name, value = ("global_batch_size", samples * workers) if strong else ("batch_size", samples)
    other = "batch_size" if strong else "global_batch_size"
    cleared: dict[str, Any] = {} if now[other] is None else {other: None}
    return Change(what=f"{name} {value:,}, {what}", changes={name: value} | cleared)


def batch_size(now: Situation) -> Iterator[Change]:
    """Yield twice the batch size, half of it, and the largest that fits in memory."""
    now.needs(now.job.subject.graph.fixed_batch_size is None, "the graph holds for one batch size only")
    samples = now.base.batch_size
    yield _of_samples(now, 2 * samples, "twice as many")
    if samples > 1:
        yield _of_samples(now, samples // 2, "half as many")
    now.needs(
        now.base.spread is None, "the largest batch size is not searched for a network on several devices or in parts"
    )
    graph = now.job.graph
    if isinstance(graph, Run):
        reason = "the largest batch size is not searched for a measured run"
        raise NotApplicableError(reason)
    most = max_batch_size(graph, **without_sizes(now.job.asked))
    now.needs(most, "not even one sample fits in memory")
    yield _of_samples(now, most, "as many as memory holds")


def recompute(now: Situation) -> Iterator[Change]:
    """Yield each way to recompute activations, which saves memory, and no recomputation."""
    now.needs(Phase.BACKWARD in now.phases, "no backward phase needs activations")
    nodes, is_whole = now.job.subject.graph.layers, now.job.profile.memory.full_recomputation == BLOCKS
    can_be = {SELECTIVE: has_core(nodes), BLOCKS: bool(blocks_of(nodes)) and not is_whole}
    for how in (None, *(how for how in RECOMPUTE if can_be.get(how, True))):
        yield Change(what=f"recompute {how or 'nothing'}", changes={"recompute": how})


def accumulation_steps(now: Situation) -> Iterator[Change]:
    """Yield a mini-batch in twice the number of parts, with one exchange and one update at the end."""
    now.needs(Phase.UPDATE in now.phases, "this phase has no update to accumulate gradients for")
    steps = 2 * now["accumulation_steps"]
    now.needs(
        not now.base.batch_size % steps, f"{now.base.batch_size} samples cannot be divided into {steps} equal parts"
    )
    yield Change(what=f"the mini-batch in {steps} parts, gradients added up", changes={"accumulation_steps": steps})


def micro_batches(now: Situation) -> Iterator[Change]:
    """Yield twice and half the number of micro-batches of a pipeline."""
    now.needs(now["parallelism"] == "pipeline", "there is no pipeline")
    parts = now["micro_batches"]
    for count in (2 * parts, parts // 2):
        if count and not now.base.batch_size % count:
            yield Change(what=f"{count} micro-batches", changes={"micro_batches": count})


def schedule(now: Situation) -> Iterator[Change]:
    """Yield every other schedule of a pipeline."""
    now.needs(now["parallelism"] == "pipeline", "there is no pipeline")
    for name in SCHEDULES:
        interleave = max(2, now["interleave"]) if name == "interleaved" else 1
        yield Change(what=f"schedule {name}", changes={"schedule": name, "interleave": interleave})


def sequence_parallel(now: Situation) -> Iterator[Change]:
    """Yield sequence parallelism: a tensor group also splits the other layers, by positions."""
    now.needs(now["tensor_size"] > 1, "no devices share a layer")
    yield Change(what="sequence parallelism: the other layers split by position", changes={"sequence_parallel": True})


def shard_stage(now: Situation) -> Iterator[Change]:
    """Yield each stage of sharing among data-parallel workers: optimizer state, then gradients, then parameters."""
    now.needs_training_together()
    for stage in range(MOST_SHARD_STAGE + 1):
        yield Change(what=f"shard_stage {stage}", changes={"shard_stage": stage})


MICRO_BATCHES: Final = (1, 4)
"""Micro-batches per stage of a proposed pipeline: enough to keep all stages busy, or for short bubbles. [1]"""
SPREAD: Final = ("data", "pipeline", "tensor")
"""Parallelisms that differ only in stages and group size."""
PIPELINE: Final = "assumes a framework with pipelines; batch norm then uses each micro-batch's statistics"
"""Assumption of a pipeline that a prediction does not check."""
GROUPS: Final = "assumes a framework with tensor parallelism"
"""Assumption of tensor groups that a prediction does not check."""


def _needs_devices(now: Situation) -> None:
    """Raise unless several devices share the network in a way that can be changed."""
    now.needs(now.system_part is not None and len(now.system_part.names) > 1, "only one device is used")
    now.needs(
        Phase.BACKWARD not in now.phases or now["sync"] != "none", "without an exchange each worker trains its own copy"
    )
    now.needs(now["parallelism"] in SPREAD, f"parallelism {now['parallelism']} shares the network in another way")


def _sizes(now: Situation, size: str) -> tuple[list[int], list[int]]:
    """Return the other sizes that the same devices allow, and those of them that do not divide the samples."""
    shared = now.base.worker_count * now[size]
    sizes = [tried for tried in range(1, shared + 1) if not shared % tried and tried != now[size]]
    now.needs(sizes, f"a single worker with {size} = 1 leaves no devices for another {size}")
    samples = now.base.batch_size * now.base.worker_count
    uneven = [tried for tried in sizes if samples % (shared // tried)]
    return [tried for tried in sizes if tried not in uneven], uneven


def _spread(now: Situation, size: str, count: int) -> dict[str, Any]:
    """Return the arguments for another size on the same devices, with the same total of samples."""
    counts = {"stages": now["stages"], "tensor_size": now["tensor_size"], size: count}
    workers = now.base.worker_count * now[size] // count
    kind = "pipeline" if counts["stages"] > 1 else "tensor" if counts["tensor_size"] > 1 else "data"
    changes = {"parallelism": kind, "workers": workers, **counts}
    if now["global_batch_size"] is None:
        changes["batch_size"] = now.base.batch_size * now.base.worker_count // workers
    if counts["stages"] > 1:
        changes["accumulation_steps"] = 1  # micro-batches accumulate
    elif now["stages"] > 1:
        changes |= {name: DEFAULTS[name] for name in ("micro_batches", "schedule", "interleave")}
    if counts["tensor_size"] == 1:
        changes["sequence_parallel"] = False
    return {name: value for name, value in changes.items() if value != now[name]}


def _of_workers(workers: int) -> str:
    return f"{counted(workers, 'worker')} of"


def stages(now: Situation) -> Iterator[Change]:
    """Yield pipelines of every other length on the same devices, for the same total of samples."""
    _needs_devices(now)
    sizes, uneven = _sizes(now, "stages")
    for count in sizes:
        changes = _spread(now, "stages", count)
        workers = changes["workers"]
        if count == 1:
            yield Change(what=f"{_of_workers(workers)} one stage", changes=changes)
            continue
        samples = now.base.batch_size * now.base.worker_count // workers
        for parts in sorted({divisors(samples, most=times * count)[-1] for times in MICRO_BATCHES}):
            what = f"{_of_workers(workers)} {count} stages, {parts} micro-batch{'es' if parts > 1 else ''}"
            yield Change(what=what, changes=changes | {"micro_batches": parts}, presumes=PIPELINE)
    now.needs(not uneven, f"samples cannot be shared evenly with stages = {', '.join(map(str, uneven))}")


def tensor_size(now: Situation) -> Iterator[Change]:
    """Yield tensor groups of every other size on the same devices, for the same total of samples."""
    _needs_devices(now)
    sizes, uneven = _sizes(now, "tensor_size")
    for count in sizes:
        changes = _spread(now, "tensor_size", count)
        shared, presumes = (f"{count} devices that share each layer", GROUPS) if count > 1 else ("whole layers", "")
        yield Change(what=f"{_of_workers(changes['workers'])} {shared}", changes=changes, presumes=presumes)
    now.needs(not uneven, f"samples cannot be shared evenly with tensor_size = {', '.join(map(str, uneven))}")


def _group_size(now: Situation) -> int:
    """Return the number of workers per host, if it divides the number of workers."""
    assert now.system_part is not None
    of_host = max(host.worker_count for host in now.system_part.hosts)
    return of_host if not now.base.worker_count % of_host else now.base.worker_count


NEEDED: Final[dict[str, Callable[[Situation], dict[str, Any]]]] = {
    "hierarchical": lambda now: {"group_size": _group_size(now)},
    "mixed": lambda now: {"group_size": _group_size(now)},
    "bounded_staleness": lambda now: {"staleness_bound": 1},
}
"""Strategy -> options without a useful default; a group is the workers of a host."""
PRESUMES: Final = {"in_network": "assumes switches that add gradients"}
"""Strategy -> its assumption that a prediction does not check."""


def sync(now: Situation) -> Iterator[Change]:
    """Yield every other ``sync``, keeping the job's options that apply to it."""
    now.needs_training_together()
    for name in sync_names():
        if name in (NO_SYNC, now["sync"]):
            continue
        unused = {
            option: DEFAULTS[option]
            for option, takers in TAKEN_BY.items()
            if name not in takers and now[option] != DEFAULTS[option]
        }
        wanted = NEEDED[name](now) if name in NEEDED else {}
        options = ", ".join(f"{option} {value}" for option, value in wanted.items())
        what = f"sync {name}{', ' if options else ''}{options}"
        yield Change(what=what, changes={"sync": name} | unused | wanted, presumes=PRESUMES.get(name, ""))


def of_one_argument(name: str) -> Callable[[Situation], Iterator[Change]]:
    """Return a generator of the values that the argument's row of the table lists as worth trying."""
    row = ARGUMENTS[name]
    tries, takers = row.tries, TAKEN_BY[name]
    assert tries is not None

    def changes(now: Situation) -> Iterator[Change]:
        _needs_one_of(now, takers)
        values = tries(now, now[name])
        if isinstance(values, str):
            raise NotApplicableError(values)
        for value, what in values.items():
            yield Change(what=what, changes={name: value})

    return changes


def _needs_one_of(now: Situation, syncs: tuple[str, ...]) -> None:
    now.needs_training()
    if now["sync"] not in WITH_SERVER:  # a single worker also uses the server
        now.needs_training_together()
    now.needs(now["sync"] in syncs, f"sync {now['sync']} has no such option")


def periods(now: Situation) -> Iterator[Change]:
    """Yield half the number of visits to the server."""
    _needs_one_of(now, TAKEN_BY["push_period"])
    push, pull = 2 * now["push_period"], 2 * now["pull_period"]
    yield Change(what=f"a push every {push} steps", changes={"push_period": push})
    yield Change(what=f"a pull every {pull} steps", changes={"pull_period": pull})
    yield Change(what=f"push and pull every {push} and {pull}", changes={"push_period": push, "pull_period": pull})


NO_SOFTWARE: Final = ("generic", "library_calls")
"""Framework files that are not proposed: an average, and calls without a framework."""
ANY_ARCHITECTURE: Final = "default"
"""Table of a library's file for all architectures that it does not list."""


def dtype(now: Situation) -> Iterator[Change]:
    """Yield every other data type that the processor has."""
    spec = now.target.processor_spec
    supported = getattr(spec, "dtypes", DTYPES)
    for name in DTYPES:
        if name in supported and name != now.base.dtype:
            yield Change(what=f"dtype {name}", changes={"dtype": name})
    missing = [name for name in DTYPES if name not in supported]
    now.needs(not missing, f"{spec.name} has no {', '.join(missing)}")


def framework(now: Situation) -> Iterator[Change]:
    """Yield every other framework."""
    now.needs(now.target.lowered_for != "measured", "a measured machine is timed with its own framework")
    for name in spec_files.names("frameworks"):
        if name not in (*NO_SOFTWARE, now.prepared.profile.stem):
            yield Change(what=f"framework {name}", changes={"framework": name})


def library(now: Situation) -> Iterator[Change]:
    """Yield every other version of a library in use."""
    used = now.prepared.libraries
    now.needs(used, "the job uses no library with a file")
    architecture, without = now.target.architecture, []
    for name in spec_files.names("libraries"):
        other = load_library(name)
        now_used = used.get(f"{other.processor}_{other.kind}")
        if now_used is None or now_used.stem == name:
            continue
        if architecture in now_used.architecture and architecture not in other.architecture:
            without.append(name)  # its gain would rest on unknown values
        else:
            yield Change(what=f"library {name}", changes={"library": name})
    now.needs(not without, f"{', '.join(without)} have no values for {architecture}")


def foreign_library(p: Prediction, known: Sequence[LibraryProfile]) -> str:
    """Say which library of a prediction is another vendor's and cannot run on its GPU; empty if all can."""
    assert p.basis is not None
    prepared = p.basis.prepared
    architecture = prepared.target.architecture
    for library in prepared.libraries.values():
        if library.processor == "gpu" and not _may_run(library, architecture, known):
            return f"{library.name} is another vendor's: it does not run on {architecture}"
    return ""


def _may_run(library: LibraryProfile, architecture: str, known: Sequence[LibraryProfile]) -> bool:
    for_it = [other for other in known if architecture in other.architecture and other.kind == library.kind]
    architectures = set(library.architecture) - {ANY_ARCHITECTURE}
    return not for_it or any(architectures & set(other.architecture) for other in for_it)
