"""A measured machine: what its kernels cost with one library and one framework, as a calibration found it.

It stands for device, libraries and framework at once, and shares no file with vendor facts: it may name the device file
whose data sheet is the processor's. Nothing in it comes from a whole network.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from perfmodel.atomic_write import replacement_of
from perfmodel.hardware.device import Runnable
from perfmodel.hardware.measured_tables import (
    AllReduce,
    HostCopy,
    KernelClass,
    MeasuredOn,
    MeasuredStorage,
    Overheads,
    Peaks,
    Session,
    Software,
)
from perfmodel.hardware.source import fault_at
from perfmodel.hardware.toml_text import toml_entries, toml_value

_TABLES: Final = ("machine", "software", "session", "peaks", "overheads")
_LISTS: Final = ("kernel", "host_copy", "all_reduce", "storage", "source")


class MeasuredMachine(Runnable):
    """A machine with its software as measured kernel by kernel: a device of predict that needs no framework.

    Attributes
    ----------
    kind : str
        ``measured``. [-]
    machine, software, session, peaks, overheads : SpecTable
        What was measured on, with what, how it went, the naive baseline, and what a framework adds. [-]
    kernel : tuple of KernelClass
        Curves by class and data type. [-]
    host_copy : tuple of HostCopy
        Copies between host and device, of a GPU. [-]
    all_reduce : tuple of AllReduce
        Sums over processes of the machine. [-]
    storage : tuple of MeasuredStorage
        Reads from a disk. [-]
    """

    kind: Literal["measured"]
    machine: MeasuredOn
    software: Software
    session: Session
    peaks: Peaks
    kernel: Annotated[tuple[KernelClass, ...], Field(min_length=1)]
    overheads: Overheads = Overheads()
    host_copy: tuple[HostCopy, ...] = ()
    all_reduce: tuple[AllReduce, ...] = ()
    storage: tuple[MeasuredStorage, ...] = ()

    @field_validator("kernel")
    @classmethod
    def _classes_differ(cls, kernel: tuple[KernelClass, ...]) -> tuple[KernelClass, ...]:
        (name, dtype), times = Counter((each.name, each.dtype) for each in kernel).most_common(1)[0]
        if times > 1:
            message = f"names must differ within a data type, but {name!r} occurs {times} times in {dtype}"
            raise ValueError(message)
        return kernel

    @model_validator(mode="after")
    def _every_dtype_has_a_peak(self) -> Self:
        peaks = self.peaks.gemm_flop_per_s
        lacking = [dtype for dtype in self.dtypes if dtype not in peaks]
        if lacking:
            message = f"must have the rate in every data type of a kernel; {', '.join(lacking)} is missing"
            raise fault_at(("peaks", "gemm_flop_per_s"), peaks, message)
        return self

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Data types in which kernels were measured, in the order of the file."""
        return tuple(dict.fromkeys(each.dtype for each in self.kernel))

    def classes(self, dtype: str) -> dict[str, KernelClass]:
        """Return the measured classes of a data type by name.

        Parameters
        ----------
        dtype : str
            Data type. [-]

        Returns
        -------
        dict of str to KernelClass
            Empty where nothing was measured in it. [-]
        """
        return {each.name: each for each in self.kernel if each.dtype == dtype}

    def describe(self) -> str:
        """Return the machine, its software and its calibration in one line."""
        on, session, versions = self.machine, self.session, self.software
        backend = f"{versions.backend} {getattr(versions, versions.backend) or ''}".strip()
        threads = "" if on.threads is None else f", {on.threads} thread{'s' if on.threads > 1 else ''}"
        until = "" if session.ended_early is None else f"; {session.ended_early}"
        return (
            f"{on.model} ({on.processor.upper()}{threads}) with {backend}: {len(self.kernel)} classes of kernels "
            f"({', '.join(self.dtypes)}) from {session.point_count:,} points measured on "
            f"{session.measured_at:%Y-%m-%d %H:%M}{until}"
        )

    def save(self, path: str | Path) -> None:
        """Write the machine as a TOML that ``load_calibration`` and ``load_device`` read.

        Parameters
        ----------
        path : str or Path
            Where; an existing file is replaced only once the new one is whole. [-]

        Raises
        ------
        ArgumentError
            If it cannot be written there.
        """
        with replacement_of(Path(path)) as temporary:
            temporary.write_text(measured_text(self), encoding="utf-8")


Calibration = MeasuredMachine
"""What ``perfmodel.Calibration`` is: the result of calibrating a machine, and a device of predict."""


def measured_text(machine: MeasuredMachine) -> str:
    """Return the text of a measured machine's file.

    Parameters
    ----------
    machine : MeasuredMachine
        The machine. [-]

    Returns
    -------
    str
        TOML; reading it gives an equal machine. [-]
    """
    content = machine.model_dump(mode="python")
    lines = [f"{key} = {toml_value(content[key])}" for key in ("schema_version", "name", "kind")]
    for table in _TABLES:
        lines += ["", f"[{table}]", *toml_entries(content[table])]
    for table in _LISTS:
        for entry in content[table]:
            lines += ["", f"[[{table}]]", *toml_entries(entry)]
    return "\n".join(lines) + "\n"
