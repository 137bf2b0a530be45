"""What ``explain()`` says of how workers agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from perfmodel.prediction.messages import MERGED
from perfmodel.prediction.synchronous_agreement import Synchronous
from perfmodel.presentation.quantities import bytes_text, flop_text, percent_text, seconds_text

if TYPE_CHECKING:
    from perfmodel.prediction.agreement import Agreement
    from perfmodel.prediction.basis import Basis
    from perfmodel.prediction.parameter_server import ServerMemory
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.sync.unequal_visitors import KindTimes

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
    size = bytes_text(float(basis.timed.gradients.sizes_bytes.sum()))
    workers = f"{agreement.worker_count} workers exchange" if agreement.worker_count > 1 else "One worker exchanges"
    exchanged = f"{workers} {size} of gradients by {agreement.name}"
    held = () if agreement.server is None else (_held(agreement.server),)
    return " ".join([exchanged + _how(agreement, basis), *_waiting(agreement, basis), *held])


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
    if agreement.message_bytes == MERGED:
        schedule = basis.timed.gradients
        count = len(agreement.slices(agreement.reduction, schedule))
        return f"{len(schedule.layers)} of them merged into {count} messages so that the step is shortest,"
    return (
        f"in messages of {bytes_text(float(agreement.message_bytes))}" if agreement.message_bytes else "layer by layer"
    )


def _waiting(agreement: Agreement, basis: Basis) -> list[str]:
    parts = basis.timed.parts
    said = []
    if float(parts.straggler_s) > 0:
        said.append(f"Waiting for slower workers takes {seconds_text(float(parts.straggler_s))}.")
    if isinstance(agreement, Synchronous) and agreement.overlap and agreement.slowdown:
        lost = agreement.slowdown * float(parts.sync_s)
        said.append(
            f"Messages keep {percent_text(agreement.slowdown)} of a device from computing while they are on the way, "
            f"which is {seconds_text(lost)} of what is exposed."
        )
    times = agreement.visits(basis.timed.own)
    if times is None:
        return said
    busy, knee = percent_text(float(times.server_utilisation)), f"{float(times.knee):.3g}"
    said.append(
        f"A gradient has missed {float(times.mean_staleness):.3g} updates of others when it is applied; the "
        f"server is busy {busy} of the time, and bounds from {knee} visitors on."
    )
    said.append(
        f"It applies {float(times.updates_per_s):.3g} updates/s of {float(times.most_updates_per_s):.3g} that there "
        f"would be without a queue."
    )
    return [*said, *_of_kinds(times.kinds)]


def _of_kinds(kinds: Sequence[KindTimes]) -> list[str]:
    """Say how fast and how stale the fastest and the slowest are."""
    if not kinds:
        return []
    fastest, slowest = (
        f"takes {seconds_text(float(kind.step_s))} a step and misses {float(kind.mean_staleness):.3g}"
        for kind in (kinds[0], kinds[-1])
    )
    return [
        f"Visitors are of {len(kinds)} speeds: a fastest one, with a relative time of {kinds[0].relative_time:g}, "
        f"{fastest}, a slowest one, with {kinds[-1].relative_time:g}, {slowest}; the step is the mean over all steps."
    ]


def _held(server: ServerMemory) -> str:
    """Say what each shard of a parameter server keeps in memory."""
    contents = {
        "parameters": server.parameters_bytes,
        "gradients": server.gradients_bytes,
        "optimizer state": server.optimizer_bytes,
        "a copy of the parameters for each worker": server.backups_bytes,
    }
    shards = len(server.memories)
    listed = ", ".join(f"{name} {bytes_text(size / shards)}" for name, size in contents.items() if size)
    whose = "The server holds" if shards == 1 else f"Each of {shards} shards of the server holds"
    room = bytes_text(min(server.capacities_bytes))
    extra = server.compensation_flop_count
    computed = f" Compensation adds {flop_text(extra)} to an update." if extra else ""
    return f"{whose} {bytes_text(server.shard_bytes)} of {room} of host memory ({listed}).{computed}"


def server_dict(p: Prediction) -> dict[str, Any] | None:
    """Return what a parameter server holds and how busy it is as plain values; None where there is none.

    Parameters
    ----------
    p : Prediction
        The prediction. [-]

    Returns
    -------
    dict or None
        Bytes, and of visits that nobody waits for the knee [1] and the share of time that the server is busy [1]; a
        server that never bounds has no knee.
    """
    agreement = p.agreement
    if agreement is None or agreement.server is None:
        return None
    times = p.visits
    found: dict[str, Any] = {"knee": None, "utilisation": None}
    if times is not None:
        knee = float(times.knee)
        found = {"knee": knee if math.isfinite(knee) else None, "utilisation": float(times.server_utilisation)}
    return agreement.server.to_dict() | found
