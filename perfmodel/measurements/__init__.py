"""Step times that others measured, and the runs behind them.

Map of the folder, lowest module first:

- ``run``: Run, what a row really executed, with its evidence.
- ``table``: MeasurementTable, its rows, and the subsets that are scored.
- ``rows``: reads and checks a CSV of times.
- ``description``: the schema of the TOML beside the CSV (imports pydantic; loaded only when needed).
- ``reading``: ``load`` and ``names``.
- ``frames``: ``from_frame``, a table of a DataFrame (imports pandas; loaded only when needed).
- ``checking``: ``check_names``, that devices, frameworks and networks of a table are known.
- ``scaling_tables``: ``load_scaling`` and ``scaling_names``, tables of several devices, in ``scaling/``.
- ``*.csv``, ``*.toml``: the tables that come with perfmodel; the format is described in docs/measurements.md.
"""

from perfmodel.measurements.reading import from_frame, load, names
from perfmodel.measurements.scaling_tables import ScalingTable, load_scaling, scaling_names
from perfmodel.measurements.table import Erratum, Evidence, FeedItem, Hardware, MeasuredRow, MeasurementTable, Run

__all__ = [
    "Erratum",
    "Evidence",
    "FeedItem",
    "Hardware",
    "MeasuredRow",
    "MeasurementTable",
    "Run",
    "ScalingTable",
    "from_frame",
    "load",
    "load_scaling",
    "names",
    "scaling_names",
]
