"""The file of a framework: its lowering rules, its own constants and policies, and the libraries it calls.

Three kinds of constants are separate. The device file describes the chip, the library file the libraries' efficiency on
an architecture, and this file only the framework's own: dispatch, element-wise kernels,
feeding of data, kept memory, use of CPU threads, limits.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from perfmodel.calls import in_words
from perfmodel.framework.narrow import base_dtype
from perfmodel.framework.rules import LoweringTable
from perfmodel.hardware import source as spec
from perfmodel.hardware import spec_files
from perfmodel.hardware.library import required_constants
from perfmodel.hardware.spec_files import kept_while_unchanged
from perfmodel.layers.optimizers import OPTIMIZERS
from perfmodel.units import to_base_units

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph


PASS_CLASSES: Final = ("elementwise", "reduction", "transpose", "gather", "update")
"""Classes of passes whose bandwidth fraction on a GPU is a constant of the framework."""

ISSUER_DISPATCH: Final = ("dispatch_us", "backward_dispatch_us", "update_dispatch_us", "recording_us")
"""Constants of a framework whose host runs ahead: time to issue an operator by ``ISSUERS``, and to record it."""

LibraryRole = Literal["gpu_blas", "gpu_dnn", "gpu_attention", "gpu_attention_wide", "cpu_blas"]


class LibraryNames(spec.SpecTable):
    """The libraries a framework calls, as file stems of ``hardware_specs/libraries``.

    ``gpu_attention_wide`` runs fused attention in data types that ``gpu_attention`` has no kernels for. Without
    either, a fused kernel's products run at the rate of the BLAS's own.
    """

    gpu_blas: spec.Identifier
    gpu_dnn: spec.Identifier
    cpu_blas: spec.Identifier
    gpu_attention: spec.Identifier | None = None
    gpu_attention_wide: spec.Identifier | None = None
    by_architecture: dict[spec.Identifier, dict[LibraryRole, spec.Identifier]] = Field(default_factory=dict)
    tf32: tuple[Literal["gpu_blas", "gpu_dnn"], ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """Every library named, once."""
        everywhere = (self.gpu_blas, self.gpu_dnn, self.cpu_blas, self.gpu_attention, self.gpu_attention_wide)
        elsewhere = (name for roles in self.by_architecture.values() for name in roles.values())
        return tuple(dict.fromkeys(name for name in (*everywhere, *elsewhere) if name is not None))

    def name_of(self, role: str, architecture: str) -> str | None:
        """Return the library that fills a role on an architecture, if there is one."""
        elsewhere = self.by_architecture.get(architecture, {})
        return elsewhere.get(role, getattr(self, role))  # type: ignore[call-overload,no-any-return]


def in_base_units(constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return constants in base units, by the unit suffix of their names. [base unit of each]

    >>> in_base_units({"dispatch_us": 8.0})
    {'dispatch_us': 8e-06}
    """
    return {name: to_base_units(name, value) for name, value in constants.items()}


class ProcessorTable(spec.SpecTable):
    """A framework on one kind of processor: how it lowers, and its own constants there."""

    lowering: LoweringTable
    runs_ahead: bool = False
    host_call_slowdown: spec.PositiveNumber = 1.0
    constants: dict[spec.Identifier, spec.FiniteNumber]

    @property
    def in_base_units_by_name(self) -> dict[str, Any]:
        """The constants in base units, under their names in the file."""
        return in_base_units(self.constants)


class CpuTable(ProcessorTable):
    """A framework on CPUs: cost of its own loops beyond memory traffic.

    Attributes
    ----------
    cycles_per_flop : dict of str to float
        Cycles of one core per counted FLOP of a pass, by the pass's name; ``default`` for the rest. [cycle/FLOP]
    cycles_per_byte : dict of str to float
        Cycles of one core per byte moved, for passes without arithmetic. [cycle/B]
    """

    cycles_per_flop: dict[spec.Identifier, spec.NonNegativeNumber]
    cycles_per_byte: dict[spec.Identifier, spec.NonNegativeNumber]

    @field_validator("cycles_per_flop", "cycles_per_byte")
    @classmethod
    def _has_default(cls, table: dict[str, float]) -> dict[str, float]:
        if "default" not in table:
            message = "must have an entry 'default'"
            raise ValueError(message)
        return table


