"""Predictions of a live check's networks from a calibration, and records that the check shares with its process."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError, PerfmodelError, PerfmodelWarning, check_known, package_for
from perfmodel.files import file_toml
from perfmodel.hardware.catalogue import load_device
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.importers.torch.module import from_torch
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.predict import predict
from perfmodel.records import ELEMENT_BYTES

if TYPE_CHECKING:
    from torch import Tensor, nn

    from perfmodel.graph import LayerGraph
    from perfmodel.records import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTensor:
    """An input of a network, without the sample axis."""

    shape: tuple[int, ...]
    below: int = 0

    def drawn(self, batch_size: int) -> Tensor:
        """Return a tensor of ``batch_size`` samples [samples], drawn at random."""
        import torch

        extents = (batch_size, *self.shape)
        return torch.randint(self.below, extents) if self.below else torch.randn(extents)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNetwork:
    """A network of the live check."""

    name: str
    builder: str
    inputs: tuple[InputTensor, ...]
    target: InputTensor
    batch_sizes: Mapping[str, int]
    zoo_builder: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    zoo_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    optimizer: str = "sgd"

    def module(self) -> nn.Module:
        """Return the network with torch's initial weights."""
        require_torch()
        made = getattr(import_module("perfmodel.validation.live.modules"), self.builder)(**self.options)
        assert made is not None
        return made  # type: ignore[no-any-return]

    @property
    def positions(self) -> int:
        """Scores of a sample: 1, or one for each step of a sequence. [1]"""
        return math.prod(self.target.shape)


def require_torch() -> None:
    """Raise if torch is missing."""
    package_for("torch", "the live check", "torch")


def _tensor(stated: Mapping[str, Any]) -> InputTensor:
    return InputTensor(**{**stated, "shape": tuple(stated["shape"])})


_STATED: Final = file_toml(Path(__file__).with_name("networks.toml"))
_NETWORKS: Final = tuple(
    LiveNetwork(**{**network, "inputs": tuple(map(_tensor, network["inputs"])), "target": _tensor(network["target"])})
    for network in _STATED["network"]
)
LIVE_NETWORKS: Final[Mapping[str, LiveNetwork]] = {network.name: network for network in _NETWORKS}
"""Networks by name, in the order in which they are measured."""


def find_networks(names: Sequence[str] | None) -> tuple[LiveNetwork, ...]:
    """Return networks of the live check."""
    for name in names or ():
        check_known("network of the live check", name, LIVE_NETWORKS)
    return tuple(network for network in _NETWORKS if not names or network.name in names)


MODES: Final[Mapping[str, str]] = {"step": "training step", "forward": "inference"}
"""Measured phases, and their names in reports."""

LIVE_DTYPES: Final = ("fp32", "tf32", "bf16")
"""Data types in which networks run: plain fp32, tf32 (a GPU rounds the operands of products) and bf16 under autocast.
fp16 is excluded: its training steps scale the loss, which no prediction counts."""


def processor_of(device: str) -> str:
    """Return the kind of processor, ``cpu`` or ``gpu``, of a device as torch names it."""
    return "cpu" if device == "cpu" else "gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCase:
    """A network in one phase and one data type."""

    network: str
    phase: str
    dtype: str
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePlan:
    """Settings of the measurement of all cases."""

    device: str
    threads: int
    cases: tuple[LiveCase, ...]
    repeats: int
    warmup_steps: int
    steps: int
    seconds: float

    @staticmethod
    def from_dict(plan: Mapping[str, Any]) -> LivePlan:
        """Return the plan from its fields as JSON has them."""
        cases = tuple(LiveCase(**case) for case in plan["cases"])
        return LivePlan(**{**plan, "cases": cases})


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMeasurement:
    """Times of one case."""

    case: LiveCase
    repeats_s: tuple[float, ...]
    reference_s: tuple[float, ...]
    failure: str = ""

    @property
    def median_s(self) -> float:
        """Median of the repeats. [s]"""
        return statistics.median(self.repeats_s)

    @property
    def spread_percent(self) -> float:
        """Longest minus shortest repeat, over the median. [%]"""
        return spread_percent(self.repeats_s)

    @property
    def reference_spread_percent(self) -> float:
        """Spread of the reference kernel while this case was measured. [%]"""
        return spread_percent(self.reference_s)


