"""sweep(): predictions of every configuration of a space, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.derived import uncollected
from perfmodel.measurements.table import Run
from perfmodel.planning.sweeps.answer import Sweep
from perfmodel.planning.sweeps.results import REASON, Reasons, checked_columns
from perfmodel.planning.sweeps.space import space_of
from perfmodel.planning.sweeps.tasks import Evaluation, check_executor, empty_columns, outcomes, tasks_of
from perfmodel.prediction.arguments.checks import flag, resolved_batch_size, whole_number
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.device_prices import Prices, check_names, prices_of
from perfmodel.prediction.job.subject import subject_of_graph
from perfmodel.presentation.progress import progress_bar

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.planning.sweeps.space import Space
    from perfmodel.planning.sweeps.tasks import Columns


@gated
def sweep(
    graph: LayerGraph | Run,
    *,
    configurations: Iterable[Mapping[str, Any]] | None = None,
    columns: Iterable[str] | None = None,
    usd_per_hour: float | Mapping[str, float] | None = None,
    dataset_size: int | None = None,
    limit: int | None = None,
    executor: Executor | None = None,
    progress: bool = False,
    **axes: Any,
) -> Sweep:
    """Predict every configuration of a space. Any argument of ``predict`` may be one value or a list of values.

    Parameters
    ----------
    graph : LayerGraph or Run
        A network, or a Run of a measurement table. [-]
    configurations : iterable of mapping
        Arguments of each configuration, instead of the product of lists; ``axes`` then apply to all of them. [-]
    columns : iterable of str
        Results to keep: ``step_s``, its parts and totals under their names in a Prediction,
        ``samples_per_s``, ``epoch_s``, ``usd_per_epoch``, ``energy_j`` of a step, ``memory_bytes``; ``fits`` and
        ``reason`` are always kept. None for ``step_s``, ``samples_per_s`` and ``usd_per_epoch``. [-]
    usd_per_hour : float or mapping of str to float
        Price of a GPU, or of a machine that computes on its cores: one for all, or by name of the device, of such a
        machine or of a cluster of them. Every working one is paid for, and so is a machine that holds only a server.
        None for the newest known on-demand price (``pm.load_price``), of an instance with GPUs the share of one.
        [USD/h]
    dataset_size : int
        Samples of an epoch, for every configuration; None for the size of the data set that it reads, else of
        ImageNet (1,281,167). [samples]
    limit : int
        Most configurations; this many are drawn at random from a larger product, the same ones every time. Without it,
        up to 50 million are evaluated. [1]
    executor : concurrent.futures.Executor
        Runs the tasks: a process pool, or ``client.get_executor()`` of dask.distributed; the table is the same.
        Tasks of lost workers are repeated. [-]
    progress : bool
        Whether to show a progress bar on the error stream. [-]
    **axes : object
        Arguments of ``predict``, each one value, or a list, tuple, range or array of values. Also: ``link``,
        which replaces the links of its kind in ``system=`` (the fabric of a cluster, PCIe slots, NVLink);
        ``device`` with ``system=``, which replaces the system's GPUs, or its CPUs if it has no GPU; and
        ``devices``, a number of devices, instead of ``workers``: as many workers as fit with ``stages`` x
        ``tensor_size`` x ``context_size`` devices each. [-]

    Returns
    -------
    Sweep
        Columns of arguments and results. An impossible configuration has NaN and a ``reason``; one that does not
        fit in memory keeps its time, with ``fits`` false and a ``reason``. [-]

    Raises
    ------
    ArgumentError
        If an axis is empty, a value is never allowed, a batch size is missing, or there are too many configurations
        without ``limit``; raised before any work.
    UnknownNameError
        If an argument, a column or a name is unknown; names the nearest.

    Notes
    -----
    A row equals ``predict`` with the same arguments (to 1e-9, layouts to 1e-12; ``s.prediction(i)`` is that
    prediction).

    Examples
    --------
    >>> import perfmodel as pm
    >>> s = pm.sweep(pm.zoo.alexnet(), batch_size=[16, 64], device=["gtx_1080", "tesla_k40"], usd_per_hour=0.5)
    >>> len(s), s.best("usd_per_epoch")["device"]
    (4, 'gtx_1080')
    """
    asked = checked_columns(columns)
    is_priced = usd_per_hour is not None or "usd_per_epoch" in asked
    prices = prices_of(usd_per_hour) if is_priced else Prices()
    check_executor(executor)
    flag("progress", progress)
    space = space_of(graph, axes, configurations=configurations, limit=limit)
    check_names(usd_per_hour, [space.value("device", code) for code in _places(space, "device")])
    if not isinstance(graph, Run):
        _check_batch_sizes(space)
    size = None if dataset_size is None else whole_number("dataset_size", dataset_size)
    return swept(space, asked, prices=prices, dataset_size=size, executor=executor, progress=progress)


def swept(
    space: Space,
    columns: tuple[str, ...],
    *,
    prices: Prices | None = None,
    dataset_size: int | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Sweep:
    """Predict every configuration of a space whose values, and columns whose names, are checked."""
    if not isinstance(space.graph, Run):
        subject_of_graph(space.graph, optimizer="sgd", phase="forward")  # refuses graphs with symbolic sizes
    priced = Prices() if prices is None else prices
    results, reasons = _evaluated(space, columns, priced, dataset_size, executor=executor, progress=progress)
    return Sweep(space, results, tuple(reasons.texts))


@uncollected
def _evaluated(
    space: Space,
    asked: tuple[str, ...],
    prices: Prices,
    size: int | None,
    *,
    executor: Executor | None,
    progress: bool,
) -> tuple[Columns, Reasons]:
    """Return the columns of all configurations; its caches are gone before garbage is collected again."""
    evaluation = Evaluation(space, asked, prices, size)
    results, reasons = empty_columns(asked, space.size), Reasons()
    with progress_bar("configurations", shown=progress) as report:
        done = 0
        for task, part in outcomes(evaluation, tasks_of(space), executor=executor):
            rows = task.rows_in(space)
            known = np.array([reasons.code(text) for text in part.reasons], dtype=np.int32)
            for name, column in part.columns.items():
                results[name][rows] = known[column] if name == REASON else column
            done += task.size
            report(done, space.size)
    return results, reasons


def _places(space: Space, name: str) -> range:
    axis = space.by_name.get(name)
    return range(0 if axis is None else len(axis))


def _check_batch_sizes(space: Space) -> None:
    """Reject a configuration without a batch size, as predict does."""
    global_sizes = (space.value("global_batch_size", code) for code in _places(space, "global_batch_size"))
    if space.graph.fixed_batch_size is not None or any(size is not None for size in global_sizes):
        return
    for code in _places(space, "batch_size") or (0,):
        resolved_batch_size(space.value("batch_size", code), None)
