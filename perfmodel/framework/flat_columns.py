"""All columns of a kernel table in one, so that a batch size is one multiply-add for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfmodel.derived import derived
from perfmodel.framework.kernel_table import AffineColumns

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable

LAUNCH_COLUMNS = ("launches", "library_launches")
"""Columns that matmul and stream rows share, and whose sums over both are wanted."""


class ColumnsAt(NamedTuple):
    """Every column of a kernel table at a batch size.

    Parameters
    ----------
    matmul, stream : mapping of str to ndarray
        Columns by kernel class, each of shape (rows,) or (rows, configurations). [unit of the column]
    launches, library_launches : ndarray
        Launches of all rows, matmuls first, and those inside a library's call. [1]
    workspace_bytes : ndarray
        Scratch memory of each alternative. [B]
    """

    matmul: Mapping[str, Any]
    stream: Mapping[str, Any]
    launches: Any
    library_launches: Any
    workspace_bytes: Any


class _Layout(NamedTuple):
    flat: AffineColumns
    matmul: tuple[tuple[str, slice], ...]
    stream: tuple[tuple[str, slice], ...]
    launches: slice
    library_launches: slice
    workspace: slice


@derived
def _layout(table: KernelTable) -> _Layout:
    """Lay the columns end to end: launches of streams behind those of matmuls, as if they were one column."""
    classes = {"matmul": table.matmul, "stream": table.stream}
    order = [(kind, name) for name in LAUNCH_COLUMNS for kind in classes]
    order += [(kind, name) for kind, columns in classes.items() for name in columns.names if name not in LAUNCH_COLUMNS]
    places: dict[tuple[str, str], slice] = {}
    end = 0
    for kind, name in order:
        places[kind, name] = slice(end, end := end + classes[kind].row_count)
    constant, slope = (
        np.concatenate(
            [getattr(classes[kind], part)[classes[kind].names.index(name)] for kind, name in order]
            + [getattr(table.workspace, part)[0]]
        )
        for part in ("constant", "slope")
    )
    matmul, stream = (tuple((name, places[kind, name]) for name in columns.names) for kind, columns in classes.items())
    launches, library_launches = (
        slice(places["matmul", name].start, places["stream", name].stop) for name in LAUNCH_COLUMNS
    )
    flat = AffineColumns(("all",), constant[None], slope[None])
    return _Layout(flat, matmul, stream, launches, library_launches, slice(end, None))


def columns_at(table: KernelTable, batch_size: Any) -> ColumnsAt:
    """Evaluate all columns of a table at a batch size."""
    layout = _layout(table)
    values = layout.flat.at(batch_size)["all"]
    return ColumnsAt(
        matmul={name: values[place] for name, place in layout.matmul},
        stream={name: values[place] for name, place in layout.stream},
        launches=values[layout.launches],
        library_launches=values[layout.library_launches],
        workspace_bytes=values[layout.workspace],
    )
