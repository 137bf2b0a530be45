"""The batch of an ONNX file: its axes in the inputs, and whether the network holds for any batch size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, FreeSizeError, SpecError, check_known
from perfmodel.importers.onnx.model import Extent, OnnxModel, node_name
from perfmodel.importers.onnx.shapes import Setting, ShapesDoNotFollowError, ShapeTrace
from perfmodel.importers.recording import Advance, Layout, guessed_layout, layout, whole
from perfmodel.layers.checks import check_count
from perfmodel.layers.translation import Operand

BATCH_SIZES: Final = (2, 3, 5)
"""Batch sizes at which shapes are compared: two give the extents of a sample, the third checks them [samples]."""
BATCH_NAMES: Final = ("n", "b", "bs", "samples", "none", "?")
"""Names of free sizes that mean the batch, besides those that begin with "batch"."""
TIME_FIRST_RANK: Final = 3
"""Axes of an input that may put time before the samples: (steps, samples, features) [1]."""
RECURRENT: Final = ("LSTM", "GRU", "RNN")
"""Operators whose option ``layout`` states the batch axis."""

BATCH_FIRST: Final = (
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "GlobalAveragePool", "GlobalMaxPool",
    "GroupNormalization", "InstanceNormalization", "LRN", "MaxPool",
)  # fmt: skip
"""Operators whose first input has samples, then channels."""

BatchAxes = Mapping[str, int | None]
"""The batch axis of each input by name; None for an input without one [-]."""


class NoSampleShapeError(Exception):
    """A tensor is not made of samples: an extent is neither fixed nor a multiple of the batch size."""


@dataclass(frozen=True, kw_only=True)
class Traced:
    """A file with the shapes of all its tensors."""

    model: OnnxModel
    traces: tuple[ShapeTrace, ...]
    fixed_batch_size: int | None = None
    batch_axis: int = 0
    problem: str = ""

    @derived_property
    def _from_inputs(self) -> set[str]:
        """Tensors that are computed from inputs."""
        names = {entry.name for entry in self.model.inputs}
        for node in self.model.nodes:
            if not names.isdisjoint(node.input):
                names.update(name for name in node.output if not self.traces[0].values[name].is_exact)
        return names

    def operand(self, name: str) -> Operand:
        """Return a tensor in the form that layers read; NoSampleShapeError if it is not made of samples."""
        values = [trace.values[name] for trace in self.traces]
        first = values[0]
        batch_layout = self._layout(name)
        contents = [value.content for value in values]
        is_known = all(content is not None and np.array_equal(contents[0], content) for content in contents)  # type: ignore[arg-type]
        return Operand(
            key=name,
            shape=batch_layout.shape,
            axes=batch_layout.axes,
            merged_axis=batch_layout.merged_axis,
            is_parameter=first.is_trained,
            is_index=first.is_index,
            value=contents[0] if is_known else None,
        )

    def _layout(self, name: str) -> Layout:
        """Return a tensor as samples, by a guess if no other batch size is possible."""
        shapes = [trace.values[name].shape for trace in self.traces]
        if self.fixed_batch_size is not None:
            if name not in self._from_inputs:
                return whole(shapes[0])
            return guessed_layout(shapes[0], batch_size=self.fixed_batch_size, batch_axis=self.batch_axis)
        batch_layout = layout(shapes, batch_sizes=BATCH_SIZES)
        if batch_layout is None:
            sizes = ", ".join(map(str, BATCH_SIZES))
            listed = " / ".join(map(str, shapes))
            problem = f"tensor {name!r} is not made of samples: its shape is {listed} at {sizes} samples"
            raise NoSampleShapeError(problem)
        return batch_layout


def trace_model(model: OnnxModel, *, batch_size: int | None, sizes: Mapping[str, int], advance: Advance) -> Traced:
    """Return a file with all shapes; its batch size stays symbolic if the network allows it."""
    _check_sizes(model, sizes)
    if batch_size is not None:
        check_count("batch_size", batch_size)
    freedom = _Freedom.of(model, sizes)
    problems: list[str] = []
    for axes, rewrites in freedom.attempts():
        settings = [freedom.setting(axes, batch_size=size, rewrites=rewrites) for size in BATCH_SIZES]
        try:
            traced = Traced(model=model, traces=tuple(ShapeTrace(model, sizes, advance=advance) for sizes in settings))
            _check_samples(traced)
        except (ShapesDoNotFollowError, NoSampleShapeError) as error:
            problems.append(str(error))
        else:
            return traced
    problem = problems[0] if problems else "its inputs have different extents along the first axis"
    return _at_one_batch_size(freedom, batch_size, problem=problem, advance=advance)


def _at_one_batch_size(freedom: _Freedom, batch_size: int | None, *, problem: str, advance: Advance) -> Traced:
    """Return the file at the only batch size that it holds for."""
    model, written = freedom.model, freedom.written
    if written is not None and batch_size not in (None, written):
        allowed = f"{written}, the only batch size of {model.path}: {problem}"
        raise ArgumentError("batch_size", batch_size, allowed)
    size = written or batch_size
    if size is None:
        raise SpecError(model.path, [f"holds for one batch size only, so give batch_size: {problem}"])
    try:
        trace = ShapeTrace(model, freedom.setting({}, batch_size=size, rewrites=False), advance=advance)
    except ShapesDoNotFollowError as error:
        raise SpecError(model.path, [str(error)]) from error
    return Traced(model=model, traces=(trace,), fixed_batch_size=size, batch_axis=freedom.axis, problem=problem)


@dataclass(frozen=True, kw_only=True)
class _Freedom:
    """Symbolic sizes of a file.

    ``symbols`` are the names of free sizes that are the batch, ``axis`` its axis in the inputs that matter, and
    ``written`` its size if the file states one.
    """

    model: OnnxModel
    sizes: Mapping[str, int]
    symbols: tuple[str, ...]
    axis: int
    written: int | None

    @classmethod
    def of(cls, model: OnnxModel, sizes: Mapping[str, int]) -> _Freedom:
        """Return the free sizes; SpecError if a size other than the batch has no value."""
        symbols = _batch_symbols(model, sizes)
        _check_no_other_free_size(model, symbols, sizes)
        if not symbols:
            axis, written = _written_batch(model, sizes)
            return cls(model=model, sizes=sizes, symbols=(), axis=axis, written=written)
        places = [
            entry.extents.index(symbol) for entry in model.inputs for symbol in symbols if symbol in entry.extents
        ]
        return cls(model=model, sizes=sizes, symbols=symbols, axis=places[0], written=None)

    def attempts(self) -> Iterator[tuple[BatchAxes, bool]]:
        """Yield batch axes of the inputs, and whether reshape targets are rewritten, most likely first."""
        inputs = self.model.inputs
        if self.symbols:
            places = {
                entry.name: [axis for axis, extent in enumerate(entry.extents) if extent in self.symbols]
                for entry in inputs
            }
            yield {name: axes[0] if axes else None for name, axes in places.items()}, False
            return
        has_time = any(len(entry.extents) >= TIME_FIRST_RANK for entry in inputs)
        for axis in (0, 1) if has_time else (0,):
            extents = {self._extent(extent) for entry in inputs for extent in entry.extents[axis : axis + 1]}
            if len(extents) == 1:  # inputs that disagree cannot all have the batch there
                axes = {entry.name: axis if len(entry.extents) > axis else None for entry in inputs}
                yield axes, False
                yield axes, True

    def _extent(self, extent: Extent) -> int:
        return self.sizes[extent] if isinstance(extent, str) else extent

    def setting(self, axes: BatchAxes, *, batch_size: int, rewrites: bool) -> Setting:
        """Return the sizes at which shapes are inferred."""
        values = {**self.sizes, **dict.fromkeys(self.symbols, batch_size)}
        shapes = {
            entry.name: tuple(
                batch_size if axes.get(entry.name) == axis else values[extent] if isinstance(extent, str) else extent
                for axis, extent in enumerate(entry.extents)
            )
            for entry in self.model.inputs
        }
        return Setting(
            input_shapes=shapes,
            sizes=values,
            batch_size=batch_size,
            written_batch_size=self.written,
            rewrites_targets=rewrites,
        )


def _check_sizes(model: OnnxModel, sizes: Mapping[str, int]) -> None:
    known = {extent for entry in model.inputs for extent in entry.extents if isinstance(extent, str)}
    for name, size in sizes.items():
        check_known(f"free size of {model.path}:", name, known)
        check_count(f"sizes[{name!r}]", size)


def _batch_symbols(model: OnnxModel, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the names of free sizes that are the batch: by name, else by place at the first axis."""
    free = [
        (axis, extent)
        for entry in model.inputs
        for axis, extent in enumerate(entry.extents)
        if isinstance(extent, str) and extent not in sizes
    ]
    named = [name for _, name in free if name.lower() in BATCH_NAMES or name.lower().startswith("batch")]
    return tuple(dict.fromkeys(named or [name for axis, name in free if axis == 0]))


