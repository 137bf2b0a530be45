"""What ``explain()`` says of how workers agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perfmodel.prediction.agreement import Agreement, AllReduced, Asynchronous, Synchronous
from perfmodel.prediction.messages import MERGED
from perfmodel.presentation.quantities import bytes_text, percent_text, seconds_text

if TYPE_CHECKING:
    from perfmodel.prediction.basis import Basis

ALONE: Final = "Workers exchange nothing."


def agreement_words(basis: Basis) -> str:
    """Return a paragraph on how the workers of a job agree.

    Parameters
    ----------
    basis : Basis
        The step that was predicted. [-]

    Returns
    -------
    str
        What is exchanged, how long that takes, how much of it back-propagation hides, whom it waits for; of schemes
        that do not wait their staleness and from which number of workers on the server bounds. Empty for one worker
        without a server.
    """
    agreement, machine = basis.prepared.agreement, basis.prepared.target.machine
    if agreement is None:
        return "" if machine is None or machine.worker_count == 1 else ALONE
    size = bytes_text(float(basis.prepared.gradients(basis.timed.groups, basis.timed.numbers).sizes_bytes.sum()))
    workers = f"{agreement.worker_count} workers exchange" if agreement.worker_count > 1 else "One worker exchanges"
    exchanged = f"{workers} {size} of gradients by {agreement.name}"
    return " ".join([exchanged + _how(agreement, basis), *_waiting(agreement, basis)])


def _how(agreement: Agreement, basis: Basis) -> str:
    parts = basis.timed.parts
    if not isinstance(agreement, Synchronous):
        return f", which takes a worker {seconds_text(float(parts.sync_s))} a step."
    exposed = seconds_text(float(parts.exposed_sync_s))
    message = _messages(agreement, basis)
    if not agreement.overlap:
        return f", {message} after back-propagation, which takes {exposed}."
    waits = "; parameters come back in no set order, so that the forward phase waits for them all"
    unordered = waits if agreement.delays_copies else ""
    return (
        f", {message} while back-propagation runs, which takes {seconds_text(float(parts.sync_s))}: {exposed} of it "
        f"are exposed{unordered}."
    )


def _messages(agreement: Synchronous, basis: Basis) -> str:
    if agreement.bucket_bytes == MERGED:
        schedule = basis.prepared.gradients(basis.timed.groups, basis.timed.numbers)
        count = len(agreement.merged(schedule).sizes_bytes)
        return f"{len(schedule.layers)} of them merged into {count} messages so that the step is shortest,"
    return f"in messages of {bytes_text(float(agreement.bucket_bytes))}" if agreement.bucket_bytes else "layer by layer"


def _waiting(agreement: Agreement, basis: Basis) -> list[str]:
    parts = basis.timed.parts
    said = []
    if float(parts.straggler_s):
        said.append(f"Waiting for slower workers takes {seconds_text(float(parts.straggler_s))}.")
    if isinstance(agreement, AllReduced) and agreement.overlap and agreement.slowdown:
        lost = agreement.slowdown * float(parts.sync_s)
        said.append(
            f"Messages keep {percent_text(agreement.slowdown)} of a device from computing while they are on the way, "
            f"which is {seconds_text(lost)} of what is exposed."
        )
    if isinstance(agreement, Asynchronous):
        times = agreement.times(agreement.computing_s(parts))
        busy, knee = percent_text(float(times.server_utilisation)), f"{float(times.knee):.3g}"
        said.append(
            f"A gradient has missed {float(times.mean_staleness):.3g} updates of others when it is applied; the "
            f"server is busy {busy} of the time, and bounds from {knee} visitors on."
        )
    return said
