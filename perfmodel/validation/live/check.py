"""Predicts whole networks from a calibration, and measures them in a separate process on the same machine."""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from perfmodel.calibration.calibrate import calibrate
from perfmodel.calibration.facts import child_environment
from perfmodel.errors import ArgumentError, CalibrationError, PerfmodelError, PerfmodelWarning, check_known
from perfmodel.hardware.fit_file import load_calibration
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.private_folders import temporary_file
from perfmodel.validation.live.live_report import LiveReport
from perfmodel.validation.live.prediction import (
    LIVE_DTYPES,
    LiveMeasurement,
    LivePlan,
    LiveSession,
    cases_of,
    check_datasheet,
    find_networks,
    predict_case,
    processor_of,
    require_torch,
)

if TYPE_CHECKING:
    from perfmodel.hardware.fit_file import FitFile


Progress = Callable[[int, int], None]

WORKER = "perfmodel.validation.live.worker"

LAST_LINES = 3
"""Lines of a failed process's messages that an error quotes [1]."""


class Measurer(Protocol):
    """Times networks on a device."""

    def facts(self, device: str) -> Mapping[str, Any]:
        """Return the facts that distinguish a device: ``model``, ``core_count`` [1], version of ``torch``."""

    def __call__(self, plan: LivePlan, *, progress: Progress | None) -> LiveSession:
        """Return the times of every case of ``plan``; ``progress`` is called with the visits done and their total."""


class ChildMeasurer:
    """Times networks in a separate process, whose threads and allocator are set before it begins."""

    def facts(self, device: str) -> Mapping[str, Any]:
        """Return the facts that distinguish a device: ``model``, ``core_count`` [1], version of ``torch``."""
        return device_facts(device)

    def __call__(self, plan: LivePlan, *, progress: Progress | None) -> LiveSession:
        """Return the times of every case of ``plan``."""
        return gathered(plan, _events(plan), progress=progress)


def gathered(plan: LivePlan, events: Iterator[Mapping[str, Any]], *, progress: Progress | None) -> LiveSession:
    """Return a session from the events of its process."""
    facts: dict[str, str] = {}
    times: dict[int, list[tuple[float, float]]] = defaultdict(list)
    failures: dict[int, str] = {}
    visits = len(plan.cases) * plan.repeats
    done = 0
    for event in events:
        facts |= event.get("facts", {})
        if "case" not in event:
            continue
        index = int(event["case"])
        if "failure" in event:
            failures[index] = event["failure"]
        else:
            times[index].append((float(event["seconds"]), float(event["reference_s"])))
        done += 1
        if progress is not None:
            progress(min(done, visits), visits)
    return LiveSession(
        measurements=tuple(
            LiveMeasurement(
                case=case,
                repeats_s=tuple(seconds for seconds, _ in times[index]),
                reference_s=tuple(reference_s for _, reference_s in times[index]),
                failure=failures.get(index, ""),
            )
            for index, case in enumerate(plan.cases)
        ),
        facts=facts,
    )


