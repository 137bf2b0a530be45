"""One device's part of a tensor, and the whole that a group of devices has of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.attention.heads import check_divides
from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_axis, check_count, check_flag, is_open_size
from perfmodel.layers.shapes import Shape, axis_in, shape_text
from perfmodel.records import Operation


@final
@dataclass(frozen=True, kw_only=True)
class ShardView(Layer):
    """The part of a tensor that is left to a device, or the whole that a group of devices has in parts.

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
    Nothing is computed here, and the bytes that devices exchange for it are no layer's. Its memory is the input's: of a
    whole that was gathered a device keeps its part, and gathers again where back-propagation reads it, as Megatron-LM
    does [1]_.

    References
    ----------
    .. [1] Korthikanti et al., Reducing activation recomputation in large transformer models, 2022, arXiv:2205.05198,
       section 4.2.2.
    """

    kind: ClassVar[str] = "shard_view"
    examples: ClassVar[Examples] = (
        ({"parts": 2, "gathered": True}, ((4, 6),)),
        ({"parts": 2, "gathered": False}, ((4, 6),)),
        ({"parts": 3, "gathered": False, "axis": -1}, ((4, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"parts": "T", "gathered": False}, (("S", "F"),))
    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True
    parts: int
    gathered: bool
    axis: int = 0

    def __post_init__(self) -> None:
        check_count("parts", self.parts)
        check_flag("gathered", self.gathered)
        check_axis("axis", self.axis)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape with one axis longer or shorter."""
        place = axis_in(input_shapes[0], self.axis)
        shape: list[Any] = list(input_shapes[0])
        extent = shape[place]
        if self.gathered:
            shape[place] = self.parts * extent
        else:
            check_divides(
                self.parts,
                extent,
                f"cannot divide axis {self.axis} of {shape_text(input_shapes[0])} among {self.parts}",
            )
            is_open = is_open_size(extent) or is_open_size(self.parts)
            shape[place] = extent / self.parts if is_open else extent // self.parts
        return tuple(shape)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
