"""Optimizers: the update of the parameters as memory passes, and the state they keep.

Conventions, per parameter: reads and writes of weight w, gradient g and state are counted once each; the
learning rate and bias corrections are numbers of the step, not of the parameter. Weight decay adds w to g on
the fly: two FLOP more, no traffic. Clipping is two passes over the gradients before the update:
``gradient_norm`` (square and add; reads g) and ``gradient_scale`` (multiply; reads and writes g).
``per_batch`` compares the norm of all gradients together with a threshold, so every norm comes before the
first scale. A weight penalty, a term of the loss, is two passes before these: its sum (``l1_penalty``: absolute value
and add, ``l2_penalty``: square and add; reads w) and its gradient (``l1_gradient``: sign, multiply, add,
``l2_gradient``: multiply, add; reads w and g, writes g). ``per_sample`` states the threshold for each sample: the
gradient summed over the mini-batch is compared with batch size times threshold, layer by layer (as CNTK's
clippingThresholdPerSample does); gradients of single samples are never formed.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Final

from perfmodel.errors import UnknownNameError, check_known, short_repr
from perfmodel.layers.base import Checked, Checks, Operations, layer_kind, of_options
from perfmodel.layers.checks import one_of, optional, refuse
from perfmodel.layers.passes import elementwise, one_pass
from perfmodel.layers.shapes import Shape
from perfmodel.records import MemoryPass, Operation, Role

CLIPPINGS = ("none", "per_batch", "per_sample")
"""Ways to clip gradients."""
WEIGHT_PENALTIES: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "l1": {"l1": (2, 3)},
    "l2": {"l2": (2, 2)},
    "l1_l2": {"l1": (2, 3), "l2": (2, 2)},
}
"""Penalty of the weights in the loss -> its terms, each with the FLOP per parameter of its sum and its gradient."""
WEIGHT_DECAY_FLOP = 2
"""Per parameter of g + decay w [FLOP]."""

LayerOperations = tuple[tuple[str, Operation], ...]
"""Pairs of the name of a layer and an operation, in order."""


@dataclass(frozen=True, kw_only=True)
class Optimizer(Checked, ABC):
    """An update rule of parameters: one pass per layer, besides clipping.

    Unless a rule says otherwise, it reads the weight, its gradient and all state, and writes the weight and all state.

    Parameters
    ----------
    weight_decay : float
        Fraction of the weight added to its gradient. [1]
    clipping : str
        ``none``, ``per_batch`` or ``per_sample``. [-]
    weight_penalty : str or None
        Sum of absolute weights (``l1``), of their squares (``l2``) or of both (``l1_l2``) in the loss. [-]
    """

    flop_per_parameter: ClassVar[int]
    """Arithmetic without weight decay [FLOP]."""
    state_elements_per_parameter: ClassVar[int] = 0
    """Values kept from step to step besides the weight [1]."""
    decay_flop_per_parameter: ClassVar[int] = WEIGHT_DECAY_FLOP
    """Arithmetic of weight decay [FLOP]."""
    checks: ClassVar[Checks] = {
        "clipping": one_of(CLIPPINGS),
        "weight_penalty": optional(one_of(tuple(WEIGHT_PENALTIES))),
    }
    weight_decay: float = 0.0
    clipping: str = "none"
    weight_penalty: str | None = None

    @property
    def evaluation_count(self) -> int:
        """Losses with their gradients that a step computes. [1]"""
        return 1

    def state_elements(self, shapes: Sequence[Shape]) -> Any:
        """Return the values kept from step to step besides the weights, for parameters of these shapes.

        Counters of steps, a number a tensor, are left out.
        """
        return self.state_elements_per_parameter * sum(map(math.prod, shapes))

    def layer_operations(
        self,
        parameter_counts: Mapping[str, int],
        *,
        batch_size: Any,
        shapes: Mapping[str, tuple[Shape, ...]] | None = None,
    ) -> LayerOperations:
        """Return the passes of one update, each with its layer, in order.

        Factored states depend on the shapes of a layer's parameters; without them, they are one vector [1].
        """
        layers = [(name, count) for name, count in parameter_counts.items() if count]
        tensors = {name: ((count,),) if shapes is None else shapes[name] for name, count in layers}
        made = {tensors[name]: self._updates(count, tensors[name]) for name, count in layers}  # equal layers share them
        updates = {name: tuple((name, update) for update in made[tensors[name]]) for name, _ in layers}
        return self._penalties(layers) + self._clipped(layers, updates)

    def _penalties(self, layers: Sequence[tuple[str, int]]) -> LayerOperations:
        """Return the passes of the loss's term, which each evaluation of the loss and its gradient computes again."""
        terms = () if self.weight_penalty is None else WEIGHT_PENALTIES[self.weight_penalty].items()
        return self.evaluation_count * tuple(
            (name, penalty)
            for term, flop in terms
            for name, count in layers
            for penalty in _penalty(term, count, flop_per_parameter=flop)
        )

    def _clipped(self, layers: Sequence[tuple[str, int]], updates: Mapping[str, LayerOperations]) -> LayerOperations:
        if self.clipping == "none":
            return tuple(pair for name, _ in layers for pair in updates[name])
        norms = {name: ((name, _summed_pass("gradient_norm", count, 2)),) for name, count in layers}
        scales = {name: ((name, _update_pass("gradient_scale", count, 1, 1, 1)),) for name, count in layers}
        orders: Mapping[str, Sequence[tuple[Mapping[str, LayerOperations], ...]]] = {
            "per_batch": [(norms,), (scales,), (updates,)],
            "per_sample": [(norms, scales, updates)],
        }
        return tuple(
            pair
            for together in orders[self.clipping]
            for name, _ in layers
            for passes in together
            for pair in passes[name]
        )

    def operations(
        self,
        parameter_counts: Mapping[str, int],
        *,
        batch_size: Any,
        shapes: Mapping[str, tuple[Shape, ...]] | None = None,
    ) -> Operations:
        """Return the passes of one update in order, without their layers; arguments as for ``layer_operations``.

        Examples
        --------
        >>> Sgd().operations({"fc": 100}, batch_size=1)[0].work(element_bytes=4)
        Work(flop_count=200, read_bytes=800, written_bytes=400)
        """
        pairs = self.layer_operations(parameter_counts, batch_size=batch_size, shapes=shapes)
        return tuple(operation for _, operation in pairs)

    def _updates(self, count: int, shapes: tuple[Shape, ...]) -> Operations:
        """Return the passes of one layer's update, which depend on the shapes of its tensors if state is factored."""
        del shapes
        kept, flop = self.state_elements_per_parameter, self.flop_per_parameter + self._decay_flop
        return (_update_pass(self.kind, count, 2 + kept, 1 + kept, flop),)

    @property
    def _decay_flop(self) -> int:
        return self.decay_flop_per_parameter if self.weight_decay else 0


