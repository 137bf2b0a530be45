"""Fit constants on log time, fold rows, and sum up errors; used by the scripts that fit kernel constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from perfmodel.cost.gpu import TileMenu, tile_menu

FOLDS = 5

Constants = dict[str, float]

OPERAND_WEIGHT = 4.0
"""Cost of loading an operand element into registers, in multiply-adds of plain lanes: 1/a + 1/b loads for each. [1]"""


def menu(
    tiles: Sequence[tuple[int, int]], splits: Sequence[int], *, operand_weight: float = OPERAND_WEIGHT
) -> TileMenu:
    """Return the menu of every tile with every split of the sum."""
    rows, columns, split_k = np.array([(a, b, s) for a, b in tiles for s in splits], dtype=float).T
    rate = 1 / (1 + operand_weight * (1 / rows + 1 / columns))
    return tile_menu(tile_rows=rows, tile_columns=columns, tile_efficiency=rate / rate.max(), split_k=split_k)


@dataclass(frozen=True)
class Unknown:
    """A constant to fit: where it starts, and its bounds."""

    start: float
    low: float
    high: float


def fit(
    residuals: Callable[[Constants], np.ndarray], unknowns: Mapping[str, Unknown], *, scale: float = 0.1
) -> Constants:
    """Return the constants that minimise the residuals, searched in their logarithms.

    Residuals above the scale count by their size, not their square: a small one fits the median.
    """
    names = list(unknowns)
    start, low, high = (
        np.log([getattr(unknowns[name], field) for name in names]) for field in ("start", "low", "high")
    )
    solution = least_squares(
        lambda logs: residuals(dict(zip(names, np.exp(logs), strict=True))),
        np.clip(start, low + 1e-6, high - 1e-6),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=scale,
        diff_step=0.02,
        max_nfev=60,
    )
    return {name: float(f"{value:.4g}") for name, value in zip(names, np.exp(solution.x), strict=True)}


def folds(keys: pd.Series) -> np.ndarray:
    """Return a fold number per row, the same for rows with the same key."""
    codes, unique = pd.factorize(keys)
    return np.random.default_rng(0).permutation(len(unique))[codes] % FOLDS


def summary(predicted: np.ndarray, measured: np.ndarray) -> str:
    """Return median, mean and 90th percentile of the error, and the median ratio."""
    error = 100 * np.abs(predicted / measured - 1)
    ratio = np.exp(np.median(np.log(predicted / measured)))
    return (
        f"median {np.median(error):5.1f} %  mean {error.mean():5.1f} %  p90 {np.quantile(error, 0.9):5.1f} %"
        f"  ratio {ratio:4.2f}  ({len(error)} rows)"
    )


def by_board(rows: pd.DataFrame, predicted: np.ndarray, *, indent: str = "    ") -> str:
    """Return one summary line per board."""
    lines = []
    for board in rows.board.unique():
        chosen = (rows.board == board).to_numpy()
        lines.append(f"{indent}{board:18s} {summary(predicted[chosen], rows.seconds.to_numpy()[chosen])}")
    return "\n".join(lines)


def cross_validated(rows: pd.DataFrame, keys: pd.Series, predict: Callable[..., np.ndarray]) -> np.ndarray:
    """Return predictions of each row by constants fitted without its fold: predict(train mask, test mask)."""
    fold, predicted = folds(keys), np.empty(len(rows))
    for index in range(FOLDS):
        test = fold == index
        predicted[test] = predict(~test, test)
    return predicted


def breakdown(table: pd.DataFrame, predicted: np.ndarray, keys: Sequence[str]) -> str:
    """Return errors by the given columns."""
    scored = table.assign(error=100 * np.abs(predicted / table.seconds - 1), ratio=np.log(predicted / table.seconds))
    grouped = scored.groupby(list(keys), observed=True)
    return (
        grouped.agg(
            rows=("error", "size"),
            median=("error", "median"),
            p90=("error", lambda errors: errors.quantile(0.9)),
            log_ratio=("ratio", "median"),
        )
        .round(2)
        .to_string()
    )
