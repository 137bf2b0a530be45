"""A measured machine as a target: its calibration replaces device, library and framework files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.measured_kernel import ARITHMETIC, kernel_features, measured_kernel_time
from perfmodel.derived import derived, derived_property
from perfmodel.errors import ArgumentError, SpecError
from perfmodel.framework.measured_lowering import family_of, is_product_class, pooled_classes
from perfmodel.framework.profile import FrameworkProfile
from perfmodel.hardware.computing_hosts import computing_on_hosts
from perfmodel.hardware.library import LibraryProfile
from perfmodel.hardware.measured_machine import HostCopy, KernelClass, MeasuredMachine
from perfmodel.hardware.wiring import Wired, with_links_scaled
from perfmodel.numeric import where
from perfmodel.prediction.device.factors import NO_FACTORS, Factors
from perfmodel.prediction.device.named_rows import distinct_names
from perfmodel.prediction.device.reuse_distance import LayerMemory, cold_bytes, layer_memory, step_order
from perfmodel.prediction.device.step_time import ProcessorNumbers
from perfmodel.prediction.device.system_part import SystemPart, sum_of_two
from perfmodel.prediction.device.target import Copy, Feed, Libraries, Target
from perfmodel.records import ELEMENT_BYTES, Phase
from perfmodel.symbolic import Quantity, is_symbolic
from perfmodel.units import GIB, GIGA

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.link import Link
    from perfmodel.hardware.source import SpecFile


FAR: Final = "s_per_far_byte"
"""Name of the constant for a byte beyond the near cache."""

CALL: Final = "call_s"
"""Name of the constant for a call: part of dispatch on a CPU, of each kernel on a GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class ClassRows:
    """Kernel rows of one class, with the curve and features that time them."""

    name: str
    curve: KernelClass
    rows: Any
    features: Mapping[str, Quantity]
    cold_bytes: Quantity

    def _constants(self, names: Collection[str]) -> dict[str, Quantity]:
        """Constants of the curve that have one of these names."""
        return {name: value for name, value in self.curve.constants.items() if name in names}

    @property
    def arithmetic_s(self) -> Quantity:
        """Arithmetic time. [s]"""
        return measured_kernel_time(self.features, self._constants(ARITHMETIC & self.features.keys()))

    @property
    def memory_s(self) -> Quantity:
        """Memory time; on a GPU with the time of the call. [s]"""
        constants = self._constants(self.features.keys() - ARITHMETIC)
        cold_s_per_byte = self.curve.cold_s_per_byte
        return measured_kernel_time(
            self.features, constants, cold_bytes=self.cold_bytes, cold_s_per_byte=cold_s_per_byte
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredNumbers(ProcessorNumbers):
    """Plain numbers of a measured machine in one data type, and of the step it runs."""

    measured: MeasuredMachine
    curves: Mapping[str, KernelClass]
    element_bytes: int
    product_cold_bytes: Quantity = 0.0
    stream_cold_bytes: Quantity = 0.0
    product_far_bytes: Quantity = 0.0
    stream_far_bytes: Quantity = 0.0
    dispatch_s: Quantity = 0.0
    step_overhead_s: Quantity = 0.0
    calls_of_stream: Quantity = 1.0
    launch_s: float = 0.0
    library_issue_s: float = 0.0
    overlap_exponent: float = 1.0

    @property
    def in_line(self) -> bool:
        """Whether the host computes itself, so that its calls and kernels take turns."""
        return self.measured.machine.processor == "cpu"

    @property
    def queued(self) -> bool:
        """Whether the host queues kernels ahead, so that it delays a step only if it takes longer in total."""
        return not self.in_line

    @property
    def beside_a_step(self) -> MeasuredNumbers:
        """Numbers for kernels that are repeated by themselves, as for measuring."""
        return MeasuredNumbers(measured=self.measured, curves=self.curves, element_bytes=self.element_bytes)

    def curve_of(self, name: str) -> KernelClass:
        """Curve of a class, or of the nearest class that can replace it."""
        for candidate in (name, *pooled_classes(name)):
            curve = self.curves.get(candidate)
            if curve is not None and (curve.family == "stream") != is_product_class(name):
                return curve
        tried = ", ".join((name, *pooled_classes(name)))
        allowed = f"a machine measured with kernels of class {name} or the like; this one lacks {tried}"
        raise ArgumentError("device", self.measured.name, allowed)

    def class_rows(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> Iterator[ClassRows]:
        """Yield kernel rows class by class."""
        names, code_of_row = distinct_names(efficiency)
        machine, products = self.measured.machine, "m" in columns
        cold = self.product_cold_bytes if products else self.stream_cold_bytes
        far_bytes = self.product_far_bytes if products else self.stream_far_bytes
        calls: Quantity = 1.0 if products else self.calls_of_stream
        for code, name in enumerate(names):
            rows = np.flatnonzero(code_of_row == code)
            curve = self.curve_of(name)
            features = dict(
                kernel_features(
                    curve.family,
                    {column: values[rows] for column, values in columns.items()},
                    element_bytes=self.element_bytes,
                    vector_lanes=machine.vector_lanes,
                    near_cache_bytes=machine.near_cache_bytes,
                )
            )
            features[FAR] = features[FAR] + (far_bytes[rows] if np.ndim(far_bytes) else far_bytes)
            if self.in_line:
                del features[CALL]
            else:
                features[CALL] = features[CALL] * (calls[rows] if np.ndim(calls) else calls)
            yield ClassRows(name, curve, rows, features, cold[rows] if np.ndim(cold) else cold)

    def matmul_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Compute and memory seconds of each row; the longer branch gets the whole time. [s]"""
        shape = np.shape(columns["read_bytes"])
        symbolic = is_symbolic(*columns.values())
        compute_s, memory_s = (np.zeros(shape, dtype=object if symbolic else float) for _ in range(2))
        for class_rows in self.class_rows(columns, efficiency):
            compute_s[class_rows.rows], memory_s[class_rows.rows] = class_rows.arithmetic_s, class_rows.memory_s
        whole = compute_s + memory_s
        if symbolic:  # the longer branch is unknown: the whole time counts as arithmetic
            return whole, 0 * whole
        longer = compute_s >= memory_s
        return where(longer, whole, compute_s), where(longer, memory_s, whole)

    stream_times = matmul_times

    def in_step(
        self,
        table: KernelTable,
        *,
        batch_size: Quantity,
        tensor_counts: Mapping[str, int],
        memory: Mapping[str, LayerMemory],
    ) -> MeasuredNumbers:
        """Numbers for one step, with its cold bytes and the calls around its kernels."""
        order, calls, machine = step_order(table), self.measured.overheads, self.measured.machine
        products = table.matmul.row_count
        cold, far_bytes = (
            cold_bytes(
                table,
                memory=memory,
                batch_size=batch_size,
                element_bytes=self.element_bytes,
                cache_bytes=cache_bytes,
            )
            for cache_bytes in (machine.reuse_bytes, machine.near_cache_bytes)
        )
        updates = order.phase == Phase.UPDATE.value
        tensors = np.array([float(tensor_counts.get(occurrence.layer, 1)) for occurrence in table.occurrences])
        calls_of = np.where(updates, tensors, 1.0)
        host_s = np.where(updates, tensors * calls.parameter_s, 0.0)
        host_s = host_s + order.begins_backward * calls.backward_s
        if order.trains:
            host_s = host_s + np.where(order.phase == Phase.FORWARD.value, calls.grad_forward_s, 0.0)
        classes = (*table.matmul_efficiency, *table.stream_efficiency)
        if self.in_line:
            call_s = np.array([self.curve_of(name).constants.get(CALL, 0.0) for name in classes])[order.row]
            host_s = host_s + calls_of * call_s
        else:
            host_s = host_s + calls_of * calls.dispatch_s
        overhead_s = calls.step_s if order.trains else 0.0
        if self.queued:  # the loop's own time passes while the device works, like that of any call
            host_s, overhead_s = host_s + overhead_s / len(order.row), 0.0
        dispatch_s, calls_of_row = (order.mean_by_row(values, len(classes)) for values in (host_s, calls_of))
        if np.ndim(cold) == 2:
            dispatch_s, calls_of_row = dispatch_s[:, None], calls_of_row[:, None]
        return replace(
            self,
            product_cold_bytes=cold[:products],
            stream_cold_bytes=cold[products:],
            product_far_bytes=far_bytes[:products],
            stream_far_bytes=far_bytes[products:],
            dispatch_s=dispatch_s,
            step_overhead_s=overhead_s,
            calls_of_stream=calls_of_row[products:],
        )


PROFILE_OF_BACKEND: Final[dict[str, str]] = {"torch": "pytorch_2", "numpy": "generic"}
"""Backend of a calibration -> framework whose memory policy and feed apply; none of its times are used."""


class MeasuredTarget(Target):
    """A machine measured kernel by kernel, with one library and one framework."""

    roles = ()
    measured: MeasuredMachine

    def __init__(
        self, measured: MeasuredMachine, *, threads: int | None, system_part: SystemPart | None = None
    ) -> None:
        on = measured.machine
        if threads not in (None, on.threads):
            allowed = "None for a GPU" if on.threads is None else f"None or {on.threads}, with which it was measured"
            raise ArgumentError("threads", threads, f"{allowed} ({measured.name})")
        wrong = [kernel.name for kernel in measured.kernel if kernel.family != family_of(kernel.name)]
        if wrong:
            place = measured.stem or measured.name
            raise SpecError(place, [f"kernel {name!r}: family: must be {family_of(name)!r}" for name in wrong])
        self.measured = measured
        self.processor = on.processor
        self.core_count = on.core_count
        self.system_part = system_part = None if system_part is None else _as_measured(system_part, measured)
        self.name = measured.name if system_part is None else system_part.describe(measured.name)
        if system_part is not None and not system_part.computes_on_hosts:
            alone = system_part.worker_count == 1  # copies to one device are as measured
            measured_rates = [copy.bytes_per_s for copy in measured.host_copy] if alone else []
            self.shared_bytes_per_s = max(system_part.copy_bytes_per_s, *measured_rates, 0.0)
        self.threads = on.threads
        self.architecture = f"measured {on.processor}"
        self.processor_spec = measured
        self.specs_by_place: dict[str, SpecFile] = {f"calibrations/{measured.stem}": measured}
        if system_part is not None:
            self.specs_by_place[f"systems/{system_part.system.file.stem}"] = system_part.system.file
        self.capacity_bytes = on.memory_gib * GIB
        if system_part is not None and system_part.computes_on_hosts:  # a card brings its memory, cores do not
            self.capacity_bytes = system_part.machine.memory_capacity_bytes
        self.context_bytes = 0.0
        self.bandwidth_bytes_per_s = measured.peaks.stream_bytes_per_s

    @derived_property
    def link(self) -> Link:
        """The link between a device of a system and its slot; copies over it take what was measured."""
        assert self.system_part is not None
        if self.system_part.computes_on_hosts:
            return self.system_part.network_link
        return self.system_part.link_of(self.system_part.names[0])

    @property
    def lowered_for(self) -> str:
        """``measured``: every operation is a single timed kernel."""
        return "measured"

    @property
    def takes_parts(self) -> bool:
        """False, because cache contents depend on the whole step."""
        return False

    def framework(self, framework: str | Path | FrameworkProfile) -> str | Path | FrameworkProfile:
        """Framework whose memory policy applies; kernel times come from the calibration's own software."""
        needed = PROFILE_OF_BACKEND[self.measured.software.backend]
        named = framework.stem if isinstance(framework, FrameworkProfile) else str(framework)
        if named not in ("generic", needed):
            allowed = f"omitted: {self.name} was measured with its own software, {self._versions}"
            raise ArgumentError("framework", named, allowed)
        return needed

    @property
    def _versions(self) -> str:
        software = self.measured.software
        return f"{software.backend} {getattr(software, software.backend) or ''}".strip()

    def software(self, profile: FrameworkProfile) -> str:
        """Backend of the calibration and its version."""
        return self._versions

    def libraries(
        self, profile: FrameworkProfile, override: str | Path | LibraryProfile | None, *, attends: bool = False
    ) -> Libraries:
        """No libraries: their times are in the measured kernels."""
        if override is not None:
            name = override.name if isinstance(override, LibraryProfile) else str(override)
            raise ArgumentError("library", name, f"None: {self.name} was measured with its own libraries")
        return {}

    def on(self, system_part: SystemPart) -> MeasuredTarget:
        """Return the same machine in another part of the system."""
        return MeasuredTarget(self.measured, threads=self.threads, system_part=system_part)

    def sources(self, profile: FrameworkProfile, libraries: Libraries) -> tuple[SpecFile, ...]:
        """Return the calibration and the system: no time comes from another file."""
        return self.specs

    def numbers(
        self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors = NO_FACTORS
    ) -> ProcessorNumbers:
        """Curves of a data type as plain numbers."""
        classes = self.measured.classes(dtype)
        if not classes:
            measured = " or ".join(self.measured.dtypes)
            raise ArgumentError("dtype", dtype, f"{measured}, in which kernels of {self.name} were measured")
        return MeasuredNumbers(measured=self.measured, curves=classes, element_bytes=ELEMENT_BYTES[dtype])

    def in_step(
        self, numbers: ProcessorNumbers, table: KernelTable, graph: LayerGraph, *, batch_size: float
    ) -> ProcessorNumbers:
        """Numbers with this step's cold bytes and the calls around its kernels."""
        assert isinstance(numbers, MeasuredNumbers)
        tensor_counts = {
            node.name: len(node.trained_shapes.keys() & node.parameter_shapes.keys()) for node in graph.layers
        }
        memory = layer_memory(graph)
        return numbers.in_step(table, batch_size=batch_size, tensor_counts=tensor_counts, memory=memory)

    def peak_flop_per_s(self, dtype: str) -> float:
        """Highest measured rate of matrix products. [FLOP/s]"""
        return self.measured.peaks.gemm_flop_per_s[dtype]

    def copied(self, profile: FrameworkProfile, *, pinned: bool) -> HostCopy | None:
        """Measured copies to the device from the buffers that a framework uses; None if they were not measured."""
        return _copied_to(self.measured, pinned=pinned and profile.feed.pinned)

    def copy_of(
        self,
        profile: FrameworkProfile,
        feed: Feed,
        *,
        batch_size: float,
        pinned: bool,
        factors: Factors = NO_FACTORS,
    ) -> Copy:
        """Return the copies to a GPU as measured; a CPU needs none."""
        measured = self.copied(profile, pinned=pinned)
        if measured is None:
            return Copy()
        return Copy(
            latency_s=len(feed.items) * measured.latency_s,
            copied_bytes=batch_size * feed.bytes_per_sample,
            bytes_per_s=measured.bytes_per_s,
        )

    def own_remarks(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> list[str]:
        """Remarks on where and when the machine was measured, and on what its file lacks."""
        session, on = self.measured.session, self.measured.machine
        notes = [
            f"measured kernel by kernel on {on.model} with {self._versions}, {session.measured_at:%Y-%m-%d %H:%M}; no "
            f"whole network was timed for it. {profile.name} only says what is kept in memory"
        ]
        if session.ended_early is not None:
            notes.append(f"of the calibration, {session.ended_early}")
        if on.processor == "gpu" and not self.measured.host_copy:
            notes.append("copies between host and device were not measured: none is counted")
        if self.system_part is not None:
            notes += (*_on_links(self.measured, self.system_part), *self.system_part.system.remarks)
        return notes

    def exchange_remarks(self, *, by_library: bool, as_measured: bool) -> list[str]:  # noqa: D102
        if self.system_part is None:
            return []
        remarks_on = _among_hosts if self.system_part.computes_on_hosts else _among_gpus
        return [remarks_on(self.measured, self.system_part, by_library=by_library, as_measured=as_measured)]


def _as_measured(system_part: SystemPart, measured: MeasuredMachine) -> SystemPart:
    """Return a part of a system whose devices were measured, with host links as fast as copies to them were."""
    if system_part.measured is measured:
        return system_part
    system, copied = system_part.system, _copied_to(measured, pinned=True)
    if copied is not None and not system_part.computes_on_hosts:
        link = system_part.link_of(system_part.names[0])
        system = _with_links_scaled(system, link.family.stem, copied.bytes_per_s / link.effective_bandwidth_bytes_per_s)
    return replace(system_part, system=system, measured=measured)


def on_measured_hosts(system: Wired, measured: MeasuredMachine) -> Wired:
    """Return the machines with each process sending no faster than a process did when two were measured.

    In a ring of two processes each sends n bytes, both at once, so the measured rate of their sum is that of a process.
    """
    summed = sum_of_two(measured)
    return computing_on_hosts(system) if summed is None else computing_on_hosts(system, summed.bytes_per_s)


_with_links_scaled = derived(with_links_scaled)


def _copied_to(measured: MeasuredMachine, *, pinned: bool) -> HostCopy | None:
    """Return the measured copies to the device from buffers of a kind; None if they were not measured."""
    return next((copy for copy in measured.host_copy if copy.direction == "to_device" and copy.pinned == pinned), None)


def _on_links(measured: MeasuredMachine, system_part: SystemPart) -> list[str]:
    """Remark on which measurements of a machine's links are used in a system."""
    system, notes = system_part.system, []
    if system_part.computes_on_hosts:
        count = measured.machine.core_count
        cores = f"the {count} cores that were measured compute" if count > 1 else "the core that was measured computes"
        stands = f"{cores} on each machine; memory and network are those of {system.name}"
        return [stands if measured.card is not None else f"its file names no data sheet: {stands}"]
    if measured.card is None:
        notes.append(f"its file names no data sheet: it is wired like {system_part.device.name} of {system.name}")
    copied = _copied_to(measured, pinned=True)
    if copied is not None:
        family = system_part.link_of(system_part.names[0]).family.name
        rate = f"{copied.bytes_per_s / GIGA:.4g} GB/s"
        notes.append(
            f"copies to the device take the measured {rate}; other links of {family} reach the same share of their rate"
        )
    return notes


def _among_gpus(measured: MeasuredMachine, system_part: SystemPart, *, by_library: bool, as_measured: bool) -> str:
    """Remark on whether exchanges among GPUs take a measured sum, or the links of the system."""
    summed = system_part.measured_sum
    if as_measured and summed is not None:
        return f"gradients are summed as measured with {summed.library} among {summed.process_count}"
    by_links = f"exchanges take the links of {system_part.system.name}"
    if not by_library:
        return by_links
    of = " and ".join(f"{sum_.process_count} of {sum_.library}" for sum_ in measured.all_reduce)
    why = f"no measured sum ({of}) is of this exchange" if of else "no sum among workers was measured"
    return f"{why}: {by_links}"


def _among_hosts(measured: MeasuredMachine, system_part: SystemPart, *, by_library: bool, as_measured: bool) -> str:
    """Remark on which measured sums of a CPU's processes are used among machines."""
    system, summed = system_part.system, sum_of_two(measured)
    if summed is None:
        lacking = "no sum of two processes" if by_library else "no sending rate of a process"
        return f"{lacking} was measured: exchanges take the links of {system.name} alone"
    rate = f"{summed.bytes_per_s / GIGA:.4g} GB/s"
    begins = ", and a sum starts up as fast as theirs" if by_library else ""
    return (
        f"a process sends at most {rate}, as measured between two with {summed.library}{begins}; the network is "
        f"that of {system.name}"
    )
