"""What ``explain()`` says of a network on several devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.presentation.quantities import bytes_text, percent_text, seconds_text

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
    return " ".join(said)
