"""What ``explain()`` says of the way of mini-batches to the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perfmodel.prediction.copy_lanes import lanes_needed
from perfmodel.prediction.jitter import NEGLIGIBLE, enough_ahead, jitter_cost
from perfmodel.prediction.job_size import COPY, DEVICE, JobSize, job_size, job_sizes, most_useful, units_needed
from perfmodel.prediction.synchronous_agreement import Synchronous
from perfmodel.presentation.quantities import percent_text, seconds_text

if TYPE_CHECKING:
    from perfmodel.prediction.basis import Basis
    from perfmodel.prediction.data_path import DataPath

STAGE_NAMES: Final = {
    "read": "reading",
    "decode": "decoding",
    "host_copy": "copies in host memory",
    COPY: "copies to the devices",
    DEVICE: "the devices",
}
"""Stage to its name in a sentence."""

COUPLED: Final = 0.7
"""Time of a second stage over that of the slowest from which on both hold steps up where times vary. [1]"""

UNIT_NAMES: Final = {"read": "such storages", "decode": "cores"}
"""Stage to the units it has."""

AS_IF_WAITING: Final = "as if they waited for one another, while in the timeline they do not."


def data_path_words(basis: Basis) -> str:
    """Return a paragraph on the data path of a step.

    Parameters
    ----------
    basis : Basis
        The step that was predicted. [-]

    Returns
    -------
    str
        Where examples come from, what each stage takes, what bounds the job, what would unbind it, and the number of
        workers beyond which more make an epoch no shorter; empty for a device by itself without a data set. [-]
    """
    path = basis.prepared.data_path
    if path is None or (path.dataset is None and path.machine is None):
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
    if path.machine is not None and not path.machine.shares_alike:
        waits = isinstance(basis.prepared.agreement, Synchronous)
        sentences.append(
            "The wiring gives some workers more than others; all are given the time of the one who gets least, "
            + ("as they wait for one another." if waits else AS_IF_WAITING)
        )
    return " ".join(sentence for sentence in sentences if sentence)


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def source_words(path: DataPath) -> str:
    """Return where mini-batches come from, who decodes them, and how far ahead.

    Parameters
    ----------
    path : DataPath
        Their way. [-]

    Returns
    -------
    str
        A sentence.
    """
    if path.dataset is None:
        return "Mini-batches are in host memory."
    ahead = "none fetched ahead" if not path.prefetch else f"{path.prefetch} fetched ahead"
    decoded = "" if path.decode_rate_per_core is None else f", decoded by {_cores(path)}"
    return f"Mini-batches of {path.dataset.name} come from {path.storage}{decoded}, {ahead}."


def _cores(path: DataPath) -> str:
    counts = sorted({path.decode_core_count(host) for host in path.hosts})
    cores = " or ".join(map(str, counts)) + " cores"
    return cores if len(path.hosts) == 1 else f"{cores} of each of {len(path.hosts)} hosts"


def _stages(size: JobSize) -> str:
    taken = {stage: seconds for stage, seconds in size.stage_s.items() if seconds}
    listed = ", ".join(f"{STAGE_NAMES[stage]} {seconds_text(seconds)}" for stage, seconds in taken.items())
    return (
        f"A step of {_workers(size.worker_count)} takes: {listed}; what takes longest is {STAGE_NAMES[size.bound_by]}."
    )


def _advice(basis: Basis, path: DataPath) -> list[str]:
    advice = []
    for stage, (units, needed) in units_needed(basis).items():
        of_each = " of each host" if stage == "decode" and len(path.hosts) > 1 else ""
        advice.append((f"{needed} {UNIT_NAMES[stage]}{of_each} instead of {units}", stage))
    found = lanes_needed(basis)
    if found.lanes:
        devices = () if path.machine is None else path.machine.names
        places: dict[tuple[str, tuple[int, int]], list[str]] = {}
        for place, change in found.lanes.items():
            places.setdefault(("for" if place in devices else "at", change), []).append(place)
        changes = [
            f"{needed} lanes {'for each device' if set(where) == set(devices) else f'{word} {_listed(where)}'} "
            f"instead of {have}"
            for (word, (have, needed)), where in places.items()
        ]
        advice.append((_listed(changes), COPY))
    sentences = [f"With {change}, {STAGE_NAMES[stage]} would keep up with the devices." for change, stage in advice]
    if found.limit:
        sentences.append(f"No number of lanes lets {STAGE_NAMES[COPY]} keep up: the {found.limit} would bound them.")
    return sentences


def _listed(words: list[str]) -> str:
    """Return words as a sentence lists them."""
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
    said = [f"{varies}; with {path.prefetch} fetched ahead that makes steps {longer} longer, {advice}."]
    stages = path.stages(basis.prepared.batch_size, factors=basis.factors)
    slowest, second = sorted(stages, key=lambda stage: stages[stage], reverse=True)[:2]
    share = float(stages[second] / stages[slowest])
    if share > COUPLED:
        also = f"{STAGE_NAMES[second]} reach{'' if second == 'host_copy' else 'es'} {percent_text(share)} of it"
        said.append(f"What is slowest there is {STAGE_NAMES[slowest]}; {also}, which can make steps longer still.")
    return said


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
        return []  # other counts exchange other messages
    sizes = job_sizes(basis)
    most = most_useful(sizes)
    if most is None:
        return [] if len(sizes) < 2 else [f"With all of its {len(sizes)} devices an epoch is shortest."]
    larger = sizes[most.worker_count]
    bounds = "bounds" if larger.bound_by in ("read", "decode") else "bound"
    return [
        f"More than {_workers(most.worker_count)} make an epoch no shorter on this system, not by one per cent: "
        f"{STAGE_NAMES[larger.bound_by]} {bounds} them."
    ]
