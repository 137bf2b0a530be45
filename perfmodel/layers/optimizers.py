"""Optimizers: the update of the parameters as memory passes, and the state they keep.

Conventions, per parameter: reads and writes of weight w, gradient g and state are counted once each; the
learning rate and bias corrections are numbers of the step, not of the parameter. Weight decay adds w to g on
the fly: two FLOP more, no traffic. Clipping is two passes over the gradients before the update:
``gradient_norm`` (square and add; reads g) and ``gradient_scale`` (multiply; reads and writes g).
``per_batch`` compares the norm of all gradients together with a threshold, so every norm comes before the
first scale. ``per_sample`` states the threshold for each sample: the gradient summed over the mini-batch is
compared with batch size times threshold, layer by layer (as CNTK's clippingThresholdPerSample does); gradients
of single samples are never formed.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, final

from perfmodel.errors import UnknownNameError
from perfmodel.layers.base import Operations
from perfmodel.layers.checks import check_choice, check_fraction, refuse
from perfmodel.layers.passes import elementwise, one_pass
from perfmodel.records import MemoryPass, Operation, Role

CLIPPINGS = ("none", "per_batch", "per_sample")
"""Ways to clip gradients."""
WEIGHT_DECAY_FLOP = 2
"""Per parameter of g + decay w [FLOP]."""

LayerOperations = tuple[tuple[str, Operation], ...]
"""Pairs of the name of a layer and an operation, in order."""


@dataclass(frozen=True, kw_only=True)
class Optimizer(ABC):
    """An update rule of parameters: one pass per layer, besides clipping.

    Parameters
    ----------
    weight_decay : float
        Fraction of the weight added to its gradient. [1]
    clipping : str
        ``none``, ``per_batch`` or ``per_sample``. [-]
    """

    kind: ClassVar[str]
    reads: ClassVar[int]
    """Values read per parameter [1]."""
    writes: ClassVar[int]
    """Values written per parameter [1]."""
    flop_per_parameter: ClassVar[int]
    """Arithmetic without weight decay [FLOP]."""
    state_elements_per_parameter: ClassVar[int] = 0
    """Values kept from step to step besides the weight [1]."""
    fractions: ClassVar[tuple[str, ...]] = ("weight_decay",)
    """Options that are fractions, at least 0 and less than 1 [-]."""
    weight_decay: float = 0.0
    clipping: str = "none"

    def __post_init__(self) -> None:
        for option in self.fractions:
            check_fraction(option, getattr(self, option))
        check_choice("clipping", self.clipping, CLIPPINGS)

    def layer_operations(self, parameter_counts: Mapping[str, int], *, batch_size: Any) -> LayerOperations:
        """Return the passes of one update, each with its layer, in order.

        Parameters
        ----------
        parameter_counts : mapping of str to int
            Parameters by layer. [1]
        batch_size : int, ndarray or sympy.Expr
            Samples in the mini-batch; no update here depends on it. [samples]

        Returns
        -------
        tuple of tuple
            Pairs (layer, operation). [-]
        """
        layers = [(name, count) for name, count in parameter_counts.items() if count]
        made = {count: self._update(count) for _, count in layers}  # equal layers share their operations
        updates: LayerOperations = tuple((name, made[count]) for name, count in layers)
        if self.clipping == "none":
            return updates
        norms: LayerOperations = tuple((name, _gradient_norm(count)) for name, count in layers)
        scales: LayerOperations = tuple((name, _gradient_scale(count)) for name, count in layers)
        by_layer = tuple(pair for passes in zip(norms, scales, updates, strict=True) for pair in passes)
        return {
            "per_batch": norms + scales + updates,
            "per_sample": by_layer,
        }[self.clipping]

    def operations(self, parameter_counts: Mapping[str, int], *, batch_size: Any) -> Operations:
        """Return the passes of one update in order, without their layers.

        Parameters
        ----------
        parameter_counts : mapping of str to int
            Parameters by layer. [1]
        batch_size : int, ndarray or sympy.Expr
            Samples in the mini-batch. [samples]

        Returns
        -------
        tuple of Operation
            Memory passes with the role UPDATE. [-]

        Examples
        --------
        >>> Sgd().operations({"fc": 100}, batch_size=1)[0].work(element_bytes=4)
        Work(flop_count=200, read_bytes=800, written_bytes=400)
        """
        pairs = self.layer_operations(parameter_counts, batch_size=batch_size)
        return tuple(operation for _, operation in pairs)

    def _update(self, count: int) -> MemoryPass:
        flop_per_parameter = self.flop_per_parameter + (WEIGHT_DECAY_FLOP if self.weight_decay else 0)
        return elementwise(
            self.kind,
            count,
            reads=self.reads,
            writes=self.writes,
            flop_per_element=flop_per_parameter,
            role=Role.UPDATE,
        )


def _gradient_norm(count: int) -> MemoryPass:
    return one_pass("gradient_norm", read=count, written=1, tensor=count, flop=2 * count, role=Role.UPDATE)


def _gradient_scale(count: int) -> MemoryPass:
    return elementwise("gradient_scale", count, flop_per_element=1, role=Role.UPDATE)


@final
@dataclass(frozen=True, kw_only=True)
class NoUpdate(Optimizer):
    """Computes gradients without an update, as ``caffe time`` does."""

    kind: ClassVar[str] = "none"
    reads: ClassVar[int] = 0
    writes: ClassVar[int] = 0
    flop_per_parameter: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_decay or self.clipping != "none":
            refuse("optimizer", "none", "given without weight_decay and clipping, because nothing is updated")

    def layer_operations(self, parameter_counts: Mapping[str, int], *, batch_size: Any) -> LayerOperations:
        """Return nothing."""
        return ()


@final
@dataclass(frozen=True, kw_only=True)
class Sgd(Optimizer):
    """w -= rate g: multiply, subtract; reads w and g, writes w."""

    kind: ClassVar[str] = "sgd"
    reads: ClassVar[int] = 2
    writes: ClassVar[int] = 1
    flop_per_parameter: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class VelocityOptimizer(Optimizer):
    """Keeps v = momentum v + g and steps along it; reads w, g and v, writes w and v.

    Parameters
    ----------
    momentum : float
        Fraction of v that stays. [1]
    """

    reads: ClassVar[int] = 3
    writes: ClassVar[int] = 2
    state_elements_per_parameter: ClassVar[int] = 1
    momentum: float = 0.9

    fractions: ClassVar[tuple[str, ...]] = ("weight_decay", "momentum")


@final
@dataclass(frozen=True, kw_only=True)
class Momentum(VelocityOptimizer):
    """v = momentum v + g, w -= rate v: 4 FLOP. Options: see ``VelocityOptimizer``."""

    kind: ClassVar[str] = "momentum"
    flop_per_parameter: ClassVar[int] = 4


@final
@dataclass(frozen=True, kw_only=True)
class Nesterov(VelocityOptimizer):
    """v = momentum v + g, w -= rate (g + momentum v): 6 FLOP. Options: see ``VelocityOptimizer``."""

    kind: ClassVar[str] = "nesterov"
    flop_per_parameter: ClassVar[int] = 6


@final
@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam [1]_: 12 FLOP; reads w, g, m and v, writes w, m and v.

    m = b1 m + (1 - b1) g: 3 FLOP. v = b2 v + (1 - b2) g^2: 4. w -= rate m / (sqrt(v) + eps): 5.

    Parameters
    ----------
    beta_1, beta_2 : float
        Fractions of m and v that stay. [1]

    References
    ----------
    .. [1] Kingma, Ba, Adam: a method for stochastic optimization, ICLR 2015, arXiv:1412.6980.
    """

    kind: ClassVar[str] = "adam"
    reads: ClassVar[int] = 4
    writes: ClassVar[int] = 3
    flop_per_parameter: ClassVar[int] = 12
    state_elements_per_parameter: ClassVar[int] = 2
    beta_1: float = 0.9
    beta_2: float = 0.999

    fractions: ClassVar[tuple[str, ...]] = ("weight_decay", "beta_1", "beta_2")


