"""Views: a tensor in another shape or a part of it. The forward phase moves no data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from perfmodel.layers.base import Checks, OnePassLayer, Operations, Traffic, layer_kind, of_options
from perfmodel.layers.checks import check_axis, is_open_size
from perfmodel.layers.passes import summed_repeats
from perfmodel.layers.shapes import (
    Shape,
    Shapes,
    SharedShape,
    axis_in,
    check_divides,
    element_count,
    mismatch,
    shape_text,
    with_extent,
)
from perfmodel.layers.translation import OperatorCall, Operators, Translation, of_first
from perfmodel.numeric import share_of, where
from perfmodel.symbolic import is_symbolic

RESHAPING = (
    *("aten.view", "aten._unsafe_view", "aten._reshape_alias", "aten.squeeze", "aten.unsqueeze", "aten.alias"),
    *("aten.view_as_complex", "aten.view_as_real", "aten._conj", "aten.lift_fresh"),
    *("Reshape", "Squeeze", "Unsqueeze", "Identity"),
)
"""Operators that only look at their input in another shape."""


@dataclass(frozen=True, kw_only=True)
class View(OnePassLayer):
    """A tensor in its input's memory: of the input's shape, and without an operation, unless a kind says otherwise."""

    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[None, Traffic | None]:
        """Return no pass, unless overridden."""
        return None, None


@layer_kind("reshape")
class Reshape(View):
    """The elements of a sample in the same order under another shape; a view, which costs nothing either way.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        RESHAPING, lambda call: of_first(call, Reshape(shape=tuple(call.output.shape)))
    )
    shape: Shape

    def following(self, before: Shapes, after: Shapes) -> Reshape:
        """Return a view as a single axis with all elements of the new input; other views keep their shape."""
        return Reshape(shape=(math.prod(after[0]),)) if len(self.shape) == 1 else self

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the stated shape."""
        inputs, outputs = math.prod(input_shapes[0]), math.prod(self.shape)
        if inputs != outputs and not is_open_size(inputs) and not is_open_size(outputs):
            mismatch(
                f"has samples of {shape_text(self.shape)}, {outputs} elements, but its input is "
                f"{shape_text(input_shapes[0])}, {inputs} elements"
            )
        return self.shape


@layer_kind("flatten")
class Flatten(View):
    """All axes of a sample as one; a view, which costs nothing in either direction."""

    operators: ClassVar[Operators] = {
        "Flatten": lambda call: of_first(
            call, Flatten() if len(call.output.shape) == 1 else Reshape(shape=tuple(call.output.shape))
        )
    }

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return (features,)."""
        return (math.prod(input_shapes[0]),)


def _from_call_expand(call: OperatorCall) -> Translation:
    x, output = call.operands[0], call.output
    layer = Expand(shape=tuple(output.shape), per_sample=x.is_shared and not output.is_shared)
    return Translation(layer=layer, inputs=(x,))


@layer_kind("expand")
class Expand(View):
    """The elements of a tensor repeated: along axes of extent 1, along new first axes, for every sample. A view.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    per_sample : bool
        Whether every sample gets its own part of the output although all share the input. [-]

    Notes
    -----
    Forward costs nothing. Backward sums dy over the repeats: a read and an add for each of its elements.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.expand", "Expand"), _from_call_expand)
    makes_samples: ClassVar[bool] = of_options(lambda layer: layer.per_sample)
    shape: Shape
    per_sample: bool = False

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the stated shape."""
        shape = input_shapes[0]
        while len(shape) > len(self.shape) and shape[0] == 1:
            shape = shape[1:]
        ends = zip(reversed(shape), reversed(self.shape), strict=False)
        if len(shape) > len(self.shape) or any(extent not in (1, wanted) for extent, wanted in ends):
            mismatch(f"repeats its input to {shape_text(self.shape)}, which {shape_text(input_shapes[0])} does not fit")
        is_shared = isinstance(input_shapes[0], SharedShape) and not self.per_sample
        return SharedShape(self.shape) if is_shared else self.shape

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the sum over the repeats; nothing where there are none."""
        return summed_repeats(input_shapes[0], self.output_shape(input_shapes), batch_size=batch_size)


@layer_kind("batch_view")
class BatchView(View):
    """All samples seen as one tensor, as a loss over pairs of samples sees them, or one tensor seen as samples.

    Parameters
    ----------
    shape : tuple of int
        Shape of the whole tensor, or of one sample of it. [1]
    whole : bool
        Whether the output is the whole. [-]

    Notes
    -----
    A view, which costs nothing. The whole's shape holds for one batch size only, and so does the graph.
    """

    makes_samples: ClassVar[bool] = of_options(lambda layer: not layer.whole)

    shape: Shape
    whole: bool = True

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the stated shape."""
        return SharedShape(self.shape) if self.whole else self.shape


TORCH_SPLITS = tuple(
    f"aten.{name}" for name in ("split", "split_with_sizes", "unsafe_split", "chunk", "unsafe_chunk", "unbind")
)
"""Operators of torch whose results are all parts of their input."""
TORCH_WINDOWS = ("aten.unfold", "aten.as_strided")
"""Operators of torch that look at windows of their input, which may overlap."""
TORCH_SLICES = ("aten.slice", "aten.select", "aten.narrow", "aten.diagonal", *TORCH_WINDOWS)
"""Of these, operators whose result is one part of the complex number."""


