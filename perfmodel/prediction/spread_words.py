"""What ``explain()`` says of a network on several devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.prediction.agreement_words import ALONE
from perfmodel.prediction.asynchronous_agreement import Asynchronous
from perfmodel.prediction.data_path_words import STAGE_NAMES, source_words
from perfmodel.presentation.quantities import bytes_text, percent_text, seconds_text
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.parallelism import Layout, Placement
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
    said = [f"{_devices(p.spread.placement)}{_micro_batches(layout, p.batch_size)}."]
    parts = "stages" if layout.stages > 1 else "parts of the network"
    if len(rows) > 1:
        longest = max(rows, key=lambda row: row.computing_s)
        said.append(
            f"Of {len(rows)} {parts} number {longest.stage} computes longest, {seconds_text(longest.computing_s)}; the "
            f"shortest takes {seconds_text(min(row.computing_s for row in rows))}. Layers and arithmetic listed here "
            f"are those of the device that works longest."
        )
    if p.bubble_s:
        waits = f"waits {seconds_text(p.bubble_s)} for others ({percent_text(p.bubble_s / p.step_s)})"
        alone = "" if layout.parts > 1 else ", as each needs what another has computed"
        said.append(f"The device that works longest {waits}{alone}.")
    sent_bytes = max(row.sent_bytes for row in rows)
    if sent_bytes:
        of_one = f" for one of the {parts}" if len(rows) > 1 else ""
        whose = "What the device that works longest exchanges, or others delay it by transfers," if of_one else "That"
        said.append(
            f"A device sends up to {bytes_text(sent_bytes)} a step{of_one}. {whose} takes {seconds_text(p.sync_s)}, of "
            f"which {seconds_text(p.exposed_sync_s)} are exposed."
        )
    said += _of_inference(p) if p.phase == Phase.FORWARD else _of_agreement(p)
    return " ".join([*said, *_of_input(p)])


def _devices(placement: Placement) -> str:
    """Say how many devices work, and what each has of the network."""
    layout, kind = placement.layout, f"{placement.parallelism} parallelism"
    if layout.workers == 1:
        return "1 device works"
    sizes = ((layout.data_size, "workers"), (layout.stages, "stages"), (layout.tensor_size, "that share each layer"))
    shape = " x ".join(f"{count} {name}" for count, name in sizes if count > 1)
    if any(stage.batch_factor > 1 for stage in placement.stages):
        shape += ", which have all convolutions each and share the dense layers"
    return f"{layout.workers} devices work ({kind}): {shape}"


def _micro_batches(layout: Layout, batch_size: int) -> str:
    """Say how a worker's mini-batch is divided; nothing where it is not."""
    if layout.parts == 1:
        return ""
    size = layout.micro_batch_size(batch_size)
    return f", in {layout.parts} micro-batches of {size} sample{'s' if size > 1 else ''} each"


def _of_inference(p: Prediction) -> list[str]:
    """Say what mini-batches without a pause between them would take: nothing flows back that they wait for."""
    layout = p.spread.placement.layout  # type: ignore[union-attr]
    if layout.stages == 1:
        return []
    works = p.basis.timed.composed.stages  # type: ignore[union-attr]
    works_s = [sum(float(work.forward_s) for work in works if work.device == device) for device in range(layout.stages)]
    period_s = layout.parts * float(max([*works_s, *(work.send_s[0] for work in works)]))
    return [
        f"This is the time of one mini-batch from end to end; where the next one follows without a pause, one leaves "
        f"every {seconds_text(period_s)}."
    ]


def _of_agreement(p: Prediction) -> list[str]:
    spread = p.spread
    assert spread is not None
    if spread.worker_count == 1:
        return []
    if spread.agreement is None:
        return [ALONE]
    said = [f"{spread.worker_count} workers agree by {spread.agreement.name}."]
    if p.straggler_s:
        said.append(f"Waiting for slower workers takes {seconds_text(p.straggler_s)}.")
    if isinstance(spread.agreement, Asynchronous):
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
