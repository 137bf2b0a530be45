"""search(): the best layout of a job over many devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.model_state import leaves_free
from perfmodel.cost.money import hire_cost
from perfmodel.cost.pipeline_order import MOST_TURNS
from perfmodel.errors import ArgumentError, UnknownNameError, is_one_of
from perfmodel.framework.profile import load_framework
from perfmodel.graph.execution import keeps_scores
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.cluster import several, system_with
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.system import MOST_DEVICES, MOST_MACHINES
from perfmodel.hardware.wiring import Wired
from perfmodel.parallelism.base import AFTER_UPDATE, MEGATRON
from perfmodel.parallelism.combine import tensor_shard
from perfmodel.planning.search.answer import OBJECTIVES, Search, device_counts
from perfmodel.planning.search.axes import AXES, FOLLOWING, Setting
from perfmodel.planning.search.grid import Grid, checked_limits, grid_of
from perfmodel.planning.search.programs.program import Rule, read_by_rules
from perfmodel.planning.sweeps.results import FITS, NO_FIT, REASON, Reasons, checked_columns
from perfmodel.planning.sweeps.space import listed_values, space_in_columns
from perfmodel.planning.sweeps.sweep import swept
from perfmodel.prediction.arguments.checks import flag, from_zero_to, one_of, whole_number
from perfmodel.prediction.arguments.table import DEFAULTS, of_spec
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.device.step_time import PARTS
from perfmodel.prediction.device_prices import Prices, check_names, prices_of
from perfmodel.prediction.job.agreement_options import LIBRARY
from perfmodel.prediction.totals import TrainingRun, checked_run
from perfmodel.prediction.utilisation import model_flop, tokens_per_sample
from perfmodel.presentation.quantities import percent_text
from perfmodel.records import Attention, Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph
    from perfmodel.planning.sweeps.answer import Sweep

RESERVE: Final = 0.08
"""Share of a device's memory that is left free unless the caller says otherwise. [1]"""

COLUMNS: Final = ("memory_bytes", "capacity_bytes", *PARTS, "launch_s", "step_s")
"""Result columns of every layout, for any objective."""

NARROW: Final = ("bf16", "fp16", "fp32")
"""Usual data types for training; the first that a device has is taken."""

LEFT_OUT: Final = ("batch_size", "parallelism", "phase", "calibration")
"""Arguments of ``predict`` that a search does not take."""


