"""Paragraphs of ``explain()`` on several devices: how the network is spread and how workers agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from perfmodel.prediction.job.agreement import Asynchronous, Synchronous
from perfmodel.prediction.job.gradients import MERGED
from perfmodel.prediction.words.data_path import STAGE_NAMES, source_words
from perfmodel.presentation.quantities import bytes_text, flop_text, percent_text, seconds_text
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.parallelism.base import Layout, Placement
    from perfmodel.prediction.certainty.basis import Basis
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.parameter_server import ServerMemory
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.sync.asynchronous_scheme import KindTimes


ALONE: Final = "Workers exchange nothing."


def agreement_words(basis: Basis) -> str:
    """Write the paragraph on how workers agree."""
    agreement, system_part = basis.prepared.agreement, basis.prepared.target.system_part
    if agreement is None:
        return "" if system_part is None or system_part.worker_count == 1 else ALONE
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
    said = _slower(basis)
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


def _slower(basis: Basis) -> list[str]:
    seconds = float(basis.timed.parts.straggler_s)
    return [f"Waiting for slower workers takes {seconds_text(seconds)}."] if seconds > 0 else []


def _of_kinds(kinds: Sequence[KindTimes]) -> list[str]:
    """Pace and staleness of the fastest and slowest workers."""
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
    """Memory of each shard of a parameter server."""
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


def spread_words(p: Prediction) -> str:
    """Write the paragraph on how a network is spread and what that costs."""
    layout, rows = p.basis.prepared.layout, p.stages
    said = [f"{_devices(p.basis.prepared.placement)}{_micro_batches(layout, p.batch_size)}."]
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
    """Return the number of working devices, and the share of the network on each."""
    layout, kind = placement.layout, f"{placement.parallelism} parallelism"
    if layout.workers == 1:
        return "1 device works"
    sizes = ((layout.data_size, "workers"), (layout.stages, "stages"), (layout.tensor_size, "that share each layer"))
    shape = " x ".join(f"{count} {name}" for count, name in sizes if count > 1)
    if any(stage.batch_factor > 1 for stage in placement.stages):
        shape += ", which have all convolutions each and share the dense layers"
    return f"{layout.workers} devices work ({kind}): {shape}"


def _micro_batches(layout: Layout, batch_size: int) -> str:
    """Micro-batches of a worker; empty where there is only one."""
    if layout.parts == 1:
        return ""
    size = layout.micro_batch_size(batch_size)
    return f", in {layout.parts} micro-batches of {size} sample{'s' if size > 1 else ''} each"


def _of_inference(p: Prediction) -> list[str]:
    """Period of inference in a stream: without gradients, mini-batches can follow each other without a pause."""
    layout, works = p.basis.prepared.layout, p.basis.timed.composed.stages
    if layout.stages == 1:
        return []
    works_s = [sum(float(work.forward_s) for work in works if work.device == device) for device in range(layout.stages)]
    period_s = layout.parts * float(max([*works_s, *(work.send_s[0] for work in works)]))
    return [
        f"This is the time of one mini-batch from end to end; where the next one follows without a pause, one leaves "
        f"every {seconds_text(period_s)}."
    ]


def _of_agreement(p: Prediction) -> list[str]:
    if p.worker_count == 1:
        return []
    if p.agreement is None:
        return [ALONE]
    said = [f"{p.worker_count} workers agree by {p.agreement.name}.", *_slower(p.basis)]
    if isinstance(p.agreement, Asynchronous):
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