class MemoryTable(spec.SpecTable):
    """Memory that a framework keeps on the device during a training step.

    ``unread_results``: a result that a checkpointed region is marked to keep, but back-propagation does not read, is
    ``kept`` or ``freed``. ``gathered_inputs``: a product of a tensor group keeps its whole input for its weight
    gradient, or gathers it again. ``divided_loss_tensors``: tensors of the size of the group's scores that the gradient
    of a divided loss makes beyond those of an undivided one. ``full_recomputation``: ``recompute="full"`` repeats the
    layers whose results back-propagation reads, or ``blocks``. These run again whole or, if
    ``recomputation_stops_early``, until everything that back-propagation reads is made. ``gates``: the activation of a
    gated unit is kept for the product that reads it, or computed again in its kernel. ``gradients`` of parameters take
    memory from the moment they are ``made``, or for the whole run (``kept``). ``shared_units``: parameters that workers
    share are used where they were gathered and gradients are sent from separate memory (``flat``), or parameters are
    copied out one by one and gradients lie among activations (``by_parameter``). With ``allocator = "best_fit"``
    footprints contain the gaps that freed tensors leave, see :func:`perfmodel.graph.arena.reserved_bytes`.
    """

    in_place: tuple[spec.Identifier, ...]
    activation_gradients: Literal["kept", "reused"]
    workspace: Literal["per_layer", "shared"]
    workspaces_per_layer: spec.Count = 1
    extra_buffers: dict[spec.Identifier, spec.NonNegativeNumber] = Field(default_factory=dict)
    composed: dict[spec.Identifier, Annotated[int, Field(ge=0, strict=True)]] = Field(default_factory=dict)
    index_bytes: spec.Count = 4
    unread_results: Literal["kept", "freed"] = "freed"
    gathered_inputs: Literal["kept", "gathered_again"] = "gathered_again"
    divided_loss_tensors: Annotated[int, Field(ge=0, strict=True)] = 0
    shared_units: Literal["flat", "by_parameter"] = "flat"
    gates: Literal["kept", "made_again"] = "kept"
    gradients: Literal["made", "kept"] = "made"
    full_recomputation: Literal["what_is_read", "blocks"] = "what_is_read"
    recomputation_stops_early: bool = False
    allocator: Literal["exact", "best_fit"] = "exact"
    pool_overhead: Annotated[float, Field(ge=1, le=2, strict=True)] = 1.0


class FeedTable(spec.SpecTable):
    """Rules and constants of a framework's feed of mini-batches."""

    mode: Literal["synchronous", "overlapped", "resident"]
    pinned: bool