@gated
def search(
    graph: LayerGraph,
    *,
    system: str | Path | Wired,
    devices: int | Iterable[int] | None = None,
    global_batch_size: int,
    objective: str = "time",
    tokens: float | None = None,
    samples: float | None = None,
    reserve: float = RESERVE,
    limits: Mapping[str, int] | None = None,
    usd_per_hour: float | Mapping[str, float] | None = None,
    checkpoint_s: float = 0.0,
    checkpoint_every_s: float | None = None,
    failures_per_device_day: float = 0.0,
    restart_s: float = 0.0,
    evaluation_s: float = 0.0,
    evaluate_every: int | None = None,
    progress: bool = False,
    **arguments: Any,
) -> Search:
    """Find the best layout: workers, tensor group, stages, schedule, sharing, micro-batch, recomputation.

    Parameters
    ----------
    graph : LayerGraph
        A network. [-]
    system : str, Path, System or Cluster
        System with the devices; a machine is repeated on its usual fabric until it has enough. [-]
    devices : int, iterable of int or None
        Devices of a layout, all of which work; several numbers are compared. None for all of the system. [1]
    global_batch_size : int
        Samples per step over all workers. [samples]
    objective : str
        ``time``, ``money``, ``energy`` or ``mfu``: the best layout needs the least, or has the highest MFU. [-]
    tokens, samples : float or None
        Length of the run, either of them; adds days, device-hours and USD of the whole. [1]
    reserve : float
        Share of the device's memory to leave free, as ``reserve_fraction`` of :func:`perfmodel.max_batch_size`, whose
        default is 0. [1]
    limits : mapping of str to int
        The most that an argument may be, e.g. ``{"stages": 2, "micro_batch_size": 4}``. [1]
    usd_per_hour : float or mapping of str to float
        Price of a device, as in :func:`perfmodel.sweep`. [USD/h]
    checkpoint_s : float
        Time that a checkpoint stops the run. [s]
    checkpoint_every_s : float or None
        Work between two checkpoints; None for the interval that loses least time, or none without failures. [s]
    failures_per_device_day : float
        Failures of a device in a day, each of which stops the run. [1/day]
    restart_s : float
        Time from a failure until work resumes. [s]
    evaluation_s : float
        Time of an evaluation. [s]
    evaluate_every : int or None
        Steps between two evaluations; None for none. [1]
    progress : bool
        Whether to show a progress bar on the error stream. [-]
    **arguments : object
        Arguments of :func:`perfmodel.predict` and ``micro_batch_size``, each one value, or a list of values to try.
        Those that a search varies by itself are ``tensor_size``, ``context_size``, ``context_method``, ``stages``,
        ``schedule``, ``interleave``, ``shard_stage``, ``shard_group``, ``recompute``, ``micro_batch_size``,
        ``accumulation_steps`` and ``no_sync``; it sets ``dtype``, ``sequence_parallel`` and ``stage_cut``. [-]

    Returns
    -------
    Search
        ``best``, ``rows``, ``front``, ``by_memory``, ``refused``, ``certainty``; prints, ``plot()``, ``to_frame()``.

    Raises
    ------
    ArgumentError
        If a value is not allowed, the system lacks the devices, or no layout divides the batch; says what is allowed.
    UnknownNameError
        If a name is unknown; names the nearest.

    Notes
    -----
    Valid for: as :func:`perfmodel.predict`, which each row equals. Every layout that divides devices and batch, and
    that the framework's training program starts if it names one, is evaluated, by the composition that a sweep uses.
    Ignores: how a layout changes the training itself, and layouts that leave devices idle.

    Examples
    --------
    >>> import perfmodel as pm
    >>> gpt = pm.zoo.gpt(layers=4, width=512, heads=8, sequence_length=512)
    >>> s = pm.search(gpt, system="dgx_h100", devices=8, global_batch_size=64, optimizer="adamw")
    >>> s.best.job.workers, s.best.job.stages
    (8, 1)
    """
    one_of("objective", objective, tuple(OBJECTIVES))
    _refuse(arguments)
    reserve = _checked_reserve(reserve)
    batch = whole_number("global_batch_size", global_batch_size)
    length = tokens_per_sample(graph)
    run = checked_run(
        tokens=tokens,
        samples=samples,
        tokens_per_sample=length,
        global_batch_size=batch,
        pauses={
            "checkpoint_s": checkpoint_s,
            "checkpoint_every_s": checkpoint_every_s,
            "failures_per_device_day": failures_per_device_day,
            "restart_s": restart_s,
            "evaluation_s": evaluation_s,
            "evaluate_every": evaluate_every,
        },
    )
    place = _placed(system, devices, machines=arguments.pop("machines", None), device=arguments.pop("device", None))
    at_most = checked_limits(limits)
    stated = {name: arguments.pop(name) for name in list(arguments) if name in _VARIED}
    setting = _setting(graph, place, batch, arguments)
    grid = _with_lists(grid_of(setting, {"devices": list(place.counts)} | stated, at_most), arguments)
    same = {"system": place.system, "global_batch_size": batch, "parallelism": "pipeline"}
    same |= {name: value for name, value in arguments.items() if not _is_list(value)}
    grid = grid.started(_layouts_by_framework(grid, same), same | read_by_rules(graph))
    _check_turns(grid, batch)
    space = space_in_columns(graph, same, grid.arguments())
    results = checked_columns((*COLUMNS, *(("energy_j",) if objective == "energy" else ())))
    evaluated = swept(space, results, progress=flag("progress", progress))
    prices = prices_of(usd_per_hour)
    check_names(usd_per_hour, [place.processor])
    how: dict[str, Any] = {"objective": objective, "reserve": reserve, "batch": batch}
    return _answer(graph, evaluated, place, prices, run, grid=grid, **how)


_VARIED: Final = frozenset({*(axis.name for axis in AXES), *FOLLOWING} - {"devices"})
"""Arguments whose values a search chooses unless the caller does."""


def _refuse(arguments: Mapping[str, Any]) -> None:
    known = {*DEFAULTS, "micro_batch_size"} - {*LEFT_OUT}
    for name, value in arguments.items():
        if name in LEFT_OUT:
            raise ArgumentError(name, value, "left out: a search trains whole steps of global_batch_size samples")
        if name not in known:
            kind = "argument of search"
            raise UnknownNameError(kind, name, known)


def _checked_reserve(reserve: Any) -> float:
    try:
        share = from_zero_to(1, "reserve", reserve)
    except ArgumentError:
        share = 1.0
    if share >= 1:
        raise ArgumentError("reserve", reserve, f"a share of the memory, at least 0 and below 1, e.g. {RESERVE:g}")
    return share


