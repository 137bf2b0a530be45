"""Changes of the whole layout of a job, found by a search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.planning.changes.arguments import Change, Situation

if TYPE_CHECKING:
    from perfmodel.prediction.job.job import Job

SPLITS: Final = ("tensor_size", "stages", "context_size")
"""Arguments that divide the network among devices: the best layout that keeps them is proposed too."""


def layout(now: Situation) -> Iterator[Change]:
    """Yield the best layout on the same devices, and the best that divides the network as the job does."""
    from perfmodel.planning.search.of_job import search_of_job, text_of, why_not_searched

    reason = why_not_searched(now.base)
    now.needs(not reason, reason)
    search = search_of_job(now.base, keeps_layout=False)
    now.needs(len(search), "no layout fits")
    alike = np.flatnonzero(np.all([search.fitting[name] == now[name] for name in SPLITS], axis=0))
    for rank in dict.fromkeys([0, *alike[:1].tolist()]):
        job = search.found(rank).job
        yield Change(what=text_of(job), changes=_changes(now, job))


def _changes(now: Situation, job: Job) -> dict[str, Any]:
    """Return the arguments of a job's layout, with the same number of samples of all workers together."""
    from perfmodel.planning.search.of_job import OF_LAYOUT

    changes = {name: getattr(job, name) for name in OF_LAYOUT}
    changes["sequence_parallel"] = job.sequence_parallel and job.tensor_size > 1
    if now["global_batch_size"] is None:
        changes["batch_size"] = now.base.batch_size * now.job.workers // job.workers
    return {name: value for name, value in changes.items() if value != now[name]}