def spread_percent(seconds: tuple[float, ...]) -> float:
    """Return the longest minus the shortest time [s], over the median [%].

    >>> spread_percent((1.0, 1.1, 1.2))
    18.18
    """
    return 100 * (max(seconds) - min(seconds)) / statistics.median(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """All times of a live check."""

    measurements: tuple[LiveMeasurement, ...]
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def reference_spread_percent(self) -> float:
        """Spread of the reference kernel over the whole session. [%]"""
        times = tuple(seconds for measurement in self.measurements for seconds in measurement.reference_s)
        return spread_percent(times) if times else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePrediction:
    """Prediction of a case, with its naive rooflines."""

    case: LiveCase
    predicted_s: float
    interval_s: tuple[float, float]
    peaks_s: float
    datasheet_s: float | None
    remarks: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def imported(name: str, phase: str) -> tuple[LayerGraph, tuple[str, ...]]:
    """Import a live network from its torch module; also return the importer's warnings."""
    import torch

    from perfmodel.validation.live.modules import WithLoss, tensors

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
    messages = tuple(str(warning.message) for warning in caught if issubclass(warning.category, PerfmodelWarning))
    return graph, messages


def operations_of(case: LiveCase) -> list[Operation]:
    """Return the neutral operations of one step of ``case``, in order."""
    graph, _ = imported(case.network, case.phase)
    optimizer = LIVE_NETWORKS[case.network].optimizer
    pairs = graph.operations(batch_size=case.batch_size, phase=case.phase, optimizer=optimizer)
    return [operation for _, operation in pairs]


def roofline_s(operations: Iterable[Operation], *, flop_per_s: float, bytes_per_s: float, element_bytes: int) -> float:
    """Return the time of operations run one after the other, each limited by the peak or by the bandwidth."""
    seconds = 0.0
    for operation in operations:
        work = operation.work(element_bytes=element_bytes)
        seconds += max(work.flop_count / flop_per_s, work.moved_bytes / bytes_per_s)
    return float(seconds)


def check_datasheet(device: str, *, processor: str) -> None:
    """Reject a missing data sheet, or one of another kind of processor, before anything is measured."""
    kind = load_device(device).kind
    if kind != processor:
        raise ArgumentError("datasheet", device, f"a data sheet of a {processor.upper()}; this one is of a {kind}")


def predict_case(case: LiveCase, machine: MeasuredMachine, *, datasheet: str | None) -> LivePrediction:
    """Predict a case from a calibration and from naive rooflines; nothing is fitted to it."""
    graph, remarks = imported(case.network, case.phase)
    asked: dict[str, Any] = {"batch_size": case.batch_size, "phase": case.phase, "dtype": case.dtype}
    p = predict(graph, device=machine, optimizer=LIVE_NETWORKS[case.network].optimizer, **asked)
    roofline = partial(roofline_s, operations_of(case), element_bytes=ELEMENT_BYTES[case.dtype])
    peaks, stated = machine.peaks, None
    if datasheet is not None:
        try:
            vendor = resolve_target(device=datasheet, system=None, threads=machine.machine.threads)
            peak_flop_per_s = vendor.peak_flop_per_s(case.dtype)
            stated = roofline(flop_per_s=peak_flop_per_s, bytes_per_s=vendor.bandwidth_bytes_per_s)
        except PerfmodelError as error:  # e.g. no peak in a data type, or too few cores: leave the column empty
            remarks = (*remarks, f"no roofline of the data sheet {datasheet} in {case.dtype}: {error}")
    return LivePrediction(
        case=case,
        predicted_s=float(p.step_s),
        interval_s=p.interval_s,
        peaks_s=roofline(flop_per_s=peaks.gemm_flop_per_s[case.dtype], bytes_per_s=peaks.stream_bytes_per_s),
        datasheet_s=stated,
        remarks=remarks,
    )


def cases_of(networks: Sequence[LiveNetwork], *, processor: str, dtypes: Sequence[str]) -> tuple[LiveCase, ...]:
    """Return every case of some networks: each phase and data type, at the batch size for the kind of processor."""
    return tuple(
        LiveCase(network=network.name, phase=phase, dtype=dtype, batch_size=network.batch_sizes[processor])
        for network in networks
        for phase in MODES
        for dtype in dtypes
    )
