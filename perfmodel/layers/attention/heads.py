"""What the layers of attention share: its sizes, what it keeps, and the operation of each pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from perfmodel.layers.checks import is_open_size
from perfmodel.layers.shapes import ShapeMismatchError
from perfmodel.numeric import maximum
from perfmodel.records import Attention, Role
from perfmodel.records.attention import STATISTIC_BYTES

SCORES = ("recomputed", "materialised")
MASK_BYTES = 1
"""Size of one element of what dropout left out [B]."""


def check_divides(part: Any, whole: Any, problem: str) -> None:
    """Raise ShapeMismatchError with ``problem`` unless a number divides another, as far as both are known.

    Parameters
    ----------
    part, whole : int
        Divisor and dividend. [1]
    problem : str
        What does not fit. [-]
    """
    if not is_open_size(part) and not is_open_size(whole) and whole % part:
        raise ShapeMismatchError(problem)


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Sizes of attention over one sample.

    Parameters
    ----------
    heads, key_heads : int
        Heads of the queries, and of keys and values. [1]
    queries, keys : int
        Positions that ask, and positions that are looked at. [1]
    head_size, value_size : int
        Features of a query or key, and of a value, per head. [1]
    causal : bool
        Whether a position sees only itself and those before it. [-]
    scores : str
        ``recomputed`` or ``materialised``. [-]
    drops : bool
        Whether probabilities are dropped at random. [-]
    """

    heads: int
    key_heads: int
    queries: int
    keys: int
    head_size: int
    value_size: int
    causal: bool
    scores: Literal["materialised", "recomputed"]
    drops: bool

    def operation(self, *, batch_size: Any, role: Role, mask_elements: Any = None) -> Attention:
        """Return the operation of one pass.

        Parameters
        ----------
        batch_size : int, ndarray or sympy.Expr
            Samples. [samples]
        role : Role
            OUTPUT or INPUT_GRADIENT. [-]
        mask_elements : int, ndarray, sympy.Expr or None
            Elements of a mask that is added to the scores. [1]

        Returns
        -------
        Attention
            The operation. [-]
        """
        return Attention(batch_size=batch_size, role=role, mask_elements=mask_elements, **vars(self))

    def backward_scratch_bytes(
        self, *, batch_size: Any, element_bytes: int, kept_elements: Any, made_elements: Any
    ) -> Any:
        """Return what the gradients inside the attention take beyond what is counted for it in any case.

        Parameters
        ----------
        batch_size : int, ndarray or sympy.Expr
            Samples. [samples]
        element_bytes : int
            Size of one element. [B]
        kept_elements : int, ndarray or sympy.Expr
            What the layer alone keeps besides scores and is done with before those have a gradient. [1]
        made_elements : int, ndarray or sympy.Expr
            Gradients of the layer's inputs, none of which exists by then but that of the values. [1]

        Returns
        -------
        int, ndarray or sympy.Expr
            Recomputed scores: a statistic per row. Materialised ones: most is in memory where the gradient of the
            scores is made from that of the probabilities, beside the gradient of the values. [B]
        """
        rows = batch_size * self.heads * self.queries
        if self.scores == "recomputed":
            return STATISTIC_BYTES * rows
        of_values = batch_size * self.key_heads * self.keys * self.value_size
        return element_bytes * maximum(2 * rows * self.keys + of_values - kept_elements - made_elements, 0)

    def kept_bytes(self, *, batch_size: Any, element_bytes: int) -> Any:
        """Return what back-propagation needs besides queries, keys, values and output.

        Parameters
        ----------
        batch_size : int, ndarray or sympy.Expr
            Samples. [samples]
        element_bytes : int
            Size of one element. [B]

        Returns
        -------
        int, ndarray or sympy.Expr
            A statistic per row of scores where they are recomputed; where they are materialised the probabilities,
            and with dropout what it left of them and its mask. [B]
        """
        rows = batch_size * self.heads * self.queries
        if self.scores == "recomputed":
            return STATISTIC_BYTES * rows
        per_score = element_bytes + (element_bytes + MASK_BYTES if self.drops else 0)
        return per_score * rows * self.keys
