"""Paragraphs of ``explain()`` on input, on how a network is spread over devices, and on how workers agree."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.input_pipeline import units_to_unbind
from perfmodel.cost.transfer import max_min_rates
from perfmodel.prediction.job.agreement import Agreement, Asynchronous, Synchronous
from perfmodel.prediction.job.agreement_options import UNITS
from perfmodel.prediction.job.gradients import MERGED
from perfmodel.presentation.quantities import bytes_text, counted, flop_text, percent_text, seconds_text
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.parallelism.base import Layout, Placement
    from perfmodel.prediction.certainty.basis import Basis
    from perfmodel.prediction.device.system_part import SystemPart
    from perfmodel.prediction.job.data_path import DataPath
    from perfmodel.prediction.job.parameter_server import ServerMemory
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.sync.asynchronous_scheme import KindTimes


SHORTER: Final = 0.01
"""Gain of samples per second below which more workers are not worth adding. [1]"""

COPY, DEVICE, CORES = "transfer", "device", "cores"
"""Further stages of a job: copies to the devices, computing, and computing on cores that also decode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSize:
    """A job with a given number of workers."""

    worker_count: int
    period_s: float
    stage_s: dict[str, float]
    batch_size: int

    @property
    def samples_per_s(self) -> float:
        """Samples of all workers. [1/s]"""
        return self.worker_count * self.batch_size / self.period_s

    @property
    def bound_by(self) -> str:
        """The slowest stage."""
        return max(self.stage_s, key=lambda stage: self.stage_s[stage])


def job_size(basis: Basis, worker_count: int) -> JobSize:
    """Period of a predicted job with another number of workers."""
    prepared = basis.prepared
    path = prepared.data_path
    assert path is not None
    path = path.with_workers(worker_count)
    target = prepared.target.with_workers(worker_count * prepared.layout.stages * prepared.layout.tensor_size)
    resized = replace(prepared, target=target, data_path=path)
    composed = resized.composed(basis.timed.stages, basis.factors)
    stages = {stage: float(seconds) for stage, seconds in path.stages(prepared.batch_size).items()}
    period_s = float(composed.parts.step_s)
    device_s = float(composed.parts.device_s)
    stages |= {COPY: float(composed.parts.transfer_s), DEVICE: device_s}
    before_input = composed.parts._replace(input_wait_s=0.0)
    beside_s = float(path.decoding_beside_s(before_input, batch_size=prepared.batch_size, factors=basis.factors))
    if beside_s:
        stages[CORES] = device_s + beside_s
    return JobSize(
        worker_count=worker_count,
        period_s=period_s,
        stage_s=stages,
        batch_size=prepared.batch_size,
    )


def job_sizes(basis: Basis) -> list[JobSize]:
    """Periods of a predicted job with one worker, two, and so on, up to all devices of its system."""
    path = basis.prepared.data_path
    assert path is not None
    if path.system_part is None:
        return [job_size(basis, 1)]
    every = path.with_workers(path.system_part.alike_count)
    known: dict[Hashable, JobSize] = {}
    sizes = []
    for worker_count, machines in enumerate(every.unlike_machines, start=1):
        if machines not in known:
            known[machines] = job_size(basis, worker_count)
        sizes.append(replace(known[machines], worker_count=worker_count))
    return sizes


def most_useful(sizes: list[JobSize]) -> JobSize | None:
    """Return the smallest job that is as fast as any larger one."""
    best = max(size.samples_per_s for size in sizes)
    useful = next(size for size in sizes if size.samples_per_s * (1 + SHORTER) >= best)
    return None if useful is sizes[-1] else useful


def units_needed(basis: Basis) -> dict[str, tuple[int, int]]:
    """Units of each stage that devices wait for: how many there are, and how many would keep up. [1]"""
    path = basis.prepared.data_path
    assert path is not None
    size = job_size(basis, path.worker_count)
    device_s = size.stage_s[DEVICE]
    unit_counts = {"decode": min(path.decode_core_count(host) for host in path.hosts)}
    if path.read_limited_by_storage:
        unit_counts["read"] = 1
    units_of = {}
    for stage, units in unit_counts.items():
        shares_cores = stage == "decode" and CORES in size.stage_s
        if size.stage_s[stage] > device_s or shares_cores:
            needed = units_to_unbind(stage_s=size.stage_s[stage], compute_s=device_s, unit_count=units)
            units_of[stage] = (units, math.ceil(float(needed)))
            if shares_cores:  # beside the cores that compute
                units_of[stage] = (path.hosts[0].core_count, math.ceil(float(needed) + path.step_cores))
    return units_of