def _part(call: OperatorCall) -> Translation | None:
    x = call.operands[0]
    if call.output.is_shared != x.is_shared:
        return None  # a part of the samples
    whole, part = math.prod(x.shape), math.prod(call.output.shape)
    overlaps = not is_open_size(whole) and not is_open_size(part) and part > whole
    if overlaps and call.operator not in TORCH_WINDOWS:
        return None
    shape = tuple(call.output.shape)
    layer = (
        Reshape(shape=shape)
        if whole == part
        else Slice(shape=shape, is_joined=call.operator in (*TORCH_SPLITS, "Split"), overlaps=overlaps)
    )
    return of_first(call, layer)


@layer_kind("slice")
class Slice(View):
    """Some of the elements of a sample: a range, every n-th, one of several parts, a diagonal. A view.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    is_joined : bool
        Whether it is one of the parts into which the input is split, so that the gradients of all of them are joined
        to dx in one pass. [-]
    overlaps : bool
        Whether it is made of windows that overlap, and so may have more elements than the input. [-]

    Notes
    -----
    Forward costs nothing. Backward writes the whole of dx in one pass: dy where it belongs, zero elsewhere; nothing
    where all elements are taken. Of a part that is joined the graph counts that pass, once for all parts.
    """

    operators: ClassVar[Operators] = dict.fromkeys((*TORCH_SLICES, *TORCH_SPLITS, "Slice", "Split"), _part)
    gradient_is_joined: ClassVar[bool] = of_options(lambda layer: layer.is_joined)
    gradient_is_view: ClassVar[bool] = of_options(lambda layer: layer.is_joined)
    shape: Shape
    is_joined: bool = False
    overlaps: bool = False

    def following(self, before: Shapes, after: Shapes) -> Slice:
        """Return the slice with the new extent on every axis that it does not cut."""
        old, new = before[0], after[0]
        if len(old) != len(self.shape) or len(new) != len(old):
            return self
        extents = zip(self.shape, old, new, strict=True)
        return replace(self, shape=tuple(extent if part == whole else part for part, whole, extent in extents))

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the stated shape."""
        whole, part = math.prod(input_shapes[0]), math.prod(self.shape)
        if not self.overlaps and not is_open_size(whole) and not is_open_size(part) and part > whole:
            mismatch(f"takes a part of {shape_text(self.shape)}, but its input is only {shape_text(input_shapes[0])}")
        return self.shape

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[None, Traffic | None]:
        """Return the backward pass that clears dx and copies dy into it, unless parts are joined."""
        is_part = _is_part(math.prod(self.shape), math.prod(input_shapes[0]))
        if self.is_joined or (not is_symbolic(is_part) and not is_part):
            return None, None
        part = SharedShape(self.shape) if isinstance(input_shapes[0], SharedShape) else self.shape
        return None, {
            "read": is_part * element_count(part, batch_size=batch_size),
            "written": is_part * element_count(input_shapes[0], batch_size=batch_size),
        }


def _is_part(part: Any, whole: Any) -> Any:
    """Return 1 if elements are left out, otherwise 0; for symbolic sizes that are rounded, a case distinction."""
    if not is_symbolic(part, whole):
        return int(part != whole)
    import sympy

    left_out = sympy.expand(whole - part)
    return where(sympy.Ne(left_out, 0), 1, 0) if left_out.has(sympy.ceiling, sympy.floor) else int(left_out != 0)


@layer_kind("shard_view")
class ShardView(View):
    """A device's part of a tensor, or the whole of a tensor whose parts lie on the devices of a group.

    Parameters
    ----------
    parts : int
        Devices of the group. [1]
    gathered : bool
        True: the input is a part, the output the whole; False: the input is the whole, the output a part. [-]
    axis : int
        Axis of a sample that is divided; negative counts from the last. [-]

    Notes
    -----
    Nothing is computed here, and the bytes that devices exchange for it are no layer's. Of a whole that was gathered a
    device keeps its part, the input's memory, and gathers again where back-propagation reads it, as Megatron-LM
    does [1]_. A part has memory of its own, so that the whole can be freed.

    References
    ----------
    .. [1] Korthikanti et al., Reducing activation recomputation in large transformer models, 2022, arXiv:2205.05198,
       section 4.2.2.
    """

    checks: ClassVar[Checks] = {"axis": check_axis}
    shares_memory: ClassVar[bool] = of_options(lambda layer: layer.gathered)
    parts: int
    gathered: bool
    axis: int = 0

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape with one axis longer or shorter."""
        place = axis_in(input_shapes[0], self.axis)
        extent: Any = input_shapes[0][place]
        if self.gathered:
            extent = self.parts * extent
        else:
            problem = f"cannot divide axis {self.axis} of {shape_text(input_shapes[0])} among {self.parts}"
            check_divides(self.parts, extent, problem)
            extent = share_of(extent, self.parts)
        return tuple(with_extent(input_shapes[0], place, extent))


@layer_kind("detach")
class Detach(View):
    """The input as a constant: a view that costs nothing and sends no gradient back."""

    operators: ClassVar[Operators] = {"aten.detach": lambda call: of_first(call, Detach())}
    index_inputs: ClassVar[tuple[int, ...]] = (0,)


@layer_kind("overwrite")
class Overwrite(View):
    """Input 0 after a part of it was written through a view, input 1: the same memory with new content there.

    Notes
    -----
    Forward does nothing: what wrote the part is a layer of its own. Backward hands the part's gradient on as a view of
    dy; the gradient of the rest is dy with the part cleared, a copy and a fill.
    """

    input_counts: ClassVar[tuple[int, int | None]] = (2, 2)

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[None, Traffic]:
        """Return the backward pass: a copy of dy with the part cleared."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        return None, {"read": elements, "written": elements}


@layer_kind("output")
class Output(View):
    """A result of the network: a view that costs nothing, ends a graph and sends no gradient back."""

    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    is_metric: ClassVar[bool] = True
