"""The table of arguments: a new argument of predict needs one row here, and the physics that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.framework.profile import load_framework
from perfmodel.graph.execution import check_recompute
from perfmodel.graph.graph_file import IMAGE_LAYOUTS
from perfmodel.hardware.catalogue import load_dataset, load_device, load_library, load_system
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.storage import Storage
from perfmodel.hardware.system import machine_count
from perfmodel.layers.optimizers import OPTIMIZERS, WEIGHT_PENALTIES, load_optimizer
from perfmodel.numeric import is_real
from perfmodel.parallelism.base import CONTEXT_METHODS, STAGE_CUTS
from perfmodel.prediction.arguments import tries
from perfmodel.prediction.arguments.checks import (
    DTYPES,
    MOST_COUNT,
    PREDICTED_PHASES,
    flag,
    from_zero_to,
    of_type,
    one_of,
    whole_number,
)
from perfmodel.prediction.arguments.checks import HOST_MEMORY as HOST_MEMORY
from perfmodel.prediction.arguments.checks import MERGED as MERGED
from perfmodel.records import PACKED_BYTES

if TYPE_CHECKING:
    from perfmodel.prediction.job.job import Job


Check: TypeAlias = Callable[[str, Any], Any]
"""Takes an argument's name and a value; returns the value as the library uses it, or raises."""

GROUPS: Final[Mapping[str, str]] = {
    "batch": "how many samples",
    "place": "on what",
    "step": "what is computed, with what",
    "workers": "how many workers",
    "exchange": "how workers agree, and whom they wait for",
    "spread": "how the network is spread over devices and micro-batches",
    "input": "how mini-batches come",
    "constants": "whose constants",
}
"""Group of arguments -> its heading."""


