"""fit(): the constants of the spec files, fitted to a measured table, as a calibration that predictions can use."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from warnings import warn

import numpy as np

from perfmodel.calls import CALLER
from perfmodel.errors import PerfmodelWarning, UnknownNameError
from perfmodel.hardware.fit_file import Factor, FitFile, FittedConstant, FittedOn, factors_by_constant, load_fit_plan
from perfmodel.hardware.source import Source
from perfmodel.measurements.table import SUBSETS, MeasurementTable
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.certainty.basis import timed_prediction
from perfmodel.prediction.device.factors import stated_constant
from perfmodel.validation.protocols import protocols
from perfmodel.validation.protocols.protocols import HeldOut
from perfmodel.validation.scores import metrics
from perfmodel.validation.scores.interval_coverage import seen_in
from perfmodel.validation.scores.table_report import unit_hints
from perfmodel.validation.validate import scored_cells

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

MOST_CHANGED = 1e-9
"""Relative change below which a constant counts as untouched. [1]"""


@gated
def fit(
    table: str | Path | MeasurementTable | pd.DataFrame = "shi2016",
    *,
    only: Literal["gpu", "cpu", "cpu_oversubscribed"] | str = "gpu",
    progress: Callable[[int, int], None] | None = None,
) -> FitFile:
    """Fit the constants of device, library and framework files to all measured cells of a subset.

    Parameters
    ----------
    table : str, Path, MeasurementTable or DataFrame
        A shipped table, the path of a CSV, a loaded table, or a frame with the columns of such a CSV. [-]
    only : str
        ``gpu``, ``cpu`` or ``cpu_oversubscribed``: GPU and CPU rows are fitted separately. [-]
    progress : callable or None
        Called with the amount done and the total amount. [-]

    Returns
    -------
    FitFile
        Factors with intervals and the residual; ``save()`` it, and give it to ``predict(calibration=)``.

    Raises
    ------
    UnknownNameError
        If the table or subset is unknown.
    TableError
        If a row of the table is wrong, or none belongs to the subset.
    CalibrationError
        If nothing is left to fit.

    Warns
    -----
    PerfmodelWarning
        If the table's times seem to be in milliseconds or microseconds.

    Examples
    --------
    >>> import perfmodel as pm
    >>> calibration = pm.fit("sako2018", only="gpu")
    >>> calibration.fitted_on.row_count
    28
    """
    if only not in SUBSETS:
        raise UnknownNameError(kind="subset", name=only, known=SUBSETS)
    loaded, cells = scored_cells(table, only)
    shipped = [float(timed_prediction(cell.prepared).step_s) for cell in cells]
    for hint in unit_hints(metrics.geometric_mean_ratio(shipped, measured=[cell.measured_s for cell in cells])):
        warn(PerfmodelWarning(f"{loaded.key}: {hint}"), stacklevel=CALLER)
    fitted = protocols.predict_subset(cells, subset=only, protocol=protocols.ALL_FITTED, progress=progress)
    return _calibration(fitted, loaded, only)


def _calibration(fitted: HeldOut, table: MeasurementTable, subset: str) -> FitFile:
    (outcome,), unknowns, fit = fitted.outcomes, fitted.unknowns, fitted.only_fit
    factors = []
    for index, unknown in enumerate(unknowns):
        low, high = fit.interval(unknown.name)
        factors.append(
            Factor(
                name=unknown.name,
                scales=unknown.scales,
                value=fit.factors[unknown.name],
                low=low,
                high=high,
                prior_spread=float(np.hypot(unknown.spread, unknown.shared_spread)),
                shared_spread=unknown.shared_spread,
                group=unknown.group,
                covariance=tuple(float(f"{entry:.4g}") for entry in fit.covariance[index, : index + 1]),
            )
        )
    measured = [cell.measured_s for cell in outcome.predicted]
    times = [cell.predicted_s for cell in outcome.predicted]
    published = table.source.get("publication", "")
    plan_name = protocols.PLAN_OF_SUBSET[subset]
    return FitFile(
        schema_version=1,
        name=f"{table.key}, {subset}",
        kind="fit",
        fitted_on=FittedOn(
            table=table.key,
            subset=subset,
            row_count=len(measured),
            parameter_count=fit.parameter_count,
            mape_percent=round(metrics.mape(times, measured=measured), 2),
            typical_factor_percent=round(metrics.typical_factor_percent(times, measured=measured), 2),
            fitted_at=datetime.now(UTC).date(),
            code_version=version("perfmodel"),
            content=protocols.content_key(fitted.cells, plan=load_fit_plan(plan_name), trained=[outcome.fold.trained]),
            seen=seen_in(fitted.cells),
        ),
        factor=tuple(factors),
        constant=_constants(fitted, fit.factors),
        source=(
            Source(
                fields=("fitted_on", "factor", "constant"),
                title=f"fit to the measured table {table.key}. {published}".strip(),
                note=f"fit plan {plan_name}: robust least squares on log times, priors at shipped values",
            ),
        ),
    )


def _constants(fitted: HeldOut, factors: dict[str, float]) -> tuple[FittedConstant, ...]:
    """Return every single constant that a factor moved, before and after."""
    names = sorted({name for cell in fitted.cells for name in cell.prepared.constant_names})
    specs = {key: spec for cell in fitted.cells for key, spec in cell.prepared.specs.items()}
    by_name = factors_by_constant(fitted.unknowns, factors, names)
    rows = []
    for name, factor in by_name.items():
        stated = stated_constant(name, specs)
        if stated is None or stated.described is None or isinstance(stated.value, tuple):
            continue
        if abs(factor - 1) < MOST_CHANGED:
            continue
        low, high = stated.described.valid_min, stated.described.valid_max
        scaled = stated.value * factor
        rows.append(
            FittedConstant(
                name=name,
                unit=stated.unit,
                shipped=float(stated.value),
                fitted=min(max(scaled, low), high),
                at_limit=not low <= scaled <= high,
            )
        )
    return tuple(rows)
