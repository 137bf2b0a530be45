"""How measured kernels are split: into parts that are scored by themselves, and into fitted and scored rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from perfmodel.calibration.kernel_boards import KernelBoard
    from perfmodel.measurements.kernel_tables import MeasuredKernel

LARGE_EXTENT: Final = 128
"""Least rows and columns of a product that fills its tiles. [1]"""

FOLDS: Final = 5
"""Folds of shapes. [1]"""

EVERY_ROW: Final = "all"
"""Name of the part of a table that is all of it. [-]"""

Belongs = Callable[["MeasuredKernel"], bool]


def _is_forward(row: MeasuredKernel) -> bool:
    return row.phase == "forward"


def _is_convolution(row: MeasuredKernel) -> bool:
    return row.words["layer_type"] == "Convolution"


PARTS: Final[dict[str, dict[str, Belongs]]] = {
    "gemm": {"min(m, n) > 128": lambda row: min(row.sizes["M"], row.sizes["N"]) > LARGE_EXTENT},
    "conv": {"forward": _is_forward, "gradients": lambda row: not _is_forward(row)},
    "rnn": {"forward": _is_forward, "gradients": lambda row: not _is_forward(row)},
    "layer": {
        "convolutions, forward": lambda row: _is_convolution(row) and _is_forward(row),
        "convolutions, backward": lambda row: _is_convolution(row) and not _is_forward(row),
        "other layers": lambda row: not _is_convolution(row),
    },
}
"""Name of a format -> parts of a table that are scored by themselves, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProtocol:
    """A way to split measured kernels into fitted and scored rows.

    Parameters
    ----------
    name, holds_out : str
        Name, and what a fold does without. [-]
    together : bool
        Whether all boards are fitted together, or each by itself. [-]
    key : callable
        Board to a label for each row: a fold holds out the rows of one label. [-]
    """

    name: str
    holds_out: str
    together: bool
    key: Callable[[KernelBoard], list[Hashable]]


def shape_folds(board: KernelBoard) -> list[Hashable]:
    """Return the number of the fold of each row, the same for all rows of one shape.

    Parameters
    ----------
    board : KernelBoard
        Rows. [-]

    Returns
    -------
    list of int
        Below ``FOLDS``, drawn with a fixed seed. [1]
    """
    keys = [row.shape_key for row in board.rows]
    place = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    drawn = np.random.default_rng(0).permutation(len(place)) % FOLDS
    return [int(drawn[place[key]]) for key in keys]


AS_SHIPPED: Final = "as_shipped"

FIVE_FOLD = KernelProtocol(name="five_fold", holds_out="a fifth of the shapes", together=False, key=shape_folds)

BOARD_OUT = KernelProtocol(
    name="leave_one_board_out",
    holds_out="a board",
    together=True,
    key=lambda board: [board.device] * len(board.rows),
)

NETWORK_OUT = KernelProtocol(
    name="leave_one_network_out",
    holds_out="a network's layers",
    together=False,
    key=lambda board: [row.words["network"] for row in board.rows],
)

PROTOCOLS: Final[dict[str, tuple[KernelProtocol, ...]]] = {
    "gemm": (FIVE_FOLD, BOARD_OUT),
    "conv": (FIVE_FOLD, BOARD_OUT),
    "rnn": (FIVE_FOLD, BOARD_OUT),
    "layer": (FIVE_FOLD, NETWORK_OUT),
}
"""Name of a format -> protocols that fit; ``as_shipped`` comes before them."""
