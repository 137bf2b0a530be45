"""Residuals of rows that fits had not seen, kept beside the interval scale that follows from them."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from perfmodel.atomic_write import replacement_of
from perfmodel.calibration.interval_fit import FittedSpread, conformal_quantile, fit_spread
from perfmodel.cost.interval import Exposure
from perfmodel.errors import TableError
from perfmodel.hardware import spec_files

CellKey = tuple[str, str, str, int, str, int | None]
"""Table, framework, network, batch size, device and threads of a cell."""

EXPOSURE: Final = tuple(field.name for field in fields(Exposure) if field.name != "exchange_variance")
"""What the file has of an exposure: its rows are of single devices, which exchange nothing."""
EXPOSURE_COLUMNS: Final = tuple(f"exposure_{name}" for name in EXPOSURE)
KEY_COLUMNS: Final = ("table", "framework", "network", "batch_size", "device", "threads")
COLUMNS: Final = ("protocol", *KEY_COLUMNS, "log_ratio", *EXPOSURE_COLUMNS)
"""Columns of the file; all numbers are plain numbers without a unit, threads are empty on a GPU."""

DIGITS: Final = 4
"""Significant digits of numbers in the file. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One cell as a fold held it out.

    Parameters
    ----------
    protocol : str
        How it was held out. [-]
    key : tuple
        Table, framework, network, batch size, device, threads. [-]
    log_ratio : float
        ln(measured / predicted). [1]
    exposure : Exposure
        How certain the prediction was. [1]
    """

    protocol: str
    key: CellKey
    log_ratio: float
    exposure: Exposure


@dataclass(frozen=True, eq=False)
class Residuals:
    """Residuals of measured tables, from which intervals are found without the cells that they are scored on.

    Parameters
    ----------
    rows : tuple of Residual
        A cell stands in it once for each protocol. [-]
    """

    rows: tuple[Residual, ...]

    @cached_property
    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Absolute log ratios. [1]"""
        return np.abs([row.log_ratio for row in self.rows])

    def without(self, keys: Iterable[CellKey]) -> Residuals:
        """Return the residuals of all other cells."""
        left_out = set(keys)
        return Residuals(tuple(row for row in self.rows if row.key not in left_out))

    def of(self, protocol: str, *, oversubscribed: bool = False) -> Residuals:
        """Return the residuals of one protocol, of cells with more threads than cores or of the others."""
        kept = (row for row in self.rows if row.protocol == protocol)
        return Residuals(tuple(row for row in kept if bool(row.exposure.oversubscription) == oversubscribed))

    def fitted(self) -> FittedSpread:
        """Return the spread and quantile that follow from them."""
        log_ratios = np.array([row.log_ratio for row in self.rows])
        return fit_spread([row.exposure for row in self.rows], log_ratios)

    def constant_half_width(self) -> float:
        """Return the half width of ln(time) that a constant ratio would have. [1]"""
        return conformal_quantile(self.sizes)


def path_of(processor: str) -> Path:
    """Return the file of a processor's residuals, beside its interval scale."""
    return spec_files.find("intervals", f"{processor}_80").with_suffix(".csv")


def read_residuals(path: Path) -> Residuals:
    """Read residuals.

    Parameters
    ----------
    path : Path
        A CSV with the columns of ``COLUMNS``. [-]

    Returns
    -------
    Residuals
        In the order of the file.

    Raises
    ------
    TableError
        If a column is missing or a number is none.
    """
    return Residuals(_read_once(path, path.stat().st_mtime_ns))


@lru_cache(maxsize=4)
def _read_once(path: Path, changed_ns: int) -> tuple[Residual, ...]:
    del changed_ns
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            message = f"{path.name}: columns must be {', '.join(COLUMNS)}"
            raise TableError(message)
        try:
            return tuple(_row(entry) for entry in reader)
        except ValueError as error:
            message = f"{path.name}: line {reader.line_num}: {error}"
            raise TableError(message) from error


def _row(entry: dict[str, str]) -> Residual:
    threads = int(entry["threads"]) if entry["threads"] else None
    return Residual(
        protocol=entry["protocol"],
        key=(entry["table"], entry["framework"], entry["network"], int(entry["batch_size"]), entry["device"], threads),
        log_ratio=float(entry["log_ratio"]),
        exposure=Exposure(**{name: float(entry[f"exposure_{name}"]) for name in EXPOSURE}),
    )


def write_residuals(path: Path, residuals: Iterable[Residual]) -> None:
    """Write residuals as a CSV that :func:`read_residuals` reads.

    Parameters
    ----------
    path : Path
        Where; replaced only once the new file is whole. [-]
    residuals : iterable of Residual
        Rows. [-]
    """
    with replacement_of(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in residuals:
            *place, threads = row.key
            numbers = [row.log_ratio, *(getattr(row.exposure, name) for name in EXPOSURE)]
            writer.writerow(
                [row.protocol, *place, "" if threads is None else threads]
                + [f"{number:.{DIGITS}g}" for number in numbers]
            )