def _events(plan: LivePlan) -> Iterator[Mapping[str, Any]]:
    """Yield the events of the measuring process, and end it when the block ends."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as messages:
        process = subprocess.Popen(
            [sys.executable, "-m", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            env=child_environment(plan.threads),
            text=True,
            encoding="utf-8",
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asdict(plan)))
            process.stdin.close()
            for line in process.stdout:
                yield json.loads(line)
            if process.wait() != 0:
                messages.seek(0)
                last = " / ".join(messages.read().strip().splitlines()[-LAST_LINES:])
                message = (
                    f"the process that measures networks ended with code {process.returncode}: {last or 'no message'}"
                )
                raise CalibrationError(message)
        finally:
            process.stdout.close()
            if process.poll() is None:
                process.terminate()
                process.wait()


def _backend(device: Any) -> Any:
    """Return torch on a device, as the calibrator sees it; an error names the argument of the live check."""
    require_torch()
    from perfmodel.calibration.backends.torch_backend import TorchBackend

    if not isinstance(device, str):
        raise ArgumentError("device", device, "cpu, or cuda:N for the GPU of that number")
    try:
        return TorchBackend(device)
    except ArgumentError as error:
        raise ArgumentError("device", error.given, error.allowed) from None


def check_device(device: str) -> str:
    """Return a device by its full name, once torch can run on it."""
    return str(_backend(device).target)


def device_facts(device: str) -> dict[str, Any]:
    """Return the facts that distinguish a device, in the terms of a calibration."""
    backend = _backend(device)
    facts = backend.facts()
    return {"model": facts["model"], "core_count": facts["core_count"], "torch": backend.software()["torch"]}


def _machine_of(
    calibration: str | Path | FitFile | MeasuredMachine, *, device: str, here: Mapping[str, Any]
) -> MeasuredMachine:
    """Return a calibration of this very device, made with torch; warn if device or torch version may differ."""
    machine = load_calibration(calibration)
    if not isinstance(machine, MeasuredMachine):
        raise ArgumentError("calibration", machine.name, "a measured machine; a fit goes to pm.predict")
    on, backend = machine.machine, machine.software.backend
    if on.processor != processor_of(device):
        wanted, measured = processor_of(device).upper(), on.processor.upper()
        allowed = f"of a {wanted} with device={device!r}; this one is of a {measured}"
        raise ArgumentError("calibration", machine.name, allowed)
    if on.model != here["model"]:
        allowed = f"of {here['model']!r}; this one was measured on {on.model!r}"
        raise ArgumentError("calibration", machine.name, allowed)
    if backend != "torch":
        raise ArgumentError("calibration", machine.name, f"made with backend torch (it was with {backend})")
    _check_cores(machine, core_count=here["core_count"])
    if machine.software.torch != here["torch"]:
        warning = (
            f"{machine.name!r} was measured with torch {machine.software.torch}; networks run with {here['torch']} here"
        )
        warnings.warn(warning, PerfmodelWarning, stacklevel=3)
    return machine


def _check_cores(machine: MeasuredMachine, *, core_count: int) -> None:
    """Reject a calibration that needs more cores than there are [1] or is of another GPU; warn if cores differ."""
    on = machine.machine
    if core_count == on.core_count:
        return
    others = f"{on.core_count} cores; there are {core_count} here"
    if on.threads is None or core_count < min(on.threads, on.core_count):
        raise ArgumentError("calibration", machine.name, f"of this device; this one was measured on {others}")
    warning = f"{machine.name!r} was measured on {others}: its caches and memory may be shared otherwise"
    warnings.warn(warning, PerfmodelWarning, stacklevel=4)


def _dtypes(dtypes: Sequence[str] | None, machine: MeasuredMachine) -> tuple[str, ...]:
    """Return the data types to measure, all calibrated; None selects all calibrated types that networks can run in."""
    for dtype in dtypes or ():
        check_known(f"data type of {machine.name!r}", dtype, machine.dtypes)
    chosen = tuple(dtypes or (dtype for dtype in machine.dtypes if dtype in LIVE_DTYPES))
    if not chosen:
        allowed = f"in one of {', '.join(LIVE_DTYPES)}"
        raise ArgumentError("calibration", machine.name, f"{allowed}; this one has {', '.join(machine.dtypes)}")
    return chosen


@gated
def validate_live(
    device: str = "cpu",
    *,
    calibration: str | Path | FitFile | MeasuredMachine | None = None,
    networks: Sequence[str] | None = None,
    dtypes: Sequence[str] | None = None,
    datasheet: str | None = None,
    repeats: int = 3,
    warmup_steps: int = 2,
    steps: int = 5,
    seconds: float = 0.5,
    progress: Progress | None = None,
    measurer: Measurer | None = None,
) -> LiveReport:
    """Predict whole torch networks from a calibration, measure them on the same machine, and set both side by side.

    Nothing is fitted, and the calibrator has timed none of their operations. A network's training step (forward,
    backward, update) and its inference are measured in a separate process, in several rounds over all networks, and
    predicted before that through ``pm.from_torch`` and ``pm.predict``.

    Parameters
    ----------
    device : str
        ``cpu`` or ``cuda:0``. [-]
    calibration : str, Path, MeasuredMachine or None
        Result of ``pm.calibrate`` on this machine with torch; None to calibrate first, for about a minute. [-]
    networks : sequence of str or None
        Names from the catalogue; None for all. [-]
    dtypes : sequence of str or None
        Data types, e.g. ``fp32``, ``tf32``, ``bf16`` (autocast); None for those that were calibrated. [-]
    datasheet : str or None
        Device file with the vendor's facts, for a naive roofline; None for the one that the calibration names. [-]
    repeats : int
        Rounds over all networks. [1]
    warmup_steps : int
        Steps of a round before the clock starts. [1]
    steps : int
        Fewest timed steps of a round. [1]
    seconds : float
        Time until which further steps are timed. [s]
    progress : callable or None
        Called with the amount done and the total amount. [-]
    measurer : Measurer or None
        Object that times the networks; None for a process on this machine. [-]

    Returns
    -------
    LiveReport
        Rows, scores beside naive rooflines, figure. Networks whose repeats spread too much are not scored. [-]

    Raises
    ------
    ArgumentError
        If torch finds no such device, or the calibration is of another one or of another backend.
    UnknownNameError
        If a network, data type, calibration or device file is unknown; suggests the nearest.
    MissingPackageError
        If torch is not installed.
    CalibrationError
        If the process that measures fails.

    Notes
    -----
    Valid for: one CPU socket or one GPU, eager torch, inputs that lie on the device. Ignores: reading and copying
    mini-batches.
    """
    chosen = find_networks(networks)
    for dtype in dtypes or ():  # before anything is calibrated
        check_known("data type of the live check", dtype, LIVE_DTYPES)
    plan: dict[str, Any] = {
        "repeats": whole_number("repeats", repeats),
        "warmup_steps": whole_number("warmup_steps", warmup_steps, minimum=0),
        "steps": whole_number("steps", steps),
    }
    if not 0 <= seconds < math.inf:
        raise ArgumentError("seconds", seconds, "a finite time of at least 0 s")
    measurer = ChildMeasurer() if measurer is None else measurer
    device = check_device(device)
    here = measurer.facts(device)
    is_made_here = calibration is None
    if datasheet is not None:
        check_datasheet(datasheet, processor=processor_of(device))
    if calibration is None:
        calibration = calibrate(device, backend="torch", dtypes=dtypes, progress=progress or False)
    machine = _machine_of(calibration, device=device, here=here)
    threads = machine.machine.threads
    cases = cases_of(chosen, processor=processor_of(device), dtypes=_dtypes(dtypes, machine))
    stated = machine.machine.datasheet if datasheet is None else datasheet
    with _kept_on_failure(machine, device=device) if is_made_here else nullcontext():
        predictions = [predict_case(case, machine, datasheet=stated) for case in cases]
        session = measurer(
            LivePlan(device=device, threads=threads or 1, cases=cases, seconds=seconds, **plan), progress=progress
        )
    return LiveReport.of(
        predictions,
        session,
        device=f"{here['model']} ({device})",
        calibration=machine.describe(),
        datasheet=stated,
        repeats=repeats,
    )


@contextmanager
def _kept_on_failure(machine: MeasuredMachine, *, device: str) -> Iterator[None]:
    """Keep a calibration that took a minute if measuring networks ends early, and say how to continue."""
    try:
        yield
    except (KeyboardInterrupt, PerfmodelError):
        path = temporary_file(f"live_{os.getpid()}.toml")
        machine.save(path)
        words = shlex.join(["perfmodel", "validate", "live", "--device", device, "--calibration", str(path)])
        warnings.warn(f"the calibration is kept; go on with: {words}", PerfmodelWarning, stacklevel=2)
        raise