@lru_cache(maxsize=1024, typed=True)
def _update_pass(name: str, count: int, reads: int, writes: int, flop_per_parameter: int) -> MemoryPass:
    flop: dict[str, Any] = {"flop_per_element": flop_per_parameter, "role": Role.UPDATE}
    return elementwise(name, count, reads=reads, writes=writes, **flop)


def _summed_pass(name: str, count: int, flop_per_parameter: int) -> MemoryPass:
    flop = flop_per_parameter * count
    return one_pass(name, read=count, written=1, tensor=count, flop=flop, role=Role.UPDATE)


def _penalty(term: str, count: int, *, flop_per_parameter: tuple[int, int]) -> Operations:
    """Return a penalty's sum, which the loss adds, and its gradient, which is added to that of the weights."""
    of_sum, of_gradient = flop_per_parameter
    return (
        _summed_pass(f"{term}_penalty", count, of_sum),
        _update_pass(f"{term}_gradient", count, 2, 1, of_gradient),
    )


@layer_kind("none")
class NoUpdate(Optimizer):
    """Computes gradients without an update, as ``caffe time`` does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_decay or self.clipping != "none" or self.weight_penalty is not None:
            allowed = "given without weight_decay, clipping and weight_penalty, because nothing is updated"
            refuse("optimizer", "none", allowed)

    def _updates(self, count: int, shapes: tuple[Shape, ...]) -> Operations:
        return ()


@layer_kind("sgd")
class Sgd(Optimizer):
    """w -= rate g: multiply, subtract; reads w and g, writes w."""

    flop_per_parameter: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class VelocityOptimizer(Optimizer):
    """Keeps v = momentum v + g and steps along it; reads w, g and v, writes w and v.

    Parameters
    ----------
    momentum : float
        Fraction of v that stays. [1]
    """

    state_elements_per_parameter: ClassVar[int] = 1
    momentum: float = 0.9


@layer_kind("momentum")
class Momentum(VelocityOptimizer):
    """v = momentum v + g, w -= rate v: 4 FLOP. Options: see ``VelocityOptimizer``."""

    flop_per_parameter: ClassVar[int] = 4


@layer_kind("nesterov")
class Nesterov(VelocityOptimizer):
    """v = momentum v + g, w -= rate (g + momentum v): 6 FLOP. Options: see ``VelocityOptimizer``."""

    flop_per_parameter: ClassVar[int] = 6


@layer_kind("adam")
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

    flop_per_parameter: ClassVar[int] = 12
    state_elements_per_parameter: ClassVar[int] = 2
    beta_1: float = 0.9
    beta_2: float = 0.999


@layer_kind("adamw")
class AdamW(Adam):
    """Adam [1]_ whose weights shrink by themselves: w *= 1 - rate decay, 1 FLOP. Options: see ``Adam``.

    References
    ----------
    .. [1] Loshchilov, Hutter, Decoupled weight decay regularization, ICLR 2019, arXiv:1711.05101.
    """

    decay_flop_per_parameter: ClassVar[int] = 1
    weight_decay: float = 0.01


@layer_kind("nadam")
class Nadam(Adam):
    """Adam with a look ahead [1]_: 14 FLOP; reads w, g, m and v, writes w, m and v. Options: see ``Adam``.

    m and v as in Adam: 7 FLOP. w -= (a g + b m) / (sqrt(v) + eps): 7.

    References
    ----------
    .. [1] Dozat, Incorporating Nesterov momentum into Adam, ICLR workshop 2016.
    """

    flop_per_parameter: ClassVar[int] = 14


@layer_kind("adamax")
class Adamax(Adam):
    """Adam with the largest gradient [1]_: 10 FLOP; reads w, g, m and u, writes w, m and u. Options: see ``Adam``.

    m as in Adam: 3 FLOP. u = max(b2 u, abs(g) + eps): 4. w -= rate m / u: 3.

    References
    ----------
    .. [1] Kingma, Ba, Adam: a method for stochastic optimization, ICLR 2015, arXiv:1412.6980, section 7.1.
    """

    flop_per_parameter: ClassVar[int] = 10


@layer_kind("adagrad")
class Adagrad(Optimizer):
    """s += g^2, w -= rate g / (sqrt(s) + eps) [1]_: 7 FLOP; reads w, g and s, writes w and s.

    References
    ----------
    .. [1] Duchi, Hazan, Singer, Adaptive subgradient methods, JMLR 12, 2011.
    """

    flop_per_parameter: ClassVar[int] = 7
    state_elements_per_parameter: ClassVar[int] = 1


@layer_kind("adadelta")
class Adadelta(Optimizer):
    """Adadelta [1]_: 16 FLOP; reads w, g, s and d, writes w, s and d.

    s = rho s + (1 - rho) g^2: 4 FLOP. x = g sqrt(d + eps) / sqrt(s + eps): 6. d = rho d + (1 - rho) x^2: 4.
    w -= rate x: 2.

    References
    ----------
    .. [1] Zeiler, ADADELTA: an adaptive learning rate method, arXiv:1212.5701.
    """

    flop_per_parameter: ClassVar[int] = 16
    state_elements_per_parameter: ClassVar[int] = 2


@layer_kind("rmsprop")
class Rmsprop(Optimizer):
    """s = a s + (1 - a) g^2, w -= rate g / (sqrt(s) + eps) [1]_: 9 FLOP; reads w, g and s, writes w and s.

    Momentum keeps a velocity of the step: 2 FLOP more. Centred, the mean gradient is kept too, and its square taken
    off s: 5 FLOP more. Each reads and writes one value more.

    Parameters
    ----------
    momentum : float
        Fraction of the velocity that stays; 0 keeps none. [1]
    centered : bool
        Whether s is the variance of the gradient, not its mean square. [-]

    References
    ----------
    .. [1] Tieleman, Hinton, Neural networks for machine learning, lecture 6.5, 2012.
    """

    state_elements_per_parameter: ClassVar[int] = of_options(lambda layer: 1 + bool(layer.momentum) + layer.centered)
    flop_per_parameter: ClassVar[int] = of_options(lambda layer: 9 + 2 * bool(layer.momentum) + 5 * layer.centered)

    momentum: float = 0.0
    centered: bool = False


@layer_kind("lamb")
class Lamb(Adam):
    """Adam whose step is as long as a share of the weights of its layer [1]_: 16 FLOP. Options: see ``Adam``.

    ``lamb_direction``: m and v as in Adam: 7 FLOP, u = m / (sqrt(v) + eps): 3, the squares of u and w summed: 4; reads
    w, g, m and v, writes m, v and u, where g was. ``lamb``: w -= rate |w| / |u| u: 2; reads w and u, writes w. Ignores:
    the few numbers that norms reduce to.

    References
    ----------
    .. [1] You et al., Large batch optimization for deep learning, ICLR 2020, arXiv:1904.00962, algorithm 2.
    """

    def _updates(self, count: int, shapes: tuple[Shape, ...]) -> Operations:
        direction = _update_pass("lamb_direction", count, 4, 3, 14 + self._decay_flop)
        return direction, _update_pass(self.kind, count, 2, 1, 2)


def _factored(shape: Shape) -> Any:
    """Values of a second moment: row and column means over the last two axes; one for each parameter of a vector."""
    if len(shape) < 2:
        return math.prod(shape)
    *outer, rows, columns = shape
    return math.prod(outer) * (rows + columns)


@layer_kind("adafactor")
class Adafactor(Optimizer):
    """Scaling by a second moment of which a matrix keeps only the means of rows and columns [1]_: 12 FLOP.

    ``adafactor_moments``: square, and add to a row and a column: 3 FLOP; reads g and the means, writes the means.
    ``adafactor_direction``: u = g / sqrt(row column): 3, and the squares of u and w summed: 4; reads g, w and the
    means, writes u. ``adafactor``: w -= rate u: 2; reads w and u, writes w. Without momentum, as ``torch.optim`` has
    it; matrices are the last two axes of a tensor. Ignores: arithmetic on the means themselves.

    References
    ----------
    .. [1] Shazeer, Stern, Adafactor: adaptive learning rates with sublinear memory cost, arXiv:1804.04235.
    """

    decay_flop_per_parameter: ClassVar[int] = 1

    def state_elements(self, shapes: Sequence[Shape]) -> Any:
        """Return the means of rows and columns of matrices, and a value for each parameter of vectors."""
        return sum(map(_factored, shapes))

    def _updates(self, count: int, shapes: tuple[Shape, ...]) -> Operations:
        means, role = self.state_elements(shapes), Role.UPDATE
        return (
            one_pass("adafactor_moments", read=count + means, written=means, tensor=count, flop=3 * count, role=role),
            one_pass(
                "adafactor_direction", read=2 * count + means, written=count, tensor=count, flop=7 * count, role=role
            ),
            _update_pass(self.kind, count, 2, 1, 2 + self._decay_flop),
        )


@layer_kind("lbfgs")
class Lbfgs(Optimizer):
    """One iteration of L-BFGS [1]_, with a full history of h steps and gradient changes: 17 + 8 h FLOP.

    Each vector operation is a pass over all parameters, as ``torch.optim.LBFGS`` calls them: the loops over the history
    read 8 h values and write 2 h for each parameter; the new pair, its products, the direction, the former gradient,
    the step and the checks whether it has converged read 19 and write 10. State: h pairs, the direction and the former
    gradient, 2 h + 2 values.

    A step is one iteration, so that it computes one loss with its gradient: a call of ``torch.optim.LBFGS.step`` with
    its defaults (``max_iter`` 20 and no line search) takes the time of 20 such steps. A line search computes more in an
    iteration: ``evaluations`` says how many, 1 for the first point that is tried.

    Parameters
    ----------
    history_size : int
        Pairs kept, h. [1]
    evaluations : int
        Losses with their gradients in an iteration. [1]

    References
    ----------
    .. [1] Liu, Nocedal, On the limited memory BFGS method, Mathematical Programming 45, 1989.
    """

    history_size: int = 100
    evaluations: int = 1

    @property
    def evaluation_count(self) -> int:
        """Losses with their gradients that a step computes. [1]"""
        return self.evaluations

    def state_elements(self, shapes: Sequence[Shape]) -> Any:
        """Return the pairs of the history, the direction and the former gradient."""
        return (2 * self.history_size + 2) * sum(map(math.prod, shapes))

    def _updates(self, count: int, shapes: tuple[Shape, ...]) -> Operations:
        history, flop = self.history_size, 17 + self._decay_flop
        return (_update_pass(self.kind, count, 19 + 8 * history, 10 + 2 * history, flop + 8 * history),)


OPTIMIZERS: dict[str, type[Optimizer]] = {
    optimizer.kind: optimizer
    for optimizer in (
        NoUpdate, Sgd, Momentum, Nesterov, Adam,
        AdamW, Nadam, Adamax, Adagrad, Adadelta, Rmsprop, Lamb, Adafactor, Lbfgs,
    )
}  # fmt: skip
"""Name to class."""

_PLAIN: Final = {kind: optimizer() for kind, optimizer in OPTIMIZERS.items()}


def load_optimizer(optimizer: str | Optimizer, **options: Any) -> Optimizer:
    """Return an optimizer by name, or an existing one.

    Parameters
    ----------
    optimizer : str or Optimizer
        A name of ``OPTIMIZERS``, which options may follow, or an object (then without options). [-]
    **options : float or str
        ``weight_decay``, ``clipping``, ``weight_penalty`` and the optimizer's own. [-]

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
    >>> load_optimizer("momentum", weight_decay=1e-4) == load_optimizer("momentum:weight_decay=1e-4")
    True
    """
    if type(optimizer) is str and not options and optimizer in _PLAIN:
        return _PLAIN[optimizer]
    if isinstance(optimizer, Optimizer):
        if options:
            refuse("optimizer", optimizer, f"a name if options are given: {', '.join(options)}")
        return optimizer
    name, written = (
        name_and_options("optimizer", optimizer) if isinstance(optimizer, str) else (short_repr(optimizer), {})
    )
    if name not in OPTIMIZERS:
        raise UnknownNameError(kind="optimizer", name=name, known=OPTIMIZERS)
    chosen, options = OPTIMIZERS[name], written | options
    known = [field.name for field in fields(chosen)]
    for option in options:
        check_known(f"option of optimizer {name!r}:", option, known)
    return chosen(**options)


_FLAGS: Final = {"true": True, "false": False}


def name_and_options(argument: str, text: str) -> tuple[str, dict[str, Any]]:
    """Split a name from its options.

    Examples
    --------
    >>> name_and_options("optimizer", "rmsprop:momentum=0.9,centered=true")
    ('rmsprop', {'momentum': 0.9, 'centered': True})
    """
    name, colon, rest = text.partition(":")
    options: dict[str, Any] = {}
    for pair in rest.split(",") if colon else ():
        option, _, value = (part.strip() for part in pair.partition("="))
        if not option or not value or option in options:
            refuse(argument, text, f"{name}, or {name}:OPTION=VALUE,OPTION=VALUE... with each option once")
        options[option] = _value(value)
    return name.strip(), options


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return _FLAGS.get(text.lower(), text)
