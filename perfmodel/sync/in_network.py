"""In-network reduction: switches add up what passes them, and send the sum down again."""

from __future__ import annotations

from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import SERVER, Collective, Hockney, Message, Round


class InNetwork(Collective):
    r"""The message climbs to a switch that adds, while the sum of what came before descends.

    .. math:: T = 2 \alpha + n \beta

    Notes
    -----
    Valid for: switches that add as fast as they forward (SHARP, NVSwitch of the third generation). Ignores: how many
    messages a switch can add at once; ``reduce_s_per_byte`` is not paid.

    Examples
    --------
    >>> InNetwork().time(size_bytes=1e6, worker_count=64, latency_s=1e-6, seconds_per_byte=1e-9)
    0.001002

    References
    ----------
    .. [1] R. L. Graham et al., Scalable hierarchical aggregation protocol (SHArP), COMHPC 2016,
       doi:10.1109/COMHPC.2016.006.
    """

    name = "in_network"
    server_kind = "switch"

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        return link.times(alpha=2, beta=1)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        ranks = range(worker_count)
        up = tuple(Message(rank, SERVER, 1.0) for rank in ranks)
        down = tuple(Message(SERVER, rank, 1.0) for rank in ranks)
        # what went up last still has to come down
        return (Round((*up, *down)), Round(tuple(Message(SERVER, rank, 0.0) for rank in ranks)))
