"""What an asynchronous scheme comes to, per step of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.symbolic import Quantity
    from perfmodel.sync.unequal_visitors import KindTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousTimes:
    """What a scheme comes to, per step of a worker.

    Parameters
    ----------
    compute_s : float, ndarray or sympy.Expr
        Its own computation. [s]
    straggler_s : float, ndarray or sympy.Expr
        Waiting for slower workers: of its group, or those too far behind. [s]
    group_sync_s : float, ndarray or sympy.Expr
        Adding up gradients in its group. [s]
    wait_s : float, ndarray or sympy.Expr
        The way to the server and back, its service, and the queue before it. [s]
    updates_per_s : float, ndarray or sympy.Expr
        Updates that the server applies. [1/s]
    batches_per_update : float, ndarray or sympy.Expr
        Mini-batches of one worker that make up an update. [1]
    mean_staleness : float, ndarray or sympy.Expr
        Updates of others that a gradient has missed, on average, when it is applied. [1]
    knee : float, ndarray or sympy.Expr
        Workers, or groups where there are any, from which on the server bounds. [1]
    server_utilisation : float, ndarray or sympy.Expr
        Share of time that the busiest part of the server, or of the way to it, works. [1]
    most_updates_per_s : float, ndarray or sympy.Expr
        Updates that there would be if nobody queued, or the server were never idle, whichever is less. [1/s]
    kinds : tuple of KindTimes
        What visitors of each speed come to, the fastest first; empty where all are alike or keep pace. [-]
    """

    compute_s: Quantity
    straggler_s: Quantity
    group_sync_s: Quantity
    wait_s: Quantity
    updates_per_s: Quantity
    batches_per_update: Quantity
    mean_staleness: Quantity
    knee: Quantity
    server_utilisation: Quantity
    most_updates_per_s: Quantity
    kinds: tuple[KindTimes, ...] = ()

    @property
    def step_s(self) -> Quantity:
        """Time from one step of a worker to its next; of unequal ones workers over the steps of all per second. [s]"""
        return self.compute_s + self.straggler_s + self.group_sync_s + self.wait_s
