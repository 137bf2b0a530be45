"""What is predicted of the live check's networks: our time, and what naive rooflines say."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perfmodel.errors import ArgumentError, PerfmodelError, PerfmodelWarning
from perfmodel.hardware.catalogue import load_device
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.importers.torch.module import from_torch
from perfmodel.prediction.predict import predict
from perfmodel.prediction.targets import resolve_target
from perfmodel.records import ELEMENT_BYTES
from perfmodel.validation.live_networks.catalogue import LIVE_NETWORKS, LiveNetwork
from perfmodel.validation.live_records import MODES, LiveCase

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.records import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a naive roofline knows of a machine.

    Parameters
    ----------
    name : str
        Whose rates they are. [-]
    flop_per_s : float
        Peak. [FLOP/s]
    bytes_per_s : float
        Bandwidth. [B/s]
    """

    name: str
    flop_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePrediction:
    """What is said of a case before it is measured.

    Parameters
    ----------
    case : LiveCase
        What is predicted. [-]
    predicted_s : float
        By the calibration. [s]
    interval_s : tuple of float
        Its 80 % interval. [s]
    peaks_s : float
        By the roofline of the measured peak and bandwidth. [s]
    datasheet_s : float or None
        By that of the data sheet; None where nothing names one, or it says nothing of the case. [s]
    remarks : tuple of str
        What the import of the network warned of, and why there is no roofline of the data sheet. [-]
    """

    case: LiveCase
    predicted_s: float
    interval_s: tuple[float, float]
    peaks_s: float
    datasheet_s: float | None
    remarks: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def imported(name: str, phase: str) -> tuple[LayerGraph, tuple[str, ...]]:
    """Return a live network as its torch module says it is.

    Parameters
    ----------
    name : str
        Name in the catalogue. [-]
    phase : str
        ``step``: with its loss, as it trains; ``forward``: its scores, as it infers. [-]

    Returns
    -------
    LayerGraph
        The graph. [-]
    tuple of str
        What the import warned of. [-]
    """
    import torch

    from perfmodel.validation.live_networks.objective import WithLoss, tensors

    network = LIVE_NETWORKS[name]
    training = phase == "step"
    with torch.device("meta"):
        module = network.module()
        target, inputs = tensors(network, batch_size=2, device="meta")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PerfmodelWarning)
        example: Any = (target, *inputs) if training else inputs
        graph = from_torch(
            WithLoss(module) if training else module, example, training=training, name=name, progress=False
        )
    told = tuple(str(each.message) for each in caught if issubclass(each.category, PerfmodelWarning))
    return graph, told


def operations_of(case: LiveCase) -> list[Operation]:
    """Return the neutral operations of one step of ``case``, in order."""
    graph, _ = imported(case.network, case.phase)
    optimizer = LIVE_NETWORKS[case.network].optimizer
    pairs = graph.operations(batch_size=case.batch_size, phase=case.phase, optimizer=optimizer)
    return [operation for _, operation in pairs]


def roofline_s(operations: Iterable[Operation], rates: Rates, *, element_bytes: int) -> float:
    """Return the time of operations one after the other, each at the peak or at the bandwidth.

    Parameters
    ----------
    operations : iterable of Operation
        What is computed. [-]
    rates : Rates
        Peak and bandwidth. [-]
    element_bytes : int
        Size of one element. [B]

    Returns
    -------
    float
        Sum of max(FLOP / peak, bytes / bandwidth): the roofline, without launches, caches or efficiencies. [s]

    Examples
    --------
    >>> from perfmodel.records import Contraction
    >>> rates = Rates(name="mine", flop_per_s=1e9, bytes_per_s=1e9)
    >>> roofline_s([Contraction(m=100, n=100, k=100)], rates, element_bytes=4)
    0.002
    """
    seconds = 0.0
    for operation in operations:
        work = operation.work(element_bytes=element_bytes)
        seconds += max(work.flop_count / rates.flop_per_s, work.moved_bytes / rates.bytes_per_s)
    return float(seconds)


