"""The fastest product of a sweep of shapes on each accelerator, compared with its prediction and one share of peak.

Accelerators in such a table differ in chip and in power limit. A chip whose energy per FLOP was chosen on the table is
scored with each of its boards left out: a factor on the energy of its family is found on the other boards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfmodel.errors import TableError
from perfmodel.framework.kernel_table import PROBE_BATCH_SIZES, LayerOperation, build_kernel_table
from perfmodel.framework.profile import load_framework
from perfmodel.hardware.catalogue import load_library
from perfmodel.measurements.kernel_tables import NAMES
from perfmodel.prediction.device.factors import NO_FACTORS, Factors
from perfmodel.prediction.device.gpu_clock import sustained_clocks_mhz
from perfmodel.prediction.device.step_time import group_times
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.presentation.tables import row_table
from perfmodel.records import ELEMENT_BYTES, Contraction, Phase
from perfmodel.units import TERA
from perfmodel.validation.scores.metrics import mape
from perfmodel.validation.scores.table_report import EVERY_ROW, PERFMODEL, PartScore, RowReport, compared, read_records

DEVICES: Final = NAMES["accelerators"]
"""Accelerator as tables name it -> device file. [-]"""

LIBRARIES: Final = {"ampere": "cublas_12_0"}
"""Architecture -> BLAS, where the table's software is newer than that of bare calls. [-]"""

FRAMEWORK: Final = "library_calls"
"""Framework file of products that are timed without a network. [-]"""

BOARD_OUT: Final = "leave_one_device_out"
"""Protocol: energy per FLOP from the other boards of the family. [-]"""

AS_SHIPPED: Final = "as_shipped"
"""Protocol: all constants as in their files. [-]"""

ONE_SHARE: Final = "one share of peak"
"""Naive rule: the geometric mean, over the other rows, of rate over stated peak. [-]"""

WORKSPACE_BYTES: Final = 2.0**30
"""Workspace that a library may use; products need none. [B]"""

STEPS: Final = np.exp(np.linspace(-1, 1, 81))
"""Factors on the energy that are tried. [1]"""


@dataclass(frozen=True, eq=False)
class _Board:
    """A row as a kernel on its device."""

    accelerator: str
    extents: tuple[int, int, int]
    rate: float
    peak: float
    target: Any
    numbers: Any
    table: Any

    @property
    def family(self) -> str:
        """Architecture without its generation; boards of one family share the factor on their energy."""
        return str(self.target.architecture).rstrip("0123456789")

    def energy(self, factor: float) -> Factors:
        """Return the factor on the energy of a FLOP."""
        return {f"devices/{self.target.device.stem}/power.tensor_cores_pj": factor}

    def rate_with(self, factors: Factors = NO_FACTORS) -> float:
        """Return the predicted rate. [FLOP/s]"""
        times = group_times(self.table, self.numbers(factors), batch_size=1, workspace_limit_bytes=WORKSPACE_BYTES)
        m, n, k = self.extents
        return 2 * m * n * k / float(np.sum(times.compute_s + times.memory_s))


def _board(record: dict[str, str], file: Path) -> _Board:
    name, dtype = record["accelerator"], record["dtype"]
    if name not in DEVICES:
        message = f"{file}: accelerator must be one of {', '.join(DEVICES)} (got {name!r})"
        raise TableError(message)
    target: Any = resolve_target(device=DEVICES[name], system=None, threads=None)
    profile = load_framework(FRAMEWORK)
    libraries = dict(target.libraries(profile, None))
    if target.architecture in LIBRARIES:
        libraries["gpu_blas"] = load_library(LIBRARIES[target.architecture])
    m, n, k = (int(record[extent]) for extent in "mnk")
    entry = LayerOperation("product", Phase.FORWARD, Contraction(m=m, n=n, k=k))
    table = build_kernel_table(
        [[entry]] * len(PROBE_BATCH_SIZES),
        rules=profile.gpu.lowering.rules(target.support(profile, libraries, dtype=dtype)),
        element_bytes=ELEMENT_BYTES[dtype],
        processor=target.processor,
    )
    return _Board(
        name,
        (m, n, k),
        TERA * float(record["achieved_tflop_per_s"]),
        TERA * float(record["peak_tflop_per_s_as_stated"]),
        target,
        lambda factors: target.numbers(profile, libraries, dtype=dtype, factors=factors),
        table,
    )


def factor_from(others: Sequence[_Board]) -> float:
    """Return the factor on the energy that predicts the other boards best; the nearest to 1 among equals."""
    if not others:
        return 1.0
    errors = [
        np.mean([abs(np.log(board.rate_with(board.energy(step)) / board.rate)) for board in others]) for step in STEPS
    ]
    return float(min(zip(np.round(errors, 4), abs(np.log(STEPS)), STEPS, strict=True))[2])


def best_products(file: Path) -> RowReport:
    """Score a table of the fastest product of each accelerator; rates are compared as times."""
    boards = [_board(record, file) for record in read_records(file)]
    measured = np.array([board.rate for board in boards])
    shares = np.log(measured / np.array([board.peak for board in boards]))
    of_family = [[other for other in boards if other is not board and other.family == board.family] for board in boards]
    rates = {
        BOARD_OUT: [
            board.rate_with(board.energy(factor_from(others))) for board, others in zip(boards, of_family, strict=True)
        ],
        AS_SHIPPED: [board.rate_with() for board in boards],
        ONE_SHARE: [
            board.peak * float(np.exp(np.mean(np.delete(shares, index)))) for index, board in enumerate(boards)
        ],
    }
    errors = {name: 100 * (np.array(predicted) / measured - 1) for name, predicted in rates.items()}
    rows = [
        {
            "accelerator": board.accelerator,
            "device": board.target.device.stem,
            "shape": " x ".join(map(str, board.extents)),
            "measured_flop_per_s": board.rate,
            "predicted_flop_per_s": rates[BOARD_OUT][index],
            "error_percent": float(errors[BOARD_OUT][index]),
            "shipped_error_percent": float(errors[AS_SHIPPED][index]),
            "one_share_error_percent": float(errors[ONE_SHARE][index]),
            "clock_mhz": float(sustained_clocks_mhz(board.target.device)["tensor_cores"]),
        }
        for index, board in enumerate(boards)
    ]
    seconds = {name: 1 / np.array(predicted) for name, predicted in rates.items()}
    parts: list[PartScore] = []
    for protocol, part in ((BOARD_OUT, EVERY_ROW), (AS_SHIPPED, AS_SHIPPED)):
        mean = mape(seconds[protocol], measured=1 / measured)
        worst = float(np.max(abs(errors[protocol])))
        parts += compared(
            "best shapes",
            {PERFMODEL: seconds[protocol], ONE_SHARE: seconds[ONE_SHARE]},
            measured=1 / measured,
            fitted={PERFMODEL: 1, ONE_SHARE: 1},
            part=part,
            note=f"{protocol}: MAPE {mean:.1f} %, largest error {worst:.1f} %",
        )
    title = f"{file.stem}, protocol {BOARD_OUT}"
    return RowReport(table=file.stem, rows=row_table(rows, title=title), parts=tuple(parts))