class ExchangeTable(spec.SpecTable):
    """Rules and constants of a framework's exchanges among devices.

    ``tensor_beside``: products of back-propagation during which exchanges of a tensor group run: gathering the input
    of a layer split by outputs during its input gradient, the sum of that input gradient during its weight gradient.
    ``tensor_products``: with sequence parallelism, products of blocks are whole, or cut by rows so that parts run
    during the messages that they need or make (a lower rate of parts is ignored). ``scores``: for the loss, devices of
    a tensor group keep the scores of their own words, or gather all. ``gate_sums``: one sum of input gradients for a
    gate and its units together, or one for each. ``gradients`` are exchanged during the backward phase or after it, in
    the type ``sums_in``; ``shared_sums``: workers that share state receive their part of the sums, or all.
    ``stage_2_gathers``: workers that share gradients (``shard_stage=2``) gather whole parameters ``after_update``; or
    keep shares and gather them before every forward turn (``each_forward``), or only before the first after a sum of
    gradients among workers (``forward_after_sums``: with ``no_sync`` once a step). ``outermost`` dimension of a
    pipeline's devices: ``stages``, with neighbouring workers of a stage, or ``workers``. ``sends``: while activations
    and gradients travel, a stage computes (``meanwhile``), waits while it sends and receives at once (``waited``), or
    waits for each transfer in turn (``one_by_one``); with interleaved stages it computes (``interleaved_sends`` =
    ``meanwhile``) or waits as ``sends`` says (``waited``).
    ``sent``: each device of a tensor group sends a common tensor as a ``whole``, or its part (``shares``), which the
    next stage's group gathers. ``cpu_collectives`` and ``collectives``: libraries for sums in host memory and on GPUs.
    A parameter server in a separate process (on another machine, or next to a worker on a machine's cores) takes
    ``server_step_us`` for each step of a worker and ``server_tensor_us`` for each tensor there and back, on a host with
    ``server_host_call_slowdown``, and issues ``server_operations_per_tensor``.
    """

    collectives: spec.Identifier | None = None
    cpu_collectives: spec.Identifier | None = None
    server_step_us: spec.NonNegativeNumber = 0.0
    server_tensor_us: spec.NonNegativeNumber = 0.0
    server_host_call_slowdown: spec.PositiveNumber = 1.0
    server_operations_per_tensor: spec.NonNegativeNumber = 0.0
    bucket_mib: spec.NonNegativeNumber | None = None
    pull_order: Literal["layers", "unordered"] = "layers"
    tensor_beside: tuple[Literal["input_gradient", "weight_gradient"], ...] = ()
    tensor_products: Literal["whole", "cut"] = "whole"
    scores: Literal["divided", "gathered"] = "divided"
    gate_sums: Literal["together", "each"] = "together"
    gradients: Literal["meanwhile", "afterwards"] = "meanwhile"
    sums_in: Literal["fp32"] | None = None
    shared_sums: Literal["scattered", "whole"] = "scattered"
    stage_2_gathers: Literal["after_update", "each_forward", "forward_after_sums"] = "after_update"
    outermost: Literal["workers", "stages"] = "workers"
    sends: Literal["meanwhile", "waited", "one_by_one"] = "meanwhile"
    interleaved_sends: Literal["meanwhile", "waited"] = "meanwhile"
    sent: Literal["whole", "shares"] = "whole"

    @property
    def awaits_interleaved_sends(self) -> bool:
        """Whether stages of an interleaved schedule wait for what they send."""
        return self.awaited_sends > 0 and self.interleaved_sends == "waited"

    @property
    def awaited_sends(self) -> int:
        """Transfers that a stage waits for at each send: none, the one sent, or also the one received. [1]"""
        return {"meanwhile": 0, "waited": 1, "one_by_one": 2}[self.sends]

    def adds_up_whole(self, shard_stage: int) -> bool:
        """Tell whether workers that share optimizer state add up all gradients, which only stage 1 keeps whole."""
        return shard_stage == 1 and self.shared_sums == "whole"


