"""predict(): how long a training or inference step takes on a target, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from perfmodel.prediction.arguments.shown import shows_arguments
from perfmodel.prediction.job import Job

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.measurements.run import Run
    from perfmodel.prediction.arguments.typed import JobArguments
    from perfmodel.prediction.prediction import Prediction


@shows_arguments
def predict(graph: LayerGraph | Run, **arguments: Unpack[JobArguments]) -> Prediction:
    """Predict the time of one step, its parts, its memory and its bottleneck.

    Parameters
    ----------
    graph : LayerGraph or Run
        A network, or a Run of a measurement table: then batch size, framework, optimizer, phase and feed are what
        the measured script did, and only the hardware is asked for. A framework, optimizer or phase at its default
        does not override the Run's; any other that contradicts it is refused. [-]
    **arguments : object
        All of the table of arguments. [unit of each argument]

    Returns
    -------
    Prediction
        ``step_s`` and its exclusive parts [s], ``memory`` [B], ``bottleneck``, ``layers``, ``explain()``.

    Raises
    ------
    ArgumentError
        If a value is not allowed, or neither or both of ``device`` and ``system`` are given.
    UnknownNameError
        If a name is unknown; names the nearest.
    SpecError
        If a spec file is wrong; lists every fault.

    Examples
    --------
    >>> import perfmodel as pm
    >>> p = pm.predict(pm.zoo.resnet50(), batch_size=16, device="gtx_1080", framework="torch_423cfba")
    >>> p.memory.fits
    True
    """
    return Job(graph, **arguments).predict()