def _check_no_other_free_size(model: OnnxModel, symbols: tuple[str, ...], sizes: Mapping[str, int]) -> None:
    places = {
        f"input {entry.name!r}, axis {axis}": extent
        for entry in model.inputs
        for axis, extent in enumerate(entry.extents)
        if isinstance(extent, str) and extent not in symbols and extent not in sizes
    }
    if places:
        raise FreeSizeError(model.path, places, how="sizes={{'{name}': ...}}")


def _written_batch(model: OnnxModel, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the batch axis and its extent in a file that fixes the batch size.

    It is the first axis of the first input, unless a recurrent node says otherwise.
    """
    axes = {node.input[0]: _batch_axis(node) or 0 for node in model.nodes if node.op_type in RECURRENT}
    for entry in model.inputs:
        axis = axes.get(entry.name, 0)
        if len(entry.extents) > axis:
            extent = entry.extents[axis]
            return axis, sizes[extent] if isinstance(extent, str) else extent
    return 0, 1


def _check_samples(traced: Traced) -> None:
    """Raise NoSampleShapeError for a tensor not made of samples, or a recurrence over them."""
    for node in traced.model.nodes:
        for name in filter(None, (*node.input, *node.output)):
            values = [trace.values[name] for trace in traced.traces]
            if all(value.content is not None for value in values):
                continue  # numbers computed from shapes may depend on the batch size in any way
            axes = traced.operand(name).axes
            wanted = _batch_axis(node) if name in node.input[:1] else None
            if wanted is not None and None in axes and axes[wanted : wanted + 1] != (None,):
                problem = (
                    f"node {node_name(node)!r} takes samples along axis {wanted}, but its input has them along another"
                )
                raise NoSampleShapeError(problem)


def _batch_axis(node: Any) -> int | None:
    """Return the sample axis of the first input that an operator's definition states; None if it states none [-]."""
    if node.op_type in RECURRENT:
        return 0 if any(attribute.name == "layout" and attribute.i for attribute in node.attribute) else 1
    return 0 if node.op_type in BATCH_FIRST else None
