"""What a framework cannot do: entries of its file, held against what a job asks of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from perfmodel.hardware import source as spec
from perfmodel.layers.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph

PhaseName = Literal["forward", "backward", "update"]

OFTEN_LACKING: Final = frozenset({
    "lstm", "gru", "rnn", "batch_norm", "layer_norm", "concat", "convolution_1d", "convolution_2d", "convolution_3d",
    "matmul", "scaled_dot_product_attention", "multi_head_attention",
})  # fmt: skip
"""Kinds of layers that shipped files name, known without loading all layers. [-]"""


class Incapacity(spec.SpecTable):
    """One thing that a framework cannot do. What is left out holds for all: an entry with no layers for any layer.

    Attributes
    ----------
    layers : tuple of str
        Kinds of layers. [-]
    optimizers : tuple of str
        Rules of the update, in phase ``step``. [-]
    processors, phases, dtypes : tuple of str
        Where, when and in which data types. [-]
    several_workers : bool
        Whether it holds only for jobs of several workers. [-]
    evidence : str
        Who says so: document and words. [-]
    """

    layers: tuple[spec.Identifier, ...] = ()
    optimizers: tuple[spec.Identifier, ...] = ()
    processors: tuple[Literal["gpu", "cpu"], ...] = ()
    phases: tuple[PhaseName, ...] = ()
    dtypes: tuple[Literal["fp32", "tf32", "fp16", "bf16", "fp64"], ...] = ()
    several_workers: bool = False
    evidence: Annotated[spec.Text, Field(min_length=20)]

    @field_validator("layers")
    @classmethod
    def _are_kinds_of_layers(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(kinds) - OFTEN_LACKING):
            from perfmodel.layers import LAYERS  # loads every family of layers

            unknown = sorted(set(unknown) - LAYERS.keys())
        if unknown:
            message = f"must be kinds of layers; not known: {', '.join(unknown)}"
            raise ValueError(message)
        return kinds

    @field_validator("optimizers")
    @classmethod
    def _are_optimizers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(names) - OPTIMIZERS.keys()):
            message = f"must be optimizers; not known: {', '.join(unknown)}"
            raise ValueError(message)
        return names

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        if not (self.layers or self.optimizers or self.phases or self.dtypes or self.several_workers):
            message = "must name optimizers, layers, phases, dtypes or several_workers"
            raise ValueError(message)
        return self

    @property
    def what(self) -> str:
        """What cannot be done, as a noun with its conditions."""
        updates = f"optimizer {' or '.join(self.optimizers)}" if self.optimizers else ""
        noun = ", ".join(self.layers) or updates or ("several workers" if self.several_workers else "a computation")
        where = f" on a {' or '.join(name.upper() for name in self.processors)}" if self.processors else ""
        types = f" in {' or '.join(self.dtypes)}" if self.dtypes else ""
        when = f" in phase {' or '.join(self.phases)}" if self.phases else ""
        return f"{noun}{where}{types}{when}"

    def concerns(self, *, processor: str, phases: Iterable[str], dtype: str, workers: int) -> bool:
        """Return whether the conditions other than layers hold for a job."""
        return (
            (not self.processors or processor in self.processors)
            and (not self.phases or not set(self.phases).isdisjoint(phases))
            and (not self.dtypes or dtype in self.dtypes)
            and (workers > 1 or not self.several_workers)
        )


def shortfalls(
    profile: FrameworkProfile,
    graph: LayerGraph,
    *,
    processor: str,
    phases: Iterable[str],
    dtype: str,
    workers: int,
    optimizer: str,
) -> tuple[str, ...]:
    """Return a line for each thing that a job asks of a framework and that it cannot do: layer, framework, evidence."""
    phases, lines = tuple(phases), []
    for entry in profile.cannot:
        if not entry.concerns(processor=processor, phases=phases, dtype=dtype, workers=workers):
            continue
        if entry.optimizers:
            if "update" not in phases or optimizer not in entry.optimizers:
                continue
            entry = entry.model_copy(update={"optimizers": (optimizer,)})
        found = [node for node in graph.layers if node.layer.kind in entry.layers]
        if entry.layers and not found:
            continue
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        place = f" (layer {found[0].name}{more})" if found else ""
        lines.append(f"{profile.name} cannot run {entry.what}{place}: {entry.evidence}")
    return tuple(lines)
