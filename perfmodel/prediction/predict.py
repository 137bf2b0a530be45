"""predict(): how long a training or inference step takes on a target, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import ArgumentError
from perfmodel.framework.profile import FrameworkProfile
from perfmodel.graph import LayerGraph
from perfmodel.graph.checkpoints import check_recompute
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.storage import Storage
from perfmodel.hardware.wired import Wired
from perfmodel.layers.optimizers import Optimizer
from perfmodel.measurements.run import Run
from perfmodel.prediction.arguments import (
    DTYPES,
    flag,
    of_type,
    one_of,
    resolved_batch_size,
    whole_number,
)
from perfmodel.prediction.asked import resolve_workers
from perfmodel.prediction.basis import Basis
from perfmodel.prediction.data_path_arguments import resolve_data_path
from perfmodel.prediction.prediction import Prediction
from perfmodel.prediction.prepared import Prepared, prepare
from perfmodel.prediction.scaling import NO_FACTORS, Factors
from perfmodel.prediction.spread_arguments import refuse_missing_devices, spread_arguments
from perfmodel.prediction.subject import Subject, subject_of_graph, subject_of_run
from perfmodel.prediction.target import Target
from perfmodel.prediction.targets import resolve_target

if TYPE_CHECKING:
    from perfmodel.hardware.calibration import CalibrationFile
    from perfmodel.hardware.device import Runnable
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.prediction.agreement import Agreement
    from perfmodel.prediction.data_path import DataPath
    from perfmodel.prediction.spread import SpreadAsked


def predict_subject(
    subject: Subject,
    *,
    target: Target,
    profile: FrameworkProfile,
    batch_size: int,
    dtype: str,
    library: str | Path | LibraryProfile | None,
    pinned: bool = True,
    calibration: CalibrationFile | None = None,
    factors: Factors | None = None,
    recompute: str | None = None,
    data_path: DataPath | None = None,
    agreement: Agreement | None = None,
    spread: SpreadAsked | None = None,
) -> Prediction:
    """Predict one step of a resolved subject on a resolved target.

    Parameters
    ----------
    subject : Subject
        What runs. [-]
    target : Target
        On what, with how many threads. [-]
    profile : FrameworkProfile
        With what. [-]
    batch_size : int
        Samples per step. [samples]
    dtype : str
        Data type. [-]
    library : str, Path, LibraryProfile or None
        A library in place of the one of its kind that the framework names. [-]
    pinned : bool
        False forces pageable copies where the framework would pin its buffers. [-]
    calibration : CalibrationFile or None
        Fitted factors on the constants of the files. [-]
    factors : mapping of str to float or None
        Factors by name of constant in place of a calibration's, while one is being fitted. [1]
    recompute : str or None
        Where checkpoints lie; None where the graph marks them, if anywhere. [-]
    data_path : DataPath or None
        What brings the mini-batches; None for ones that are in host memory. [-]
    agreement : Agreement or None
        How several workers agree; None where they have nothing to agree on. [-]
    spread : SpreadAsked or None
        How the network is spread over devices; None where every worker has the whole. [-]

    Returns
    -------
    Prediction
        Time, parts, memory and their reasons.
    """
    how: dict[str, Any] = {"target": target, "profile": profile, "batch_size": batch_size, "dtype": dtype}
    how |= {"library": library, "pinned": pinned, "recompute": recompute}
    prepared: Prepared
    if spread is None:
        prepared = prepare(subject, data_path=data_path, agreement=agreement, **how)
    else:
        from perfmodel.prediction.prepare_spread import prepare_spread

        prepared = prepare_spread(subject, spread, data_path=data_path, **how)
    if factors is None:
        factors = NO_FACTORS if calibration is None else _factors_of(calibration, prepared, target.name)
    timed = prepared.step(factors)
    plan = prepared.plan
    return Prediction(
        subject=subject.name,
        target=target.name,
        framework=target.software(profile),
        batch_size=batch_size,
        phase=subject.phase.value,
        dtype=dtype,
        threads=target.threads,
        parts=timed.parts,
        table=plan.table,
        groups=timed.groups,
        launch_gap_s=timed.numbers.launch_s,
        step_overhead_s=timed.numbers.step_overhead_s,
        peak_flop_per_s=target.peak_flop_per_s(dtype),
        memory_bandwidth_bytes_per_s=target.bandwidth_bytes_per_s,
        basis=Basis(
            prepared=prepared,
            factors=factors,
            timed=timed,
            calibration=calibration,
            library=library,
            recompute=recompute if spread is None else None,
        ),
    )


def _fit_of(calibration: str | Path | CalibrationFile) -> CalibrationFile:
    from perfmodel.hardware.calibration import load_fit

    return load_fit(calibration)


def _factors_of(calibration: CalibrationFile, prepared: Prepared, target: str) -> dict[str, float]:
    """Return a calibration's factors; one that changes nothing of a prediction was meant for another."""
    factors = calibration.factors_for(prepared.constant_names)
    if not factors:
        allowed = (
            f"one with a factor on a constant of {target}; this one was fitted on {calibration.fitted_on.subset} cells"
        )
        raise ArgumentError("calibration", calibration.name, allowed)
    return factors


