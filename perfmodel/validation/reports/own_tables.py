"""Tables that are scored in their own way, by name: a row is not the step of one network on one device.

To add one, write what makes its report and add a line to ``OWN_TABLES``; ``pm.validate``, ``perfmodel validate``, its
help, the scoreboard and the nearest name in errors follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfmodel import measurements
from perfmodel.errors import ArgumentError, TableError, UnknownNameError
from perfmodel.files import is_file, user_path
from perfmodel.measurements import scaling_tables
from perfmodel.measurements.kernel_tables import read_collectives
from perfmodel.measurements.published_tables import LAYOUTS_FOLDER, SHARDED_FOLDER
from perfmodel.measurements.reading import table_error
from perfmodel.measurements.scaling_tables import network_table_names
from perfmodel.validation.reports import mullapudi
from perfmodel.validation.reports.best_products import best_products
from perfmodel.validation.reports.clusters import calls_between, calls_inside, collective_report, sharded_steps
from perfmodel.validation.reports.layouts import layout_report
from perfmodel.validation.reports.parallel_report import (
    doubling_claims,
    parallel_report,
    published_report,
    sharded_report,
)
from perfmodel.validation.reports.speedup import speedup_report
from perfmodel.validation.reports.torch_networks import network_report
from perfmodel.validation.scores.table_report import RowReport

if TYPE_CHECKING:
    from perfmodel.validation.protocols.cells import Progress

COLLECTIVES: Final = "collectives"
"""Kind of a table of timed calls of collectives. [-]"""

PRODUCTS: Final = "products"
"""Kind of a table of the fastest products of accelerators. [-]"""

MANY_DEVICES: Final = "many_devices"
"""Kind of a table of networks on several devices. [-]"""

NETWORKS: Final = "networks"
"""Kind of a table of steps of the networks of torch packages. [-]"""

_FOLDERS: Final = ("systems", "nets")
"""Subfolders of a data folder in which the beginning of a file's name is enough to find it."""


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table with its own scoring function."""

    name: str
    kind: str
    file: Path
    score: Callable[..., RowReport]
    tells_progress: bool = False

    @property
    def is_shipped(self) -> bool:
        """Whether it comes with perfmodel."""
        return self.file.is_absolute()

    def report(self, progress: Progress | None = None) -> RowReport:
        """Score it."""
        return self.score(self.file, progress=progress) if self.tells_progress else self.score(self.file)


def _of_file(kind: str, file: Path, score: Callable[..., RowReport]) -> OwnTable:
    return OwnTable(file.stem, kind, file, score)


_SCALING: Final = scaling_tables.FOLDER
_PARALLEL: Final = scaling_tables.PARALLEL_FOLDER

OWN_TABLES: Final[dict[str, OwnTable]] = {
    table.name: table
    for table in (
        *(_of_file(MANY_DEVICES, path, parallel_report) for path in sorted(_PARALLEL.glob("*.csv"))),
        *(_of_file(MANY_DEVICES, path, sharded_report) for path in sorted(SHARDED_FOLDER.glob("*.csv"))),
        *(_of_file(MANY_DEVICES, path, published_report) for path in sorted(LAYOUTS_FOLDER.glob("*.csv"))),
        _of_file(MANY_DEVICES, _SCALING / "mullapudi2017.csv", lambda file: mullapudi.illustrate()),
        _of_file(MANY_DEVICES, _SCALING / "wuensche2018_multi_gpu.csv", doubling_claims),
        _of_file(COLLECTIVES, Path("systems/deepbench_allreduce.csv"), collective_report),
        replace(
            _of_file(MANY_DEVICES, Path("systems/tensorflow_docs_2017_gce_k80.csv"), speedup_report),
            name="tensorflow_2017_k80_speedups",
        ),
        _of_file(PRODUCTS, Path("kernels/matmul_best_shape_bf16.csv"), best_products),
        _of_file(MANY_DEVICES, Path("llm/mpt_fsdp_a100.csv"), sharded_steps),
        _of_file(MANY_DEVICES, Path("llm/layouts_a100.csv"), layout_report),
        _of_file(MANY_DEVICES, Path("systems/nccl_a100_four_hdr_adapters.csv"), calls_between),
        _of_file(MANY_DEVICES, Path("systems/nccl_h200_b200_one_machine.csv"), calls_inside),
        _of_file(COLLECTIVES, Path("systems/nccl_a100_sxm.csv"), collective_report),
        *(
            replace(_of_file(NETWORKS, Path(f"nets/{name}.csv"), network_report), tells_progress=True)
            for name in network_table_names()
        ),
    )
}
"""Name -> table. Tables whose file is not an absolute path need a folder of data."""


def table_names() -> tuple[str, ...]:
    """Return the names of all tables that can be validated, of one device and of many."""
    return tuple(sorted({*measurements.names(), *OWN_TABLES}))


def help_text() -> str:
    """Return all tables, grouped as in the command line's help."""
    shipped = sorted(table.name for table in OWN_TABLES.values() if table.is_shipped)
    local = sorted(table.name for table in OWN_TABLES.values() if not table.is_shipped)
    lists = {
        "Tables of steps on one device": measurements.names(),
        "Tables of several devices": shipped,
        "Tables that need --data": local,
    }
    return "\n\n".join(f"{heading}: {', '.join(names)}." for heading, names in lists.items())