@dataclass(frozen=True, slots=True)
class Need:
    """Values that another argument must have for this one to have an effect."""

    argument: str
    allowed: str
    values: tuple[Any, ...] = ()
    harmless: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of ``predict``: signature, help, checks and sweeps are made from this row.

    All of ``needs`` and one of ``takers``, as the value of ``sync``, must be there. With them an argument is accepted
    for one worker too, on which it has no effect, so that a sweep of workers may begin at 1.
    """

    name: str
    type: str
    unit: str
    group: str
    help: str
    default: Any = None
    check: Check | None = None
    loads: Check | None = None
    needs: tuple[Need, ...] = ()
    takers: tuple[str, ...] = ()
    ran: str = ""
    means: Callable[[Job], Any] | None = None
    metavar: str = ""
    tries: Callable[[Any, Any], Mapping[Any, str] | str] | None = None


MOST_VARIATION: Final = 2.0
"""Largest coefficient of variation for which the closed form was compared with simulation. [1]"""

EXCHANGED_TYPES: Final = ("fp32", "bf16", "fp16")
"""Types in which libraries of collectives add gradients up. [-]"""

PHASES: Final = tuple(phase.value for phase in PREDICTED_PHASES)


def _from(minimum: int, maximum: int | None = None) -> Check:
    return partial(whole_number, minimum=minimum, maximum=maximum)


def _typed(*types: type, allowed: str) -> Check:
    def checked(name: str, value: Any) -> Any:
        of_type(name, value, types, allowed)
        return value

    return checked


_NOT_NAMES: Final = (int, float, complex, list, tuple, set, Mapping, np.ndarray)


def of_spec(name: str, value: Any) -> Any:
    """Pass on a name, path or loaded object; reject numbers and collections."""
    if type(value) is not str and isinstance(value, _NOT_NAMES):
        raise ArgumentError(name, value, "a name, a path to a .toml file, or a loaded object")
    return value


def _loaded(load: Any) -> Check:
    """Make a loader of names and paths that passes loaded objects on; the loader rejects numbers and collections."""
    plain = (str, Path, *_NOT_NAMES)
    return lambda _, value: load(value) if value is None or isinstance(value, plain) else value


def _optimizer(name: str, value: Any) -> Any:
    del name
    load_optimizer(value)
    return value


def _of(where: str) -> Any:
    """Import ``module:name`` on first use: rooms above this one know which values are allowed."""
    module, _, name = where.partition(":")
    return getattr(import_module(f"perfmodel.{module}"), name)


def _among(where: str) -> Check:
    """Make a check of names, which a registry or a function elsewhere lists."""

    def checked(name: str, value: Any) -> str:
        known = _of(where)
        return one_of(name, value, tuple(known() if callable(known) else known))

    return checked


def _message_size(name: str, value: Any) -> Any:
    is_number = is_real(value) and not (isinstance(value, int) and value > MOST_COUNT)  # more than a float may hold
    if (isinstance(value, str) and value == MERGED) or (is_number and value >= 0):
        return value
    allowed = f"a size from 0 (each layer by itself) to infinity (one message) [B], or {MERGED!r} for the shortest step"
    raise ArgumentError(name, value, allowed)


def _system_name(job: Job) -> str | None:
    system_part = job.target.system_part
    return None if system_part is None else system_part.system.name


def _optimizer_name(job: Job) -> str:
    optimizer = job.subject.optimizer
    return optimizer.kind if optimizer == type(optimizer)() else str(optimizer)


def _shared(job: Job) -> str:
    """Name the way devices split the work; ``data`` if there is one device."""
    crowd = job.workers if job.parallelism == "hybrid" else job.stages * job.tensor_size
    return job.parallelism if crowd > 1 else "data"


def _message_bytes(job: Job) -> Any:
    from perfmodel.prediction.job.agreement_options import message_bytes_of

    return message_bytes_of(job.profile, job)


def _library_names(job: Job) -> tuple[str, ...]:
    from perfmodel.prediction.job.subject import attends

    libraries = job.target.libraries(job.profile, job.library, attends=attends(job.subject.graph))
    return tuple(library.name for library in libraries.values())


NO_DATASET: Final = "None without a dataset, since there are no examples to read"

_ROWS: Final = (
    Argument(
        name="batch_size", type="int | None", unit="samples", group="batch", metavar="N",
        check=_from(1), means=lambda job: job.samples,
        help="Samples per worker and step.",
    ),
    Argument(
        name="global_batch_size", type="int | None", unit="samples", group="batch", metavar="N",
        check=_from(1), means=lambda _: None,
        help="Samples per step over all workers, instead of batch_size.",
    ),
    Argument(
        name="device", type="str | Path | Runnable | None", unit="-", group="place", check=of_spec,
        loads=_loaded(load_device),
        means=lambda job: job.target.processor_spec.name,
        help="One GPU, one CPU socket or a measured machine: a name, a path to a TOML file, or a loaded object. With a "
        "system, the device in place of its GPUs, or of its CPUs if it has no GPU.",
    ),
    Argument(
        name="system", type="str | Path | Wired | None", unit="-", group="place", check=of_spec,
        loads=_loaded(load_system), means=_system_name,
        help="A machine or cluster. Its first GPUs run; without GPUs, all sockets of a machine run together, and each "
        "machine of a cluster is a worker. With device, that device runs in their place.",
    ),
    Argument(
        name="machines", type="int | None", unit="1", group="place", metavar="N", check=machine_count,
        needs=(Need(argument="system", allowed="left out without system=: it counts the machines of a system"),),
        means=lambda job: 1 if job.target.system_part is None else len(job.target.system_part.system.hosts),
        help="Machines of the system, on the fabric that its file calls usual; None for what the file states.",
    ),
    Argument(
        name="framework", type="str | Path | FrameworkProfile", unit="-", group="step", default="generic",
        check=of_spec, loads=_loaded(load_framework), ran="framework",
        means=lambda job: job.target.software(job.profile),
        help="Framework profile.",
    ),
    Argument(
        name="strict", type="bool", unit="-", group="step", default=False, check=flag,
        help="Whether to refuse a job that the framework's file says it cannot do; otherwise a remark says so.",
    ),
    Argument(
        name="threads", type="int | None", unit="1", group="place", metavar="N", check=_from(1), loads=_from(1),
        means=lambda job: job.target.threads,
        help="CPU threads; None for one per physical core. Not allowed for a GPU.",
    ),
    Argument(
        name="phase", type="str", unit="-", group="step", default="step", metavar="PHASE",
        check=partial(one_of, known=PHASES), ran="phase", means=lambda job: job.subject.phase.value,
        help="What runs: step (forward, backward, update), forward_backward or forward.",
    ),
    Argument(
        name="dtype", type="str", unit="-", group="step", default="fp32", metavar="TYPE",
        check=partial(one_of, known=DTYPES), ran="element_type", means=lambda job: job.element_type,
        help="Data type of weights and activations, e.g. fp32.",
    ),
    Argument(
        name="weight_dtype", type="str | None", unit="-", group="step", metavar="TYPE",
        check=partial(one_of, known=tuple(PACKED_BYTES)),
        help="Data type that stores weights of products: int8, fp8 or int4; in training, of frozen layers only; "
        "products compute in dtype. None to store them in dtype.",
    ),
    Argument(
        name="optimizer", type="str | Optimizer", unit="-", group="step", default="sgd", loads=_loaded(load_optimizer),
        check=_optimizer,
        ran="optimizer", means=_optimizer_name,
        help=f"{', '.join(OPTIMIZERS)}, or one with options, as in lbfgs:history_size=5,evaluations=20.",
    ),
    Argument(
        name="weight_penalty", type="str | None", unit="-", group="step", metavar="TERM",
        check=partial(one_of, known=tuple(WEIGHT_PENALTIES)),
        means=lambda job: job.subject.optimizer.weight_penalty,
        help="Penalty of the weights in the loss: l1, l2 or both, l1_l2, each two passes over them; None for none.",
    ),
    Argument(
        name="recompute", type="str | int | None", unit="-", group="step", metavar="HOW",
        check=lambda _, value: check_recompute(value),
        help="What to recompute in the backward phase: full keeps only the inputs of blocks; blocks does too, and runs "
        "each block again: whole, or with PyTorch until the gradients have what they need (full does the same with "
        "Megatron-LM and torchtitan); sqrt keeps only the inputs of about sqrt(n) "
        "segments; selective keeps all but the scores of attention; a number recomputes so many blocks of each stage "
        "from their inputs; None keeps all activations, except in regions that the graph marks.",
    ),
    Argument(
        name="image_layout", type="str | None", unit="-", group="step", metavar="LAYOUT",
        check=partial(one_of, known=IMAGE_LAYOUTS),
        help="Order of images in memory: channels_first or channels_last; None for that of an imported network, or "
        "else the framework's usual one (channels_last with PyTorch 2, whose modules are channels_first until moved).",
    ),
    Argument(
        name="workers", type="int", unit="1", group="workers", default=1, metavar="N", check=_from(1),
        help="Data-parallel workers, each with its own mini-batch; uses workers x stages x tensor_size x context_size "
        "devices.",
    ),
    Argument(
        name="parallelism", type="str", unit="-", group="spread", default="data", metavar="KIND",
        check=_among("parallelism.registry:PARALLELISMS"),
        means=_shared,
        help="Shared by devices: nothing (data), layers (model, pipeline), each layer (tensor), dense layers (hybrid).",
    ),
    Argument(
        name="sync", type="str", unit="-", group="exchange", default="ring_all_reduce", metavar="HOW",
        check=_among("prediction.job.agreement_options:sync_names"),
        help="How workers agree: all wait for all (all_reduce, as in the framework's library; ring_all_reduce, "
        "binomial_tree, recursive_doubling, halving_doubling, double_binary_tree, hierarchical, host_tree, in_network, "
        "one_to_all, parameter_server), they do not wait for all (downpour, delay_compensated, bounded_staleness, "
        "mixed), or they exchange nothing (none).",
    ),
    Argument(
        name="overlap", type="bool", unit="-", group="exchange", default=True, check=flag, takers=("waiting",),
        tries=tries.overlapping,
        help="Whether gradients are exchanged while back-propagation still runs.",
    ),
    Argument(
        name="bucket_bytes", type="float | str | None", unit="B", group="exchange", metavar="BYTES",
        check=_message_size, takers=("waiting",), means=_message_bytes,
        tries=tries.message_sizes,
        help="Bytes of gradients per message: 0 for one message per layer, inf for one message in all, "
        "merged for the shortest step; None for the framework's own size, or for each unit if gradients are shared.",
    ),
    Argument(
        name="server_count", type="int", unit="1", group="exchange", default=1, metavar="N", check=_from(1),
        takers=("server",),
        tries=tries.shards,
        help="Shards of a parameter server, each in its own host memory, on free machines first.",
    ),
    Argument(
        name="server_on", type="str | None", unit="-", group="exchange", metavar="NAME",
        check=_typed(str, allowed="the name of a machine of the cluster, such as node0"),
        takers=("server",),
        help="Machine whose memory holds the parameter server; None for that of the cluster's [server], then "
        "other free machines, then those of workers.",
    ),
    Argument(
        name="group_size", type="int | None", unit="1", group="exchange", metavar="N", check=_from(1),
        takers=("hierarchical", "mixed"), means=lambda job: None if job.group_size == job.workers else job.group_size,
        tries=tries.groups,
        help="Workers that step together; by default those in one machine (hierarchical) or all workers (mixed).",
    ),
    Argument(
        name="staleness_bound", type="int | None", unit="1", group="exchange", metavar="N", check=_from(0),
        takers=("bounded_staleness",), tries=tries.bounds,
        help="Steps by which a worker may be ahead of the slowest.",
    ),
    Argument(
        name="stages", type="int", unit="1", group="spread", default=1, metavar="N", check=_from(1),
        help="Devices of each worker; each device holds consecutive layers.",
    ),
    Argument(
        name="stage_cut", type="str", unit="-", group="spread", default="balanced", metavar="HOW",
        check=partial(one_of, known=STAGE_CUTS),
        needs=(Need("stages", allowed="'balanced' with stages=1, with which nothing is cut"),),
        help="What stages have in equal parts: time (balanced), blocks (even_blocks), modules, which are blocks and "
        "layers with parameters outside them (even_modules), or blocks, with all before the first and all behind the "
        "last counted as one each (counted_ends).",
    ),
    Argument(
        name="micro_batches", type="int", unit="1", group="spread", default=1, metavar="N", check=_from(1),
        help="Parts of a worker's mini-batch that follow one another through the stages.",
    ),
    Argument(
        name="schedule", type="str", unit="-", group="spread", default="1f1b", metavar="NAME",
        check=_among("cost.pipeline_order:SCHEDULES"),
        needs=(Need("parallelism", values=("pipeline",), allowed="'1f1b' unless parallelism='pipeline'"),),
        help="Order of a pipeline's work: 1f1b, gpipe or interleaved.",
    ),
    Argument(
        name="interleave", type="int", unit="1", group="spread", default=1, metavar="N", check=_from(1),
        help="Stages on each device of a pipeline; needs schedule interleaved.",
    ),
    Argument(
        name="tensor_size", type="int", unit="1", group="spread", default=1, metavar="N", check=_from(1),
        help="Neighbouring devices of each worker that share each layer.",
    ),
    Argument(
        name="sequence_parallel", type="bool", unit="-", group="spread", default=False, check=flag,
        help="Whether devices also share the layers between the shared ones, by sequence positions.",
    ),
    Argument(
        name="context_size", type="int", unit="1", group="spread", default=1, metavar="N", check=_from(1),
        help="Devices of each worker that share every sequence, each with a copy of the layers and some positions.",
    ),
    Argument(
        name="context_method", type="str", unit="-", group="spread", default="ring", metavar="HOW",
        check=partial(one_of, known=CONTEXT_METHODS),
        needs=(Need("context_size", allowed="'ring' with context_size=1, with which no sequence is shared"),),
        help="How devices attend to all positions: keys and values go round (ring) or are gathered (gather), or heads "
             "are exchanged (all_to_all).",
    ),
    Argument(
        name="shard_stage", type="int", unit="1", group="spread", default=0, metavar="N", check=_from(0, 3),
        help="What workers share: nothing (0), optimizer state (1), also gradients (2), also parameters (3).",
    ),
    Argument(
        name="shard_group", type="int | None", unit="1", group="spread", metavar="N", check=_from(1),
        needs=(Need("shard_stage", allowed="None with shard_stage=0, where workers share nothing"),),
        help="Neighbouring workers that share state; other groups hold copies (HSDP). None for all workers.",
    ),
    Argument(
        name="prefetch_limit", type="int", unit="1", group="spread", default=1, metavar="N", check=_from(0),
        needs=(Need("shard_stage", values=(3,), allowed="1 unless shard_stage=3, with which parameters are gathered"),),
        help="Blocks whose parameters are gathered ahead of the one that computes.",
    ),
    Argument(
        name="no_sync", type="bool", unit="-", group="spread", default=False, check=flag,
        needs=(Need("shard_stage", values=(2, 3), allowed="False unless shard_stage is 2 or 3: others add up once"),),
        help="Whether whole gradients of micro-batches are kept and added up among workers once a step, not each time.",
    ),
    Argument(
        name="gradient_dtype", type="str | None", unit="-", group="spread", metavar="TYPE",
        check=partial(one_of, known=EXCHANGED_TYPES),
        help="Type in which gradients are exchanged, and kept if it is wider; None for that of parameters.",
    ),
    Argument(
        name="accumulation_steps", type="int", unit="1", group="spread", default=1, metavar="N", check=_from(1),
        help="Parts of a worker's mini-batch whose gradients are added up, with one exchange and update at the end.",
    ),
    Argument(
        name="backup_workers", type="int", unit="1", group="exchange", default=0, metavar="N", check=_from(0),
        takers=("waiting",),
        needs=(Need("straggler", allowed="0 without straggler=, since all workers end together"),),
        tries=tries.one_more_backup,
        help="Workers that a step does not wait for: the last to finish.",
    ),
    Argument(
        name="push_period", type="int", unit="1", group="exchange", default=1, metavar="N", check=_from(1),
        takers=("asynchronous",),
        help="Steps of a worker between two pushes to the server.",
    ),
    Argument(
        name="pull_period", type="int", unit="1", group="exchange", default=1, metavar="N", check=_from(1),
        takers=("asynchronous",),
        help="Steps of a worker between two pulls from the server.",
    ),
    Argument(
        name="straggler", type="Mapping[str, Any] | Straggler | None", unit="-", group="exchange", metavar="KIND=X",
        check=lambda _, value: _of("prediction.job.straggler:straggler_of")(value),
        means=lambda job: None if job.straggler is None else job.straggler.times,
        help='How workers\' times vary, e.g. {"distribution": "normal", "cv": 0.1}; also lognormal and '
        "shifted_exponential with cv, empirical with measured times, unequal with a permanent time for each worker.",
    ),
    Argument(
        name="library", type="str | Path | LibraryProfile | None", unit="-", group="step", check=of_spec,
        loads=_loaded(load_library), means=_library_names,
        help="A BLAS or DNN library that replaces the framework's library of the same kind.",
    ),
    Argument(
        name="dataset", type="str | Path | Dataset | None", unit="-", group="input", loads=_loaded(load_dataset),
        check=_typed(str, Path, Dataset, allowed="a name, a path to a .toml file, or a Dataset"),
        help="Data set read and decoded in every step; None if mini-batches are in host memory already.",
    ),
    Argument(
        name="input_from", type="str | Path | Storage | None", unit="-", group="input",
        check=_typed(
            str, Path, Storage,
            allowed="the name of a storage of the system, the name or path of a storage file, a Storage, or "
            f"{HOST_MEMORY!r}",
        ),
        needs=(Need("dataset", allowed=NO_DATASET, harmless=(HOST_MEMORY,)),),
        help="Source of the data set: a storage of the system, a storage file, or memory; None for the system's own.",
    ),
    Argument(
        name="prefetch", type="int", unit="1", group="input", default=1, metavar="N", check=_from(0),
        help="Mini-batches read and decoded ahead; with 0, reading, decoding and copying do not overlap the step.",
    ),
    Argument(
        name="pinned", type="bool", unit="-", group="input", default=True, metavar="--pageable", check=flag,
        help="Whether host buffers are pinned if the framework pins them; False for pageable buffers.",
    ),
    Argument(
        name="decode_cores", type="int | None", unit="1", group="input", metavar="N", check=_from(1),
        needs=(Need("dataset", allowed=NO_DATASET),),
        help="Cores of each host that decode; None for all of them.",
    ),
    Argument(
        name="input_variation", type="float", unit="1", group="input", default=0.0, metavar="X",
        check=partial(from_zero_to, MOST_VARIATION),
        needs=(Need("dataset", allowed="0 without a dataset, since no time would vary"),),
        help="Coefficient of variation of the time to prepare a mini-batch.",
    ),
    Argument(
        name="calibration", type="str | Path | FitFile | None", unit="-", group="constants",
        loads=_loaded(lambda value: _of("hardware.fit_file:load_fit")(value)), check=of_spec,
        means=lambda job: None if job.calibration is None else job.fit.name,
        help="Fitted factors on the constants of the spec files, e.g. shi2016_gpu.",
    ),
)  # fmt: skip

ARGUMENTS: Final[Mapping[str, Argument]] = {row.name: row for row in _ROWS}
"""Name -> argument, in the order of ``predict``."""

DEFAULTS: Final[Mapping[str, Any]] = {row.name: row.default for row in _ROWS}
"""Name -> default value."""

CHECKS: Final[Mapping[str, Check | None]] = {row.name: row.check for row in _ROWS}
"""Name -> check of a single value."""


def names_of(*groups: str) -> tuple[str, ...]:
    """Names of the arguments in some groups, in the order of ``predict``."""
    return tuple(row.name for row in _ROWS if row.group in groups)


_OF_SEVERAL: Final = frozenset(names_of("exchange"))
_NEEDS: Final = frozenset(row.name for row in _ROWS if row.needs)
"""Arguments that need others."""


def asked_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check each argument and keep those that differ from their defaults."""
    stated = {}
    for name, value in arguments.items():
        if name not in DEFAULTS:
            kind = "argument of predict"
            raise UnknownNameError(kind, name, DEFAULTS)
        default = DEFAULTS[name]
        if value is not default:
            check = CHECKS[name]
            checked = value if check is None else check(name, value)
            # A value of another type differs: comparing would compare whole spec files, or raise.
            if type(checked) is not type(default) or checked != default:
                stated[name] = checked
    return stated


