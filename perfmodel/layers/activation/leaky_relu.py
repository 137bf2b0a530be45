"""Leaky rectifier activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.checks import check_number
from perfmodel.layers.pointwise import Pointwise
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_torch(call: OperatorCall) -> Translation:
    return Translation(layer=LeakyReLU(slope=call["negative_slope"]), inputs=(call["self"],))


def _from_onnx(call: OperatorCall) -> Translation:
    return Translation(layer=LeakyReLU(slope=call.get("alpha", 0.01)), inputs=(call["0"],))


@final
@dataclass(frozen=True, kw_only=True)
class LeakyReLU(Pointwise):
    """x where x > 0, else slope x.

    Parameters
    ----------
    slope : float
        Slope on the negative side. [1]

    Notes
    -----
    2 FLOP per element in either direction (compare, multiply); backward reads dy and x.

    References
    ----------
    .. [1] Maas, Hannun, Ng, Rectifier nonlinearities improve neural network acoustic models, ICML 2013.
    """

    kind: ClassVar[str] = "leaky_relu"
    examples: ClassVar[Examples] = (({"slope": 0.2}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.leaky_relu": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"LeakyRelu": _from_onnx}
    flop_per_element: ClassVar[tuple[int, int]] = (2, 2)
    slope: float = 0.01

    def __post_init__(self) -> None:
        check_number("slope", self.slope)
