"""Where the constants of a prediction come from, the ones that make it most uncertain first."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from perfmodel.hardware.calibration import CalibrationFile
    from perfmodel.hardware.source import Source
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.prediction.scaling import StatedConstant

LEAST_SENSITIVITY: Final = 1e-6
"""Relative change of the step time per relative change of a constant below which it does not count. [1]"""

WORDS_OF_NOTE: Final = 110
"""Columns of a source's note that stand for it. [1]"""


@dataclass(frozen=True, slots=True)
class ConstantRow:
    """One constant of a prediction.

    Parameters
    ----------
    constant : str
        Full name: kind folder, file and place in it. [-]
    value : float
        Value that timed the step, after any fit. [``unit``]
    unit : str
        Unit of the value; 1 for a fraction or a count. [-]
    provenance : str
        ``datasheet``, ``measured``, ``fitted``, ``calculation``, ``estimate`` or ``memory``. [-]
    source : str
        Document, measured table, or how it was estimated. [-]
    rows : int or None
        Measured rows it was fitted on. [1]
    residual_percent : float or None
        Median error on rows that the fit held out; of a calibration, the mean error on its own. [%]
    verified : bool
        Whether somebody looked at the source itself. [-]
    spread_percent : float
        Standard deviation of the constant. [%]
    sensitivity : float
        Relative change of the step time per relative change of the constant. [1]
    share : float
        Its share of the variance that uncertain constants make. [1]
    """

    constant: str
    value: float
    unit: str
    provenance: str
    source: str
    rows: int | None
    residual_percent: float | None
    verified: bool
    spread_percent: float
    sensitivity: float
    share: float

    def describe(self) -> str:
        """Return value, provenance and source in one line."""
        unit = "" if self.unit == "1" else f" {self.unit}"
        told = [] if self.rows is None else [f"{self.rows} rows"]
        told += [] if self.residual_percent is None else [f"residual {self.residual_percent:.3g} %"]
        doubt = "" if self.verified or self.provenance in ("estimate", "memory") else ", not verified"
        return f"{self.constant} {self.value:.3g}{unit}: {self.provenance}{doubt} ({', '.join([self.source, *told])})"


def constant_table(p: Prediction) -> Table[ConstantRow]:
    """Return the constants that move a prediction, the most uncertain contribution first.

    Parameters
    ----------
    p : Prediction
        The prediction. [-]

    Returns
    -------
    Table of ConstantRow
        Constants whose change changes the step; tile menus and other lists are left out. [-]
    """
    doubt = p.interval.doubt
    variance = doubt.variance or 1.0
    rows = []
    for place in np.argsort(-doubt.contribution, kind="stable"):
        if abs(doubt.sensitivity[place]) < LEAST_SENSITIVITY:
            continue
        constant = doubt.constants[place]
        rows.append(
            _row(
                constant,
                factor=float(p.basis.factors.get(constant.name, 1.0)),
                calibration=p.basis.calibration,
                spread=float(doubt.spread[place]),
                sensitivity=float(doubt.sensitivity[place]),
                share=float(doubt.contribution[place] / variance),
            )
        )
    return Table(rows, title="constants, the most uncertain first", row_type=ConstantRow)


def _row(
    constant: StatedConstant,
    *,
    factor: float,
    calibration: CalibrationFile | None,
    spread: float,
    sensitivity: float,
    share: float,
) -> ConstantRow:
    assert not isinstance(constant.value, tuple)
    value, source = constant.value * factor, constant.source
    if constant.described is not None:
        value = min(max(value, constant.described.valid_min), constant.described.valid_max)
    numbers = {"value": value, "spread_percent": 100 * spread, "sensitivity": sensitivity, "share": share}
    if calibration is not None and factor != 1.0:
        fitted = calibration.fitted_on
        return ConstantRow(
            constant=constant.name,
            unit=constant.unit,
            provenance="fitted",
            source=f"{calibration.name}; before: {_title(source)}",
            rows=fitted.row_count,
            residual_percent=fitted.mape_percent,
            verified=True,
            **numbers,
        )
    return ConstantRow(
        constant=constant.name,
        unit=constant.unit,
        provenance="estimate" if source is None else source.kind,
        source=_title(source),
        rows=None if source is None else source.rows,
        residual_percent=None if source is None else source.residual_percent,
        verified=source is not None and source.is_verified,
        **numbers,
    )


def _title(source: Source | None) -> str:
    """Return the measured table of a source, else its document; an estimate says how it was made."""
    if source is None:
        return "no source"
    if source.kind in ("estimate", "calculation") and source.note is not None:
        return textwrap.shorten(source.note, WORDS_OF_NOTE, placeholder=" ...")
    return source.table or source.title
