"""predict(): how long a training or inference step takes on a target, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar, Unpack

from perfmodel.calls import check_call
from perfmodel.prediction.arguments.table import ARGUMENTS
from perfmodel.prediction.job.job import Job

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.measurements.table import Run
    from perfmodel.prediction.arguments.typed import JobArguments
    from perfmodel.prediction.prediction import Prediction


Function = TypeVar("Function", bound=Callable[..., Any])

PLACE: Final = "    **arguments : object\n"
"""Line of a docstring that is replaced by all arguments."""

WIDTH: Final = 116
"""Width of a docstring. [columns]"""


def shows_arguments(function: Function) -> Function:
    """Give a function of ``**arguments`` a signature and docstring that list every argument."""
    shown = signature(function)
    first = [parameter for parameter in shown.parameters.values() if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD]
    more = [
        Parameter(row.name, Parameter.KEYWORD_ONLY, default=row.default, annotation=row.type)
        for row in ARGUMENTS.values()
    ]
    function.__signature__ = shown.replace(parameters=[*first, *more])  # type: ignore[attr-defined]
    function.__defaults__ = (None,)  # which Job refuses in its own words
    before, _, after = (function.__doc__ or "").partition(PLACE)
    if after:  # without -OO
        function.__doc__ = before + "".join(map(_described, ARGUMENTS)) + after.partition("\n")[2]
    return function


def _described(name: str) -> str:
    row = ARGUMENTS[name]
    text = textwrap.fill(
        f"{row.help} [{row.unit}]", WIDTH, initial_indent=8 * " ", subsequent_indent=8 * " ", break_long_words=False
    )
    return f"    {row.name} : {row.type}\n{text}\n"


@shows_arguments
def predict(graph: LayerGraph | Run | Job, *unnamed: Never, **arguments: Unpack[JobArguments]) -> Prediction:
    """Predict the time of one step, its parts, its memory and its bottleneck.

    Parameters
    ----------
    graph : LayerGraph, Run or Job
        A network, or a Run of a measurement table: batch size, framework, optimizer, phase and feed are then those of
        the measured script, and only the hardware must be given. A framework, optimizer or phase at its default does
        not override the Run's; another contradicting value is rejected. A Job is predicted with the arguments given
        here in place of its own. [-]
    **arguments : object
        Any argument of the table of arguments. [unit of each argument]

    Returns
    -------
    Prediction
        ``step_s`` and its exclusive parts [s], ``memory`` [B], ``bottleneck``, ``layers``, ``explain()``.

    Raises
    ------
    ArgumentError
        If a value is not allowed, or neither ``device`` nor ``system`` is given.
    UnknownNameError
        If a name is unknown; suggests the nearest.
    SpecError
        If a spec file is invalid; lists every fault.

    Examples
    --------
    >>> import perfmodel as pm
    >>> p = pm.predict(pm.zoo.resnet50(), batch_size=16, device="gtx_1080", framework="torch_423cfba")
    >>> p.memory.fits
    True
    >>> pm.predict(p.job, batch_size=32).batch_size
    32
    """
    if unnamed:
        check_call(predict, (graph, *unnamed), arguments)
    if isinstance(graph, Job):
        return (graph.replace(**arguments) if arguments else graph).predict()
    return Job(graph, **arguments).predict()
