"""A folder of measured tables that do not come with perfmodel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfmodel.errors import TableError
from perfmodel.measurements.kernel_tables import KernelMeasurements, read_kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """A folder of tables that do not come with perfmodel.

    Parameters
    ----------
    kernels : tuple of KernelMeasurements
        Tables of timed calls, by name. [-]
    systems : tuple of Path
        Tables of timed training steps. [-]
    unread : tuple of str
        Files of a format that no score is made of. [-]
    """

    kernels: tuple[KernelMeasurements, ...]
    systems: tuple[Path, ...]
    unread: tuple[str, ...]


def read_data_folder(folder: str | Path) -> DataFolder:
    """Read a folder with ``kernels/*.csv`` and ``systems/*.csv``.

    Parameters
    ----------
    folder : str or Path
        The folder. [-]

    Returns
    -------
    DataFolder
        What is there.

    Raises
    ------
    TableError
        If there is no such folder, or no table in it, or a table is wrong.
    """
    folder = Path(folder)
    kernel_files, system_files = sorted((folder / "kernels").glob("*.csv")), sorted((folder / "systems").glob("*.csv"))
    if not kernel_files and not system_files:
        problem = "holds neither kernels/*.csv nor systems/*.csv" if folder.is_dir() else "is no folder"
        message = f"{folder}: {problem}"
        raise TableError(message)
    read = {path: read_kernels(path) for path in kernel_files}
    return DataFolder(
        kernels=tuple(table for table in read.values() if table is not None),
        systems=tuple(system_files),
        unread=tuple(f"kernels/{path.name}" for path, table in read.items() if table is None),
    )
