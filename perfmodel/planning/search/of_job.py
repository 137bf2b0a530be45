"""Layouts of a job that is predicted already: plan and advise search among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perfmodel.graph import LayerGraph
from perfmodel.planning.search.answer import Search, layout_text
from perfmodel.planning.search.axes import NAMES
from perfmodel.planning.search.search import LEFT_OUT, search
from perfmodel.prediction.arguments.table import DEFAULTS, names_of
from perfmodel.prediction.utilisation import has_data_sheet, tokens_per_sample
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.prediction import Prediction

SET_BY_SEARCH: Final = (*LEFT_OUT, *names_of("place"), "workers", "global_batch_size")
"""Arguments of a job that its search states in another way, or that follow from a layout."""

OF_LAYOUT: Final = ("parallelism", "workers", "micro_batches", *(name for name in NAMES if name in DEFAULTS))
"""Arguments of predict that a layout consists of."""


def why_not_searched(p: Prediction) -> str:
    """Reason why layouts of a job are not searched; empty if they can be."""
    job = p.job
    part = p.basis.prepared.target.system_part
    if not isinstance(job.graph, LayerGraph) or tokens_per_sample(job.graph) is None:
        return "layouts are searched for networks that look up tokens"
    if job.subject.phase is not Phase.STEP:
        return "layouts are searched for whole training steps"
    if part is None or len(part.names) == 1 or part.computes_on_hosts:
        return "layouts are searched for several GPUs of a system"
    if job.calibration is not None or not has_data_sheet(p):
        return "layouts are not searched with your own constants"
    return ""


def search_of_job(p: Prediction, *, keeps_layout: bool) -> Search:
    """Search layouts on the devices of a predicted job, with the same number of samples a step."""
    job, part = p.job, p.basis.prepared.target.system_part
    assert part is not None
    assert isinstance(job.graph, LayerGraph)
    left_out = (*SET_BY_SEARCH, *(() if keeps_layout else OF_LAYOUT))
    asked: dict[str, Any] = {name: value for name, value in job.asked.items() if name not in left_out}
    return search(
        job.graph,
        system=part.system,
        devices=job.device_count,
        global_batch_size=p.batch_size * job.workers,
        **asked | {"dtype": job.dtype},
    )


def text_of(job: Job) -> str:
    """Write the layout of a job in words."""
    values = {name: getattr(job, name) for name in OF_LAYOUT}
    return layout_text(values | {"micro_batch_size": job.layout.micro_batch_size(job.samples)})
