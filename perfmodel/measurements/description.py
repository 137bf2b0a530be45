"""Schema of the TOML next to a measurement table's CSV: the sources of its numbers and the programs that ran."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    field_validator,
)

from perfmodel.measurements.table import CLIPPINGS, CPU_DTYPES, GPU_DTYPES, OPTIMIZERS, ORIGINS, PHASES

SCHEMA_VERSION = 1
"""Version of the format that this code reads."""

Text = Field(min_length=1)


def _one_of(value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        message = f"must be one of {', '.join(sorted(allowed))}"
        raise ValueError(message)
    return value


Origin = Annotated[str, AfterValidator(partial(_one_of, allowed=ORIGINS))]
OptimizerName = Annotated[str, AfterValidator(partial(_one_of, allowed=OPTIMIZERS))]
Clipping = Annotated[str, AfterValidator(partial(_one_of, allowed=CLIPPINGS))]
PhaseName = Annotated[str, AfterValidator(partial(_one_of, allowed=PHASES))]
CpuDtype = Annotated[str, AfterValidator(partial(_one_of, allowed=CPU_DTYPES))]
BuilderOption = bool | int | float | str | list[int | list[int]]
GpuDtype = Annotated[str, AfterValidator(partial(_one_of, allowed=GPU_DTYPES))]


class _Entry(BaseModel):
    """A table of the TOML: no unknown key, no silent conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class Hardware(_Entry):
    """One ``[[hardware]]``: facts of the source on a device, whose own facts are in its spec file."""

    device: str = Text
    kind: Literal["cpu", "gpu"]
    physical_cores: PositiveInt | None = None
    host: str | None = None
    note: str = ""


class CellEntry(_Entry):
    """One ``[[cell]]``: the rows it selects (a key left out selects all), their status, and why.

    ``odd`` leaves a row measured and scored; it only gives it a note.
    """

    network: str | None = None
    framework: str | None = None
    device: str | None = None
    threads: PositiveInt | None = None
    status: Literal["missing", "barred", "suspect", "odd"]
    reason: str = Text


class FeedEntry(_Entry):
    """One item of a run's ``feed``."""

    name: str = Text
    elements_per_sample: PositiveInt
    element_bytes: PositiveInt = 4
    origin: Origin = "host_tensor"
    prefetched: bool = False


class RunEntry(_Entry):
    """One ``[[run]]``: the program of a framework and network, at every batch size of the CSV."""

    network: str = Text
    framework: str = Text
    builder: str = Text
    builder_options: dict[str, BuilderOption] = {}
    optimizer: OptimizerName = "sgd"
    optimizer_options: dict[str, float] = {}
    clipping: Clipping = "none"
    phase: PhaseName = "step"
    training_mode: bool = False
    input_gradient: bool = False
    cpu_dtype: CpuDtype = "fp32"
    gpu_dtype: GpuDtype = "fp32"
    subnormal_products_per_sample: NonNegativeFloat = 0.0
    averaged_steps: NonNegativeInt = 0
    feed: list[FeedEntry] = []
    evidence: dict[str, str] = {}

    @field_validator("evidence")
    @classmethod
    def _evidence_of_a_fact(cls, evidence: dict[str, str]) -> dict[str, str]:
        for fact in evidence:
            _one_of(fact, tuple(set(cls.model_fields) - {"network", "framework", "evidence"}))
        return evidence


class RunsFrom(_Entry):
    """``[runs_from]``: the runs of another shipped table, and why they hold here."""

    table: str = Text
    reason: str = Text


class Erratum(_Entry):
    """One ``[[erratum]]``: a statement of the source that its own numbers, its scripts or arithmetic contradict."""

    id: str = Text
    where: str = Text
    printed: str = Text
    correct: str = Text
    why: str = Text


class TableDescription(_Entry):
    """The whole TOML."""

    schema_version: int
    key: str | None = None
    title: str = Text
    source: dict[str, str | date] = {}
    software: dict[str, str] = {}
    hardware: list[Hardware] = []
    cell: list[CellEntry] = []
    run: list[RunEntry] = []
    runs_from: RunsFrom | None = None
    erratum: list[Erratum] = []

    @field_validator("schema_version")
    @classmethod
    def _known_version(cls, version: int) -> int:
        if version != SCHEMA_VERSION:
            message = f"this perfmodel reads schema_version {SCHEMA_VERSION}"
            raise ValueError(message)
        return version
