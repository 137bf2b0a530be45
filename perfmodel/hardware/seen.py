"""What measured rows have told about: beyond it, a prediction extrapolates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Final

from pydantic import Field, field_validator

from perfmodel.errors import ArgumentError, SpecError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.device_catalogue import load_datasheet
from perfmodel.hardware.source import SpecTable, Text

KINDS_OF_OPERATION: Final = (
    "contraction",
    "convolution",
    "attention",
    "recurrence",
    "memory_pass",
    "gather",
    "update",
)
"""Kinds of operation whose shares of a step make its mix; the optimizer's passes are a kind of their own."""

Share = Annotated[float, Field(ge=0, le=1, strict=True)]

PLACES: Final = 1
"""Decimals to which the shares of a mix are kept: finer ones would tell rows apart that are alike. [1]"""

BLUR: Final = 0.1
"""Share of the time on other kinds below which mixes are the same. [1]"""

NEW_SHARE: Final = 0.4
"""Share of the time on other kinds from which on a mix is new altogether. [1]"""


class Seen(SpecTable):
    """Devices, frameworks, data types and mixes of operations of some measured rows.

    Attributes
    ----------
    devices, frameworks : tuple of str
        Stems of their files. [-]
    dtypes : tuple of str
        Data types. [-]
    mixes : tuple of tuple of float
        Shares of a step's time by ``KINDS_OF_OPERATION``, each mix that occurred once. [1]
    """

    devices: tuple[Text, ...]
    frameworks: tuple[Text, ...]
    dtypes: tuple[Text, ...]
    mixes: tuple[tuple[Share, ...], ...]

    @field_validator("mixes")
    @classmethod
    def _mixes_have_all_kinds(cls, mixes: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
        if any(len(mix) != len(KINDS_OF_OPERATION) for mix in mixes):
            message = f"must each have {len(KINDS_OF_OPERATION)} shares: {', '.join(KINDS_OF_OPERATION)}"
            raise ValueError(message)
        return mixes

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str, str, Mapping[str, float]]]) -> Seen:
        """Collect what rows tell about.

        Parameters
        ----------
        rows : iterable of tuple
            Device, framework, data type and mix of each row. [-]

        Returns
        -------
        Seen
            Each thing once, sorted; mixes rounded to one decimal.
        """
        devices, frameworks, dtypes, mixes = set(), set(), set(), set()
        for device, framework, dtype, mix in rows:
            devices.add(device)
            frameworks.add(framework)
            dtypes.add(dtype)
            mixes.add(tuple(round(mix.get(kind, 0.0), PLACES) for kind in KINDS_OF_OPERATION))
        return cls(
            devices=tuple(sorted(devices)),
            frameworks=tuple(sorted(frameworks)),
            dtypes=tuple(sorted(dtypes)),
            mixes=tuple(sorted(mixes)),
        )

    @classmethod
    def together(cls, parts: Iterable[Seen]) -> Seen:
        """Return what several sets of rows tell about together.

        Parameters
        ----------
        parts : iterable of Seen
            Any number. [-]

        Returns
        -------
        Seen
            Each thing once, sorted.
        """
        each = tuple(parts)
        return cls(
            devices=tuple(sorted({device for part in each for device in part.devices})),
            frameworks=tuple(sorted({framework for part in each for framework in part.frameworks})),
            dtypes=tuple(sorted({dtype for part in each for dtype in part.dtypes})),
            mixes=tuple(sorted({mix for part in each for mix in part.mixes})),
        )

    @property
    def architectures(self) -> frozenset[str]:
        """Architectures of the devices that were seen; none of one without a file, or with a faulty one of the user."""
        return frozenset().union(*(_architecture_of(device) for device in self.devices))

    def distance_to(self, mix: Mapping[str, float]) -> float:
        """Return how far a mix of operations is from the nearest that was seen.

        Parameters
        ----------
        mix : mapping of str to float
            Shares of a step's time by kind of operation. [1]

        Returns
        -------
        float
            0 where the nearest mix is as near as rounding tells, 1 where it spends ``NEW_SHARE`` of the time on other
            kinds, or nothing was seen; in between in proportion. [1]

        Examples
        --------
        >>> dense = {"contraction": 0.8, "memory_pass": 0.2}
        >>> Seen.of([("a", "b", "fp32", dense)]).distance_to({"contraction": 0.6, "memory_pass": 0.4})
        0.333
        """
        wanted = [mix.get(kind, 0.0) for kind in KINDS_OF_OPERATION]
        apart = (
            sum(abs(ours - theirs) for ours, theirs in zip(wanted, other, strict=True)) / 2 for other in self.mixes
        )
        return min(max(min(apart, default=1.0) - BLUR, 0.0) / (NEW_SHARE - BLUR), 1.0)


def _architecture_of(device: str) -> frozenset[str]:
    """Return what a name says of a measured board: a shipped file goes before a user's, whose faults are not ours."""
    shipped = _shipped_architecture_of(device)
    if shipped is not None:
        return shipped
    try:
        return frozenset({load_datasheet(device).architecture})
    except (UnknownNameError, ArgumentError, SpecError):
        return frozenset()  # it narrows nothing, and whoever predicts for that device is told what is wrong


@lru_cache(maxsize=256)
def _shipped_architecture_of(device: str) -> frozenset[str] | None:
    path = spec_files.shipped_folder() / "devices" / f"{device}.toml"
    return frozenset({spec_files.read_toml(path)["architecture"]}) if path.is_file() else None
