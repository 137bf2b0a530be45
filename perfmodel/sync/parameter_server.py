"""Parameter server: workers push gradients to the shards of a server and pull the updated weights."""

from __future__ import annotations

from typing import Any

from perfmodel.errors import ArgumentError
from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity
from perfmodel.sync.base import SERVER, Collective, Hockney, Message, Round


class ParameterServer(Collective):
    r"""Synchronous parameter server of S shards, on hosts of their own.

    .. math:: T = 2 \alpha + 2 n \max\left(\beta, \tfrac{p}{S} \beta_s\right) + \tfrac{p}{S} n \gamma

    Options are ``server_count`` (S) and ``server_s_per_byte`` (:math:`\beta_s`, that of the workers unless given).
    Where shards are in the host memories of the workers' machines, ``place`` sends a worker's part for the shard beside
    it over no network: of one worker for each machine and a shard beside each only (p - 1) / p of the bytes cross.

    Notes
    -----
    Valid for: shards of equal size, all workers pushing at once, then all pulling. Ignores: shards that answer before
    the last worker has pushed, work of the host's processor beyond :math:`\gamma`.

    Examples
    --------
    >>> server = ParameterServer()
    >>> numbers = {"size_bytes": 1e6, "worker_count": 8, "latency_s": 0.0, "seconds_per_byte": 1e-9}
    >>> float(server.time(**numbers)), float(server.time(**numbers, server_count=4))
    (0.016, 0.004)

    References
    ----------
    .. [1] M. Li et al., Scaling distributed machine learning with the parameter server, OSDI 2014.
    """

    name = "parameter_server"
    option_names = ("server_count", "server_s_per_byte")
    server_kind = "memory"

    def cost(  # noqa: D102
        self,
        link: Hockney,
        worker_count: Quantity,
        *,
        server_count: Quantity = 1,
        server_s_per_byte: Quantity | None = None,
        **options: Any,
    ) -> Quantity:
        _check_servers(server_count)
        crowd = worker_count / server_count
        beta_s = link.beta if server_s_per_byte is None else server_s_per_byte
        pushed = link.n * maximum(link.beta, crowd * beta_s)
        return link.times(alpha=2, gamma=crowd) + 2 * pushed

    def schedule(  # noqa: D102
        self,
        worker_count: int,
        *,
        server_count: int = 1,
        server_s_per_byte: Quantity | None = None,
        **options: Any,
    ) -> tuple[Round, ...]:
        _check_servers(server_count)
        shards = range(SERVER, SERVER - server_count, -1)
        share = 1 / server_count
        pairs = [(rank, shard) for rank in range(worker_count) for shard in shards]
        push = Round(tuple(Message(rank, shard, share) for rank, shard in pairs), reduced_share=worker_count * share)
        return (push, Round(tuple(Message(shard, rank, share) for rank, shard in pairs)))

    def server_count_of(self, *, server_count: int = 1, **options: Any) -> int:  # noqa: D102
        return server_count


def _check_servers(server_count: Quantity) -> None:
    if isinstance(server_count, int | float) and (server_count < 1 or server_count % 1):
        raise ArgumentError("server_count", server_count, "a whole number of at least 1")