@dataclass(frozen=True, eq=False, kw_only=True)
class _Place:
    """Devices of a system, and the numbers of them that layouts may use."""

    system: Wired
    counts: tuple[int, ...]
    machine_devices: int

    @property
    def processor(self) -> Any:
        """The device."""
        return self.system.devices[0][1]


def _placed(system: Any, devices: Any, *, machines: Any, device: Any) -> _Place:
    """Return the system that has the devices: more machines of its kind if it is one machine."""
    wired = system_with(system, device=device) if device is not None else _loaded(system)
    if machines is not None:
        wired = several(wired, machines)
    have = len(wired.devices)
    if not have:
        raise ArgumentError("system", wired.name, "one with GPUs, as layouts spread a network over GPUs")
    machine_devices = have // len(wired.hosts)
    if devices is None:
        counts: tuple[int, ...] = (have,)
    else:
        stated = list(devices) if _is_list(devices) else [devices]
        counts = tuple(whole_number("devices", count) for count in stated)
    if not counts:
        raise ArgumentError("devices", devices, "one number, or a list of at least one")
    if max(counts) > have and machines is None and len(wired.hosts) == 1:
        most = machine_devices * min(MOST_MACHINES, MOST_DEVICES // machine_devices)
        if max(counts) > most and getattr(wired.file, "fabric", None) is not None:
            raise ArgumentError("devices", max(counts), f"at most {most:,}, those of as many machines as a cluster has")
        try:
            wired = several(wired, -(-max(counts) // machine_devices))
        except ArgumentError as error:
            if error.argument != "machines":
                raise
    have = len(wired.devices)
    if max(counts) > have:
        raise ArgumentError("devices", max(counts), f"at most {have}, the devices of {wired.name}")
    return _Place(system=wired, counts=counts, machine_devices=machine_devices)


def _loaded(system: Any) -> Wired:
    return system if isinstance(system, Wired) else load_system(system)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | range | set | frozenset)


def _setting(graph: LayerGraph, place: _Place, batch: int, arguments: Mapping[str, Any]) -> Setting:
    operations = graph.operations(batch_size=graph.fixed_batch_size or 1, phase=Phase.FORWARD)
    blocks = sum(isinstance(operation, Attention) for _, operation in operations)
    known = place.processor.dtypes if isinstance(place.processor, Gpu) else ()
    framework = arguments.get("framework", DEFAULTS["framework"])
    profiles = [_profile(each) for each in (framework if _is_list(framework) else [framework])]
    return Setting(
        devices=max(place.counts),
        machine_devices=place.machine_devices,
        block_count=blocks or len(graph.weighted_layers),
        global_batch_size=batch,
        trains=True,
        narrow_dtype=next((dtype for dtype in NARROW if dtype in known), "fp32"),
        positions=tokens_per_sample(graph),
        adds_up_copies=is_one_of(arguments.get("sync"), (LIBRARY,)),
        sums_once=all(profile.exchange.stage_2_gathers != AFTER_UPDATE for profile in profiles),
        materialised=any(map(keeps_scores, graph.layers)),
        divides_sequences=_divides_sequences(graph),
    )


def _divides_sequences(graph: LayerGraph) -> bool:
    """Tell whether a tensor group can divide the layers between shared ones by positions."""
    try:
        tensor_shard(graph, tensor_size=2, element_bytes=2, sequence_parallel=True, habits=MEGATRON)
    except ArgumentError as error:
        return error.argument != "sequence_parallel"
    return True


def _profile(framework: Any) -> FrameworkProfile:
    return load_framework(of_spec("framework", framework))


def _layouts_by_framework(grid: Grid, same: Mapping[str, Any]) -> list[tuple[FrameworkProfile, NDArray[np.intp]]]:
    """Return each framework with its layouts."""
    if "framework" not in grid.columns:
        return [(_profile(same.get("framework", DEFAULTS["framework"])), np.arange(len(grid)))]
    column = grid.columns["framework"].tolist()
    rows: dict[int, list[int]] = {}
    for row, value in enumerate(column):
        rows.setdefault(id(value), []).append(row)
    return [(_profile(column[own[0]]), np.array(own)) for own in rows.values()]


MOST_SEARCHED: Final = 10_000_000
"""Most layouts that a search looks at. [1]"""


MOST_PLAYED: Final = 100_000_000
"""Most turns of pipelines, of all layouts together, that a search plays: some minutes. [1]"""


def _check_turns(grid: Grid, batch: int) -> None:
    """Refuse batches, such as those with a zero too many, for which pipelines would be played for hours."""
    columns = grid.columns
    turns = 2 * columns["stages"] * columns["interleave"] * columns["micro_batches"]
    # predict refuses a layout with more turns at once
    played = int(turns[(columns["stages"] > 1) & (turns <= MOST_TURNS)].sum())
    if played > MOST_PLAYED:
        allowed = (
            f"smaller, or with limits={{'micro_batches': {LIMIT_SHOWN}}}: pipelines of all layouts have {played:,} "
            f"turns, and a search plays at most {MOST_PLAYED:,}"
        )
        raise ArgumentError("global_batch_size", batch, allowed)


LIMIT_SHOWN: Final = 1024
"""Micro-batches of a step that are enough to fill any pipeline in use. [1]"""


def _with_lists(grid: Grid, arguments: Mapping[str, Any]) -> Grid:
    """Return layouts with every combination of the other arguments that are lists."""
    for name, listed in arguments.items():
        if _is_list(listed):
            values = listed_values(name, listed)
            if len(grid) * len(values) > MOST_SEARCHED:
                raise ArgumentError(name, listed, f"values that make at most {MOST_SEARCHED:,} layouts")
            grid = grid.crossed(name, values)
    return grid


def _answer(
    graph: LayerGraph,
    swept: Sweep,
    place: _Place,
    prices: Prices,
    run: TrainingRun | None,
    *,
    objective: str,
    reserve: float,
    batch: int,
    grid: Grid,
) -> Search:
    results = dict(swept.results)
    step_s = results["step_s"]
    counts = device_counts(swept)
    device = place.processor
    price = prices.of(str(device.stem))
    if objective == "money" and math.isnan(price):
        allowed = f"must not be 'money' here: {prices.missing(str(device.stem))}"
        raise ArgumentError("objective", objective, allowed)
    results["mfu"] = batch * model_flop(graph, trains=True) / (_peaks(swept, device) * counts * step_s)
    results |= _run_columns(run, step_s, counts, price)
    results[FITS], results[REASON], reasons = _within(swept, reserve)
    layouts = replace(swept, results=results, reasons=reasons)
    return Search(
        graph=graph,
        layouts=layouts,
        objective=objective,
        reserve=reserve,
        run=run,
        usd_per_hour=None if math.isnan(price) else price,
        machine_devices=place.machine_devices,
        left_out=grid.left_out,
        notes=(*_notes(swept, prices, str(device.stem), reserve), *map(_none_starts, grid.unmet)),
    )


def _peaks(swept: Sweep, device: Any) -> NDArray[np.float64]:
    """Dense peak of a device in the data type of each row. [FLOP/s]"""
    if not isinstance(device, Gpu):
        return np.full(len(swept), math.nan)
    known = {dtype: device.product_peak_flop_per_s(dtype) for dtype in device.dtypes}
    return np.array([known.get(dtype, math.nan) for dtype in swept["dtype"].tolist()])


def _run_columns(run: TrainingRun | None, step_s: Any, counts: Any, price: float) -> dict[str, Any]:
    with np.errstate(over="ignore"):  # such a search is refused, naming the argument
        if run is None:
            return {"usd": hire_cost(duration_s=step_s, usd_per_hour=price, instance_count=counts)}
        totals = run.totals(step_s, device_count=counts, usd_per_hour=price)
    return {"days": totals.days, "device_hours": totals.device_hours, "usd": totals.usd}


def _within(swept: Sweep, reserve: float) -> tuple[NDArray[np.bool_], NDArray[np.int32], tuple[str, ...]]:
    """Tell which layouts fit with a reserve, and add a reason for those that only fit without it."""
    needed, capacity = swept.results["memory_bytes"], swept.results["capacity_bytes"]
    fits = swept.results[FITS] & leaves_free(needed, capacity_bytes=capacity, reserve=reserve)
    reasons = Reasons(list(swept.reasons), {text: code for code, text in enumerate(swept.reasons)})
    codes = swept.results[REASON].copy()
    codes[swept.results[FITS] & ~fits] = reasons.code(f"{NO_FIT} with {percent_text(reserve)} of the memory left free")
    return fits, codes, tuple(reasons.texts)


def _notes(swept: Sweep, prices: Prices, device: str, reserve: float) -> tuple[str, ...]:
    notes = [f"{percent_text(reserve)} of each device's memory is left free (reserve={reserve:g})"]
    if "optimizer" not in swept.space.by_name:
        notes.append("the optimizer is sgd, predict's default; adamw keeps two more values of every parameter")
    if (missing := prices.missing(device)) != "":
        notes.append(f"no price: {missing}")
    return tuple(notes)


def _none_starts(rule: Rule) -> str:
    return f"the training program starts none of these layouts: {rule.argument} must be {rule.allowed}"
