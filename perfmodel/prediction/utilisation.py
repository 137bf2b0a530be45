"""How much of the devices' peak a step uses, as published figures count it: MFU, HFU, tokens per second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError
from perfmodel.graph.execution import Recompute, StopsEarly, blocks_of, wants_gradient, way_of
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.prediction.arguments.checks import one_of
from perfmodel.prediction.bill import processors_of
from perfmodel.records import Attention, Operation, Phase, Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perfmodel.graph import LayerGraph
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.prediction import Prediction

ATTENTION_FLOP: Final = ("full", "causal")
"""Which scores of causal attention count: all, as most papers count, or only those that are not masked."""
TRAINED_PASSES: Final = 3
"""Products of a trained layer (output, input gradient, weight gradient) over those of its output. [1]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Utilisation:
    """Share of the devices' peak that a step uses. Made by ``p.utilisation()``.

    Parameters
    ----------
    mfu : float
        Model FLOP utilisation: products of the network, forward and backward, without recomputation. [1]
    hfu : float
        Hardware FLOP utilisation: with products that run again in the backward phase. [1]
    model_flop, hardware_flop : float
        What the two count, of all devices in a step. [FLOP]
    peak_flop_per_s : float
        Dense peak of all devices in the job's data type, by their data sheet. [FLOP/s]
    device_count : int
        Devices of the job. [1]
    attention_flop : str
        ``full``: all scores count; ``causal``: those that a causal mask leaves. [-]
    """

    mfu: float
    hfu: float
    model_flop: float
    hardware_flop: float
    peak_flop_per_s: float
    device_count: int
    attention_flop: str

    def __str__(self) -> str:
        return (
            f"MFU {100 * self.mfu:.1f} %, HFU {100 * self.hfu:.1f} % of {self.peak_flop_per_s / 1e12:,.0f} TFLOP/s, "
            f"{self.attention_flop} attention"
        )


def _product_flop(operations: Iterable[Operation], *, attention_flop: str) -> float:
    """FLOP of products; for causal attention all scores count, or only those below the diagonal. [FLOP]"""
    total = 0.0
    for operation in operations:
        share = 1.0
        if attention_flop == "causal" and isinstance(operation, Attention) and operation.causal:
            share = (operation.keys + 1) / (2 * operation.keys)
        total += share * float(operation.product_flop_count)
    return total


def model_flop(graph: LayerGraph, *, trains: bool, attention_flop: str = "full") -> float:
    """FLOP of the products of a sample, forward and backward, which takes twice as many.

    Frozen layers have no weight gradients, and no backward phase at all if no trained layer comes before them.
    Recomputation and element-wise work do not count. [FLOP]

    Six times parameters and tokens, and attention (arXiv:2204.02311, appendix B): GPT-3, without its tables of words.

    >>> from perfmodel import zoo
    >>> gpt3 = zoo.gpt(layers=96, width=12288, heads=96, sequence_length=2048, vocabulary=1)
    >>> blocks, scores = 6 * 96 * 12 * 12288**2, 12 * 96 * 12288 * 2048
    >>> round(model_flop(gpt3, trains=True) / 2048 / (blocks + scores), 4)
    1.0
    """
    size = graph.fixed_batch_size
    wanted = wants_gradient(graph.input_shapes, graph.layers, input_gradient=False)
    frozen = {node.name for node in graph.layers if node.parameter_count and not node.trains_weights}
    total = 0.0
    for layer, operation in graph.operations(batch_size=size or 1, phase=Phase.FORWARD):
        of_weights = layer in frozen and not isinstance(operation, Attention)  # which multiplies activations alone
        passes = TRAINED_PASSES - of_weights if trains and wanted[layer] else 1
        total += passes * _product_flop((operation,), attention_flop=attention_flop)
    return total / (size or 1)


def recomputed_flop(graph: LayerGraph, *, recompute: Recompute, attention_flop: str = "full") -> float:
    """Products of a sample that run again in the backward phase. [FLOP]"""
    size = graph.fixed_batch_size
    pairs = graph.operations(batch_size=size or 1, phase=Phase.BACKWARD, recompute=recompute)
    recomputed = (operation for _, operation in pairs if operation.role is Role.OUTPUT)
    return _product_flop(recomputed, attention_flop=attention_flop) / (size or 1)


