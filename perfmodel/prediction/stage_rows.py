"""The stages of a network on several devices, as a prediction lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from perfmodel.parallelism import StageGraph
    from perfmodel.prediction.scaling import Factors
    from perfmodel.prediction.spread import Spread


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage of a network on several devices.

    Parameters
    ----------
    stage : int
        In the order of the network. [1]
    devices : str
        Those of the first data-parallel worker; the others have the same. [-]
    layers : int
        Layers. [1]
    computing_s : float
        Forward and backward phases of all micro-batches on one device. [s]
    memory_bytes : float
        What such a device keeps, of all its stages. [B]
    sent_bytes : float
        What such a device sends in a step for this stage. [B]
    """

    stage: int
    devices: str
    layers: int
    computing_s: float
    memory_bytes: float
    sent_bytes: float


NO_STAGES: Final[Table[StageRow]] = Table((), row_type=StageRow)
"""Stages of a prediction whose workers have the whole network each."""


def stage_rows(spread: Spread, factors: Factors) -> Table[StageRow]:
    """Return all stages with what each computes, keeps and sends.

    Parameters
    ----------
    spread : Spread
        The network on devices. [-]
    factors : mapping of str to float
        Factors on constants by full name. [1]

    Returns
    -------
    Table of StageRow
        In the order of the network. [-]
    """
    layout = spread.placement.layout
    step = spread.parallel(factors)
    size = layout.micro_batch_size(spread.worker_batch_size)
    predictor = spread.predictor.with_factors(factors)
    rows = []
    for index, stage in enumerate(spread.stages):
        times = predictor(stage, size * stage.batch_factor)
        width = layout.tensor_size * stage.batch_factor
        first = stage.device * layout.tensor_size
        rows.append(
            StageRow(
                stage=index,
                devices=", ".join(spread.exchanges.names[first : first + width]),
                layers=len(stage.graph.layers),
                computing_s=layout.micro_batches * float(times.forward.step_s + times.backward.step_s),
                memory_bytes=float(step.memory[stage.device].total_bytes),
                sent_bytes=sent_bytes(spread, stage),
            )
        )
    headings = {"computing_s": "computing", "memory_bytes": "memory of the device", "sent_bytes": "sent"}
    return Table(rows, headings=headings, row_type=StageRow)


def sent_bytes(spread: Spread, stage: StageGraph) -> float:
    """Return what a device sends in a step for a stage.

    Parameters
    ----------
    spread : Spread
        The network on devices. [-]
    stage : StageGraph
        One of its stages, with the exchanges of recomputed layers. [-]

    Returns
    -------
    float
        Sum over all exchanges of a step. [B]
    """
    from perfmodel.prediction.parallel_sync import exchange_count

    layout = spread.placement.layout
    size = layout.micro_batch_size(spread.worker_batch_size) * stage.batch_factor
    return sum(
        exchange_count(exchange, micro_batches=layout.micro_batches)
        * spread.exchanges.sent_bytes(exchange, exchange.size_bytes(size), stage)
        for exchange in stage.exchanges
    )
