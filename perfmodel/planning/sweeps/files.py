"""Exports of a sweep's table, in chunks: pandas, comma-separated values, Parquet."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.atomic_write import replacement_of
from perfmodel.layers.checks import check_path
from perfmodel.planning.sweeps.results import REASON

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from perfmodel.planning.sweeps.table import Sweep


def frame_of(sweep: Sweep) -> pd.DataFrame:
    """Return all columns as a pandas DataFrame; non-numeric arguments and reasons are categorical."""
    try:
        import pandas as pd
    except ImportError as error:
        message = "to_frame() needs pandas: pip install 'perfmodel[frames]'"
        raise ImportError(message) from error
    columns: dict[str, Any] = {}
    for name in sweep.columns:
        is_coded = name == REASON or name not in sweep.results
        columns[name] = _categories(pd, *sweep.codes(name)) if is_coded else sweep.results[name]
    return pd.DataFrame(columns, columns=list(columns))


def _categories(pd: Any, codes: NDArray[np.int64], labels: NDArray[Any]) -> Any:
    """Return an argument's column for pandas: numbers as they are, anything else as categories."""
    if labels.dtype != object:
        return labels[codes]
    place = {name: index for index, name in enumerate(dict.fromkeys(each for each in labels if each is not None))}
    place_of_code = np.array([place.get(each, -1) for each in labels])
    return pd.Categorical.from_codes(place_of_code[codes], categories=list(place))


def write_csv(sweep: Sweep, path: str | Path) -> None:
    """Write all rows as comma-separated values; the file appears complete or not at all."""
    check_path("path", path)
    with replacement_of(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(sweep.columns)
        for chunk in sweep.chunks():
            writer.writerows(zip(*(column.tolist() for column in chunk.values()), strict=True))


def write_parquet(sweep: Sweep, path: str | Path) -> None:
    """Write all rows as a Parquet file, which appears complete or not at all."""
    check_path("path", path)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        message = "to_parquet() needs pyarrow: pip install 'perfmodel[frames]'"
        raise ImportError(message) from error
    # a chunk may lack what decides a column's type, so the axes do
    types = {name: pa.array(_of_one_kind(axis.labels)).type for name, axis in sweep.space.by_name.items()}
    types |= {name: pa.from_numpy_dtype(column.dtype) for name, column in sweep.results.items()}
    schema = pa.schema(list((types | {REASON: pa.string()}).items()))
    texts = {name for name, kind in types.items() if pa.types.is_string(kind)}
    with replacement_of(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for chunk in sweep.chunks():
            columns = {name: _as_text(column) if name in texts else column for name, column in chunk.items()}
            writer.write_table(pa.table(columns, schema=schema))


def _of_one_kind(labels: NDArray[Any]) -> list[Any]:
    """Return the values of an argument; as text where their types differ."""
    kinds = {type(each) for each in labels.tolist() if each is not None}
    return labels.tolist() if len(kinds) <= 1 or kinds == {int, float} else _as_text(labels)


def _as_text(column: NDArray[Any]) -> list[Any]:
    return [None if each is None else str(each) for each in column.tolist()]