def refuse_beside(table: OwnTable, options: Sequence[str]) -> None:
    """Reject options that have no effect on a table that is scored in its own way."""
    if options:
        allowed = f"left out with {table.name}, which has scores of its own"
        raise ArgumentError("options", ", ".join(options), allowed)


def own_table(table: str | Path, data: str | Path | None = None) -> OwnTable | None:
    """Find a table that is scored in its own way."""
    known = OWN_TABLES.get(str(table))
    if data is not None:
        if str(table) in measurements.names() or (known is not None and known.is_shipped):
            raise ArgumentError("data", str(data), f"left out, as the table {table} comes with perfmodel")
        return _in_folder(str(table), known, user_path(data, refusal=table_error))
    if known is None:
        path = user_path(table, refusal=table_error)
        if path.suffix == ".csv" and is_file(path):
            tables = tables_of_file(path)
            return tables[0] if len(tables) == 1 else None
        if path.suffix == ".csv" and not is_file(path):
            message = f"{path}: no such file"
            raise TableError(message)
        if str(table) not in measurements.names() and not is_file(path):
            raise UnknownNameError(kind="measurement table (or path of a CSV)", name=str(table), known=table_names())
        return None
    if not known.is_shipped:
        raise ArgumentError("data", None, f"the folder that holds {known.file}, which does not come with perfmodel")
    return known


def tables_of_file(path: Path) -> tuple[OwnTable, ...]:
    """Return the tables that a file of a folder of data holds."""
    local = [known for known in OWN_TABLES.values() if not known.is_shipped]
    named = tuple(replace(known, file=path.resolve()) for known in local if known.file.name == path.name)
    if named or read_collectives(path) is None:
        return named
    return (_of_file(COLLECTIVES, path.resolve(), collective_report),)


def _in_folder(name: str, known: OwnTable | None, folder: Path) -> OwnTable:
    if known is not None and is_file(folder / known.file):
        return replace(known, file=(folder / known.file).resolve())
    there = {path.stem: path for inside in _FOLDERS for path in sorted((folder / inside).glob("*.csv"))}
    stems = [name] if name in there else [stem for stem in there if stem.startswith(name)]
    if len(stems) > 1:  # a table with its own name is found by that name only
        stems = [stem for stem in stems if stem not in OWN_TABLES] or stems
    tables = tables_of_file(there[stems[0]]) if len(stems) == 1 else ()
    if len(tables) == 1:
        return tables[0]
    if len(stems) == 1:
        named = f" but {', '.join(listed_table.name for listed_table in tables)}" if tables else " of its own"
        message = f"{there[stems[0]]}: no table of this file has that name{named}; tools/scoreboard.py scores its steps"
    else:
        listed = ", ".join(stems or there) or "none"
        way_out = "give the name of one in full:" if stems else "there are"
        names = f"one table in {'/ or '.join(_FOLDERS)}/ must be named {name}*, but {len(stems)} are"
        message = f"{folder}: {names}; {way_out} {listed}"
    raise TableError(message)
