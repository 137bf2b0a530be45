"""A measured machine as a target: one calibration stands for device, libraries and framework together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError, SpecError
from perfmodel.framework.kernel_classes import family_of
from perfmodel.framework.profile import FrameworkProfile
from perfmodel.hardware.library import LibraryProfile
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.prediction.copies import Copy
from perfmodel.prediction.measured import CallTimes, Curve, MeasuredNumbers
from perfmodel.prediction.reuse_distance import layer_memory
from perfmodel.prediction.scaling import NO_FACTORS, Factors
from perfmodel.prediction.target import Libraries, Target
from perfmodel.records import ELEMENT_BYTES
from perfmodel.units import GIB

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.source import SpecFile
    from perfmodel.measurements.run import FeedItem
    from perfmodel.prediction.basis import Basis
    from perfmodel.prediction.interval import Interval
    from perfmodel.prediction.prepared import Prepared, TimedStep
    from perfmodel.prediction.step_time import ProcessorNumbers

PROFILE_OF_BACKEND: Final[dict[str, str]] = {"torch": "pytorch_2", "numpy": "generic"}
"""Backend of a calibration -> framework whose memory policy and feed are taken; its times are not."""


class MeasuredTarget(Target):
    """A machine that was measured kernel by kernel with one library and one framework."""

    roles = ()

    def __init__(self, measured: MeasuredMachine, *, threads: int | None) -> None:
        on = measured.machine
        if threads not in (None, on.threads):
            allowed = "None for a GPU" if on.threads is None else f"None or {on.threads}, with which it was measured"
            raise ArgumentError("threads", threads, f"{allowed} ({measured.name})")
        wrong = [each.name for each in measured.kernel if each.family != family_of(each.name)]
        if wrong:
            place = measured.stem or measured.name
            raise SpecError(place, [f"kernel {name!r}: family: must be {family_of(name)!r}" for name in wrong])
        self.measured = measured
        self.processor = on.processor
        self.name = measured.name
        self.threads = on.threads
        self.architecture = f"measured {on.processor}"
        self.processor_spec = measured
        self.specs_by_place = {f"calibrations/{measured.stem}": measured}
        self.capacity_bytes = on.memory_gib * GIB
        self.context_bytes = 0.0
        self.bandwidth_bytes_per_s = measured.peaks.stream_bytes_per_s

    @property
    def lowered_for(self) -> str:
        """``measured``: each operation is the one kernel that was timed."""
        return "measured"

    @property
    def takes_parts(self) -> bool:
        """No: what is in a cache depends on the whole step."""
        return False

    def framework(self, given: str | Path | FrameworkProfile) -> str | Path | FrameworkProfile:
        """Return the framework whose memory policy applies; the calibration's own software times the kernels.

        Raises
        ------
        ArgumentError
            If another framework was asked for.
        """
        own = PROFILE_OF_BACKEND[self.measured.software.backend]
        named = given.stem if isinstance(given, FrameworkProfile) else str(given)
        if named not in ("generic", own):
            allowed = f"left out: {self.name} was measured with its own software, {self._versions}"
            raise ArgumentError("framework", named, allowed)
        return own

    @property
    def _versions(self) -> str:
        software = self.measured.software
        return f"{software.backend} {getattr(software, software.backend) or ''}".strip()

    def software(self, profile: FrameworkProfile) -> str:
        """Return the backend of the calibration and its version."""
        del profile
        return self._versions

    def libraries(self, profile: FrameworkProfile, override: str | Path | LibraryProfile | None) -> Libraries:
        """Return none: what ran is part of the measured times.

        Raises
        ------
        ArgumentError
            If a library was asked for.
        """
        del profile
        if override is not None:
            name = override.name if isinstance(override, LibraryProfile) else str(override)
            raise ArgumentError("library", name, f"None: {self.name} was measured with its own libraries")
        return {}

    def sources(self, profile: FrameworkProfile, libraries: Libraries) -> tuple[SpecFile, ...]:
        """Return the calibration: no time is taken from any other file."""
        del profile, libraries
        return self.specs

    def numbers(
        self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors = NO_FACTORS
    ) -> ProcessorNumbers:
        """Return the curves of a data type as plain numbers.

        Raises
        ------
        ArgumentError
            If nothing was measured in the data type.
        """
        del profile, libraries, factors
        classes, on = self.measured.classes(dtype), self.measured.machine
        if not classes:
            measured = " or ".join(self.measured.dtypes)
            raise ArgumentError("dtype", dtype, f"{measured}, in which kernels of {self.name} were measured")
        calls = self.measured.overheads.model_dump(exclude={"page_fault_s"})
        return MeasuredNumbers(
            machine=self.name,
            curves={
                name: Curve(
                    name=name, family=each.family, constants=each.constants, cold_s_per_byte=each.cold_s_per_byte
                )
                for name, each in classes.items()
            },
            element_bytes=ELEMENT_BYTES[dtype],
            vector_lanes=on.vector_lanes,
            near_cache_bytes=on.near_cache_bytes,
            reuse_bytes=on.reuse_bytes,
            calls=CallTimes(**calls),
            in_line=on.processor == "cpu",
        )

    def in_step(
        self, numbers: ProcessorNumbers, table: KernelTable, graph: LayerGraph, *, batch_size: float
    ) -> ProcessorNumbers:
        """Return the numbers with what is cold in this step, and what is called around its kernels."""
        assert isinstance(numbers, MeasuredNumbers)
        tensor_counts = {
            node.name: len(node.trained_shapes.keys() & node.parameter_shapes.keys()) for node in graph.layers
        }
        memory = layer_memory(graph)
        return numbers.in_step(table, batch_size=batch_size, tensor_counts=tensor_counts, memory=memory)

    def peak_flop_per_s(self, dtype: str) -> float:
        """Return the best rate of products that was measured. [FLOP/s]"""
        return self.measured.peaks.gemm_flop_per_s[dtype]

    def copy_of(
        self,
        profile: FrameworkProfile,
        items: tuple[FeedItem, ...],
        *,
        batch_size: float,
        pinned: bool,
        factors: Factors = NO_FACTORS,
    ) -> Copy:
        """Return the copies to a GPU as they were measured; a CPU has its mini-batch in memory already."""
        del factors
        wanted = pinned and profile.feed.pinned
        to_device = [each for each in self.measured.host_copy if each.direction == "to_device"]
        measured = next((each for each in to_device if each.pinned == wanted), None)
        if not items or measured is None:
            return Copy()
        return Copy(
            latency_s=len(items) * measured.latency_s,
            copied_bytes=batch_size * sum(item.bytes_per_sample for item in items),
            bytes_per_s=measured.bytes_per_s,
        )

    def own_remarks(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> list[str]:
        """Return on what and when the machine was measured, and what is not in its file."""
        del libraries, dtype
        session, on = self.measured.session, self.measured.machine
        notes = [
            f"measured kernel by kernel on {on.model} with {self._versions}, {session.measured_at:%Y-%m-%d %H:%M}; no "
            f"whole network was timed for it. {profile.name} only says what is kept in memory"
        ]
        if session.ended_early is not None:
            notes.append(f"of the calibration, {session.ended_early}")
        if on.processor == "gpu" and not self.measured.host_copy:
            notes.append("copies between host and device were not measured: none is counted")
        return notes

    def step_remarks(self, prepared: Prepared, timed: TimedStep) -> tuple[str, ...]:
        """Return which kernels follow the curve of another class, and which lie outside what was measured."""
        from perfmodel.prediction.measured_interval import extrapolation_remarks

        return extrapolation_remarks(self.measured, prepared, timed)

    def interval_of(self, basis: Basis) -> Interval:
        """Return the interval that follows from the scatter and the intervals of the measured classes."""
        from perfmodel.prediction.measured_interval import measured_interval

        return measured_interval(self.measured, basis)
