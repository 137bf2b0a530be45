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

``__init__.pyi`` is the list of names; a module is loaded when one of its names is first used.
"""

from __future__ import annotations

from typing import Any

from perfmodel.on_demand import listed, loaded

_MODULE_OF = listed(__file__)


def __getattr__(name: str) -> Any:
    globals()[name] = value = loaded(__name__, _MODULE_OF, name)
    return value


def __dir__() -> list[str]:
    return sorted(_MODULE_OF)