def check_needs(stated: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise if one of these stated arguments needs another that is missing."""
    for name in names:
        for need in ARGUMENTS[name].needs:
            is_met = stated.get(need.argument) in need.values if need.values else need.argument in stated
            if not is_met and stated[name] not in need.harmless:
                raise ArgumentError(name, stated[name], need.allowed)


def check_together(stated: Mapping[str, Any]) -> None:
    """Raise if arguments of a job contradict each other."""
    if not _NEEDS.isdisjoint(stated):
        check_needs(stated, stated)
    if not _OF_SEVERAL.isdisjoint(stated):
        _check_workers(stated)


def _check_workers(stated: Mapping[str, Any]) -> None:
    """Raise if worker times do not suit the strategy or the number of workers."""
    from perfmodel.prediction.job.agreement_options import refuse_unused

    workers = stated.get("workers", DEFAULTS["workers"])
    refuse_unused(stated, (stated.get("sync", DEFAULTS["sync"]),))
    group_size = stated.get("group_size")
    if group_size is not None and workers % group_size:
        raise ArgumentError("group_size", group_size, f"a divisor of workers={workers}")
    if "straggler" in stated:
        from perfmodel.prediction.job.straggler import straggler_of_job

        straggler = straggler_of_job(stated)
        assert straggler is not None
        straggler.check_workers(workers)
        straggler.check_backups(workers)
