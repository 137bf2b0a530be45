"""Fit the constants of fused attention to published rates, and score them on heads and masks left out.

Run as ``python benchmarks/fit_attention.py``. Rates are in attention_rates.csv: FlashAttention-3 (arXiv 2407.08608),
figures 5 and 6, FLOP counted as there (half of all scores under a causal mask, 2.5 times as many going back).
"""

import csv
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

import perfmodel as pm
from perfmodel.cost.attention import attention_time

TABLE = Path(__file__).with_name("attention_rates.csv")
NAMES = ("efficiency", "softmax_instructions", "ramp_rows")
START = (0.5, 5.0, 80.0)
WITHOUT = {"ramp": ("ramp_rows",), "softmax": ("softmax_instructions",), "both": ("ramp_rows", "softmax_instructions")}
"""Term -> constants that are 0 without it; without softmax, exponentials take no time either."""
NUMBERS = ("causal", "head_size", "heads", "sequence_length", "batch_size", "tflop_per_s")


def published():
    """Return the rows of the table, numbers as numbers."""
    with TABLE.open(encoding="utf-8") as file:
        return [row | {name: float(row[name]) for name in NUMBERS} for row in csv.DictReader(file)]


def predicted(rows, constants, exponentials_per_cycle=16.0):
    """Return the rates of some rows of one kernel, pass and device. [TFLOP/s]"""
    device = pm.load_device(rows[0]["device"])
    backward = rows[0]["pass"] == "backward"
    causal, size, heads, length, samples, _ = (np.array([row[name] for row in rows]) for name in NUMBERS)
    instructions_per_s = device.peak_flop_per_s("fp32") / 2
    seconds = attention_time(
        queries=length,
        keys=length,
        summed=(5 if backward else 2) * size,
        count=heads * samples,
        causal=causal,
        backward=float(backward),
        peak_flop_per_s=device.peak_flop_per_s("fp16"),
        unit_count=device.unit_count,
        exponentials_per_s=instructions_per_s * exponentials_per_cycle / device.lanes_per_unit,
        instructions_per_s=instructions_per_s,
        tile_rows=128.0,
        block_rows=128.0,
        **dict(zip(NAMES, constants, strict=True)),
    )
    return (10 if backward else 4) * length**2 * size * heads * samples / (1 + causal) / seconds / 1e12


def measured(rows):
    """Return the published rates. [TFLOP/s]"""
    return np.array([row["tflop_per_s"] for row in rows])


def fitted(rows, *, without=()):
    """Return the three constants that fit some rows best, and the rate of exponentials to take beside them."""
    kept = np.array([name not in without for name in NAMES], dtype=float)
    rate = np.inf if "softmax_instructions" in without else 16.0

    def of(logs):
        return np.exp(logs) * kept, rate

    found = least_squares(lambda x: np.log(predicted(rows, *of(x)) / measured(rows)), np.log(START))
    return of(found.x)


def errors(rates, rows):
    """Return the relative errors. [1]"""
    return np.abs(rates / measured(rows) - 1)


def left_out(rows, *, without=()):
    """Return errors on each series (head size and mask) fitted on the others, of the formula and of one rate. [1]"""
    series = sorted({(row["head_size"], row["causal"]) for row in rows})
    of_formula, of_one_rate = [], []
    for each in series:
        known = [row for row in rows if (row["head_size"], row["causal"]) != each]
        unknown = [row for row in rows if (row["head_size"], row["causal"]) == each]
        of_formula.append(errors(predicted(unknown, *fitted(known, without=without)), unknown))
        of_one_rate.append(errors(np.exp(np.log(measured(known)).mean()), unknown))
    return np.concatenate(of_formula), np.concatenate(of_one_rate)


def main():
    """Print constants and errors of every kernel and pass."""
    rows = published()
    for kernel, way in sorted({(row["kernel"], row["pass"]) for row in rows}):
        some = [row for row in rows if (row["kernel"], row["pass"]) == (kernel, way)]
        constants, _ = fitted(some)
        stated = ", ".join(f"{name} {value:.3g}" for name, value in zip(NAMES, constants, strict=True))
        formula, one_rate = left_out(some)
        ablated = (f"without {term} {left_out(some, without=names)[0].mean():.1%}" for term, names in WITHOUT.items())
        print(
            f"{kernel} {way}, {len(some)} rows: {stated}; error {errors(predicted(some, constants), some).mean():.1%}; "
            f"left out {formula.mean():.1%}, {', '.join(ablated)}, "
            f"one rate {one_rate.mean():.1%}"
        )


if __name__ == "__main__":
    main()