def measured_rates(machine: MeasuredMachine, *, dtype: str) -> Rates:
    """Return the best product and the best stream of a calibration, in one data type."""
    peaks = machine.peaks
    return Rates(name=machine.name, flop_per_s=peaks.gemm_flop_per_s[dtype], bytes_per_s=peaks.stream_bytes_per_s)


def datasheet_rates(device: str, *, threads: int | None, dtype: str) -> Rates:
    """Return what a vendor states.

    Parameters
    ----------
    device : str
        Name or path of a device file. [-]
    threads : int or None
        CPU threads that work; None on a GPU. [1]
    dtype : str
        Data type. [-]

    Returns
    -------
    Rates
        Peak of the threads and bandwidth of the memory. [-]

    Raises
    ------
    UnknownNameError, SpecError
        If there is no such device, or its file is wrong.
    ArgumentError
        If it has fewer cores than threads.
    """
    target = resolve_target(device=device, system=None, threads=threads)
    return Rates(name=target.name, flop_per_s=target.peak_flop_per_s(dtype), bytes_per_s=target.bandwidth_bytes_per_s)


def check_datasheet(device: str, *, processor: str) -> None:
    """Refuse a data sheet that there is not, or of another kind of processor, before anything is measured.

    Parameters
    ----------
    device : str
        Name or path of a device file. [-]
    processor : str
        ``cpu`` or ``gpu``. [-]

    Raises
    ------
    UnknownNameError, SpecError
        If there is no such device, or its file is wrong.
    ArgumentError
        If it is of another kind.
    """
    kind = load_device(device).kind
    if kind != processor:
        raise ArgumentError("datasheet", device, f"one of a {processor.upper()}; this one is of kind {kind!r}")


def predict_case(case: LiveCase, machine: MeasuredMachine, *, datasheet: str | None) -> LivePrediction:
    """Return what a calibration and the naive rooflines say of a case; nothing is fitted on it.

    Parameters
    ----------
    case : LiveCase
        What is predicted. [-]
    machine : MeasuredMachine
        The calibration. [-]
    datasheet : str or None
        Device file with the vendor's facts. [-]

    Returns
    -------
    LivePrediction
        Times. [-]
    """
    graph, remarks = imported(case.network, case.phase)
    optimizer = LIVE_NETWORKS[case.network].optimizer
    p = predict(
        graph,
        batch_size=case.batch_size,
        device=machine,
        phase=case.phase,
        dtype=case.dtype,
        optimizer=optimizer,
    )
    operations, element_bytes = operations_of(case), ELEMENT_BYTES[case.dtype]
    stated = None
    if datasheet is not None:
        try:
            rates = datasheet_rates(datasheet, threads=machine.machine.threads, dtype=case.dtype)
            stated = roofline_s(operations, rates, element_bytes=element_bytes)
        except PerfmodelError as error:  # as where it has no peak in a data type, or fewer cores: a column less
            remarks = (*remarks, f"no roofline of the data sheet {datasheet} in {case.dtype}: {error}")
    return LivePrediction(
        case=case,
        predicted_s=float(p.step_s),
        interval_s=p.interval_s,
        peaks_s=roofline_s(operations, measured_rates(machine, dtype=case.dtype), element_bytes=element_bytes),
        datasheet_s=stated,
        remarks=remarks,
    )


def cases_of(networks: Sequence[LiveNetwork], *, processor: str, dtypes: Sequence[str]) -> tuple[LiveCase, ...]:
    """Return every case of some networks: each phase and data type, at the batch size of a kind of processor.

    Parameters
    ----------
    networks : sequence of LiveNetwork
        Which. [-]
    processor : str
        ``cpu`` or ``gpu``. [-]
    dtypes : sequence of str
        Data types. [-]

    Returns
    -------
    tuple of LiveCase
        Cases, network by network. [-]
    """
    return tuple(
        LiveCase(network=each.name, phase=phase, dtype=dtype, batch_size=each.batch_sizes[processor])
        for each in networks
        for phase in MODES
        for dtype in dtypes
    )
