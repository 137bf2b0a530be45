"""A table of measured step times: rows, the runs behind them, and the subsets that are scored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from perfmodel.errors import ArgumentError, UnknownNameError

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.measurements.description import Erratum, Hardware


OPTIMIZERS = ("none", "sgd", "momentum", "nesterov", "adam")
"""Optimizer names a run may carry; ``none`` means that nothing updates the parameters."""

CLIPPINGS = ("none", "per_batch", "per_sample")
"""Gradient clipping: none, by the norm of all gradients together, or against a threshold for each sample."""

PHASES = ("step", "forward_backward", "forward")

CPU_DTYPES = ("fp32", "fp64")

GPU_DTYPES = ("fp32", "tf32", "fp16", "bf16")

ORIGINS = ("reader", "host_tensor", "interpreter")
"""Where a fed array lives: a reader's buffer, a framework's tensor in host memory, an array of the script."""

Option = str | int | float | bool | tuple[int | tuple[int, ...], ...]


class Evidence(NamedTuple):
    """Why one fact of a run is believed: a script's line or arithmetic, never the residual of a model."""

    fact: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedItem:
    """One array that every step takes from host memory."""

    name: str
    elements_per_sample: int
    element_bytes: int = 4
    origin: str = "host_tensor"
    prefetched: bool = False

    @property
    def bytes_per_sample(self) -> int:
        """Bytes copied for each sample [B]."""
        return self.elements_per_sample * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The program of the rows of one framework, network and batch size, the same on every device.

    Parameters
    ----------
    table : str
        Key of the measurement table. [-]
    network, framework : str
        As in the table's rows. [-]
    batch_size : int
        Samples in a mini-batch. [samples]
    builder : str
        Name of the builder in the zoo. [-]
    builder_options : mapping of str to str, int, float, bool or tuple of int
        Keyword arguments of the builder; read-only by convention. [-]
    optimizer : str
        One of OPTIMIZERS. [-]
    optimizer_options : mapping of str to float
        For example ``momentum`` and ``weight_decay``. [1]
    clipping : str
        One of CLIPPINGS. [-]
    phase : str
        One of PHASES. [-]
    training_mode : bool
        True if a lone forward pass ran as in training: statistics of the mini-batch, dropout. [-]
    feed : tuple of FeedItem
        Arrays that each step takes from host memory; empty if the input stays on the device. [-]
    input_gradient : bool
        True if the gradient of the network's input is computed too. [-]
    cpu_dtype : str
        One of CPU_DTYPES: the type of the script's tensors where it runs on CPUs. [-]
    gpu_dtype : str
        One of GPU_DTYPES: the type of its products on GPUs. [-]
    subnormal_products_per_sample : float
        SIMD multiplications (8 numbers) of one step with a subnormal operand or result, where nothing flushes subnormal
        numbers to zero. [1]
    averaged_steps : int
        Steps whose mean was printed, the first of the process among them, which also sets up libraries and memory; 0
        where the first steps were left out. [1]
    hosts : mapping of str to str
        The machine of each GPU of the table, if known; read-only by convention. [-]
    evidence : tuple of Evidence
        A (fact, text) for each fact that needs evidence. [-]

    Examples
    --------
    >>> run = Run(table="mine", network="fcn5", framework="generic", batch_size=64, builder="fcn5",
    ...           feed=(FeedItem(name="features", elements_per_sample=26752),))
    >>> run.phase, run.optimizer, run.feed_bytes
    ('step', 'sgd', 6848512)
    """

    table: str
    network: str
    framework: str
    batch_size: int
    builder: str
    builder_options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    optimizer: str = "sgd"
    optimizer_options: Mapping[str, float] = field(default_factory=dict, hash=False)
    clipping: str = "none"
    phase: str = "step"
    training_mode: bool = False
    feed: tuple[FeedItem, ...] = ()
    input_gradient: bool = False
    cpu_dtype: str = "fp32"
    gpu_dtype: str = "fp32"
    subnormal_products_per_sample: float = 0.0
    averaged_steps: int = 0
    hosts: Mapping[str, str] = field(default_factory=dict, hash=False)
    evidence: tuple[Evidence, ...] = ()

    @property
    def key(self) -> tuple[str, str, int]:
        """Framework, network and batch size: what identifies the run in its table."""
        return self.framework, self.network, self.batch_size

    def dtype_on(self, processor: str) -> str:
        """Return the data type in which the script computed.

        Parameters
        ----------
        processor : str
            ``gpu`` or ``cpu``. [-]

        Returns
        -------
        str
            ``cpu_dtype`` or ``gpu_dtype``. [-]
        """
        return self.cpu_dtype if processor == "cpu" else self.gpu_dtype

    @property
    def feed_bytes_per_sample(self) -> int:
        """Bytes taken from host memory for each sample, prefetched or not [B]."""
        return sum(item.bytes_per_sample for item in self.feed)

    @property
    def feed_bytes(self) -> int:
        """Bytes taken from host memory in each step, prefetched or not [B]."""
        return self.batch_size * self.feed_bytes_per_sample


SCORED = "measured"
"""Status of a row that is scored."""

SET_ASIDE = ("barred", "suspect")
"""Statuses of rows that have a time and are not scored, with their reason in ``note``."""

STATUSES = (SCORED, "missing", *SET_ASIDE)

Subset = Literal["gpu", "cpu", "cpu_oversubscribed"]

SUBSETS: tuple[Subset, ...] = ("gpu", "cpu", "cpu_oversubscribed")
"""Names of the subsets of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """One cell of a measurement table."""

    table: str
    row_number: int
    network: str
    framework: str
    batch_size: int
    device: str
    threads: int | None
    step_s: float | None
    status: str = SCORED
    note: str = ""

    @property
    def run_key(self) -> tuple[str, str, int]:
        """Framework, network and batch size: the key of the row's run."""
        return self.framework, self.network, self.batch_size

    @property
    def cell_key(self) -> tuple[str, str, int, str, int | None]:
        """The run's key with device and threads: what identifies the row in its table."""
        return *self.run_key, self.device, self.threads


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementTable:
    """Measured step times of one source, with their runs."""

    key: str
    title: str
    rows: tuple[MeasuredRow, ...]
    runs: tuple[Run, ...]
    source: Mapping[str, str] = field(default_factory=dict, hash=False)
    software: Mapping[str, str] = field(default_factory=dict, hash=False)
    hardware: tuple[Hardware, ...] = ()
    errata: tuple[Erratum, ...] = ()
    path: Path | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[MeasuredRow]:
        return iter(self.rows)

    def run(self, framework: str, network: str, *, batch_size: int | None = None) -> Run:
        """Return the run of a framework and a network."""
        runs = [run for run in self.runs if (run.framework, run.network) == (framework, network)]
        runs = [run for run in runs if batch_size in (None, run.batch_size)]
        if not runs:
            known = (f"{run.framework}, {run.network}, batch {run.batch_size}" for run in self.runs)
            name = f"{framework}, {network}" + ("" if batch_size is None else f", batch {batch_size}")
            raise UnknownNameError(kind=f"run of table {self.key!r}", name=name, known=known)
        if len(runs) > 1:
            sizes = ", ".join(str(run.batch_size) for run in runs)
            allowed = f"one of {sizes}, which table {self.key!r} has for this run"
            raise ArgumentError(argument="batch_size", given=batch_size, allowed=allowed)
        return runs[0]

    def run_of(self, row: MeasuredRow) -> Run:
        """Return the run behind a row."""
        return self.run(row.framework, row.network, batch_size=row.batch_size)

    def where(
        self,
        *,
        network: str | Collection[str] | None = None,
        framework: str | Collection[str] | None = None,
        device: str | Collection[str] | None = None,
        threads: int | Collection[int] | None = None,
        batch_size: int | Collection[int] | None = None,
        status: str | Collection[str] | None = None,
    ) -> tuple[MeasuredRow, ...]:
        """Return the rows that have the given values; a collection allows each of its members."""
        wanted = {"network": network, "framework": framework, "device": device, "threads": threads}
        wanted |= {"batch_size": batch_size, "status": status}
        rows = self.rows
        for column, value in wanted.items():
            if value is None:
                continue
            allowed = {value} if isinstance(value, str | int) else set(value)
            known = set(STATUSES) if column == "status" else {getattr(row, column) for row in self.rows}
            if unknown := allowed - known:
                raise UnknownNameError(
                    kind=f"{column} of table {self.key!r}",
                    name=str(min(unknown, key=str)),
                    known=(str(name) for name in known if name is not None),
                )
            rows = tuple(row for row in rows if getattr(row, column) in allowed)
        return rows

    def subset(
        self,
        only: Subset | None = None,
        *,
        set_aside: bool = False,
        physical_cores: Mapping[str, int] | None = None,
    ) -> tuple[MeasuredRow, ...]:
        """Return the rows that one score is computed over."""
        if only is not None and only not in SUBSETS:
            raise ArgumentError(argument="only", given=only, allowed=f"None or one of {', '.join(SUBSETS)}")
        statuses = (SCORED, *SET_ASIDE) if set_aside else (SCORED,)
        cores = {**(physical_cores or {}), **self.physical_cores}
        timed = (row for row in self.rows if row.status in statuses)
        return tuple(row for row in timed if only in (None, _subset_of(row, cores)))

    @property
    def physical_cores(self) -> dict[str, int]:
        """Cores of the CPUs by device, as the table's hardware section states them [1]."""
        stated = ((machine.device, machine.physical_cores) for machine in self.hardware)
        return {device: cores for device, cores in stated if cores is not None}

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame, one column per field (needs the extra ``frames``)."""
        import pandas as pd

        columns = [name for name in MeasuredRow.__dataclass_fields__ if name != "table"]
        frame = pd.DataFrame([[getattr(row, name) for name in columns] for row in self.rows], columns=columns)
        return frame.astype({"threads": "Int64", "step_s": "float64"})


def _subset_of(row: MeasuredRow, cores: Mapping[str, int]) -> Subset:
    if row.threads is None:
        return "gpu"
    return "cpu" if row.threads <= cores.get(row.device, row.threads) else "cpu_oversubscribed"
