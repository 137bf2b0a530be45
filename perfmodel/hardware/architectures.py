"""Architectures by name: which are known, and which name is probably a misspelt one.

Any name is allowed, as a new architecture must be possible: a device of an architecture that no library lists is
predicted with the libraries' defaults. A name that is nearly a known one would be so by mistake.
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import SpecError
from perfmodel.hardware import spec_files

if TYPE_CHECKING:
    from perfmodel.hardware.device import Device

SAME_BUT_FOR_A_SLIP: Final = 0.8
"""Similarity of two names from which one counts as the other misspelt: one letter of six, two of nine. [1]"""


def misspelt_architecture(path: Path, device: Device) -> list[str]:
    """Return a line if a device's architecture is unknown but nearly a known one.

    Known are the architectures that a library file lists and those of the shipped devices. Names that differ in
    their digits only are generations of one family, not slips.

    Parameters
    ----------
    path : Path
        The device's file. [-]
    device : Device
        The device. [-]

    Returns
    -------
    list of str
        One fault, or none. [-]
    """
    if path.parent == spec_files.shipped_folder() / "devices":
        return []
    known = {
        name for file in spec_files.files("libraries") for name in _listed_in_library(file, file.stat().st_mtime_ns)
    }
    shipped = sorted((spec_files.shipped_folder() / "devices").glob("*.toml"))
    known |= {_of_device(file, file.stat().st_mtime_ns) for file in shipped}
    given = device.architecture
    near = [
        name
        for name in difflib.get_close_matches(given, sorted(known), n=1, cutoff=SAME_BUT_FOR_A_SLIP)
        if re.sub(r"\d", "", name) != re.sub(r"\d", "", given)
    ]
    if given in known or not near:
        return []
    remedy = f"if it is new, list it as [architecture.{given}] in a library file of your own (docs/adding_things.md)"
    return [f"architecture: value {given!r}: is not known (nearest: {near[0]}); {remedy}"]


@lru_cache(maxsize=256)
def _listed_in_library(path: Path, changed_ns: int) -> frozenset[str]:
    del changed_ns
    return frozenset(_table(path).get("architecture", {}))


@lru_cache(maxsize=256)
def _of_device(path: Path, changed_ns: int) -> str:
    del changed_ns
    return str(_table(path).get("architecture", ""))


def _table(path: Path) -> dict[str, Any]:
    try:
        return spec_files.read_toml(path)
    except SpecError:
        return {}  # whoever loads that file is told
