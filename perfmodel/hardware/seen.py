"""What measured rows have told about: beyond it, a prediction extrapolates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple

from pydantic import Field, field_validator

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


class SeenRow(NamedTuple):
    """What one measured row tells about.

    Parameters
    ----------
    device : str
        What tells its device from others, see ``Runnable.identity``. [-]
    architecture, framework, dtype : str
        Architecture of the device, stem of the framework's file, data type. [-]
    mix : mapping of str to float
        Shares of the step's time by kind of operation. [1]
    """

    device: str
    architecture: str
    framework: str
    dtype: str
    mix: Mapping[str, float]


class Seen(SpecTable):
    """Devices, frameworks, data types and mixes of operations of some measured rows.

    Attributes
    ----------
    devices : tuple of str
        What tells each device from others: facts of its file, not its name, see ``Runnable.identity``. [-]
    architectures : tuple of str
        Their architectures. [-]
    frameworks : tuple of str
        Stems of their files. [-]
    dtypes : tuple of str
        Data types. [-]
    mixes : tuple of tuple of float
        Shares of a step's time by ``KINDS_OF_OPERATION``, each mix that occurred once. [1]
    """

    devices: tuple[Text, ...]
    architectures: tuple[Text, ...]
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
    def of(cls, rows: Iterable[SeenRow]) -> Seen:
        """Collect what rows tell about.

        Parameters
        ----------
        rows : iterable of SeenRow
            Any number. [-]

        Returns
        -------
        Seen
            Each thing once, sorted; mixes rounded to one decimal.
        """
        known = tuple(rows)
        mixes = {tuple(round(row.mix.get(kind, 0.0), PLACES) for kind in KINDS_OF_OPERATION) for row in known}
        return cls(
            devices=tuple(sorted({row.device for row in known})),
            architectures=tuple(sorted({row.architecture for row in known})),
            frameworks=tuple(sorted({row.framework for row in known})),
            dtypes=tuple(sorted({row.dtype for row in known})),
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
            **{name: tuple(sorted({one for part in each for one in getattr(part, name)})) for name in cls.model_fields}
        )

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
        >>> row = SeenRow(device="a", architecture="b", framework="c", dtype="fp32", mix=dense)
        >>> Seen.of([row]).distance_to({"contraction": 0.6, "memory_pass": 0.4})
        0.333
        """
        wanted = [mix.get(kind, 0.0) for kind in KINDS_OF_OPERATION]
        apart = (
            sum(abs(ours - theirs) for ours, theirs in zip(wanted, other, strict=True)) / 2 for other in self.mixes
        )
        return min(max(min(apart, default=1.0) - BLUR, 0.0) / (NEW_SHARE - BLUR), 1.0)
