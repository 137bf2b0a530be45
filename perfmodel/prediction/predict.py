"""predict(): how long a training or inference step takes on a target, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never, Unpack

from perfmodel.calls import check_call
from perfmodel.prediction.arguments.signatures import shows_arguments
from perfmodel.prediction.job.job import Job

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.measurements.table import Run
    from perfmodel.prediction.arguments.typed import JobArguments
    from perfmodel.prediction.prediction import Prediction


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
