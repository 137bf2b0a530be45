"""How long matrix products take on a GPU: those of all its libraries at once, each row by its library's constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfmodel.cost.gpu import matmul_memory_time, stream_time, tiled_matmul_time
from perfmodel.cost.gpu_layout import strided_time, unaligned_efficiency, with_strided_loads
from perfmodel.prediction.by_row import by_row, distinct_names
from perfmodel.symbolic import Quantity, is_symbolic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.prediction.gpu import GpuNumbers
    from perfmodel.prediction.gpu_libraries import MatmulLibrary

TRANSPOSED = "_transposed"
"""Ending of the name of a product that reads its weights against the way they lie."""

BOUNDLESS = float("inf")
"""Fraction of memory bandwidth that makes no product wait. [1]"""

Menu = tuple["NDArray[np.float64]", ...]
"""Rows, columns, relative rate and split of the tiles, as ``tiled_matmul_time`` takes them. [1]"""


class ProductRows(NamedTuple):
    """Rows of a table that some libraries run.

    Parameters
    ----------
    rows : slice or ndarray of int, shape (chosen,)
        Which they are; a slice where they follow one another. [1]
    users : tuple of int
        Index of each library that runs any. [1]
    user_of_row : ndarray of int, shape (chosen,)
        Index among ``users`` of the library of each row. [1]
    classes : tuple of (int, str)
        Library and shape class of each distinct name. [-]
    class_of_row : ndarray of int, shape (chosen,)
        Index among ``classes`` of each row. [1]
    transposed : tuple of (int, slice or ndarray of int)
        For each library some of whose products read their weights transposed: its index, and which of the chosen rows
        these are. [1]
    """

    rows: slice | NDArray[np.intp]
    users: tuple[int, ...]
    user_of_row: NDArray[np.intp]
    classes: tuple[tuple[int, str], ...]
    class_of_row: NDArray[np.intp]
    transposed: tuple[tuple[int, slice | NDArray[np.intp]], ...]


@lru_cache(maxsize=1024)
def product_rows(names: tuple[str, ...], known: tuple[tuple[str, ...], ...]) -> ProductRows | None:
    """Return the rows that some libraries run.

    Parameters
    ----------
    names : tuple of str
        Name of each row: a shape class, with ``_transposed`` where it reads its weights so. [-]
    known : tuple of tuple of str
        Shape classes of each library. [-]

    Returns
    -------
    ProductRows or None
        None where they run no row. [-]

    Examples
    --------
    >>> found = product_rows(("gemm", "conv_1x1", "gemm_transposed"), (("gemm",), ("conv_1x1",)))
    >>> found.classes, found.user_of_row, found.transposed
    (((0, 'gemm'), (1, 'conv_1x1')), array([0, 1, 0]), ((0, slice(2, 3, None)),))
    """
    library_of = {name: index for index, classes in enumerate(known) for name in classes}
    bases = [name.removesuffix(TRANSPOSED) for name in names]
    chosen = [row for row, name in enumerate(bases) if name in library_of]
    if not chosen:
        return None
    classes, class_of_row = distinct_names(tuple(bases[row] for row in chosen))
    users = tuple(sorted({library_of[name] for name in classes}))
    library_of_row = [library_of[bases[row]] for row in chosen]
    across = {
        user: [
            place
            for place, row in enumerate(chosen)
            if library_of_row[place] == user and names[row].endswith(TRANSPOSED)
        ]
        for user in users
    }
    return ProductRows(
        rows=_run(chosen),
        users=users,
        user_of_row=np.array([users.index(library) for library in library_of_row], dtype=np.intp),
        classes=tuple((library_of[name], name) for name in classes),
        class_of_row=class_of_row,
        transposed=tuple((user, _run(places)) for user, places in across.items() if places),
    )


def _run(rows: Sequence[int]) -> slice | NDArray[np.intp]:
    """Return rising indices, as a slice where they follow one another."""
    first, last = rows[0], rows[-1]
    return slice(first, last + 1) if last - first + 1 == len(rows) else np.array(rows, dtype=np.intp)


def product_times(
    libraries: Sequence[MatmulLibrary], columns: Mapping[str, Quantity], names: tuple[str, ...], numbers: GpuNumbers
) -> list[tuple[Any, Quantity, Quantity]]:
    """Return how long one launch of each row takes that libraries run.

    Parameters
    ----------
    libraries : sequence of MatmulLibrary
        Each shape class belongs to one of them. [-]
    columns : mapping of str to ndarray of shape (rows,) or (rows, configurations)
        Columns of the matmul rows of a kernel table. [unit of the column]
    names : tuple of str
        Efficiency name of each row. [-]
    numbers : GpuNumbers
        The device. [-]

    Returns
    -------
    list of (slice or ndarray of int, ndarray, ndarray)
        Rows, with their compute and their memory time. [s] All rows in one, but for symbols: expressions of a library
        hold no constants of another.
    """
    stated = [value for library in libraries for value in (*_constants(library), *library.efficiency.values())]
    symbolic = is_symbolic(columns["m"], numbers.peak_flop_per_s, numbers.bandwidth_bytes_per_s, *stated)
    timed = []
    for stack in [(library,) for library in libraries] if symbolic else [tuple(libraries)]:
        if (found := product_rows(names, tuple(tuple(library.efficiency) for library in stack))) is not None:
            picked = {name: columns[name][found.rows] for name in _COLUMNS}
            timed.append((found.rows, *_stack_times(stack, found, picked, numbers)))
    return timed


_COLUMNS = ("m", "n", "k", "count", "read_bytes", "written_bytes")

_constants = attrgetter(
    "latency_s",
    "ramp_steps",
    "shortest_part",
    "bandwidth_fraction",
    "skinny_bandwidth_fraction",
    "peak_ratio",
    "unaligned_share",
)


def _stack_times(
    libraries: Sequence[MatmulLibrary], found: ProductRows, columns: Mapping[str, Quantity], numbers: GpuNumbers
) -> tuple[Quantity, Quantity]:
    """Return compute and memory seconds of one launch of each chosen row. [s]"""
    used = [libraries[user] for user in found.users]
    m, n, k, count = (columns[name] for name in ("m", "n", "k", "count"))
    of_device = {"unit_count": numbers.unit_count, "bandwidth_bytes_per_s": numbers.bandwidth_bytes_per_s}
    latency_s, ramp_steps, shortest_part, fraction, skinny, ratio, unaligned = _by_user(
        [_constants(library) for library in used], found, like=m
    )
    efficiency = by_row(
        [libraries[library].efficiency[name] for library, name in found.classes], found.class_of_row, like=m
    )
    if any(getattr(library.unaligned_share, "ndim", 0) or library.unaligned_share != 1 for library in used):
        efficiency = efficiency * unaligned_efficiency(n=n, k=k, share=unaligned, element_bytes=numbers.element_bytes)
    tile_rows, tile_columns, tile_efficiency, split_k = _menu_by_row(used, found, like=m)
    compute_s = tiled_matmul_time(
        m=m,
        n=n,
        k=k,
        count=count,
        peak_flop_per_s=numbers.peak_flop_per_s * ratio,
        tile_rows=tile_rows,
        tile_columns=tile_columns,
        tile_efficiency=tile_efficiency,
        split_k=split_k,
        efficiency=efficiency,
        element_bytes=numbers.element_bytes,
        latency_s=latency_s,
        ramp_steps=ramp_steps,
        shortest_part=shortest_part,
        **of_device,
    )
    for user, across in found.transposed:
        picked = {name: columns[name][across] for name in ("m", "n", "k", "count")}
        strided_s = strided_time(
            **picked,
            efficiency=libraries[user].strided_bandwidth_fraction,
            l2_bytes=numbers.l2_bytes,
            resident_tiles=libraries[user].resident_tiles,
            aligned_share=libraries[user].strided_aligned_share,
            element_bytes=numbers.element_bytes,
            **of_device,
        )
        both = with_strided_loads(compute_s=compute_s[across], strided_s=strided_s)
        compute_s = compute_s.astype(np.result_type(compute_s, both), copy=False)
        compute_s[across] = both
    of_memory = {
        "moved_bytes": columns["read_bytes"] + columns["written_bytes"],
        "bandwidth_bytes_per_s": numbers.bandwidth_bytes_per_s,
        "efficiency": fraction,
    }
    if skinny is None:
        return compute_s, stream_time(**of_memory)
    return compute_s, matmul_memory_time(
        m=m, n=n, k=k, count=count, skinny_efficiency=skinny, element_bytes=numbers.element_bytes, **of_memory
    )


def _by_user(constants: Sequence[tuple[Quantity, ...]], found: ProductRows, *, like: Quantity) -> list[Quantity]:
    """Return each constant by row; that of one library as it is."""
    if len(constants) == 1:
        return list(constants[0])
    stated = [tuple(BOUNDLESS if value is None else value for value in values) for values in constants]
    if {type(value) for values in stated for value in values} <= {float}:
        table = np.array(stated).T.take(found.user_of_row, axis=1)
        return list(table if like.ndim == 1 else table[:, :, None])
    return [by_row(values, found.user_of_row, like=like) for values in zip(*stated, strict=True)]


def _menu_by_row(used: Sequence[MatmulLibrary], found: ProductRows, *, like: Quantity) -> Menu:
    """Return the tiles that each row chooses from: those of its own library; of symbols as the library states them."""
    menus = [(each.tile_rows, each.tile_columns, each.tile_efficiency, each.split_k) for each in used]
    if len(menus) == 1 and like.dtype.hasobject:
        return menus[0]
    stated = tuple(np.asarray(entries, dtype=float).tobytes() for menu in menus for entries in menu)
    by_rows = _stacked_menus(stated, found.user_of_row.tobytes())
    return by_rows if like.ndim == 1 else tuple(entries[..., None] for entries in by_rows)


@lru_cache(maxsize=64)
def _stacked_menus(stated: tuple[bytes, ...], user_of_row: bytes) -> Menu:
    """Return tiles of shape (tiles, 1, rows) and splits of shape (1, splits, rows), from the bytes of each library's.

    Where a library does not offer every split of every tile, both are of shape (menu, 1, rows). Shorter menus repeat
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
        return rows[:, None], columns[:, None], rate[:, None], split[:, None]
    rows, columns, rate = _by_row_of(tiles, user_of_row)
    (split,) = _by_row_of(splits, user_of_row)
    return rows[:, None], columns[:, None], rate[:, None], split[None]


def _by_row_of(menus: Sequence[Sequence[tuple[float, ...]]], user_of_row: bytes) -> NDArray[np.float64]:
    """Return menus of entries, one for each library, as one of shape (numbers of an entry, entries, rows)."""
    longest = max(map(len, menus))
    padded = np.array([[*menu, *[menu[0]] * (longest - len(menu))] for menu in menus])
    return np.ascontiguousarray(padded.T.take(np.frombuffer(user_of_row, dtype=np.intp), axis=2))