class FrameworkProfile(spec.SpecFile):
    """A framework profile as in its file.

    Attributes
    ----------
    version : str
        Release or commit. [-]
    program : str or None
        Training program that it describes, whose layouts a search keeps to; None for a library. [-]
    input_gradient : bool
        Whether the gradient of the network's own input is computed. [-]
    library : LibraryNames
        The libraries it calls. [-]
    gpu : ProcessorTable
        Rules and constants on GPUs. [-]
    cpu : CpuTable
        Rules and constants on CPUs. [-]
    feed : FeedTable
        Feed of mini-batches. [-]
    memory : MemoryTable
        Memory kept on the device. [-]
    exchange : ExchangeTable
        Exchanges of workers and of tensor groups. [-]
    cannot : tuple of Incapacity
        Limits, with the evidence; see :mod:`perfmodel.framework.profile`. [-]
    constant : dict of str to Constant
        Unit, meaning and range of each constant. [-]
    """

    WITHOUT_SOURCE = frozenset({"schema_version", "source", "constant", "cannot", "program"})

    version: spec.Text
    program: Literal["megatron", "torchtitan"] | None = None
    input_gradient: bool
    library: LibraryNames
    gpu: ProcessorTable
    cpu: CpuTable
    feed: FeedTable
    memory: MemoryTable
    exchange: ExchangeTable = Field(default_factory=ExchangeTable)
    cannot: tuple["Incapacity", ...] = ()
    constant: dict[spec.Identifier, spec.Constant]

    @model_validator(mode="after")
    def _constants_are_described(self) -> Self:
        faults = [
            f"{processor}.constants.{line}"
            for processor in ("gpu", "cpu")
            for line in spec.constant_faults(getattr(self, processor).constants, self.constant)
        ]
        for table in ("cycles_per_flop", "cycles_per_byte"):
            described = {name: self.constant.get(table) for name in getattr(self.cpu, table)}
            known = {name: constant for name, constant in described.items() if constant is not None}
            faults += [f"cpu.{table}.{line}" for line in spec.constant_faults(getattr(self.cpu, table), known)]
        faults += self._serial_row_faults()
        if faults:
            kind = "constants"
            raise PydanticCustomError(kind, "{faults}", {"faults": "; ".join(faults)})
        return self

    def missing(self) -> Iterator[str]:
        """Yield a line for each constant or rule that predictions read and the file does not have."""
        issued = {"gpu": ISSUER_DISPATCH if self.gpu.runs_ahead else ()}
        for processor, names in required_constants()["framework"].items():
            stated = getattr(self, processor).constants
            for name in dict.fromkeys((*names, *issued.get(processor, ()))):
                if name not in stated:
                    yield f"{processor}.constants.{name}: required constant is missing"
        if not self.cpu.lowering.convolution_algorithms:
            yield "cpu.lowering.convolution_algorithms: must name a way to convolve, since no CPU library brings one"

    def _serial_row_faults(self) -> list[str]:
        """Return a fault for serial rows without a time, which would cost nothing."""
        named, unused = list(self.gpu.lowering.serial_rows), list(self.cpu.lowering.serial_rows)
        faults = []
        if named and "serial_row_cycles" not in self.gpu.constants:
            faults.append(
                f"gpu.lowering.serial_rows: value {named!r}: needs the constant gpu.constants.serial_row_cycles"
            )
        if unused:
            faults.append(
                f"cpu.lowering.serial_rows: value {unused!r}: must be empty: only GPU threads wait row by row"
            )
        return faults


@in_words
def load_framework(name_or_path: str | Path | FrameworkProfile) -> FrameworkProfile:
    """Load a framework profile.

    Parameters
    ----------
    name_or_path : str, Path or FrameworkProfile
        A name such as ``caffe_1_0_rc3``, a path to a TOML, or a profile, which is returned as it is. [-]

    Returns
    -------
    FrameworkProfile
        The validated profile. [-]

    Raises
    ------
    UnknownNameError
        If no such profile exists; names the nearest.
    SpecError
        If the file is wrong; lists every fault.
    """
    if not isinstance(name_or_path, str) and isinstance(name_or_path, FrameworkProfile):
        return name_or_path
    return _profile_of(name_or_path)


@kept_while_unchanged(spec_files.folders_asked_for)
def _profile_of(name_or_path: str | Path) -> FrameworkProfile:
    return spec_files.load(spec_files.find("frameworks", name_or_path), FrameworkProfile, heirs_of="frameworks")


PhaseName = Literal["forward", "backward", "update"]

OFTEN_LACKING: Final = frozenset({
    "lstm", "gru", "rnn", "batch_norm", "layer_norm", "concat", "convolution_1d", "convolution_2d", "convolution_3d",
    "matmul", "scaled_dot_product_attention", "multi_head_attention",
})  # fmt: skip
"""Kinds of layers that shipped files name, known without loading all layers. [-]"""


