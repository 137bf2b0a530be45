"""A GPU behind its host link, alone or as one worker's device in a system, as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import fields, replace
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from perfmodel.cost.gpu import stream_time, write_out_steps
from perfmodel.derived import derived, derived_property, record
from perfmodel.framework.measured_lowering import pass_class
from perfmodel.framework.narrow import NARROW_PRODUCT, RECIPES, SPLIT_ACCUMULATOR, base_dtype
from perfmodel.framework.profile import ISSUER_DISPATCH, FrameworkProfile, load_framework
from perfmodel.hardware.catalogue import load_device, load_link, load_machine
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.gpu import SPARSE_TENSOR_CORES, Gpu
from perfmodel.hardware.library import LibrarySupport
from perfmodel.hardware.link import Link
from perfmodel.hardware.spec_files import folders_asked_for, kept_while_unchanged
from perfmodel.numeric import first_array_length, maximum
from perfmodel.prediction.device.factors import (
    NO_FACTORS,
    Factors,
    device_constant,
    host_constants,
    library_constants,
    scaled_constant,
)
from perfmodel.prediction.device.gpu_attention import AttentionLibrary, attention_library
from perfmodel.prediction.device.gpu_clock import (
    BUSY_IN_CONVOLUTIONS,
    Load,
    boost_peaks,
    clock_ratio,
    energy_variation,
    fed_share,
    loads_of,
    slowest_clock,
    sustained_peak_flop_per_s,
    sustained_peaks,
    variation_file,
)
from perfmodel.prediction.device.gpu_libraries import (
    REACH_VALUES,
    RECURRENT,
    RECURRENT_TIMES,
    RECURRENT_VALUES,
    MatmulLibrary,
    RecurrentLibrary,
    StreamEfficiency,
    gpu_software,
    recurrent_library,
)
from perfmodel.prediction.device.gpu_products import product_times
from perfmodel.prediction.device.named_rows import by_row, distinct_names, rows_named
from perfmodel.prediction.device.step_time import ProcessorNumbers
from perfmodel.prediction.device.system_part import SystemPart
from perfmodel.prediction.device.target import Copy, Feed, Libraries, Target, own_libraries, staging_time
from perfmodel.records import ELEMENT_BYTES, SINGLE_BYTES
from perfmodel.symbolic import Quantity
from perfmodel.units import MICROSECOND

if TYPE_CHECKING:
    from pathlib import Path

    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.hardware.source import SpecFile


@record
class GpuNumbers(ProcessorNumbers):
    """Plain numbers of a GPU, its libraries and a framework: floats, arrays or symbols."""

    peak_flop_per_s: Quantity
    lane_peak_flop_per_s: Quantity
    bandwidth_bytes_per_s: Quantity
    unit_count: Quantity
    l2_bytes: Quantity
    matmul_libraries: tuple[MatmulLibrary, ...]
    recurrent_library: RecurrentLibrary | None
    attention_library: AttentionLibrary | None
    stream_efficiency: StreamEfficiency
    serial_step_s: Quantity
    element_bytes: int
    launch_s: Quantity
    dispatch_s: Quantity
    library_issue_s: Quantity
    step_overhead_s: Quantity
    overlap_exponent: float
    issuer_dispatch_s: tuple[Quantity, ...] | None = None
    is_plain: ClassVar[bool] = False
    """Whether all numbers are as filed. Not a field: a copy with a changed number is not plain."""

    @property
    def queued(self) -> bool:
        """Whether the host queues all kernels of a step ahead, so that only the total of dispatch can delay it."""
        return self.issuer_dispatch_s is not None

    @property
    def configuration_count(self) -> int | None:
        """Length of those numbers that are arrays over configurations; None if all are scalars. [1]"""
        if self.is_plain:
            return None
        values = [_OWN_VALUES(self), self.issuer_dispatch_s or ()]
        values += [(*REACH_VALUES(reach), *of_device) for reach, *of_device in self.matmul_libraries]
        if self.recurrent_library is not None:
            values.append(RECURRENT_VALUES(self.recurrent_library))
        if self.attention_library is not None:
            values.append(self.attention_library.values)
        return first_array_length(chain.from_iterable(values))

    def matmul_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Compute and memory seconds of one launch of each matmul row. [s]"""
        timed = product_times(self.matmul_libraries, columns, efficiency, self)
        library = self.recurrent_library
        if library is not None and rows_named(efficiency, RECURRENT) is not None:
            for name, times in RECURRENT_TIMES.items():
                if (named := rows_named(efficiency, (name,))) is not None:
                    picked = {column: values[named.rows] for column, values in columns.items()}
                    timed.append((named.rows, *times(library, picked, self)))
        if self.attention_library is not None:
            timed += self.attention_library.times(columns, efficiency, self)
        shape = columns["m"].shape
        if len(timed) == 1 and len(timed[0][1]) == shape[0]:
            return timed[0][1:]
        # A symbol among the numbers makes the times objects, whatever the columns are.
        compute_s, memory_s = (
            np.empty(shape, dtype=np.result_type(*(times[branch] for times in timed))) for branch in (1, 2)
        )
        for rows, compute_of_rows, memory_of_rows in timed:
            compute_s[rows], memory_s[rows] = compute_of_rows, memory_of_rows
        return compute_s, memory_s

    def stream_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Compute and memory seconds of one launch of each stream row. [s]"""
        moved_bytes = columns["read_bytes"] + columns["written_bytes"]
        memory_s = stream_time(
            moved_bytes=moved_bytes,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            efficiency=_efficiency_by_row(self.stream_efficiency, efficiency, moved_bytes.ndim),
        )
        if (serial_steps := columns.get("serial_steps")) is not None:
            # Rows are many or long: waits of threads for their loads overlap, and the longest row decides.
            memory_s = maximum(memory_s, serial_steps * self.serial_step_s)
        return columns["flop_count"] / self.lane_peak_flop_per_s, memory_s


@derived
def _efficiency_by_row(known: StreamEfficiency, names: tuple[str, ...], axes: int) -> Any:
    """Bandwidth fraction of each pass, by its own name or by its class."""
    once, code_of_row = distinct_names(names)
    return by_row([known[name] if name in known else known[pass_class(name)] for name in once], code_of_row, axes=axes)


_OWN_VALUES = attrgetter(
    *(
        field.name
        for field in fields(GpuNumbers)
        if field.name not in ("matmul_libraries", "recurrent_library", "attention_library", "issuer_dispatch_s")
    )
)
"""Every number of a GPU except those of its libraries."""


WIDER: Final = {**dict.fromkeys(RECIPES, "bf16"), "fp16": "fp32", "bf16": "fp32", "tf32": "fp32"}
"""Data type without tensor-core kernels in a library -> type in which the library computes instead."""


def product_dtype(
    device: Gpu, profile: FrameworkProfile, libraries: Mapping[str, LibraryProfile], role: str, *, dtype: str
) -> str:
    """Type in which a library computes products of tensors of a given type."""
    if dtype == "fp32" and role not in profile.library.tf32:
        return dtype
    rounds = dtype == "fp32" and "tf32" in device.dtypes
    computed_in = "tf32" if rounds else dtype
    library = libraries[role]
    computed_in = base_dtype(computed_in) if role != "gpu_blas" else computed_in
    while device.needs_tensor_cores(computed_in) and not library.on_tensor_cores(
        device.architecture, dtype=computed_in
    ):
        computed_in = WIDER[computed_in]
    return computed_in


ATTENTION_ROLES: Final = ("gpu_attention", "gpu_attention_wide")
"""Roles of libraries for attention, the one for narrow data types first."""


def attention_role(
    device: Gpu, profile: FrameworkProfile, libraries: Mapping[str, LibraryProfile], *, dtype: str
) -> tuple[str, str] | None:
    """Role of the library that runs fused attention, and the type in which it computes; None without one."""
    offered = [role for role in ATTENTION_ROLES if role in libraries]
    if not offered:
        return None
    types = {role: product_dtype(device, profile, libraries, role, dtype=dtype) for role in offered}
    native = (role for role, name in types.items() if libraries[role].on_tensor_cores(device.architecture, dtype=name))
    role = next(native, offered[-1])
    return role, types[role]


def _attention(
    device: Gpu,
    libraries: Mapping[str, LibraryProfile],
    attends: tuple[str, str] | None,
    *,
    at_boost: Mapping[str, Quantity],
    peaks: Mapping[str, Quantity],
    dtype: str,
    loads: Mapping[str, Load],
    factors: Factors,
) -> AttentionLibrary | None:
    """Constants of fused attention, each pass at the clock that its power leaves; None without a library for it."""
    if attends is None:
        return None
    role, computed_in = attends
    constants = library_constants(libraries[role], device, factors=factors, dtype=computed_in)
    kind = device.arithmetic_of(computed_in)
    return attention_library(
        constants,
        device,
        peak_ratio=at_boost[computed_in] / peaks[dtype],
        lane_ratio=at_boost["fp32"] / peaks["fp32"],
        clock_of=lambda busy_share: clock_ratio(device, kind, busy_share=busy_share, loads=loads),
    )


def _narrow_products(
    device: Gpu,
    profile: FrameworkProfile,
    libraries: Mapping[str, LibraryProfile],
    recipe: str,
    *,
    beside: str,
    at: Quantity,
    loads: Mapping[str, Load],
    factors: Factors,
) -> tuple[MatmulLibrary, ...]:
    """Constants of the BLAS for products of operands that a recipe casts, if the BLAS computes in its type."""
    if recipe not in RECIPES:
        return ()
    types = (product_dtype(device, profile, libraries, "gpu_blas", dtype=recipe), beside)
    if types[0] not in RECIPES:
        return ()
    software = gpu_software(profile, (libraries["gpu_blas"], libraries["gpu_dnn"]), device, types, factors=factors)
    of_products = software.reaches[0].efficiency["gemm"]
    split = of_products * software.blas.get("split_accumulator_efficiency", 1.0)
    reach = replace(software.reaches[0], efficiency={NARROW_PRODUCT: of_products, SPLIT_ACCUMULATOR: split})
    clock = clock_ratio(device, device.arithmetic_of(types[0]), loads=loads)
    narrow = boost_peaks(device, types[:1], factors)[types[0]] * clock
    latency_s = software.blas["latency_cycles"] / device.clock_hz
    return (MatmulLibrary(reach, narrow / at, latency_s, software.blas["ramp_steps"]),)


def _ramp_steps(dnn: Mapping[str, Any], peak: Quantity, bandwidth: Quantity, element_bytes: int) -> Quantity:
    """Return the steps of a sum that a tile costs, stated where it is written while the next one is summed. [1]"""
    stated = dnn.get("ramp_steps")
    if stated is not None:
        return stated
    return write_out_steps(peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth, element_bytes=element_bytes)


class _Files(NamedTuple):
    """Files that a step on a single GPU reads, besides the device's."""

    profile: FrameworkProfile
    libraries: Libraries
    with_attention: Libraries
    link: Link


