"""Tables that are scored in their own way, by name: a row is not the step of one network on one device.

To add one, write what makes its report and add a line to ``OWN_TABLES``; ``pm.validate``, ``perfmodel validate``, its
help, the scoreboard and the nearest name in errors follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from perfmodel import measurements
from perfmodel.errors import ArgumentError, TableError, UnknownNameError
from perfmodel.measurements import scaling_tables
from perfmodel.measurements.kernel_tables import read_collectives
from perfmodel.validation.scores.collectives import collective_report
from perfmodel.validation.scores.table_report import OwnReport
from perfmodel.validation.tables import mullapudi
from perfmodel.validation.tables.parallel_report import doubling_claims, parallel_report
from perfmodel.validation.tables.speedup import speedup_report

COLLECTIVES: Final = "collectives"
"""Kind of a table of timed calls of collectives. [-]"""

MANY_DEVICES: Final = "many_devices"
"""Kind of a table of networks on several devices. [-]"""


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table that is scored in its own way."""

    name: str
    kind: str
    file: Path
    score: Callable[[Path], OwnReport]

    @property
    def is_shipped(self) -> bool:
        """Whether it comes with perfmodel."""
        return self.file.is_absolute()

    def report(self) -> OwnReport:
        """Score it."""
        return self.score(self.file)


def _shipped(kind: str, file: Path, score: Callable[[Path], OwnReport]) -> OwnTable:
    return OwnTable(file.stem, kind, file, score)


_SCALING: Final = scaling_tables.FOLDER
_PARALLEL: Final = scaling_tables.PARALLEL_FOLDER

OWN_TABLES: Final[dict[str, OwnTable]] = {
    table.name: table
    for table in (
        *(_shipped(MANY_DEVICES, path, parallel_report) for path in sorted(_PARALLEL.glob("*.csv"))),
        _shipped(MANY_DEVICES, _SCALING / "mullapudi2017.csv", lambda file: mullapudi.illustrate()),
        _shipped(MANY_DEVICES, _SCALING / "wuensche2018_multi_gpu.csv", doubling_claims),
        OwnTable("deepbench_allreduce", COLLECTIVES, Path("systems/deepbench_allreduce.csv"), collective_report),
        OwnTable(
            "tensorflow_2017_k80_speedups",
            MANY_DEVICES,
            Path("systems/tensorflow_docs_2017_gce_k80.csv"),
            speedup_report,
        ),
        OwnTable("nccl_a100_sxm", COLLECTIVES, Path("systems/nccl_a100_sxm.csv"), collective_report),
    )
}
"""Name -> table. Tables whose file is not an absolute path need a folder of data."""


def table_names() -> tuple[str, ...]:
    """Return the names of all tables that can be validated, of one device and of many.

    Examples
    --------
    >>> {"shi2016", "mullapudi2017", "nccl_a100_sxm"} <= set(table_names())
    True
    """
    return tuple(sorted({*measurements.names(), *OWN_TABLES}))


def help_text() -> str:
    """Return all tables, grouped as in the command line's help."""
    own = {needs: [table.name for table in OWN_TABLES.values() if table.is_shipped is needs] for needs in (True, False)}
    lists = {
        "Tables of steps on one device": measurements.names(),
        "Tables of several devices": sorted(own[True]),
        "Tables that need --data": sorted(own[False]),
    }
    return "\n\n".join(f"{told}: {', '.join(names)}." for told, names in lists.items())


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
        return _in_folder(str(table), known, Path(data))
    if known is None:
        path = Path(table)
        if path.suffix == ".csv" and path.is_file():
            found = tables_of_file(path)
            return found[0] if len(found) == 1 else None
        if str(table) not in measurements.names() and not path.is_file():
            raise UnknownNameError(kind="measurement table (or path of a CSV)", name=str(table), known=table_names())
        return None
    if not known.is_shipped:
        raise ArgumentError("data", None, f"the folder that holds {known.file}, which does not come with perfmodel")
    return known


def tables_of_file(path: Path) -> tuple[OwnTable, ...]:
    """Return the tables that a file of a folder's ``systems/`` holds."""
    inside = Path("systems") / path.name
    named = tuple(replace(each, file=path.resolve()) for each in OWN_TABLES.values() if each.file == inside)
    found = None if named else _collectives(path.resolve())
    return named if found is None else (found,)


def _in_folder(name: str, known: OwnTable | None, folder: Path) -> OwnTable:
    if known is not None and (folder / known.file).is_file():
        return replace(known, file=(folder / known.file).resolve())
    there = {path.stem: path for path in sorted((folder / "systems").glob("*.csv"))}
    found = [name] if name in there else [stem for stem in there if stem.startswith(name)]
    tables = tables_of_file(there[found[0]]) if len(found) == 1 else ()
    if len(tables) == 1:
        return tables[0]
    if len(found) == 1:
        named = f" but {', '.join(each.name for each in tables)}" if tables else " of its own"
        message = f"{there[found[0]]}: no table of this file has that name{named}; tools/scoreboard.py scores its steps"
    else:
        listed = ", ".join(there) or "none"
        message = f"{folder}: one table in systems/ must be named {name}*, but {len(found)} are; there are {listed}"
    raise TableError(message)


def _collectives(path: Path) -> OwnTable | None:
    """Return a table of measured collectives; None if the file is not such a table."""
    return None if read_collectives(path) is None else OwnTable(path.stem, COLLECTIVES, path, collective_report)
