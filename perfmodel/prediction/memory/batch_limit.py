"""max_batch_size(): the largest mini-batch that fits in a device's memory."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.model_state import leaves_free
from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.job.job import Job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfmodel.graph import LayerGraph

RESERVE_FRACTION: Final = 0.0
"""Share of a device's memory that is left free unless the caller says otherwise: none, as with ``memory.fits``. [1]"""

SIZES: Final = ("batch_size", "global_batch_size")
"""Arguments of a job without effect on its largest batch size."""


def without_sizes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the arguments of a job without effect on its largest batch size."""
    return {name: value for name, value in arguments.items() if name not in SIZES}


@gated
def max_batch_size(graph: LayerGraph, *, reserve_fraction: float = RESERVE_FRACTION, **arguments: Any) -> int:
    """Find the largest batch size whose memory footprint fits.

    Parameters
    ----------
    graph : LayerGraph
        A network. [-]
    reserve_fraction : float
        Share of the device's memory to leave free, for what fragments, buffers of the library of collectives and what
        else runs there; none by default, while :func:`perfmodel.search` leaves 0.08. [1]
    **arguments : object
        As :func:`perfmodel.predict` takes them, without ``batch_size`` and ``global_batch_size``: the device or
        system, the framework, and how the network is shared by devices. [unit of each argument]

    Returns
    -------
    int
        Samples per worker, a multiple of the micro-batches; 0 if not even one for each fits, or a parameter server
        does not. [samples]

    Raises
    ------
    ArgumentError
        If a value is not allowed, or the device's memory capacity is unknown.
    UnknownNameError, SpecError
        If a name is unknown, or a spec file is invalid.

    Notes
    -----
    Found by doubling and bisection with the footprint of the fullest device that ``predict`` returns; scratch memory
    depends on the algorithms chosen at each size. The size returned fits and the next one does not, with whatever
    layout: without a reserve, less than one more sample (a multiple of the micro-batches) is left free. A graph with a
    ``fixed_batch_size`` has only that size.

    Examples
    --------
    >>> import perfmodel as pm
    >>> pm.max_batch_size(pm.zoo.resnet50(), device="gtx_980")
    46

    Each of a machine's four GTX 1080, with a twentieth of its memory left free:

    >>> pm.max_batch_size(pm.zoo.resnet50(), system="survey_fig5", workers=4, reserve_fraction=0.05)
    91
    """
    if not 0 <= reserve_fraction < 1:
        raise ArgumentError("reserve_fraction", reserve_fraction, "at least 0 and below 1")
    for name in SIZES:
        if (stated := arguments.pop(name, None)) is not None:
            raise ArgumentError(name, stated, "left out: max_batch_size finds it")
    job = Job(graph, batch_size=1 if graph.fixed_batch_size is None else graph.fixed_batch_size, **arguments)
    target = job.target
    if target.capacity_bytes == float("inf"):
        argument = "device" if job.system is None else "system"
        allowed = "one whose file states a memory capacity: a GPU, or a system"
        raise ArgumentError(argument, getattr(job, argument), allowed)

    def fits(batch_size: int) -> bool:
        prepared = job.replace(batch_size=batch_size).prepared
        memory = prepared.footprint(prepared.step())
        free = leaves_free(memory.total_bytes, capacity_bytes=memory.capacity_bytes, reserve=reserve_fraction)
        return bool(memory.fits is not False and free)

    if graph.fixed_batch_size is not None:
        return graph.fixed_batch_size if fits(graph.fixed_batch_size) else 0
    parts = job.layout.parts
    fitting, too_large = 0, 1
    while fits(parts * too_large):
        fitting, too_large = too_large, 2 * too_large
    between = range(fitting + 1, too_large)
    return parts * (fitting + bisect_left(between, True, key=lambda count: not fits(parts * count)))
