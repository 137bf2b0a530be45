"""Send and receive: one message from one worker to another."""

from __future__ import annotations

from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Message, Round


class SendReceive(Collective):
    r"""From each rank to the next one, as between the stages of a pipeline.

    .. math:: T = \alpha + n \beta

    Notes
    -----
    Valid for: p ranks in a line, of which all but the last send at once. Ignores: nothing of the alpha-beta model.

    Examples
    --------
    >>> SendReceive().time(size_bytes=1e6, worker_count=2, latency_s=1e-3, seconds_per_byte=1e-9)
    0.002

    References
    ----------
    .. [1] R. W. Hockney, The communication challenge for MPP: Intel Paragon and Meiko CS-2, Parallel Computing
       20(3), 1994, doi:10.1016/S0167-8191(06)80021-9.
    """

    name = "send_receive"

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        return link.times(alpha=1, beta=1)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        return (Round(tuple(Message(rank, rank + 1, 1.0) for rank in range(worker_count - 1))),)
