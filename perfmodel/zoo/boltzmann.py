"""Restricted Boltzmann machines, and the deep belief network that stacks them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import ContrastiveDivergence, CrossEntropy, Dense, Sigmoid
from perfmodel.layers.checks import check_at_most, check_widths, one_of
from perfmodel.zoo.blocks import chain
from perfmodel.zoo.options import checked, numbered

STAGES = ("pre_training", "fine_tuning")


@checked(steps=numbered())
def restricted_boltzmann_machine(*, visible: Any = 784, hidden: Any = 500, steps: int = 1) -> LayerGraph:
    """Return a restricted Boltzmann machine [1]_ with a step of its training by contrastive divergence [2]_.

    Visible x hidden weights and a bias for each unit: 393,284 parameters by default.

    Parameters
    ----------
    visible : int or sympy.Symbol
        Visible units, the features of a sample. [1]
    hidden : int or sympy.Symbol
        Hidden units. [1]
    steps : int
        Steps of Gibbs sampling, the k of CD-k. [1]

    Returns
    -------
    LayerGraph
        The machine. [-]

    Examples
    --------
    >>> restricted_boltzmann_machine().parameter_count
    393284

    References
    ----------
    .. [1] Smolensky, Information processing in dynamical systems, 1986.
    .. [2] Hinton, Training products of experts by minimizing contrastive divergence, Neural Computation 14, 2002.
    """
    graph = LayerGraph("restricted_boltzmann_machine", input_shape=(visible,))
    graph.add("machine", ContrastiveDivergence(hidden_units=hidden, steps=steps), inputs=graph.input)
    return graph


@checked(widths=partial(check_widths, fewest=2), stage=one_of(STAGES), level=numbered(), steps=numbered())
def deep_belief_network(
    *,
    widths: Sequence[Any] = (784, 500, 500, 2000),
    classes: Any = 10,
    stage: str = "fine_tuning",
    level: int = 1,
    steps: int = 1,
) -> LayerGraph:
    """Return one stage of training a deep belief network [1]_, by default 784-500-500-2000-10 [2]_.

    Training has one stage of its own for each machine of the stack, the lowest first, and then fine-tuning by
    back-propagation; so the whole training is ``len(widths)`` graphs, each with its steps. ``pre_training`` of a
    level: the frozen layers below it turn a sample into what its machine sees, which takes one step of contrastive
    divergence. ``fine_tuning``: the weights start a feed-forward network of sigmoids with a softmax over classes
    (1,665,010 parameters), trained as any other.

    Parameters
    ----------
    widths : sequence of int or sympy.Symbol
        Features of a sample, then hidden units of each machine, lowest first. [1]
    classes : int or sympy.Symbol
        Classes of ``fine_tuning``. [1]
    stage : str
        ``pre_training`` or ``fine_tuning``. [-]
    level : int
        Machine that ``pre_training`` trains; 1 is the lowest. [1]
    steps : int
        Steps of Gibbs sampling in ``pre_training``. [1]

    Returns
    -------
    LayerGraph
        The stage. [-]

    Examples
    --------
    >>> deep_belief_network().parameter_count
    1665010
    >>> top = deep_belief_network(stage="pre_training", level=3)
    >>> top.trained_parameter_count, top.parameter_count
    (1002500, 1645500)

    References
    ----------
    .. [1] Hinton, Osindero, Teh, A fast learning algorithm for deep belief nets, Neural Computation 18, 2006.
    .. [2] Hinton, Salakhutdinov, Reducing the dimensionality of data with neural networks, Science 313, 2006,
       supporting text.
    """
    check_at_most("level", level, maximum=len(widths) - 1)
    graph = LayerGraph("deep_belief_network", input_shape=(widths[0],))
    is_trained = stage == "fine_tuning"
    hidden = widths[1:] if is_trained else widths[1:level]
    x = graph.input
    for index, units in enumerate(hidden, start=1):
        x = graph.add(f"fc{index}", Dense(units=units), inputs=x, is_trained=is_trained)
        x = graph.add(f"sigmoid{index}", Sigmoid(), inputs=x)
    if is_trained:
        chain(graph, x, ("scores", Dense(units=classes)), ("loss", CrossEntropy()))
    else:
        machine = ContrastiveDivergence(hidden_units=widths[level], steps=steps)
        graph.add(f"machine{level}", machine, inputs=x)
    return graph
