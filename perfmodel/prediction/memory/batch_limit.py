"""max_batch_size(): the largest mini-batch that fits in a device's memory."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING

from perfmodel.errors import ArgumentError
from perfmodel.framework.profile import FrameworkProfile
from perfmodel.graph.execution import check_recompute
from perfmodel.prediction.arguments.checks import DTYPES, one_of
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.job.prepare import prepare
from perfmodel.prediction.job.prepared import Prepared
from perfmodel.prediction.job.subject import subject_of_graph

if TYPE_CHECKING:
    from pathlib import Path

    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.device import Runnable
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.hardware.wiring import Wired
    from perfmodel.layers.optimizers import Optimizer


def _fits(prepared: Prepared, batch_size: int) -> bool:
    """Whether a mini-batch fits, with the convolution algorithms chosen for it."""
    at_size = replace(prepared, batch_size=batch_size)
    return bool(at_size.footprint(at_size.step()).fits)


def max_batch_size(
    graph: LayerGraph,
    *,
    device: str | Path | Runnable | None = None,
    system: str | Path | Wired | None = None,
    framework: str | Path | FrameworkProfile = "generic",
    threads: int | None = None,
    workers: int = 1,
    phase: str = "step",
    dtype: str = "fp32",
    optimizer: str | Optimizer = "sgd",
    recompute: str | None = None,
    library: str | Path | LibraryProfile | None = None,
) -> int:
    """Find the largest batch size whose memory footprint fits.

    Parameters
    ----------
    graph : LayerGraph
        A network. [-]
    device : str, Path, Device or Calibration
        One GPU or a measured machine: a name, a path to a TOML file, or a loaded object. [-]
    system : str, Path, System or Cluster
        A machine or a cluster, instead of ``device``. If it has GPUs, each holds its own mini-batch; otherwise the CPU
        sockets work together. [-]
    framework : str, Path or FrameworkProfile
        Framework profile: its memory policy and its choice of algorithms. [-]
    threads : int
        CPU threads; None for one per physical core. Not for a GPU. [1]
    workers : int
        Number of working GPUs, the first of the system, which must be alike. [1]
    phase : str
        ``step``, ``forward_backward`` or ``forward``. [-]
    dtype : str
        Data type of weights and activations. [-]
    optimizer : str or Optimizer
        Optimizer whose state is kept. [-]
    recompute : str
        Placement of checkpoints, as in :func:`perfmodel.predict`. [-]
    library : str, Path or LibraryProfile
        A library that replaces the framework's library of the same kind. [-]

    Returns
    -------
    int
        Samples per worker; 0 if not even one fits. [samples]

    Raises
    ------
    ArgumentError
        If a value is not allowed, or the device's memory capacity is unknown.
    UnknownNameError, SpecError
        If a name is unknown, or a spec file is invalid.

    Notes
    -----
    Found by doubling and bisection with the footprint that ``predict`` returns; scratch memory depends on the
    algorithms chosen at each size. The size returned fits and the next one does not. A graph with a
    ``fixed_batch_size`` has only that size.

    Examples
    --------
    >>> import perfmodel as pm
    >>> pm.max_batch_size(pm.zoo.resnet50(), device="gtx_980")
    46

    Each of a machine's four GTX 1080:

    >>> pm.max_batch_size(pm.zoo.resnet50(), system="survey_fig5", workers=4)
    96
    """
    subject = subject_of_graph(graph, optimizer=optimizer, phase=phase)
    target = resolve_target(device=device, system=system, threads=threads, workers=workers)
    if target.capacity_bytes == float("inf"):
        argument, name = ("device", device) if system is None else ("system", system)
        raise ArgumentError(argument, name, "one whose file states a memory capacity: a GPU, or a system")
    prepared = prepare(
        subject,
        target=target,
        profile=target.profile_of(framework),
        batch_size=1 if graph.fixed_batch_size is None else graph.fixed_batch_size,
        dtype=one_of("dtype", dtype, DTYPES),
        library=library,
        recompute=check_recompute(recompute),
    )
    if graph.fixed_batch_size is not None:
        return graph.fixed_batch_size if _fits(prepared, prepared.batch_size) else 0
    fits, too_large = 0, 1
    while _fits(prepared, too_large):
        fits, too_large = too_large, 2 * too_large
    between = range(fits + 1, too_large)
    return fits + bisect_left(between, True, key=lambda size: not _fits(prepared, size))
