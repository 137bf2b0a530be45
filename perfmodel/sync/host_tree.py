"""Host tree: devices below one root send to the host's memory, and read the sum from it."""

from __future__ import annotations

from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import SERVER, Collective, Hockney, Message, Round


class HostTree(Collective):
    r"""All push to the host's memory through a root of inverse bandwidth :math:`\beta` that they share, then all pull.

    .. math:: T = 2 \alpha + 2 p n \beta + p n \gamma

    Notes
    -----
    Valid for: one root; served in turn or at once, the last one ends at the same time. Ignores: switches that multicast
    (with which pulling takes as long as one copy), and pushing of one while another pulls.

    Examples
    --------
    Four devices below a root of 12 GB/s:

    >>> HostTree().time(size_bytes=102228128, worker_count=4, latency_s=0.0, seconds_per_byte=1 / 12e9)  # 68.152 ms
    0.068152

    References
    ----------
    .. [1] Wünsche, Performance Factors of Deep Learning and Shallow Neural Network Applications, configuration of one
       CPU and four GPUs.
    """

    name = "host_tree"
    server_kind = "memory"

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        return link.times(alpha=2, beta=2 * worker_count, gamma=worker_count)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        ranks = range(worker_count)
        push = Round(tuple(Message(rank, SERVER, 1.0) for rank in ranks), reduced_share=float(worker_count))
        return (push, Round(tuple(Message(SERVER, rank, 1.0) for rank in ranks)))
