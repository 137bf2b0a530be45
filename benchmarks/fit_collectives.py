"""Fit the constants of libraries of collectives to the rows of a table that are not scored.

    python benchmarks/fit_collectives.py FOLDER/systems/nccl_a100_sxm.csv [library ...]

prints the constants for hardware_specs/collectives/ and the residual on the rows that were held out.
"""

import sys

import numpy as np
from scipy.optimize import least_squares

from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import load_collective_library
from perfmodel.measurements.kernel_tables import read_collectives
from perfmodel.sync.registry import LibraryCollective, Protocol, place_library, protocols_of

ROBUST = 0.1
"""Residual of a logarithm beyond which it counts less. [1]"""
STARTS = 8


def columns(name, rows):
    """Placed algorithms of each kind of call, with its sizes and times."""
    library = load_collective_library(name)
    kinds = {}
    for row in rows:
        kinds.setdefault((row.system, row.operation, row.worker_count), []).append(row)
    found = []
    for (system, operation, workers), members in kinds.items():
        topology = load_system(system).topology
        placed = place_library(library, operation, topology, topology.devices()[:workers])
        sizes = np.array([row.size_bytes for row in members])
        found.append((placed.algorithms, sizes, np.array([row.seconds for row in members])))
    return library, found


def residuals(protocols, found):
    """ln(predicted / measured) of all calls."""
    parts = [
        np.log(LibraryCollective(algorithms=algorithms, protocols=protocols).time(sizes) / seconds)
        for algorithms, sizes, seconds in found
    ]
    return np.concatenate(parts)


def fitted(start, found, *, only_bandwidth):
    """Protocols whose constants fit the calls best."""

    def protocols_at(logs):
        if only_bandwidth:
            return tuple(
                Protocol(
                    name=each.name,
                    launch_s=each.launch_s,
                    hop_factor=each.hop_factor,
                    bandwidth_efficiency=each.bandwidth_efficiency * np.exp(log),
                )
                for each, log in zip(start, logs, strict=True)
            )
        return tuple(
            Protocol(
                name=each.name,
                launch_s=each.launch_s * np.exp(log[0]),
                hop_factor=each.hop_factor * np.exp(log[1]),
                bandwidth_efficiency=each.bandwidth_efficiency * np.exp(log[2]),
            )
            for each, log in zip(start, logs.reshape(-1, 3), strict=True)
        )

    count = len(start) * (1 if only_bandwidth else 3)
    random = np.random.default_rng(0)
    tried = [
        least_squares(
            lambda logs: residuals(protocols_at(logs), found),
            random.normal(0, 0.2, count) * (attempt > 0),
            bounds=(-4, 4),
            loss="soft_l1",
            f_scale=ROBUST,
        )
        for attempt in range(STARTS)
    ]
    return protocols_at(min(tried, key=lambda each: each.cost).x), count


def main(path, *names):
    """Print the constants of each library of a table."""
    table = read_collectives(path)
    for name in names or sorted({row.library for row in table.rows}):
        rows = [row for row in table.rows if row.library == name]
        library, training = columns(name, [row for row in rows if row.is_fitted])
        _, held_out = columns(name, [row for row in rows if not row.is_fitted])
        protocols, count = fitted(protocols_of(library), training, only_bandwidth=len(library.protocol) == 1)
        for each in protocols:
            numbers = f"launch_us = {1e6 * each.launch_s:.3g}, hop_factor = {each.hop_factor:.3g}"
            sys.stdout.write(f"{name}.{each.name}: {numbers}, efficiency {each.bandwidth_efficiency:.3g}\n")
        for label, part in (("fitted", training), ("held out", held_out)):
            error = 100 * np.abs(np.expm1(residuals(protocols, part)))
            sys.stdout.write(f"  {label}: {len(error)} rows, {count} constants, median {np.median(error):.1f} %\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
