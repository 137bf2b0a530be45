"""The device of a live check: that torch can run on it, and what it is called."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Final

from perfmodel.errors import ArgumentError
from perfmodel.validation.live_networks.catalogue import require_torch

_DEVICE: Final = re.compile(r"cpu|cuda(:\d+)?")


def processor_of(device: str) -> str:
    """Return the kind of processor, ``cpu`` or ``gpu``, of a device as torch names it."""
    return "cpu" if device == "cpu" else "gpu"


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
    if not isinstance(device, str) or not _DEVICE.fullmatch(device):
        raise ArgumentError("device", device, "cpu, or cuda:0 for the first GPU")
    require_torch()
    if device == "cpu":
        return device
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise ArgumentError("device", device, f"cpu: torch {torch.__version__} finds no CUDA device here")
    index = int(device.partition(":")[2] or 0)
    if index >= count:
        raise ArgumentError("device", device, f"one of {', '.join(f'cuda:{each}' for each in range(count))}")
    return f"cuda:{index}"


def processor_model(device: str) -> str:
    """Return what the operating system or the driver calls a device.

    Parameters
    ----------
    device : str
        As ``check_device`` returns it. [-]

    Returns
    -------
    str
        Name of the model. [-]
    """
    if device != "cpu":
        import torch

        return str(torch.cuda.get_device_name(torch.device(device)))
    listed = Path("/proc/cpuinfo")
    if listed.is_file():
        for line in listed.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
