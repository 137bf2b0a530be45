"""Hierarchical: a ring inside each group, then rings across the groups, then inside again."""

from __future__ import annotations

from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Message, Round
from perfmodel.sync.ranks import group_count


class Hierarchical(Collective):
    r"""Reduce-scatter inside groups of g, all-reduce of each part across the m groups, all-gather inside.

    .. math:: T = 2 (g - 1) \left(\alpha_i + \frac{n}{g} \beta_i\right)
        + 2 (m - 1) \left(\alpha + \frac{n}{g m} c \beta\right)
        + \left(\frac{g - 1}{g} + \frac{m - 1}{g m}\right) n \gamma

    where all g of a group cross with ports of their own, c = 1, or share one (``shared_port``), c = g. Options are
    ``group_size`` (g), ``inner_latency_s``, ``inner_s_per_byte`` (:math:`\alpha_i, \beta_i`; those between groups
    unless given) and ``shared_port``.

    Notes
    -----
    Valid for: equal groups, e.g. the devices of a machine. Ignores: that parts could cross while others are still
    added up inside.

    Examples
    --------
    Four machines of eight devices, 150 GB/s inside and 12.5 GB/s from each device to other machines:

    >>> hierarchical = Hierarchical()
    >>> numbers = {"size_bytes": 102228128, "worker_count": 32, "latency_s": 0.0, "seconds_per_byte": 1 / 12.5e9}
    >>> 1e3 * hierarchical.time(**numbers, group_size=8, inner_s_per_byte=1 / 150e9)
    2.7261

    References
    ----------
    .. [1] X. Jia et al., Highly scalable deep learning training system with mixed-precision, arXiv:1807.11205, 2018.
    """

    name = "hierarchical"
    option_names = ("group_size", "inner_latency_s", "inner_s_per_byte", "shared_port")
    ring = True

    def cost(  # noqa: D102
        self,
        link: Hockney,
        worker_count: Quantity,
        *,
        group_size: int | None = None,
        inner_latency_s: Quantity | None = None,
        inner_s_per_byte: Quantity | None = None,
        shared_port: bool = False,
        **options: Any,
    ) -> Quantity:
        groups = group_count(worker_count, group_size)
        size: Any = group_size
        inner = Hockney(
            link.n,
            link.alpha if inner_latency_s is None else inner_latency_s,
            link.beta if inner_s_per_byte is None else inner_s_per_byte,
            link.gamma,
        )
        within, across = (size - 1) / size, (groups - 1) / worker_count
        crossing = size if shared_port else 1
        inside = inner.times(alpha=2 * (size - 1), beta=2 * within, gamma=within)
        return inside + link.times(alpha=2 * (groups - 1), beta=2 * across * crossing, gamma=across)

    def schedule(self, worker_count: int, *, group_size: int | None = None, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        groups = group_count(worker_count, group_size)
        size: Any = group_size
        found = []
        for members, share, repeat in (
            (_next_inside(worker_count, size), 1 / size, size - 1),
            (_next_across(worker_count, size), 1 / worker_count, groups - 1),
        ):
            messages = tuple(Message(rank, following, share) for rank, following in enumerate(members))
            if repeat:
                found.append((messages, share, repeat))
        up = [Round(messages, reduced_share=share, repeat=repeat) for messages, share, repeat in found]
        return (*up, *(Round(messages, repeat=repeat) for messages, _, repeat in reversed(found)))


def _next_inside(worker_count: int, size: int) -> list[int]:
    return [rank - rank % size + (rank + 1) % size for rank in range(worker_count)]


def _next_across(worker_count: int, size: int) -> list[int]:
    return [(rank + size) % worker_count for rank in range(worker_count)]
