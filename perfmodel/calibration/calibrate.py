"""``pm.calibrate``: time kernels on this machine for about a minute, and make a device for predictions of it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel import __version__
from perfmodel.atomic_write import check_room
from perfmodel.calibration.benchmark import Benchmark
from perfmodel.calibration.classes import best_rates, fitted_classes, grouped, session_repeat_spread
from perfmodel.calibration.facts import freed_memory_kept
from perfmodel.calibration.journal import Journal, digest_of, journal_of, temporary_journal
from perfmodel.calibration.session import Session
from perfmodel.errors import ArgumentError, CalibrationError, check_known
from perfmodel.files import user_path
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.presentation.progress import progress_bar
from perfmodel.presentation.quantities import counted
from perfmodel.units import MIB

if TYPE_CHECKING:
    from perfmodel.calibration.backends.base import Backend

BACKENDS: Final[dict[str, str]] = {
    "torch": "perfmodel.calibration.backends.torch_backend:TorchBackend",
    "numpy": "perfmodel.calibration.backends.numpy_backend:NumpyBackend",
}
"""Name of a backend -> its class, imported when it is asked for."""

SOURCE_TITLE: Final = "Measured on this machine by perfmodel"
"""Title of the source that a calibration names for all of its numbers."""

SOURCED: Final = ("machine", "session", "peaks", "overheads", "host_copy", "all_reduce", "storage", "kernel")
"""Tables of a calibration that hold numbers."""

FEWEST_POINTS: Final = 20
"""Fewest points of a fit [1]."""

RECORD_BYTES: Final = 4 * 2**20
"""Upper bound of the space for the record and result of a session [B]."""


USUAL_BUDGET_S: Final = 60.0
"""Time that measuring usually may take [s]."""


class _TooFewPointsError(CalibrationError):
    """There is nothing to fit yet."""


class CalibrationInterrupted(KeyboardInterrupt):
    """A calibration was interrupted; the message says where its points are and how to resume."""

    def __init__(self, message: str, journal: Path) -> None:
        self.journal = journal
        super().__init__(message)


def load_backend(name: str, target: str) -> Backend:
    """Return a backend on a device."""
    check_known("backend", name, BACKENDS)
    module, _, kind = BACKENDS[name].partition(":")
    backend: Backend = getattr(import_module(module), kind)(target)
    return backend


@gated
def calibrate(
    target: str = "cpu",
    *,
    backend: str | Backend = "torch",
    budget_s: float = 60,
    progress: bool | Callable[[int, int], None] = True,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    dtypes: str | Sequence[str] | None = None,
) -> MeasuredMachine:
    """Measure small kernels on this machine and fit the constants of predictions.

    Parameters
    ----------
    target : str
        ``cpu``, or ``cuda:N`` for a GPU (``torch`` only). [-]
    backend : str or Backend
        ``torch``: the kernels that PyTorch runs; ``numpy``: on any machine. [-]
    budget_s : float
        Time that measuring may take. Kernels always get half of it, up to 4 s, even beyond a small budget. [s]
    progress : bool or callable
        Whether to show a bar on the error stream; or a function of the amount done and the total. [-]
    out : str, Path or None
        Where to write the result (TOML); the measured points are kept beside it, for ``resume`` and figures. The record
        of another session there is renamed, with a warning. [-]
    resume : str, Path or None
        Record of an interrupted calibration to resume. [-]
    dtypes : str, sequence of str or None
        Data types; None for ``fp32`` on a CPU, and ``tf32`` and ``bf16`` too on a GPU that has them. [-]

    Returns
    -------
    MeasuredMachine
        A device for ``predict``. [-]

    Raises
    ------
    ArgumentError
        If an argument is not allowed, there is no such device, or ``out`` cannot be written.
    MissingPackageError
        If the backend's library is not installed.
    CalibrationInterrupted
        After Ctrl-C: what was measured is kept.

    Notes
    -----
    No network is run. Machine settings stay unchanged; the allocator of this process keeps freed memory
    meanwhile.
    """
    begin = time.monotonic()
    _check_budget(budget_s)
    _check_writable(out)
    library = load_backend(backend, target) if isinstance(backend, str) else backend
    chosen = _chosen_dtypes(library, dtypes)
    journal = Journal(_journal_path(out, resume), _header(library, target, chosen))
    if resume is not None:
        benchmarks = {dtype: library.benchmarks(dtype) for dtype in chosen}
        journal.resume(user_path(resume), benchmarks=benchmarks)
    shown = (
        nullcontext(progress)
        if callable(progress)
        else progress_bar(f"measuring kernels of {library.name}", shown=progress)
    )
    with freed_memory_kept() as allocator, shown as report_progress:
        session = Session(
            library,
            dtypes=chosen,
            budget_s=budget_s,
            journal=journal,
            progress=report_progress,
            already_s=time.monotonic() - begin,
        )
        try:
            session.run()
            machine = machine_of(session, allocator=allocator)
            if out is not None:
                _save(machine, out, kept=_how_to_continue(journal, library, out=out, budget_s=1))
        except KeyboardInterrupt:  # also during the fit
            message = f"interrupted: {_how_to_continue(journal, library, out=out, budget_s=budget_s)}"
            raise CalibrationInterrupted(message, journal.path or temporary_journal()) from None
        except _TooFewPointsError as error:
            kept = _how_to_continue(journal, library, out=out, budget_s=max(budget_s, USUAL_BUDGET_S))
            message = f"{error}. {kept}"
            raise CalibrationError(message) from None
    if out is None and resume is None and journal.path is not None:
        journal.path.unlink(missing_ok=True)  # the record was only needed in case of an interrupt
    return machine


def benchmark_table(backend: str) -> Mapping[str, Benchmark]:
    """Return the benchmarks of a backend by class, without checking for its library or device."""
    check_known("backend", backend, BACKENDS)
    kinds = import_module(BACKENDS[backend].partition(":")[0]).BENCHMARKS
    return {benchmark.name: benchmark for kind in kinds for benchmark in kind()}


def _check_budget(budget_s: Any) -> None:
    is_number = isinstance(budget_s, int | float) and not isinstance(budget_s, bool)
    if not is_number or not 0 < budget_s < float("inf"):
        raise ArgumentError(argument="budget_s", given=budget_s, allowed="a number of seconds above 0; 60 is usual")


def _check_writable(out: str | Path | None) -> None:
    """Reject a path where the result or its record could not be written, before anything is measured."""
    if out is None:
        return
    path = user_path(out)
    if path.suffix != ".toml":  # files with other endings are not read again
        raise ArgumentError(argument="out", given=str(out), allowed="a file whose name ends in .toml")
    record = journal_of(path)
    if not path.parent.is_dir():
        raise ArgumentError(argument="out", given=str(out), allowed="a file in an existing folder")
    for file in (path, record):
        if file.exists() and not file.is_file():
            allowed = "a regular file, not a folder, device or pipe" + (f" as {record} is" if file is record else "")
            raise ArgumentError(argument="out", given=str(out), allowed=allowed)
    try:
        check_room(path, size_bytes=RECORD_BYTES)
    except ArgumentError as error:
        raise ArgumentError(argument="out", given=str(out), allowed=error.allowed) from error


def _chosen_dtypes(library: Backend, dtypes: str | Sequence[str] | None) -> tuple[str, ...]:
    if dtypes is None:
        return library.default_dtypes
    chosen = tuple(dict.fromkeys((dtypes,) if isinstance(dtypes, str) else dtypes))
    for dtype in chosen:
        check_known(f"data type of {library.name} on this device", dtype, library.dtypes)
    if not chosen:
        raise ArgumentError(argument="dtypes", given=dtypes, allowed=f"some of {', '.join(library.dtypes)}")
    return chosen


def _header(library: Backend, target: str, dtypes: Sequence[str]) -> dict[str, Any]:
    return {
        "perfmodel": __version__,
        "target": target,
        "backend": library.name,
        "dtypes": list(dtypes),
        "machine": library.facts(),
        "software": library.software(),
    }


def _journal_path(out: str | Path | None, resume: str | Path | None) -> Path:
    if out is not None:
        return journal_of(out)
    if resume is not None:
        return Path(resume).expanduser()
    return temporary_journal()


def _save(machine: MeasuredMachine, out: str | Path, *, kept: str) -> None:
    try:
        machine.save(out)
    except ArgumentError as error:  # e.g. the disk has become full
        message = f"{out} was not written: it {error.allowed}. {kept}"
        raise CalibrationError(message) from error


def _how_to_continue(journal: Journal, library: Backend, *, out: str | Path | None, budget_s: float) -> str:
    """Say where the points are, and how to continue with them."""
    words = ["perfmodel", "calibrate", journal.header["target"], "--backend", library.name]
    for dtype in journal.header["dtypes"]:
        words += ["--dtype", dtype]
    words += ["--budget", f"{budget_s:g}", "--out", "my_machine.toml" if out is None else str(out)]
    return f"{len(journal.points)} points are kept in {journal.path}; go on with: " + shlex.join(
        [*words, "--resume", str(journal.path)]
    )


def machine_of(session: Session, *, allocator: str) -> MeasuredMachine:
    """Fit the measurements of a session and return the device."""
    journal, library = session.journal, session.backend
    if len(journal.points) < FEWEST_POINTS:
        message = (
            f"only {len(journal.points)} kernels were timed within {session.budget_s:g} s, fewer than the "
            f"{FEWEST_POINTS} that a fit needs: give a larger budget_s ({USUAL_BUDGET_S:g} s is usual)"
        )
        raise _TooFewPointsError(message)
    earlier = session.resumed_count
    resumed = [f"resumed: {earlier:,} of the points are of a session that was interrupted"] if earlier else []
    header, costs, watch = journal.header, journal.surroundings, session.watch
    classes = grouped(journal.points, {dtype: library.benchmarks(dtype) for dtype in header["dtypes"]})
    facts = header["machine"]
    count = facts.get("threads")
    threads = f", {counted(count, 'thread')}" if count else ""
    tables = {name: costs.get(name, []) for name in ("overheads", "host_copy", "all_reduce", "storage")}
    tables["kernel"] = fitted_classes(
        classes, machine=session.machine, cold_of_copy=costs.get("reuse", {}).get("cold_s_per_byte")
    )
    content = {
        "schema_version": 1,
        "name": f"{facts['model']}{threads}, {library.name} {header['software'].get(library.name, '')}".strip(),
        "kind": "measured",
        "machine": facts | {"reuse_mib": session.machine.reuse_bytes / MIB},
        "software": {"backend": library.name, **header["software"]},
        "session": {
            "measured_at": datetime.now().replace(microsecond=0),  # the clock on the wall where it ran
            "seconds": round(journal.seconds, 1),
            "point_count": len(journal.points),
            "points_digest": digest_of(journal.points),
            "retaken": sum(point.retaken for point in journal.points),
            "reference_spread_percent": round(watch.spread_percent, 2),
            "drift_percent": round(watch.drift_percent, 2),
            "repeat_spread_percent": round(100 * session_repeat_spread(journal.points), 2),
            "clock_mhz": costs.get("clock_mhz"),
            "allocator": "; ".join(name for name in (allocator, library.allocator()) if name),
            "notes": (*session.notes, *resumed),
            "complete": session.short_class_count == 0,
            "short_class_count": session.short_class_count,
        },
        "peaks": costs["peaks"] | {"gemm_flop_per_s": best_rates(classes, costs["peaks"]["gemm_flop_per_s"])},
        **tables,
        "source": [
            {
                "title": SOURCE_TITLE,
                "fields": [name for name in SOURCED if name in ("machine", "session", "peaks") or tables[name]],
                "provenance": "measured",
            }
        ],
    }
    return MeasuredMachine.model_validate(content)
