"""How measured kernels are split: into parts that are scored by themselves, and into fitted and scored rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
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
    labels : callable
        Boards to a label for each of their rows: a fold holds out the rows of one label. [-]
    """

    name: str
    holds_out: str
    together: bool
    labels: Callable[[Sequence[KernelBoard]], list[Hashable]]


def shape_folds(boards: Sequence[KernelBoard]) -> list[Hashable]:
    """Return the number of the fold of each row, the same for all rows of one shape, whatever board they ran on.

    Parameters
    ----------
    boards : sequence of KernelBoard
        Rows, board after board. [-]

    Returns
    -------
    list of int
        Below ``FOLDS``, drawn with a fixed seed. [1]
    """
    keys = [board.kind.shape_of(row) for board in boards for row in board.rows]
    place = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    drawn = np.random.default_rng(0).permutation(len(place)) % FOLDS
    return [int(drawn[place[key]]) for key in keys]


def _board_labels(boards: Sequence[KernelBoard]) -> list[Hashable]:
    return [board.device for board in boards for _ in board.rows]


def _network_labels(boards: Sequence[KernelBoard]) -> list[Hashable]:
    return [row.words["network"] for board in boards for row in board.rows]


AS_SHIPPED: Final = "as_shipped"
"""Name of the protocol that fits nothing. [-]"""

FIVE_FOLD: Final = "five_fold"
"""Name of the protocol that holds out shapes. [-]"""

SHAPES_OUT = KernelProtocol(name=FIVE_FOLD, holds_out="a fifth of the shapes", together=False, labels=shape_folds)

SHAPES_OUT_OF_ALL = replace(SHAPES_OUT, together=True)

BOARD_OUT = KernelProtocol(name="leave_one_board_out", holds_out="a board", together=True, labels=_board_labels)

NETWORK_OUT = KernelProtocol(
    name="leave_one_network_out", holds_out="a network's layers", together=False, labels=_network_labels
)

PROTOCOLS: Final[dict[str, tuple[KernelProtocol, ...]]] = {
    "gemm": (SHAPES_OUT, BOARD_OUT),
    "conv": (SHAPES_OUT_OF_ALL, BOARD_OUT),
    "rnn": (SHAPES_OUT, BOARD_OUT),
    "layer": (SHAPES_OUT, NETWORK_OUT),
}
"""Name of a format -> protocols that fit, after ``as_shipped``. Boards share a library's classes of convolution."""