@kept_while_unchanged(folders_asked_for, names=(tuple,))
def _files_of(asked: Any) -> _Files:
    """Load a framework, its libraries for an architecture, and a link; checks all three for changes together."""
    framework, architecture, link = asked
    profile = load_framework(framework)
    sets = (GpuTarget.roles, (*GpuTarget.roles, *ATTENTION_ROLES))
    usual, with_attention = (own_libraries(profile, roles, architecture=architecture) for roles in sets)
    return _Files(profile, usual, with_attention, load_link(link))


@lru_cache(maxsize=64)
def _support_for(
    support: LibrarySupport, *, attention: bool, sparse_products: bool, narrow: str | None
) -> LibrarySupport:
    """Add attention, sparse and narrow products to what a DNN library supports."""
    return replace(support, attention=attention, sparse_products=sparse_products, narrow=narrow)


def _recipe_remark(recipe: str, blas: LibraryProfile, computed_in: str, *, architecture: str) -> str:
    """Tell what a narrow data type of a job stands for."""
    rest = f"everything else, weights in memory too, stays in {base_dtype(recipe)}"
    if computed_in not in RECIPES:
        return f"{blas.name} has no {recipe} kernels for {architecture}: linear layers run in {computed_in}, and {rest}"
    return f"{recipe} is a recipe: linear layers run in {recipe}, scaled and cast before each product; {rest}"