MOST_WIDENED: Final = 10
"""Doublings of lanes after which no more are suggested. [1]"""

_LANES_IN_NAME: Final = re.compile(r".*_x(?P<lanes>\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class LanesNeeded:
    """Links whose lanes limit copies, and the number of lanes that would be enough."""

    lanes: dict[str, tuple[int, int]]
    limit: str = ""


def lanes_needed(basis: Basis) -> LanesNeeded:
    """Links that bound the copies to devices, with their lanes and a number of lanes that would be enough. [1]

    Notes
    -----
    Valid for: links whose rate is proportional to their lanes, which come in powers of two. Links that bound the copies
    are widened until no link does, with all workers' shares computed again each time.
    """
    prepared = basis.prepared
    system_part = prepared.target.system_part
    if system_part is None:
        return LanesNeeded(lanes={})
    before, meanwhile = prepared.copies(basis.factors)
    fixed_s = sum(float(copy.host_s) + copy.latency_s for copy in (before, meanwhile))
    left_s = float(basis.timed.parts.device_s) - fixed_s
    copied_bytes = before.copied_bytes + meanwhile.copied_bytes
    if not copied_bytes or left_s <= 0:
        return LanesNeeded(lanes={})
    own_rate = min(float(copy.bytes_per_s) for copy in (before, meanwhile) if copy.copied_bytes)
    return _widened(system_part, needed_bytes_per_s=copied_bytes / left_s, own_bytes_per_s=own_rate)


def _widened(system_part: SystemPart, *, needed_bytes_per_s: float, own_bytes_per_s: float) -> LanesNeeded:
    """Double the lanes of bounding links until every worker gets the rate it needs."""
    routes = system_part.unlike_input_routes  # equal machines need the same
    channels = {channel.name: channel for route in routes for channel in route.channels}
    below = {  # copies go down to the device
        channel.name: node for route in routes for node, channel in zip(route.nodes[1:], route.channels, strict=True)
    }
    names = list(channels)
    capacity = np.array([channels[name].capacity_bytes_per_s for name in names])
    last_channel = np.array([names.index(route.channel_names[-1]) for route in routes])
    uses = np.array([[float(name in route.channel_names) for name in names] for route in routes])
    times = np.ones(len(names), dtype=int)
    for _ in range(MOST_WIDENED):
        shares = max_min_rates(capacity=capacity * times, uses=uses)
        of_link = own_bytes_per_s * times[last_channel]  # copies from pageable memory are slower than the link
        short = np.minimum(shares, of_link) < needed_bytes_per_s * (1 - 1e-9)
        if not short.any():
            widened = {names[place]: int(count) for place, count in enumerate(times) if count > 1}
            lanes = {name: int(_LANES_IN_NAME.fullmatch(channels[name].link)["lanes"]) for name in widened}  # type: ignore[index]
            of_place = {below[name]: (lanes[name], lanes[name] * count) for name, count in widened.items()}
            return LanesNeeded(lanes=of_place)
        full = (shares @ uses >= capacity * times * (1 - 1e-9)) & uses[short].any(axis=0)
        full[last_channel[short & (of_link < needed_bytes_per_s)]] = True
        links = [channels[names[place]].link for place in np.flatnonzero(full)]
        without = next((link for link in links if _LANES_IN_NAME.fullmatch(link) is None), None)
        if without is not None:
            return LanesNeeded(lanes={}, limit=without)
        times[full] *= 2
    return LanesNeeded(lanes={})


NEGLIGIBLE: Final = 0.01
"""Delay, as a share of a step, below which varying input times do not justify more prefetching. [1]"""

MOST_AHEAD: Final = 4096
"""Prefetch depth that makes up for any allowed variation. [1]"""


def jitter_cost(basis: Basis, *, prefetch: int) -> float:
    """Relative delay of a step by varying input times. [1]"""
    prepared = basis.prepared
    assert prepared.data_path is not None
    varying = replace(prepared.data_path, prefetch=prefetch)
    steady = replace(varying, input_variation=0.0)
    varying_s, steady_s = (
        float(path.fed(basis.timed.parts, batch_size=prepared.batch_size, factors=basis.factors).step_s)
        for path in (varying, steady)
    )
    return varying_s / steady_s - 1


def enough_ahead(basis: Basis) -> int:
    """Smallest prefetch depth at which varying times cost almost nothing. [1]

    Found by bisection, because more depth never costs time.
    """
    depths = range(1, MOST_AHEAD)
    return 1 + bisect_left(depths, True, key=lambda depth: jitter_cost(basis, prefetch=depth) < NEGLIGIBLE)


STAGE_NAMES: Final = {
    "read": "reading",
    "decode": "decoding",
    "host_copy": "copies in host memory",
    COPY: "copies to the devices",
    DEVICE: "the devices",
    CORES: "computing and decoding on the same cores",
}
"""Stage -> its name in a sentence."""

PLURAL_STAGES: Final = ("host_copy", COPY, DEVICE)
"""Stages whose names are plural."""

COUPLED: Final = 0.7
"""Ratio of the second-slowest stage's time to the slowest's from which both delay steps if times vary. [1]"""

UNIT_NAMES: Final = {"read": "such storages", "decode": "cores"}
"""Stage -> name of its units."""

AS_IF_WAITING: Final = "as if they waited for one another; the timeline does not assume that."


def data_path_words(basis: Basis) -> str:
    """Write the paragraph on the data path."""
    path = basis.prepared.data_path
    if path is None or (path.dataset is None and path.system_part is None):
        return ""
    size = job_size(basis, path.worker_count)
    sentences = [
        source_words(path),
        _stages(size),
        *_jitter(basis, path),
        *_advice(basis, path),
        *_first_epoch(basis, path),
        *_counts(basis),
    ]
    if path.system_part is not None and not path.system_part.shares_alike:
        waits = isinstance(basis.prepared.agreement, Synchronous)
        sentences.append(
            "The wiring gives some workers more than others; each is given the time of the one that gets least, "
            + ("as they wait for one another." if waits else AS_IF_WAITING)
        )
    return " ".join(sentence for sentence in sentences if sentence)


def source_words(path: DataPath) -> str:
    """Say where examples are stored, how many cores decode them, and how far ahead."""
    if path.dataset is None:
        return "Mini-batches are in host memory."
    ahead = "none fetched ahead" if not path.prefetch else f"{path.prefetch} fetched ahead"
    decoded = "" if path.decode_rate_per_core is None else f", decoded by {_cores(path)}"
    return f"Mini-batches of {path.dataset.name} come from {path.storage}{decoded}, {ahead}."


def _cores(path: DataPath) -> str:
    counts = sorted({path.decode_core_count(host) for host in path.hosts})
    cores = "1 core" if counts == [1] else " or ".join(map(str, counts)) + " cores"
    return cores if len(path.hosts) == 1 else f"{cores} of each of {len(path.hosts)} hosts"


def _stages(size: JobSize) -> str:
    taken = {stage: seconds for stage, seconds in size.stage_s.items() if seconds}
    listed = ", ".join(f"{STAGE_NAMES[stage]} {seconds_text(seconds)}" for stage, seconds in taken.items())
    longest = STAGE_NAMES[size.bound_by]
    takes = "take" if size.bound_by in PLURAL_STAGES else "takes"
    return f"Side by side in each step: {listed}; {longest} {takes} longest."


def _advice(basis: Basis, path: DataPath) -> list[str]:
    advice = []
    for stage, (units, needed) in units_needed(basis).items():
        of_each = " of each host" if stage == "decode" and len(path.hosts) > 1 else ""
        advice.append((f"{needed} {UNIT_NAMES[stage]}{of_each} instead of {units}", stage))
    widening = lanes_needed(basis)
    if widening.lanes:
        devices = () if path.system_part is None else path.system_part.names
        places: dict[tuple[str, tuple[int, int]], list[str]] = {}
        for place, change in widening.lanes.items():
            places.setdefault(("for" if place in devices else "at", change), []).append(place)
        changes = [
            f"{needed} lanes {'for each device' if set(where) == set(devices) else f'{word} {_listed(where)}'} "
            f"instead of {have}"
            for (word, (have, needed)), where in places.items()
        ]
        advice.append((_listed(changes), COPY))
    step = "the step" if path.step_cores else "the devices"
    sentences = [f"With {change}, {STAGE_NAMES[stage]} would keep up with {step}." for change, stage in advice]
    if widening.limit:
        sentences.append(f"No number of lanes lets {STAGE_NAMES[COPY]} keep up: the {widening.limit} would bound them.")
    return sentences


def _listed(words: list[str]) -> str:
    """Join words with commas and a final "and"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _jitter(basis: Basis, path: DataPath) -> list[str]:
    if not path.input_variation:
        return []
    varies = f"The time to prepare a mini-batch varies by {100 * path.input_variation:.3g} %"
    if not path.prefetch:
        return [f"{varies}, which costs nothing on average where every step waits for the whole of it."]
    longer = percent_text(jitter_cost(basis, prefetch=path.prefetch))
    enough = enough_ahead(basis)
    few = f"less than {100 * NEGLIGIBLE:.0f} %"
    advice = f"from prefetch={enough} on it is {few}"
    sentences = [f"{varies}; with {path.prefetch} fetched ahead that makes steps {longer} longer, {advice}."]
    stages = path.stages(basis.prepared.batch_size, factors=basis.factors)
    slowest, second = sorted(stages, key=lambda stage: stages[stage], reverse=True)[:2]
    share = float(stages[second] / stages[slowest])
    if share > COUPLED:
        near = f"{STAGE_NAMES[second]} reach{'' if second == 'host_copy' else 'es'} {percent_text(share)} of it"
        sentences.append(f"What is slowest there is {STAGE_NAMES[slowest]}; {near}, which can make steps longer still.")
    return sentences


def _first_epoch(basis: Basis, path: DataPath) -> list[str]:
    if not path.is_cached:
        return []
    first = path.fed(basis.timed.parts, batch_size=basis.prepared.batch_size, first_epoch=True)
    return [
        f"The data set fits in host memory, so only the first epoch reads it; a step takes "
        f"{seconds_text(float(first.step_s))} then."
    ]


def _counts(basis: Basis) -> list[str]:
    if basis.prepared.agreement is not None:
        return []  # with another number of workers, the messages differ
    sizes = job_sizes(basis)
    most = most_useful(sizes)
    if most is None:
        return [] if len(sizes) < 2 else [f"With all of its {len(sizes)} devices an epoch is shortest."]
    larger = sizes[most.worker_count]
    workers = counted(most.worker_count, "worker")
    bounds = "bound" if larger.bound_by in PLURAL_STAGES else "bounds"
    return [
        f"More than {workers} make an epoch no shorter on this system, not by one per cent: "
        f"{STAGE_NAMES[larger.bound_by]} {bounds} them."
    ]


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
        return f"{len(schedule.sizes_bytes)} of them merged into {count} messages so that the step is shortest,"
    if agreement.message_bytes == UNITS:
        return "unit by unit"
    size_bytes = float(agreement.message_bytes)
    if math.isinf(size_bytes):
        return "in one message"
    return f"in messages of {bytes_text(size_bytes)}" if size_bytes else "layer by layer"


def _missed(staleness: float) -> str:
    count = f"{staleness:.3g}"
    return f"A gradient has missed {count} update{'' if count == '1' else 's'} of others when it is applied"


def _waiting(agreement: Agreement, basis: Basis) -> list[str]:
    parts = basis.timed.parts
    sentences = _slower(basis)
    if isinstance(agreement, Synchronous) and agreement.overlap and agreement.slowdown:
        lost = float(agreement.lost_s(parts.sync_s, basis.timed.composed))
        sentences.append(
            f"Messages keep {percent_text(agreement.slowdown)} of a device from computing while they are on the way, "
            f"which is {seconds_text(lost)} of what is exposed."
        )
    times = agreement.visits(basis.timed.alone)
    if times is None:
        return sentences
    busy, knee = percent_text(float(times.server_utilisation)), f"{float(times.knee):.3g}"
    sentences.append(
        f"{_missed(float(times.mean_staleness))}; the server is busy {busy} of the time, and is the limit from {knee} "
        f"visitors on."
    )
    sentences.append(
        f"It applies {float(times.updates_per_s):.3g} updates/s of {float(times.most_updates_per_s):.3g} that there "
        f"would be without a queue."
    )
    return [*sentences, *_of_kinds(times.kinds)]


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
    room = bytes_text(server.room_bytes)
    shared = ", which it shares with workers" if server.is_beside_workers else ""
    extra = server.compensation_flop_count
    computed = f" Compensation adds {flop_text(extra)} to an update." if extra else ""
    return f"{whose} {bytes_text(server.shard_bytes)} of {room} of host memory{shared} ({listed}).{computed}"


def spread_words(p: Prediction) -> str:
    """Write the paragraph on how a network is spread and what that costs."""
    layout, rows = p.basis.prepared.layout, p.stages
    sentences = [f"{_devices(p.basis.prepared.placement)}{_micro_batches(layout, p.batch_size)}."]
    parts = "stages" if layout.stages > 1 else "parts of the network"
    if len(rows) > 1:
        longest = max(rows, key=lambda row: row.computing_s)
        sentences.append(
            f"Of {len(rows)} {parts} number {longest.stage} computes longest, {seconds_text(longest.computing_s)}; the "
            f"shortest takes {seconds_text(min(row.computing_s for row in rows))}. Layers and arithmetic listed here "
            f"are those of the device that works longest."
        )
    if p.bubble_s:
        waits = f"waits {seconds_text(p.bubble_s)} for others ({percent_text(p.bubble_s / p.step_s)})"
        alone = "" if layout.parts > 1 else ", as each needs what another has computed"
        sentences.append(f"The device that works longest {waits}{alone}.")
    sent_bytes = max(row.sent_bytes for row in rows)
    if sent_bytes:
        of_one = f" for one of the {parts}" if len(rows) > 1 else ""
        whose = "Exchanging and waiting for transfers, on the device that works longest," if of_one else "That"
        sentences.append(
            f"A device sends up to {bytes_text(sent_bytes)} a step{of_one}. {whose} takes {seconds_text(p.sync_s)}, of "
            f"which {seconds_text(p.exposed_sync_s)} are exposed."
        )
    sentences += _of_inference(p) if p.phase == Phase.FORWARD else _of_agreement(p)
    return " ".join([*sentences, *_of_input(p)])


def _devices(placement: Placement) -> str:
    """Return the number of working devices, and the share of the network on each."""
    layout, kind = placement.layout, f"{placement.parallelism} parallelism"
    if layout.workers == 1:
        return "1 device works"
    sizes = (
        (layout.batch_count, "workers"),
        (layout.stages, "stages"),
        (layout.context_size, "that share each sequence"),
        (layout.tensor_size, "that share each layer"),
    )
    shape = " x ".join(f"{count} {name}" for count, name in sizes if count > 1)
    if any(stage.batch_factor > 1 for stage in placement.stages):
        shape += ", which have all convolutions each and share the dense layers"
    return f"{layout.workers} devices work ({kind}): {shape}"


def _micro_batches(layout: Layout, batch_size: int) -> str:
    """Micro-batches of a worker; empty where there is only one."""
    if layout.parts == 1:
        return ""
    return f", in {layout.parts} micro-batches of {counted(layout.micro_batch_size(batch_size), 'sample')} each"


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
    sentences = [f"{p.worker_count} workers agree by {p.agreement.name}.", *_slower(p.basis)]
    if isinstance(p.agreement, Asynchronous):
        sentences.append(f"{_missed(p.mean_staleness)}.")
    return sentences


def _of_input(p: Prediction) -> list[str]:
    path = p.data_path
    if path is None or path.dataset is None:
        return []
    stages = path.stages(p.batch_size)
    listed = ", ".join(f"{STAGE_NAMES[name]} {seconds_text(float(taken))}" for name, taken in stages.items() if taken)
    sentences = [f"{source_words(path)} Each worker's first stage takes them, once for all of its devices: {listed}."]
    if p.input_wait_s:
        sentences.append(f"The step waits {seconds_text(p.input_wait_s)} for them.")
    return sentences
