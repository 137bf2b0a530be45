"""The device of a live check: that torch can run on it, and what it is called."""

from __future__ import annotations

from typing import Any

from perfmodel.errors import ArgumentError
from perfmodel.validation.live_networks.catalogue import require_torch


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
