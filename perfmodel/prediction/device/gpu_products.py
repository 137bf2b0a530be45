"""Time of matrix products on a GPU: all libraries at once, each row with the constants of its library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfmodel.cost.gpu import (
    TileMenu,
    matmul_memory_time,
    stream_time,
    strided_time,
    tile_menu,
    tiled_matmul_time,
    unaligned_efficiency,
    with_strided_loads,
)
from perfmodel.derived import derived
from perfmodel.prediction.device.gpu_libraries import MENU, MatmulLibrary, MatmulReach
from perfmodel.prediction.device.named_rows import by_row, distinct_names, run_of
from perfmodel.symbolic import NUMBER_TYPES, Quantity, is_symbolic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.prediction.device.gpu_target import GpuNumbers

TRANSPOSED = "_transposed"
"""Suffix of products that read their weights transposed."""

FEW_ROWS = 8
"""Rows up to which numbers one by one take less time than arrays of all rows. [1]"""

BOUNDLESS = float("inf")
"""Bandwidth fraction at which no product waits for memory. [1]"""


class ProductRows(NamedTuple):
    """Rows of a kernel table, with the library that runs each."""

    rows: slice | NDArray[np.intp]
    users: tuple[int, ...]
    user_of_row: NDArray[np.intp]
    device_places: NDArray[np.intp]
    """Places of the three constants that depend on the device, for each row, in a table by user. [-]"""
    classes: tuple[tuple[int, str], ...]
    class_of_row: NDArray[np.intp]
    transposed: tuple[tuple[int, slice | NDArray[np.intp]], ...]


@lru_cache(maxsize=1024)
def product_rows(names: tuple[str, ...], known: tuple[tuple[str, ...], ...]) -> ProductRows | None:
    """Find the rows that some libraries run."""
    library_of = {name: index for index, classes in enumerate(known) for name in classes}
    bases = [name.removesuffix(TRANSPOSED) for name in names]
    chosen = [row for row, name in enumerate(bases) if name in library_of]
    if not chosen:
        return None
    classes, class_of_row = distinct_names(tuple(bases[row] for row in chosen))
    users = tuple(sorted({library_of[name] for name in classes}))
    library_of_row = [library_of[bases[row]] for row in chosen]
    across: dict[int, list[int]] = {}
    for place, row in enumerate(chosen):
        if names[row].endswith(TRANSPOSED):
            across.setdefault(library_of_row[place], []).append(place)
    user_of_row = np.array([users.index(library) for library in library_of_row], dtype=np.intp)
    return ProductRows(
        rows=run_of(chosen),
        users=users,
        user_of_row=user_of_row,
        device_places=3 * user_of_row + np.arange(3)[:, None],
        classes=tuple((library_of[name], name) for name in classes),
        class_of_row=class_of_row,
        transposed=tuple((user, run_of(places)) for user, places in sorted(across.items())),
    )


def product_times(
    libraries: Sequence[MatmulLibrary], columns: Mapping[str, Quantity], names: tuple[str, ...], numbers: GpuNumbers
) -> list[tuple[Any, Quantity, Quantity]]:
    """Compute and memory seconds of one launch of each row that some libraries run. [s]"""
    stacks = [(library,) for library in libraries] if _holds_symbols(libraries, columns, numbers) else [libraries]
    timed = []
    for stack in stacks:
        reaches = tuple([library.reach for library in stack])
        m = columns["m"]
        if (reach := _reach_by_row(reaches[0], reaches[1:], names, m.ndim, m.dtype.hasobject)) is not None:
            rows = reach.product_rows.rows
            ran = len(reach.product_rows.user_of_row)
            picked = columns if ran == len(m) else {name: columns[name][rows] for name in _COLUMNS}
            timed.append((rows, *_stack_times(stack, reach, picked, numbers)))
    return timed


def _holds_symbols(libraries: Sequence[MatmulLibrary], columns: Mapping[str, Quantity], numbers: GpuNumbers) -> bool:
    if numbers.is_plain:
        return is_symbolic(columns["m"])
    stated = [
        value
        for reach, *of_device in libraries
        for value in (*of_device, *_constants(reach), *reach.efficiency.values())
    ]
    return is_symbolic(columns["m"], numbers.peak_flop_per_s, numbers.bandwidth_bytes_per_s, *stated)


_COLUMNS = ("m", "n", "k", "count", "read_bytes", "written_bytes")

_constants = attrgetter("shortest_part", "bandwidth_fraction", "skinny_bandwidth_fraction", "unaligned_share")


class ReachByRow(NamedTuple):
    """Library constants, one value per row."""

    product_rows: ProductRows
    efficiency: Quantity
    menu: TileMenu
    shortest_part: Quantity
    bandwidth_fraction: Quantity
    skinny_bandwidth_fraction: Quantity | None
    unaligned_share: Quantity
    minds_alignment: bool


@derived
def _reach_by_row(
    first: MatmulReach, others: tuple[MatmulReach, ...], names: tuple[str, ...], axes: int, as_stated: bool
) -> ReachByRow | None:
    """Spread library constants over the rows they time, once for the values in the files."""
    reaches = (first, *others)
    rows = product_rows(names, tuple(tuple(reach.efficiency) for reach in reaches))
    if rows is None:
        return None
    used = [reaches[user] for user in rows.users]
    of_name = [reaches[library].efficiency[name] for library, name in rows.classes]
    shortest_part, fraction, skinny, unaligned = _by_user([_constants(reach) for reach in used], rows, axes=axes)
    return ReachByRow(
        product_rows=rows,
        efficiency=by_row(of_name, rows.class_of_row, axes=axes),
        menu=_menu_by_row(used, rows, axes=axes, as_stated=as_stated),
        shortest_part=shortest_part,
        bandwidth_fraction=fraction,
        skinny_bandwidth_fraction=skinny,
        unaligned_share=unaligned,
        minds_alignment=any(getattr(reach.unaligned_share, "ndim", 0) or reach.unaligned_share != 1 for reach in used),
    )


def _stack_times(
    libraries: Sequence[MatmulLibrary], reach: ReachByRow, columns: Mapping[str, Quantity], numbers: GpuNumbers
) -> tuple[Quantity, Quantity]:
    """Compute and memory seconds of one launch of each chosen row. [s]"""
    rows = reach.product_rows
    m, n, k, count = columns["m"], columns["n"], columns["k"], columns["count"]
    bandwidth_bytes_per_s, element_bytes = numbers.bandwidth_bytes_per_s, numbers.element_bytes
    of_users = [
        (numbers.peak_flop_per_s * ratio, latency_s, ramp_steps)
        for _, ratio, latency_s, ramp_steps in [libraries[user] for user in rows.users]
    ]
    if numbers.is_plain and m.ndim == 1:
        peak_flop_per_s, latency_s, ramp_steps = np.array(of_users).take(rows.device_places)
    else:
        peak_flop_per_s, latency_s, ramp_steps = _by_user(of_users, rows, axes=m.ndim)
    efficiency = reach.efficiency
    if reach.minds_alignment:
        share = reach.unaligned_share
        efficiency = efficiency * unaligned_efficiency(n=n, k=k, share=share, element_bytes=element_bytes)
    compute_s = tiled_matmul_time(
        m=m,
        n=n,
        k=k,
        count=count,
        peak_flop_per_s=peak_flop_per_s,
        unit_count=numbers.unit_count,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        menu=reach.menu,
        efficiency=efficiency,
        element_bytes=element_bytes,
        latency_s=latency_s,
        ramp_steps=ramp_steps,
        shortest_part=reach.shortest_part,
    )
    for user, across in rows.transposed:
        both = _with_strided_loads(
            [values[across] for values in (m, n, k, count, compute_s)], libraries[user].reach, numbers
        )
        if both.dtype != compute_s.dtype:
            compute_s = compute_s.astype(np.result_type(compute_s, both))
        compute_s[across] = both
    moved_bytes, fraction = columns["read_bytes"] + columns["written_bytes"], reach.bandwidth_fraction
    if (skinny := reach.skinny_bandwidth_fraction) is None:
        return compute_s, stream_time(
            moved_bytes=moved_bytes, bandwidth_bytes_per_s=bandwidth_bytes_per_s, efficiency=fraction
        )
    return compute_s, matmul_memory_time(
        m=m,
        n=n,
        k=k,
        count=count,
        moved_bytes=moved_bytes,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        efficiency=fraction,
        skinny_efficiency=skinny,
        element_bytes=element_bytes,
    )


def _with_strided_loads(of_rows: list[Any], reach: MatmulReach, numbers: GpuNumbers) -> Any:
    """Compute seconds of products of extents m, n, k, ``count`` of them, that read their weights transposed. [s]"""

    def seconds(m: Quantity, n: Quantity, k: Quantity, count: Quantity, compute_s: Quantity) -> Quantity:
        strided_s = strided_time(
            m=m,
            n=n,
            k=k,
            count=count,
            unit_count=numbers.unit_count,
            bandwidth_bytes_per_s=numbers.bandwidth_bytes_per_s,
            efficiency=reach.strided_bandwidth_fraction,
            l2_bytes=numbers.l2_bytes,
            resident_tiles=reach.resident_tiles,
            aligned_share=reach.strided_aligned_share,
            element_bytes=numbers.element_bytes,
        )
        return with_strided_loads(compute_s=compute_s, strided_s=strided_s)

    first = of_rows[0]
    if numbers.is_plain and first.ndim == 1 and len(first) <= FEW_ROWS:
        return np.array([seconds(*row) for row in zip(*[values.tolist() for values in of_rows], strict=True)])
    return seconds(*of_rows)


def _by_user(constants: Sequence[tuple[Quantity, ...]], rows: ProductRows, *, axes: int) -> list[Quantity]:
    """Spread each constant over rows; one that all libraries share remains one value, which is less to compute with."""
    if len(constants) == 1:
        return list(constants[0])
    stated = [tuple(BOUNDLESS if value is None else value for value in values) for values in constants]
    return [
        values[0]
        if {*map(type, values)} <= NUMBER_TYPES and len({*values}) == 1
        else by_row(values, rows.user_of_row, axes=axes)
        for values in zip(*stated, strict=True)
    ]


def _menu_by_row(used: Sequence[MatmulReach], rows: ProductRows, *, axes: int, as_stated: bool) -> TileMenu:
    """Tiles of its library that each row can choose from; symbolic rows take the menu as stated."""
    menus = [attrgetter(*MENU)(library) for library in used]
    if len(menus) == 1 and as_stated:
        return tile_menu(**dict(zip(MENU, menus[0], strict=True)))
    stated = tuple(np.asarray(entries, dtype=float).tobytes() for menu in menus for entries in menu)
    by_rows = _stacked_menus(stated, rows.user_of_row.tobytes())
    return by_rows if axes == 1 else TileMenu(*(entries[..., None] for entries in by_rows))


@lru_cache(maxsize=64)
def _stacked_menus(stated: tuple[bytes, ...], user_of_row: bytes) -> TileMenu:
    """Tiles of shape (tiles, 1, rows) and splits of shape (1, splits, rows), from the packed menus of libraries.

    If a library does not offer every split of every tile, both are of shape (menu, 1, rows). Shorter menus repeat
    their first entry.
    """
    menus = [
        list(zip(*(np.frombuffer(entries).tolist() for entries in stated[first : first + 4]), strict=True))
        for first in range(0, len(stated), 4)
    ]
    tiles = [list(dict.fromkeys(entry[:3] for entry in menu)) for menu in menus]
    splits = [list(dict.fromkeys(entry[3:] for entry in menu)) for menu in menus]
    every = all(
        len(shapes) * len(ways) == len(set(menu)) for menu, shapes, ways in zip(menus, tiles, splits, strict=True)
    )
    if not every:
        rows, columns, rate, split = _by_row_of(menus, user_of_row)
        splits_of_tile = split[:, None]
    else:
        rows, columns, rate = _by_row_of(tiles, user_of_row)
        splits_of_tile = _by_row_of(splits, user_of_row)[0][None]
    return tile_menu(
        tile_rows=rows[:, None],
        tile_columns=columns[:, None],
        tile_efficiency=rate[:, None],
        split_k=splits_of_tile,
    )


def _by_row_of(menus: Sequence[Sequence[tuple[float, ...]]], user_of_row: bytes) -> NDArray[np.float64]:
    """Stack one menu per library into an array of shape (numbers of an entry, entries, rows)."""
    longest = max(map(len, menus))
    padded = np.array([[*menu, *[menu[0]] * (longest - len(menu))] for menu in menus])
    return np.ascontiguousarray(padded.T.take(np.frombuffer(user_of_row, dtype=np.intp), axis=2))
