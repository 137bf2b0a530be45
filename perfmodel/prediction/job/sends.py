"""Activations and gradients that stages send one another: whole or in shares, waited for or not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfmodel.parallelism.base import Exchange, StageGraph
    from perfmodel.prediction.job.prepared import Prepared


def waits_for_sends(prepared: Prepared) -> bool:
    """Tell whether a stage computes nothing while it sends, so that transfers are a part of its turns."""
    habits = prepared.profile.exchange
    return habits.awaits_interleaved_sends if prepared.layout.interleave > 1 else habits.awaited_sends > 0


def waited_s(prepared: Prepared, forward_s: Any, backward_s: Any) -> tuple[Any, Any]:
    """Time that transfers add to a stage's forward and backward turn, given what it sends in each. [s]

    What it receives in one phase is as large as what it sends in the other.
    """
    if not waits_for_sends(prepared):
        return 0, 0
    both_s = forward_s + backward_s
    return (forward_s, backward_s) if prepared.profile.exchange.awaited_sends == 1 else (both_s, both_s)


def shares_of(prepared: Prepared, exchange: Exchange) -> int:
    """Parts, one for each device, in which a tensor group sends a tensor to another stage; 1 if whole. [1]"""
    layout, divides = prepared.layout, prepared.profile.exchange.sent == "shares"
    is_whole = not (divides and exchange.kind == "send") or layout.sequence_parallel
    return 1 if is_whole else layout.tensor_size


def exchanged_s(prepared: Prepared, exchange: Exchange, size_bytes: Any, stage: StageGraph) -> Any:
    """Time of an exchange of a stage, and of gathering a tensor that arrives in shares. [s]"""
    exchanges, shares = prepared.exchanges, shares_of(prepared, exchange)
    assert exchanges is not None
    seconds: Any = exchanges(exchange, size_bytes / shares, stage)
    if shares == 1:
        return seconds
    return seconds + exchanges(replace(exchange, kind="all_gather", group="tensor"), size_bytes, stage)