class Incapacity(spec.SpecTable):
    """One thing that a framework cannot do. A field that is left out sets no condition: no layers means any layer.

    Attributes
    ----------
    layers : tuple of str
        Kinds of layers. [-]
    optimizers : tuple of str
        Rules of the update, in phase ``step``. [-]
    processors, phases, dtypes : tuple of str
        Where, when and in which data types. [-]
    several_workers : bool
        Whether it holds only for jobs of several workers. [-]
    evidence : str
        Who says so: document and words. [-]
    """

    layers: tuple[spec.Identifier, ...] = ()
    optimizers: tuple[spec.Identifier, ...] = ()
    processors: tuple[Literal["gpu", "cpu"], ...] = ()
    phases: tuple[PhaseName, ...] = ()
    dtypes: tuple[Literal["fp32", "tf32", "fp16", "bf16", "fp64"], ...] = ()
    several_workers: bool = False
    evidence: Annotated[spec.Text, Field(min_length=20)]

    @field_validator("layers")
    @classmethod
    def _are_kinds_of_layers(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(kinds) - OFTEN_LACKING):
            from perfmodel.layers import LAYERS  # loads every family of layers

            unknown = sorted(set(unknown) - LAYERS.keys())
        if unknown:
            message = f"must be kinds of layers; not known: {', '.join(unknown)}"
            raise ValueError(message)
        return kinds

    @field_validator("optimizers")
    @classmethod
    def _are_optimizers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(names) - OPTIMIZERS.keys()):
            message = f"must be optimizers; not known: {', '.join(unknown)}"
            raise ValueError(message)
        return names

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        if not (self.layers or self.optimizers or self.phases or self.dtypes or self.several_workers):
            message = "must name optimizers, layers, phases, dtypes or several_workers"
            raise ValueError(message)
        return self

    @property
    def what(self) -> str:
        """The limit as a noun with its conditions."""
        updates = f"optimizer {' or '.join(self.optimizers)}" if self.optimizers else ""
        noun = ", ".join(self.layers) or updates or ("several workers" if self.several_workers else "a computation")
        where = f" on a {' or '.join(name.upper() for name in self.processors)}" if self.processors else ""
        types = f" in {' or '.join(self.dtypes)}" if self.dtypes else ""
        when = f" in phase {' or '.join(self.phases)}" if self.phases else ""
        return f"{noun}{where}{types}{when}"

    def concerns(self, *, processor: str, phases: Iterable[str], dtype: str, workers: int) -> bool:
        """Return whether the conditions other than layers hold for a job."""
        return (
            (not self.processors or processor in self.processors)
            and (not self.phases or not set(self.phases).isdisjoint(phases))
            and (not self.dtypes or not {dtype, base_dtype(dtype)}.isdisjoint(self.dtypes))
            and (workers > 1 or not self.several_workers)
        )


def shortfalls(
    profile: FrameworkProfile,
    graph: "LayerGraph",
    *,
    processor: str,
    phases: Iterable[str],
    dtype: str,
    workers: int,
    optimizer: str,
) -> tuple[str, ...]:
    """Return a line for each thing that a job asks of a framework and that it cannot do: layer, framework, evidence."""
    phases, lines = tuple(phases), []
    for entry in profile.cannot:
        if not entry.concerns(processor=processor, phases=phases, dtype=dtype, workers=workers):
            continue
        if entry.optimizers:
            if "update" not in phases or optimizer not in entry.optimizers:
                continue
            entry = entry.model_copy(update={"optimizers": (optimizer,)})
        nodes = [node for node in graph.layers if node.layer.kind in entry.layers]
        if entry.layers and not nodes:
            continue
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        place = f" (layer {nodes[0].name}{more})" if nodes else ""
        lines.append(f"{profile.name} cannot run {entry.what}{place}: {entry.evidence}")
    return tuple(lines)