def tokens_per_sample(graph: LayerGraph) -> int | None:
    """Positions of a sample that an embedding looks up; None for a network without one. [1]"""
    shapes = [node.input_shapes[0] for node in graph.layers if node.layer.kind == "embedding"]
    lengths = [shape[0] for shape in shapes if len(shape) == 1 and isinstance(shape[0], int)]
    return max(lengths, default=None)


def has_data_sheet(p: Prediction) -> bool:
    """Tell whether a data sheet states the peak of the devices; a measured machine has none."""
    return not isinstance(p.basis.prepared.target.processor_spec, MeasuredMachine)


class Utilised:
    """Figures of a prediction by which language models are compared."""

    def utilisation(self: Any, *, attention_flop: str = "full") -> Utilisation:
        """Share of the devices' peak that the step uses.

        Parameters
        ----------
        attention_flop : str
            ``full``: every score of attention counts, as in most papers; ``causal``: those that a mask leaves. [-]

        Returns
        -------
        Utilisation
            MFU, HFU and what they count. [1]

        Raises
        ------
        UnknownNameError
            If ``attention_flop`` is neither.
        ArgumentError
            If the device has no data sheet, as a measured machine, or lists no peak for the data type.
        """
        return _utilisation(self, one_of("attention_flop", attention_flop, ATTENTION_FLOP))

    @derived_property
    def mfu(self: Any) -> float:
        """Model FLOP utilisation: products, forward and backward, over what the devices' data sheets promise. [1]"""
        return float(self.utilisation().mfu)

    @derived_property
    def hfu(self: Any) -> float:
        """Hardware FLOP utilisation: MFU with products that run again in the backward phase. [1]"""
        return float(self.utilisation().hfu)

    @property
    def tokens_per_s(self: Any) -> float:
        """Tokens of all counted workers per second; ArgumentError for a network that reads none. [1/s]"""
        tokens = tokens_per_sample(self.basis.prepared.subject.graph)
        if tokens is None:
            raise ArgumentError("network", self.subject, "must look up tokens in an embedding; else read samples_per_s")
        return float(tokens * self.samples_per_s)

    @property
    def tokens_per_s_per_device(self: Any) -> float:
        """``tokens_per_s`` over the devices of the job. [1/s]"""
        return float(self.tokens_per_s / processors_of(self))


def _recompute(prepared: Prepared) -> Recompute:
    """Return what runs again in the whole network: a number of blocks adds up over stages."""
    how, way = prepared.recompute, way_of(prepared.recompute)
    if not isinstance(way, int):
        return how
    count = sum(min(way, len(blocks_of(stage.placed.graph.layers))) for stage in prepared.stages)
    return StopsEarly(count) if isinstance(how, StopsEarly) else count


def _utilisation(p: Prediction, attention_flop: str) -> Utilisation:
    prepared = p.basis.prepared
    graph, spec = prepared.subject.graph, prepared.target.processor_spec
    if not has_data_sheet(p):
        raise ArgumentError("device", p.target, "must have a data sheet; a measured machine has none")
    devices = processors_of(p)
    # published figures divide by the peak of the data sheet, not by that at the clock which the power limit allows
    peak = devices * spec.product_peak_flop_per_s(p.dtype) if isinstance(spec, Gpu) else p.peak_flop_per_s
    samples = p.counted_workers * p.batch_size
    trains = Phase.BACKWARD in prepared.subject.phase.parts
    of_model = samples * model_flop(graph, trains=trains, attention_flop=attention_flop)
    rerun = recomputed_flop(graph, recompute=_recompute(prepared), attention_flop=attention_flop) if trains else 0.0
    of_hardware = of_model + samples * rerun
    promised = peak * p.step_s
    return Utilisation(
        mfu=of_model / promised,
        hfu=of_hardware / promised,
        model_flop=of_model,
        hardware_flop=of_hardware,
        peak_flop_per_s=peak,
        device_count=devices,
        attention_flop=attention_flop,
    )