FEW_LANES: Final = 16
"""Peak in bf16 over that in fp32 from which products in fp32 are hardly meant to run on a device. [1]"""

ROUNDED: Final = "a compiler may round their operands to bf16, as JAX does on TPUs; dtype='bf16' predicts that"
"""What becomes of such products (docs.jax.dev, Matmul precision). [-]"""


def _lanes_behind(device: Gpu) -> float:
    """Peak in bf16 over that in fp32; 1 for a device with a type between them. [1]"""
    if "bf16" not in device.dtypes or "tf32" in device.dtypes:
        return 1.0
    return float(device.peak_flop_per_s("bf16") / device.peak_flop_per_s("fp32"))


class GpuTarget(Target):
    """One GPU behind its host link."""

    processor = "gpu"
    roles = ("gpu_blas", "gpu_dnn")
    attention_roles = ATTENTION_ROLES
    threads = None
    _files: _Files | None = None
    _plain: tuple[FrameworkProfile, Libraries, str, ProcessorNumbers] | None = None
    _drawing: GpuTarget | None = None
    energy_ratio: Any = 1.0
    """Energy of a FLOP on this device over that of the mean device of its model. [1]"""

    def __init__(self, device: Gpu, *, host: Cpu | None = None, system_part: SystemPart | None = None) -> None:
        self.device = self.processor_spec = device
        self.host = host
        self.architecture = device.architecture
        if system_part is not None:
            self.system_part = system_part

    @derived_property
    def name(self) -> str:  # type: ignore[override]
        """The device's name, or the part of the system in words."""
        return self.device.name if self.system_part is None else self.system_part.describe()

    @property
    def bandwidth_bytes_per_s(self) -> float:  # type: ignore[override]
        """Peak bandwidth to its memory. [B/s]"""
        return self.device.memory_bandwidth_bytes_per_s

    @property
    def capacity_bytes(self) -> float:  # type: ignore[override]
        """Memory that a program sees. [B]"""
        return self.device.usable_memory_bytes

    @property
    def context_bytes(self) -> float:  # type: ignore[override]
        """Memory that a context takes. [B]"""
        return self.device.context_bytes

    @derived_property
    def shared_bytes_per_s(self) -> Any:  # type: ignore[override]  # noqa: D102
        return math.inf if self.system_part is None else self.system_part.copy_bytes_per_s

    @derived_property
    def link(self) -> Link:
        """The device's own link to the host."""
        system_part = self.system_part
        return (
            load_link(self.device.host_link.link_name)
            if system_part is None
            else system_part.link_of(system_part.names[0])
        )

    @derived_property
    def copy_latency_s(self) -> Any:
        """Time before the first byte of a copy arrives. [s]"""
        return self.link.latency_s if self.system_part is None else self.system_part.copy_latency_s

    def profile_of(self, framework: str | Path | FrameworkProfile) -> FrameworkProfile:
        """Load the framework with its libraries and the link, because a step needs them all."""
        if type(framework) is not str or self.system_part is not None:
            return super().profile_of(framework)
        self._files = files = _files_of((framework, self.architecture, self.device.host_link.link_name))
        self.link = files.link
        return files.profile

    def libraries(
        self, profile: FrameworkProfile, override: str | Path | LibraryProfile | None, *, attends: bool = False
    ) -> Libraries:
        """Libraries that a framework uses here; see ``Target.libraries``."""
        if override is None and self._files is not None and self._files.profile is profile:
            return self._files.with_attention if attends else self._files.libraries
        return super().libraries(profile, override, attends=attends)

    @derived_property
    def specs_by_place(self) -> dict[str, SpecFile]:  # type: ignore[override]
        """The files of the hardware by kind folder and stem, the GPU's first."""
        host, system_part = self.host, self.system_part
        specs: dict[str, SpecFile] = {f"devices/{self.device.stem}": self.device}
        specs[f"links/{self.link.family.stem}"] = self.link.family
        if host is not None:
            specs[f"devices/{host.stem}"] = host
        if system_part is not None:
            specs[f"systems/{system_part.system.file.stem}"] = system_part.system.file
            specs.update([variation_file(self.device)])
        return specs

    def behind(self, hosts: Mapping[str, str]) -> Target:
        """Put the GPU in its usual machine, if one is known for an equal device."""
        if self.system_part is not None or not hosts:
            return self
        alike = (host for name, host in hosts.items() if load_device(name).identity == self.device.identity)
        host = next(alike, None)
        return self if host is None else GpuTarget(self.device, host=load_machine(host).processor)

    def on(self, system_part: SystemPart) -> GpuTarget:
        """Return the same device in another part of the system."""
        return GpuTarget(system_part.device, host=self.host, system_part=system_part)

    def host_slowdown(self, factors: Factors) -> Any:
        """Ratio of the time of host code to that on the hosts for which framework files are written. [1]"""
        return 1.0 if self.host is None else host_constants(self.host, factors=factors)["call_slowdown"]

    def support(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> LibrarySupport:
        """DNN-library features on this architecture, for the type in which the library computes."""
        narrow = None
        if dtype in RECIPES:
            if dtype not in self.device.dtypes:
                raise self.device.refused(dtype)
            products = product_dtype(self.device, profile, libraries, "gpu_blas", dtype=dtype)
            narrow = products if products in RECIPES else None
        computed_in = product_dtype(self.device, profile, libraries, "gpu_dnn", dtype=dtype)
        support = libraries["gpu_dnn"].support_for(self.architecture, dtype=computed_in)
        attention = len(libraries) > len(self.roles)
        sparse = dtype in SPARSE_TENSOR_CORES.get(self.architecture, ())
        if not (attention or narrow or sparse):
            return support
        return _support_for(support, attention=attention, sparse_products=sparse, narrow=narrow)

    def own_remarks(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> list[str]:
        """Remarks on types that libraries compute in, and on libraries that replace the framework's own."""
        types = {role: product_dtype(self.device, profile, libraries, role, dtype=dtype) for role in self.roles}
        computed_in = [(libraries[role], types[role]) for role in self.roles]
        rounding = {role: libraries[role].name for role in self.roles if types[role] == "tf32" != dtype}
        which = "they" if "gpu_blas" in rounding else "convolutions and recurrent layers, but no other products,"
        rounds = f"round fp32 operands to TF32 on this device: with dtype='fp32' {which} run on tensor cores"
        notes = [f"{profile.name} lets {' and '.join(rounding.values())} {rounds}"] if rounding else []
        if dtype == "fp32" and (ratio := _lanes_behind(self.device)) >= FEW_LANES:
            rate = f"at 1/{ratio:.0f} of the peak in bf16"
            notes.append(f"products in fp32 run outside the matrix units of {self.device.name}, {rate}: {ROUNDED}")
        recipe, dtype = dtype, base_dtype(dtype)
        if recipe != dtype:
            blas, of_blas = computed_in[0]
            notes.append(_recipe_remark(recipe, blas, of_blas, architecture=self.architecture))
        for library, of_library in computed_in:
            if of_library in RECIPES:
                continue
            if dtype not in ("fp32", of_library):
                lacking = f"has no {dtype} kernels for the tensor cores of {self.architecture}"
                notes.append(f"{library.name} {lacking}: it computes in {of_library}")
            elif dtype != "fp32" and not library.on_tensor_cores(self.architecture, dtype=dtype):
                notes.append(f"the constants of {library.name} were fitted in fp32: {dtype} extrapolates")
        if self.system_part is not None:
            notes += (*self._of_board(self.system_part), *self.system_part.system.remarks)
        replaced = profile.library.by_architecture.get(self.architecture, {})
        is_other = any(getattr(profile.library, role) != name for role, name in replaced.items() if role in self.roles)
        if replaced.keys() >= {*self.roles} and is_other:
            calls = " and ".join([libraries[role].name for role in self.roles])
            usual = " and ".join([getattr(profile.library, role) for role in self.roles])
            notes.append(f"on {self.architecture}, {calls} stand in for {usual}, which {profile.name} was built with")
        return notes

    def energy_variation(self, factors: Factors) -> Quantity:  # noqa: D102
        return energy_variation(self.device, factors)

    def drawing(self, energy_ratio: Any) -> Target:  # noqa: D102
        for known in (self, self._drawing) if type(energy_ratio) is float else ():
            if known is not None and known.energy_ratio == energy_ratio:
                return known
        other = copy(self)
        other._plain, other._drawing, other.energy_ratio = None, None, energy_ratio
        self._drawing = other if type(energy_ratio) is float else self._drawing
        return other

    @property
    def slowest_clock(self) -> float:  # noqa: D102
        return slowest_clock(self.device, self.energy_ratio)

    def _of_board(self, system_part: SystemPart) -> tuple[str, ...]:
        """Remark on the clock that two working dies of one board share."""
        board = self.device.board
        if board is None or not system_part.shares_boards:
            return ()
        clock = f"{board.shared_clock_fraction:.1%} of the clock of one alone"
        return (f"dies of a board work at once: each keeps {clock}, and all workers are taken to be that slow",)

    def numbers(
        self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors = NO_FACTORS
    ) -> ProcessorNumbers:
        """Plain numbers of the GPU, its libraries and the framework."""
        if factors is not NO_FACTORS:
            return self._numbers(profile, libraries, dtype=dtype, factors=factors)
        kept = self._plain
        if kept is None or kept[0] is not profile or kept[1] is not libraries or kept[2] != dtype:
            numbers = self._numbers(profile, libraries, dtype=dtype, factors=factors)
            self._plain = kept = profile, libraries, dtype, numbers
        return kept[3]

    def _numbers(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors) -> GpuNumbers:
        """Join the GPU's facts, its libraries' constants and a framework's constants into plain numbers."""
        device, element_bytes = self.device, ELEMENT_BYTES[dtype]
        recipe, dtype = dtype, base_dtype(dtype)
        dtypes = (
            product_dtype(device, profile, libraries, "gpu_blas", dtype=dtype),
            product_dtype(device, profile, libraries, "gpu_dnn", dtype=dtype),
        )
        software = gpu_software(profile, (libraries["gpu_blas"], libraries["gpu_dnn"]), device, dtypes, factors=factors)
        (gemm, convolution), blas, dnn, framework = software.reaches, software.blas, software.dnn, software.framework
        launch_us = device_constant(device.launch.latency_us, device, "launch.latency_us", factors=factors)
        attends = attention_role(device, profile, libraries, dtype=dtype)
        at_boost = boost_peaks(device, (dtype, *dtypes) if attends is None else (dtype, *dtypes, attends[1]), factors)
        loads = loads_of(device, factors, energy_ratio=self.energy_ratio)
        peaks = sustained_peaks(device, at_boost, loads)
        bandwidth_bytes_per_s = device_constant(
            device.sustained_memory_bandwidth_bytes_per_s, device, "memory.bandwidth_gb_per_s", factors=factors
        )
        clock_hz = device.clock_hz * device.highest_clock_ratio  # waiting units draw little power
        of_products = peaks[dtypes[0]] / peaks[dtype]
        fed, kind = fed_share(device, dtypes[1], dnn, factors), device.arithmetic_of(dtypes[1])
        in_convolutions = clock_ratio(device, kind, busy_share=BUSY_IN_CONVOLUTIONS * fed, loads=loads)
        of_convolutions = fed * at_boost[dtypes[1]] * in_convolutions / peaks[dtype]
        ramp_steps = _ramp_steps(dnn, peaks[dtype] * of_convolutions, bandwidth_bytes_per_s, element_bytes)
        slowdown = 1.0 if self.host is None else self.host_slowdown(factors) / profile.gpu.host_call_slowdown
        issuers = ISSUER_DISPATCH if profile.gpu.runs_ahead else ()
        numbers = GpuNumbers(
            peak_flop_per_s=peaks[dtype],
            lane_peak_flop_per_s=peaks["fp32"],
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            unit_count=device.unit_count,
            l2_bytes=device.l2_bytes,
            matmul_libraries=(
                MatmulLibrary(gemm, of_products, blas["latency_cycles"] / clock_hz, blas["ramp_steps"]),
                MatmulLibrary(convolution, of_convolutions, dnn["latency_cycles"] / clock_hz, ramp_steps),
                *_narrow_products(
                    device, profile, libraries, recipe, beside=dtypes[1], at=peaks[dtype], loads=loads, factors=factors
                ),
            ),
            recurrent_library=recurrent_library(
                dnn, software.recurrent_menu, peak_ratio=of_convolutions, clock_hz=clock_hz
            ),
            attention_library=_attention(
                device, libraries, attends, at_boost=at_boost, peaks=peaks, dtype=dtype, loads=loads, factors=factors
            ),
            stream_efficiency=software.stream_efficiency
            if element_bytes >= SINGLE_BYTES
            else software.narrow_stream_efficiency,
            serial_step_s=framework.get("serial_row_cycles", 0.0) / clock_hz,
            element_bytes=element_bytes,
            launch_s=launch_us * MICROSECOND,
            overlap_exponent=framework["overlap_exponent"],
            dispatch_s=slowdown * framework["dispatch_us"],
            library_issue_s=slowdown * (dnn["issue_us"] * MICROSECOND),
            step_overhead_s=slowdown * framework["step_overhead_us"],
            issuer_dispatch_s=tuple([slowdown * framework[name] for name in issuers]) or None,
        )
        if factors is NO_FACTORS and type(numbers.dispatch_s) is type(self.energy_ratio) is float:
            object.__setattr__(numbers, "is_plain", True)
        return numbers

    def peak_flop_per_s(self, dtype: str) -> float:
        """Peak rate that the schedulers can issue. [FLOP/s]"""
        return sustained_peak_flop_per_s(self.device, dtype)

    def copy_of(
        self,
        profile: FrameworkProfile,
        feed: Feed,
        *,
        batch_size: float,
        pinned: bool,
        factors: Factors = NO_FACTORS,
    ) -> Copy:
        """Staging of these arrays on the host and their copy over the host link."""
        name, bandwidth = (
            ("typical_efficiency", self.link.effective_bandwidth_bytes_per_s)
            if pinned and profile.feed.pinned
            else ("pageable_efficiency", self.link.pageable_bandwidth_bytes_per_s)
        )
        if factors is not NO_FACTORS:
            bandwidth = scaled_constant(bandwidth, f"links/{self.link.family.stem}/{name}", factors=factors)
        staging_s = staging_time(profile, self.processor, feed, batch_size=batch_size, factors=factors)
        return Copy(
            self.host_slowdown(factors) * staging_s,
            len(feed.items) * self.copy_latency_s,
            batch_size * feed.bytes_per_sample,
            bandwidth,
        )
