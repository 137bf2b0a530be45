"""What a survey says that a doubling of GPUs saves: stated shares beside linear scaling; nothing is scored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perfmodel.measurements.scaling_tables import load_scaling
from perfmodel.presentation.tables import Table
from perfmodel.validation.table_report import RowReport

LINEAR: Final = 0.5
"""Share of the time that a doubling saves where speed-up is linear. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """A stated saving.

    Parameters
    ----------
    framework : str
        Of which it is said. [-]
    saved_percent, linear_percent : float
        Time that twice the GPUs save: as stated, and by linear scaling. [%]
    speedup : float
        Of a doubling, as stated. [1]
    efficiency_percent : float
        That over 2. [%]
    implied_exposed_percent : float
        Share of the step on twice the GPUs that all but linear scaling must be, under weak scaling. [%]
    """

    framework: str
    saved_percent: float
    linear_percent: float
    speedup: float
    efficiency_percent: float
    implied_exposed_percent: float


def doubling_claims(file: Path) -> RowReport:
    """Return the claims with what they imply.

    Parameters
    ----------
    file : Path
        Its CSV, one that comes with perfmodel. [-]

    Returns
    -------
    RowReport
        Without a score: no run can be made of a claim that states neither network nor devices.

    Notes
    -----
    Valid for: one doubling. A step on twice the GPUs lasts 2 / speed-up times the step on the fewer, each worker with
    its mini-batch; all of it that is longer is exchange that is exposed: 1 - speed-up / 2.
    """
    table = load_scaling(file.stem)
    rows = [
        ClaimRow(
            framework=row["framework"],
            saved_percent=100 * row["time_reduction"],
            linear_percent=100 * LINEAR,
            speedup=1 / (1 - row["time_reduction"]),
            efficiency_percent=100 * LINEAR / (1 - row["time_reduction"]),
            implied_exposed_percent=100 * (1 - LINEAR / (1 - row["time_reduction"])),
        )
        for row in table.rows
    ]
    return RowReport(
        table=table.key,
        rows=Table(rows, title=table.title),
        parts=(),
        not_scored=f"{len(rows)} claims that state neither network, batch size, GPUs nor links",
        caveats=table.caveats,
    )
