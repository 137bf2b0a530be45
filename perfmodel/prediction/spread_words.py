"""What ``explain()`` says of a network on several devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.prediction.agreement_words import ALONE
from perfmodel.prediction.data_path_words import STAGE_NAMES, source_words
from perfmodel.presentation.quantities import bytes_text, percent_text, seconds_text
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.prediction.prediction import Prediction


def spread_words(p: Prediction) -> str:
    """Return a paragraph on how a network is spread, and what that costs.

    Parameters
    ----------
    p : Prediction
        A prediction of a network on several devices, or of several micro-batches. [-]

    Returns
    -------
    str
        Devices and what each does; bubbles, exchanges, and the device that all wait for. Empty for a whole network.
    """
    if p.spread is None or p.basis is None:
        return ""
    layout, rows = p.spread.placement.layout, p.stages
    said = [
        f"{layout.workers} devices work ({p.spread.placement.parallelism} parallelism): {layout.data_size} x "
        f"{layout.stages} stages x {layout.tensor_size} that share each layer, in {layout.micro_batches} "
        f"micro-batches of {layout.micro_batch_size(p.batch_size)} samples."
    ]
    if len(rows) > 1:
        longest = max(rows, key=lambda row: row.computing_s)
        said.append(
            f"Of {len(rows)} stages number {longest.stage} computes longest, {seconds_text(longest.computing_s)}; the "
            f"shortest takes {seconds_text(min(row.computing_s for row in rows))}. Layers and arithmetic listed here "
            f"are those of the device that works longest."
        )
    if p.bubble_s:
        said.append(f"It waits {seconds_text(p.bubble_s)} for others ({percent_text(p.bubble_s / p.step_s)}).")
    sent_bytes = max(row.sent_bytes for row in rows)
    if sent_bytes:
        said.append(
            f"A device sends up to {bytes_text(sent_bytes)} a step for one stage; its exchanges take "
            f"{seconds_text(p.sync_s)}, and with what transfers delay, {seconds_text(p.exposed_sync_s)} are exposed."
        )
    said += _of_inference(p) if p.phase == Phase.FORWARD else _of_agreement(p)
    return " ".join([*said, *_of_input(p)])


def _of_inference(p: Prediction) -> list[str]:
    """Say what mini-batches without a pause between them would take: nothing flows back that they wait for."""
    rows = p.stages
    layout = p.spread.placement.layout  # type: ignore[union-attr]
    if layout.stages == 1:
        return []
    step = p.spread.parallel(p.basis.factors)  # type: ignore[union-attr]
    works_s = [
        sum(step.forward_s[place] for place in range(len(rows)) if place % layout.stages == device)
        for device in range(layout.stages)
    ]
    period_s = layout.micro_batches * float(max([*works_s, *step.forward_send_s]))
    return [
        f"This is the time of one mini-batch from end to end; where the next one follows without a pause, one leaves "
        f"every {seconds_text(period_s)}."
    ]


def _of_agreement(p: Prediction) -> list[str]:
    spread = p.spread
    assert spread is not None
    if spread.worker_count == 1:
        return []
    if not spread.exchanges_gradients and spread.agreement is None:
        return [ALONE]
    said = [f"{spread.worker_count} workers agree by {spread.asked.agreed.sync}."]
    if p.straggler_s:
        said.append(f"Waiting for slower workers takes {seconds_text(p.straggler_s)}.")
    if spread.agreement is not None:
        said.append(f"A gradient has missed {p.mean_staleness:.3g} updates of others when it is applied.")
    return said


def _of_input(p: Prediction) -> list[str]:
    path = p.data_path
    if path is None or path.dataset is None:
        return []
    stages = path.stages(p.batch_size)
    listed = ", ".join(f"{STAGE_NAMES[name]} {seconds_text(float(taken))}" for name, taken in stages.items() if taken)
    said = [f"{source_words(path)} Each worker's first stage takes them, once for all of its devices: {listed}."]
    if p.input_wait_s:
        said.append(f"The step waits {seconds_text(p.input_wait_s)} for them.")
    return said
