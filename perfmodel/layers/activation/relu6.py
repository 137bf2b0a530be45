"""Rectifier that is cut off at six."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pointwise import Pointwise


@final
@dataclass(frozen=True, kw_only=True)
class ReLU6(Pointwise):
    """Rectifier min(max(x, 0), 6).

    Notes
    -----
    2 FLOP per element forward (comparisons); backward passes dy where 0 < x < 6: 2 FLOP, reads dy and x.

    References
    ----------
    .. [1] Sandler et al., MobileNetV2, CVPR 2018, arXiv:1801.04381, section 4.
    """

    kind: ClassVar[str] = "relu6"
    examples: ClassVar[Examples] = (({}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    flop_per_element: ClassVar[tuple[int, int]] = (2, 2)
