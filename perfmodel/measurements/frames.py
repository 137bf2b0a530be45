"""Measurement tables from a pandas DataFrame: the same checks as for a CSV, row by row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from perfmodel.errors import ArgumentError, TableError
from perfmodel.measurements.reading import load

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.measurements.table import MeasurementTable


def from_frame(frame: pd.DataFrame, *, key: str = "frame") -> MeasurementTable:
    """Make a measurement table of a DataFrame.

    Parameters
    ----------
    frame : DataFrame
        Columns as in the CSV of a table: ``network``, ``batch_size``, ``framework``, ``device``, ``step_s``, and
        ``threads`` for CPU rows; a missing value is an empty cell. [-]
    key : str
        Name of the table in reports. [-]

    Returns
    -------
    MeasurementTable
        Each row is a plain training step of the zoo network that its ``network`` column names. [-]

    Raises
    ------
    ArgumentError
        If it is no DataFrame.
    TableError
        If a column is missing or unknown, or a value is wrong; names row (the header is row 1) and column.

    Examples
    --------
    >>> import pandas as pd
    >>> table = from_frame(pd.DataFrame({"network": ["alexnet"], "batch_size": [16], "framework": ["caffe_1_0_rc3"],
    ...                                  "device": ["gtx_980"], "step_s": [0.05]}))
    >>> len(table)
    1
    """
    if not hasattr(frame, "columns"):
        raise ArgumentError("table", frame, "a table's name, the path of a CSV, a MeasurementTable or a DataFrame")
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{key}.csv"
        whole = frame.copy()
        for name in {"threads", "batch_size"} & set(whole.columns):
            whole[name] = whole[name].map(_whole)
        whole.to_csv(path, index=False)
        try:
            loaded = load(path)
        except TableError as error:  # the file is gone when its user reads this
            raise TableError(str(error).replace(str(path), key)) from None
    return replace(loaded, title=key, path=None)


def _whole(value: object) -> object:
    """Return 4.0, which a column with gaps makes of 4, as the text 4: a number would become 4.0 again."""
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else value
