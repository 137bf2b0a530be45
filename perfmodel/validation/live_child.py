"""Starts the process that a live check measures in, and gathers what it reports."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from perfmodel.calibration.machine.process_allocator import child_environment
from perfmodel.errors import ArgumentError, CalibrationError
from perfmodel.validation.live_networks.catalogue import require_torch
from perfmodel.validation.live_records import LiveMeasurement, LivePlan, LiveSession

Progress = Callable[[int, int], None]

WORKER = "perfmodel.validation.live_worker"

LAST_LINES = 3
"""Lines of a failed process's messages that an error quotes [1]."""


class Measurer(Protocol):
    """Times networks on a device."""

    def facts(self, device: str) -> Mapping[str, Any]:
        """Return what tells ``device`` from another: ``model``, ``core_count`` [1], version of ``torch``."""

    def __call__(self, plan: LivePlan, *, progress: Progress | None) -> LiveSession:
        """Return the times of every case of ``plan``; ``progress`` is told the visits done, and of how many."""


class ChildMeasurer:
    """Times networks in a process of its own, whose threads and allocator are set before it begins."""

    def facts(self, device: str) -> Mapping[str, Any]:
        """Return what tells ``device`` from another: ``model``, ``core_count`` [1], version of ``torch``."""
        return device_facts(device)

    def __call__(self, plan: LivePlan, *, progress: Progress | None) -> LiveSession:
        """Return the times of every case of ``plan``.

        Raises
        ------
        CalibrationError
            If the process ends before it is done; quotes what it wrote.
        """
        return gathered(plan, _events(plan), progress=progress)


def gathered(plan: LivePlan, events: Iterator[Mapping[str, Any]], *, progress: Progress | None) -> LiveSession:
    """Return a session from the events of its process.

    Parameters
    ----------
    plan : LivePlan
        What was asked for. [-]
    events : iterator of mapping
        See ``live_worker.measure``. [-]
    progress : callable or None
        Told how many visits are done, and of how many. [-]

    Returns
    -------
    LiveSession
        Times by case. [-]
    """
    facts: dict[str, str] = {}
    seconds: dict[int, list[float]] = {index: [] for index in range(len(plan.cases))}
    references: dict[int, list[float]] = {index: [] for index in range(len(plan.cases))}
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
            seconds[index].append(float(event["seconds"]))
            references[index].append(float(event["reference_s"]))
        done += 1
        if progress is not None:
            progress(min(done, visits), visits)
    return LiveSession(
        measurements=tuple(
            LiveMeasurement(
                case=case,
                repeats_s=tuple(seconds[index]),
                reference_s=tuple(references[index]),
                failure=failures.get(index, ""),
            )
            for index, case in enumerate(plan.cases)
        ),
        facts=facts,
    )


def _events(plan: LivePlan) -> Iterator[Mapping[str, Any]]:
    """Yield what the process reports; it is ended with the block, also after an interrupt."""
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
            process.stdin.write(json.dumps(plan.to_dict()))
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


def processor_of(device: str) -> str:
    """Return the kind of processor, ``cpu`` or ``gpu``, of a device as torch names it."""
    return "cpu" if device == "cpu" else "gpu"


def _backend(device: Any) -> Any:
    """Return torch on a device, as the calibrator sees it; an error names the argument of the live check."""
    require_torch()
    from perfmodel.calibration.machine.backends.torch_backend import TorchBackend

    if not isinstance(device, str):
        raise ArgumentError("device", device, "cpu, or cuda:N for the GPU of that number")
    try:
        return TorchBackend(device)
    except ArgumentError as error:
        raise ArgumentError("device", error.given, error.allowed) from None


def check_device(device: str) -> str:
    """Return a device by its full name, once torch can run on it.

    Parameters
    ----------
    device : str
        ``cpu``, ``cuda`` or ``cuda:0``. [-]

    Returns
    -------
    str
        ``cpu``, or ``cuda`` with an index. [-]

    Raises
    ------
    ArgumentError
        If it is no such name, there is no CUDA, or no GPU of that index.
    MissingPackageError
        If torch is not installed.
    """
    return str(_backend(device).target)


def device_facts(device: str) -> dict[str, Any]:
    """Return what tells a device from another, as a calibration of it says.

    Parameters
    ----------
    device : str
        As torch names it. [-]

    Returns
    -------
    dict
        ``model`` as the operating system or the driver calls it, ``core_count`` [1], and the version of ``torch``. [-]
    """
    backend = _backend(device)
    facts = backend.facts()
    return {"model": facts["model"], "core_count": facts["core_count"], "torch": backend.software()["torch"]}
