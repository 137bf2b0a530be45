"""Step times that others measured, and the runs behind them.

Map of the folder, lowest module first:

- ``table``: MeasurementTable, its rows and subsets, and Run: what a row really executed, with its evidence.
- ``description``: the schema of the TOML beside the CSV (imports pydantic; loaded only when needed).
- ``reading``: finds, reads and checks a table: ``load``, ``names`` and ``from_frame``.
- ``scaling_tables``: tables of several devices, in ``scaling/``, ``parallel/`` and ``speedups/``,
  and of networks that a torch package defines, in ``networks/``.
- ``published_tables``: layouts, sharded training and whole runs, in ``published/``, ``sharded/`` and ``totals/``.
- ``kernel_tables``: CSVs of kernels, layers and collectives; ``formats/`` says which columns they have.
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