def _refuse_contradiction(run: Run, *, framework: Any, optimizer: Any, phase: Any, dtype: Any, ran_dtype: str) -> None:
    """Raise if an argument says otherwise than the Run; left at its default it says nothing."""
    for argument, given, default, ran in (
        ("framework", framework, "generic", run.framework),
        ("optimizer", optimizer, "sgd", run.optimizer),
        ("phase", phase, "step", run.phase),
        ("dtype", dtype, "fp32", ran_dtype),
    ):
        if given not in (default, ran):
            raise ArgumentError(argument, given, f"{ran!r}, which the Run executed (or leave it out)")


def predict(
    graph: LayerGraph | Run,
    *,
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    device: str | Path | Runnable | None = None,
    system: str | Path | Wired | None = None,
    framework: str | Path | FrameworkProfile = "generic",
    threads: int | None = None,
    phase: str = "step",
    dtype: str = "fp32",
    optimizer: str | Optimizer = "sgd",
    recompute: str | None = None,
    workers: int = 1,
    parallelism: str = "data",
    sync: str = "ring_all_reduce",
    overlap: bool = True,
    bucket_bytes: float | str | None = None,
    server_count: int = 1,
    group_size: int | None = None,
    staleness_bound: int | None = None,
    stages: int = 1,
    micro_batches: int = 1,
    schedule: str = "1f1b",
    interleave: int = 1,
    tensor_size: int = 1,
    sequence_parallel: bool = False,
    shard_stage: int = 0,
    accumulation_steps: int = 1,
    backup_workers: int = 0,
    push_period: int = 1,
    pull_period: int = 1,
    straggler: Mapping[str, float] | None = None,
    library: str | Path | LibraryProfile | None = None,
    dataset: str | Path | Dataset | None = None,
    input_from: str | Path | Storage | None = None,
    prefetch: int = 1,
    pinned: bool = True,
    decode_cores: int | None = None,
    input_variation: float = 0.0,
    calibration: str | Path | CalibrationFile | None = None,
) -> Prediction:
    """Predict the time of one step, its parts, its memory and its bottleneck.

    Parameters
    ----------
    graph : LayerGraph or Run
        A network, or a Run of a measurement table: then batch size, framework, optimizer, phase and feed are what
        the measured script did, and only the hardware is asked for. A framework, optimizer or phase at its default
        does not override the Run's; any other that contradicts it is refused. [-]
    batch_size : int
        Samples per worker and step. [samples]
    global_batch_size : int
        Samples per step over all workers, instead of ``batch_size``. [samples]
    device : str, Path, Device or Calibration
        One GPU, one CPU socket, or a machine that was measured, with its software; a name, a path to a TOML, or what
        was loaded. [-]
    system : str, Path, System or Cluster
        A machine, all of whose CPU sockets work together, or, where it has GPUs, the first ``workers`` of them; or a
        cluster of such machines; instead of ``device``. [-]
    framework : str, Path or FrameworkProfile
        Framework profile. [-]
    threads : int
        CPU threads; None for one per physical core. Not for a GPU. [1]
    phase : str
        ``step`` (forward, backward, update), ``forward_backward`` or ``forward``. [-]
    dtype : str
        Data type of weights and activations, e.g. ``fp32``. [-]
    optimizer : str or Optimizer
        ``sgd``, ``momentum``, ``nesterov``, ``adam``, or an optimizer with options. [-]
    recompute : str
        None keeps every activation, but in regions that the graph marks. ``full`` keeps the inputs of blocks (wherever
        branches begin: a residual block, the attention or feed-forward part of a transformer) and runs each block's
        forward phase a second time before its backward phase; ``sqrt`` does so with about sqrt(n) segments of equal
        memory, n the places to cut. Only layers whose results back-propagation reads run again. [-]
    workers : int
        GPUs of the system that work, each on a mini-batch of its own. [1]
    sync : str
        How workers agree on parameters: all wait for all (``all_reduce`` as the framework's library of collectives
        does it at each size, ``ring_all_reduce``, ``binomial_tree``,
        ``recursive_doubling``, ``halving_doubling``, ``double_binary_tree``, ``hierarchical``, ``host_tree``,
        ``in_network``, ``one_to_all``, ``parameter_server``), they do not (``downpour``, ``delay_compensated``,
        ``bounded_staleness``, ``mixed``), or they exchange nothing (``none``). [-]
    overlap : bool
        Whether gradients are exchanged while back-propagation still runs. [-]
    bucket_bytes : float or str
        Gradients are exchanged once so many bytes of them are ready; 0 sends every layer's by itself, infinity all
        in one message; ``merged`` shares messages so that the step is shortest; None does as the framework. [B]
    server_count : int
        Shards of a parameter server, each in a host memory of its own. [1]
    group_size : int
        Workers that step together: of ``hierarchical`` those of a machine, of ``mixed`` all unless given. [1]
    staleness_bound : int
        Steps that a worker may be ahead of the slowest (``bounded_staleness``). [1]
    push_period, pull_period : int
        Steps of a worker between two visits of the server, of those that do not wait for one another. [1]
    straggler : mapping
        How long workers take in a step, relative to their mean: ``{"distribution": "normal", "cv": 0.1}``, likewise
        ``lognormal`` and ``shifted_exponential``, or ``{"distribution": "empirical", "times": [...]}``; or a lasting
        time of each over the predicted one: ``{"distribution": "unequal", "times": [1.0, 1.0, 2.0, 1.0]}``. [-]
    backup_workers : int
        Workers whose gradients of a step are not waited for, the slowest ones. [1]
    parallelism : str
        What devices share: ``data`` nothing, ``model`` and ``pipeline`` the layers, ``tensor`` each layer, ``hybrid``
        the dense layers. ``workers x stages x tensor_size`` devices work: tensor groups are neighbours. [-]
    stages, tensor_size : int
        Devices that have the layers one after the other, and that share each layer, of every worker. [1]
    micro_batches, accumulation_steps : int
        Parts of a worker's mini-batch, which follow one another, with one exchange and one update at the end. [1]
    schedule : str
        Order of a pipeline's work: ``1f1b``, ``gpipe`` or ``interleaved`` (``interleave`` stages on each device). [-]
    interleave : int
        Stages on each device of a pipeline. [1]
    sequence_parallel : bool
        Whether what lies between shared layers is shared too, by positions. [-]
    shard_stage : int
        What workers share: optimizer state (1), gradients (2), parameters (3), or nothing (0). [1]
    library : str, Path or LibraryProfile
        A BLAS or DNN library in place of the one of its kind that the framework file names. [-]
    dataset : str, Path or Dataset
        What is read and decoded for every step, by name or made in Python; None for mini-batches that are in host
        memory. [-]
    input_from : str, Path or Storage
        Where it is read from: a storage of the system by its name there, one by its file, or ``memory``; None for the
        system's own. [-]
    prefetch : int
        Mini-batches that are read and decoded ahead; with 0 reading, decoding and copying wait for the step before.
        Whether copies overlap with computing is otherwise the framework's habit. [1]
    pinned : bool
        False forces pageable host buffers. [-]
    decode_cores : int
        Cores of each host that decode; None for all of them. [1]
    input_variation : float
        Coefficient of variation (standard deviation over mean) of the time that preparing a mini-batch takes: what
        makes fetching several ahead worth it. Only with a dataset. [1]
    calibration : str, Path or CalibrationFile
        Fitted factors on the constants of the spec files, e.g. ``shi2016_gpu``; see :func:`perfmodel.fit`. [-]

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
    spread = spread_arguments(
        workers=workers,
        parallelism=parallelism,
        stages=stages,
        micro_batches=micro_batches,
        schedule=schedule,
        interleave=interleave,
        tensor_size=tensor_size,
        sequence_parallel=sequence_parallel,
        shard_stage=shard_stage,
        accumulation_steps=accumulation_steps,
    )
    of_type("dataset", dataset, (str, Path, Dataset), "a name, a path to a .toml file, or a Dataset")
    storages = "a storage of the system by its name, one by its name or path to a .toml file, a Storage, or 'memory'"
    of_type("input_from", input_from, (str, Path, Storage), storages)
    if device is None and system is not None and not isinstance(system, Wired):
        system = load_system(system)
    refuse_missing_devices(spread, system if isinstance(system, Wired) else None)
    target = resolve_target(device=device, system=system, threads=threads, workers=spread.device_count)
    data_path = resolve_data_path(
        target,
        dataset=dataset,
        input_from=input_from,
        prefetch=whole_number("prefetch", prefetch, minimum=0),
        decode_cores=decode_cores,
        input_variation=input_variation,
    )
    dtype = one_of("dtype", dtype, DTYPES)
    if isinstance(graph, Run):
        ran_dtype = graph.dtype_on(target.processor)
        _refuse_contradiction(
            graph, framework=framework, optimizer=optimizer, phase=phase, dtype=dtype, ran_dtype=ran_dtype
        )
        dtype = ran_dtype
        subject, framework = subject_of_run(graph), graph.framework
        batch_size = graph.batch_size if batch_size is None and global_batch_size is None else batch_size
    else:
        subject = subject_of_graph(graph, optimizer=optimizer, phase=phase)
        batch_size = graph.fixed_batch_size if batch_size is None and global_batch_size is None else batch_size
    profile = target.profile_of(framework)
    agreed = {
        "sync": sync,
        "overlap": overlap,
        "bucket_bytes": bucket_bytes,
        "server_count": server_count,
        "group_size": group_size,
        "staleness_bound": staleness_bound,
        "push_period": push_period,
        "pull_period": pull_period,
        "straggler": straggler,
        "backup_workers": backup_workers,
    }
    asked, agreement = resolve_workers(agreed, spread, target=target, subject=subject, profile=profile, dtype=dtype)
    return predict_subject(
        subject,
        target=target,
        profile=profile,
        batch_size=resolved_batch_size(batch_size, global_batch_size, workers=spread.workers),
        dtype=dtype,
        library=library,
        pinned=flag("pinned", pinned),
        calibration=None if calibration is None else _fit_of(calibration),
        recompute=check_recompute(recompute),
        data_path=data_path,
        agreement=agreement,
        spread=asked,
    )