OPTIMIZERS: dict[str, type[Optimizer]] = {
    optimizer.kind: optimizer for optimizer in (NoUpdate, Sgd, Momentum, Nesterov, Adam)
}
"""Name to class."""

_PLAIN: Final = {kind: optimizer() for kind, optimizer in OPTIMIZERS.items()}


def load_optimizer(optimizer: str | Optimizer, **options: Any) -> Optimizer:
    """Return an optimizer by name, or an existing one.

    Parameters
    ----------
    optimizer : str or Optimizer
        ``none``, ``sgd``, ``momentum``, ``nesterov``, ``adam``, or an object (then without options). [-]
    **options : float or str
        ``weight_decay``, ``clipping`` and the optimizer's own. [-]

    Returns
    -------
    Optimizer
        The optimizer. [-]

    Raises
    ------
    UnknownNameError
        If there is no such optimizer or option.
    ArgumentError
        If an option has a value that is not allowed.

    Examples
    --------
    >>> load_optimizer("momentum", weight_decay=1e-4).state_elements_per_parameter
    1
    """
    if type(optimizer) is str and not options and optimizer in _PLAIN:
        return _PLAIN[optimizer]
    if isinstance(optimizer, Optimizer):
        if options:
            refuse("optimizer", optimizer, f"a name if options are given: {', '.join(options)}")
        return optimizer
    if not isinstance(optimizer, str) or optimizer not in OPTIMIZERS:
        noun = "optimizer"
        raise UnknownNameError(noun, str(optimizer), OPTIMIZERS)
    chosen = OPTIMIZERS[optimizer]
    known = [field.name for field in fields(chosen)]
    for option in options:
        if option not in known:
            noun = f"option of optimizer {optimizer!r}:"
            raise UnknownNameError(noun, option, known)
    return chosen(**options)
