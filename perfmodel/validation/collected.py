"""Records and pictures of a scoreboard in the making."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from perfmodel import __version__
from perfmodel.calibration.fit_cache import code_fingerprint, fingerprint
from perfmodel.validation.scoreboard import Scoreboard

FINGERPRINT_DIGITS: Final = 12
"""Digits of a fingerprint that are kept. [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Picture:
    """What a parity plot shows.

    Parameters
    ----------
    name, title : str
        Stem of its file, and heading. [-]
    predicted_s, measured_s : tuple of float
        Times. [s]
    groups : tuple of str
        Group of each point. [-]
    hollow : tuple of bool
        Points that are shown and not scored. [-]
    quantity : str
        What the times are. [-]
    intervals : tuple of tuple of float, or None
        Ends of the 80 % interval of each prediction. [s]
    """

    name: str
    title: str
    predicted_s: tuple[float, ...]
    measured_s: tuple[float, ...]
    groups: tuple[str, ...]
    hollow: tuple[bool, ...]
    quantity: str = "step time"
    intervals: tuple[tuple[float, float], ...] | None = None


@dataclass(eq=False)
class Collected:
    """What is known so far.

    Parameters
    ----------
    records : dict of str to list
        Records by the name of their list on a scoreboard. [-]
    pictures : list of Picture
        What is to be drawn. [-]
    """

    records: dict[str, list[Any]] = field(default_factory=dict)
    pictures: list[Picture] = field(default_factory=list)

    def add(self, name: str, *records: Any) -> None:
        """Add records to a list."""
        self.records.setdefault(name, []).extend(records)

    def take(self, other: Collected) -> None:
        """Add everything that another one holds."""
        for name, records in other.records.items():
            self.add(name, *records)
        self.pictures.extend(other.pictures)

    def forget(self, table: str) -> None:
        """Drop what is known of a table."""
        for records in self.records.values():
            records[:] = [
                record for record in records if getattr(record, "table", getattr(record, "name", "")) != table
            ]

    def board(self) -> Scoreboard:
        """Return everything as a scoreboard of this version, each score with what it follows from."""
        lists = {name: tuple(records) for name, records in self.records.items()}
        follows_from = fingerprint(())[:FINGERPRINT_DIGITS]
        lists["scores"] = tuple(replace(score, code=follows_from) for score in lists.get("scores", ()))
        return Scoreboard(version=__version__, code=code_fingerprint()[:FINGERPRINT_DIGITS], **lists)
