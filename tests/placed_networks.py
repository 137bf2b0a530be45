"""Networks placed on devices by a layout, without a job."""

from perfmodel.parallelism.base import Layout, Request
from perfmodel.parallelism.registry import PARALLELISMS

GROUPED_BY = {"model": "stages", "tensor": "tensor_size"}
"""Parallelism -> the size that is the number of workers unless it is given."""


def place(graph, *, parallelism="data", layout=None, element_bytes=4, layer_s=None, send_s=None, **sizes):
    if layout is None:
        grouped = {GROUPED_BY[parallelism]: sizes.get("workers", 1)} if parallelism in GROUPED_BY else {}
        layout = Layout(**(grouped | sizes))
    chosen = PARALLELISMS[parallelism]
    request = Request(
        graph=graph, layout=chosen.resolved(layout), element_bytes=element_bytes, layer_s=layer_s, send_s=send_s
    )
    return chosen.place(request)
