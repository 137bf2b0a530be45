"""Parameter server: workers push gradients to the shards of a server and pull the updated weights."""

from __future__ import annotations

from typing import Any

from perfmodel.errors import ArgumentError
from perfmodel.numeric import Quantity, maximum
from perfmodel.sync.base import SERVER, Collective, Hockney, Message, Round


class ParameterServer(Collective):
    r"""Synchronous parameter server of S shards, on hosts of their own or one beside each of the first S workers.

    .. math:: T = 2 \alpha + 2 n \max\left(\beta, \tfrac{p}{S} \beta_s\right) + \tfrac{p}{S} n \gamma

    and beside workers, whose own part needs no message,

    .. math:: T = 2 \alpha + \tfrac{p - 1}{S} n (2 \beta + \gamma)

    Options are ``server_count`` (S), ``co_located``, and ``server_s_per_byte`` (:math:`\beta_s`, that of the workers
    unless given).

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
    option_names = ("server_count", "co_located", "server_s_per_byte")
    server_kind = "memory"

    def cost(  # noqa: D102
        self,
        link: Hockney,
        worker_count: Quantity,
        *,
        server_count: Quantity = 1,
        co_located: bool = False,
        server_s_per_byte: Quantity | None = None,
        **options: Any,
    ) -> Quantity:
        if co_located:
            _check_beside(server_count, worker_count)
            others = (worker_count - 1) / server_count
            return link.times(alpha=2, beta=2 * others, gamma=others)
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
        co_located: bool = False,
        server_s_per_byte: Quantity | None = None,
        **options: Any,
    ) -> tuple[Round, ...]:
        if co_located:
            _check_beside(server_count, worker_count)
        _check_servers(server_count)
        shards = range(server_count) if co_located else range(SERVER, SERVER - server_count, -1)
        share = 1 / server_count
        pairs = [(rank, shard) for rank in range(worker_count) for shard in shards if rank != shard]
        added = (worker_count - 1 if co_located else worker_count) * share
        push = Round(tuple(Message(rank, shard, share) for rank, shard in pairs), reduced_share=added)
        return (push, Round(tuple(Message(shard, rank, share) for rank, shard in pairs)))

    def server_count_of(self, *, server_count: int = 1, co_located: bool = False, **options: Any) -> int:  # noqa: D102
        return 0 if co_located else server_count


def _check_servers(server_count: Quantity) -> None:
    if isinstance(server_count, int | float) and (server_count < 1 or server_count % 1):
        raise ArgumentError("server_count", server_count, "a whole number of at least 1")


def _check_beside(server_count: Quantity, worker_count: Quantity) -> None:
    _check_servers(server_count)
    numbers = isinstance(server_count, int | float) and isinstance(worker_count, int | float)
    if numbers and server_count > worker_count:
        allowed = f"at most worker_count={worker_count}: shards that lie beside workers are no more than these"
        raise ArgumentError("server_count", server_count, allowed)
