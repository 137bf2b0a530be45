"""Exchanges that software starts without waiting for them, by kind, and the products that run beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perfmodel.cost.overlap import slowed_exchange
from perfmodel.cost.passing_on import exposed_ring
from perfmodel.derived import derived
from perfmodel.records import Attention, Contraction, Convolution, Phase, Role

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.parallelism.base import Beside, Exchange, Placement, StageGraph
    from perfmodel.prediction.job.stage import Stage

PRODUCTS: Final = frozenset({Contraction.kind, Convolution.kind})
"""Kinds of operations that hide an exchange: short passes before or after them are left out."""
CUT: Final = PRODUCTS | {Attention.kind}
"""Kinds of operations whose parts run beside messages that a group passes on."""


class Started(NamedTuple):
    """Exchanges of one kind, and the operations beside each of them, as groups of the kernel table."""

    exchange: Exchange
    groups: tuple[int, ...]
    repeat: int


def runs_beside(exchange: Exchange, roles: tuple[str, ...]) -> bool:
    """Tell whether software computes beside an exchange: parts of an operation, or whole products of these roles."""
    return exchange.beside is not None and (exchange.kind == "pass_on" or exchange.beside.role in roles)


@derived
def started_exchanges(stage: Stage, roles: tuple[str, ...]) -> tuple[Started, ...]:
    """Exchanges of a stage that run beside products of these roles: each kind once, with its count."""
    started = [
        (exchange, exchange.beside)
        for exchange in stage.placed.exchanges
        if exchange.kind != "pass_on" and exchange.beside is not None and exchange.beside.role in roles
    ]
    return _by_kind(stage, started, _products(stage.lowered.table)) if started else ()


def _by_kind(
    stage: Stage, started: list[tuple[Exchange, Beside]], groups_of: Mapping[tuple[str, Role], list[int]]
) -> tuple[Started, ...]:
    """Count exchanges of the same size beside the same operations; ``groups_of`` finds a layer's by role."""
    # stages of one structure are lowered once: the layers are in the same order, under other names
    names = (node.name for node in stage.subject.graph.layers)
    lowered_name = dict(zip((node.name for node in stage.placed.graph.layers), names, strict=True))
    counted: dict[tuple[object, ...], tuple[Exchange, tuple[int, ...], list[Exchange]]] = {}
    for exchange, beside in started:
        here = [lowered_name[name] for name in beside.layers if name in lowered_name]
        groups = tuple([group for name in here for group in groups_of.get((name, beside.role), ())])
        key = (exchange.kind, exchange.bytes_per_sample, exchange.fixed_bytes, groups)
        counted.setdefault(key, (exchange, groups, []))[-1].append(exchange)
    return tuple([Started(exchange, groups, len(alike)) for exchange, groups, alike in counted.values()])


@derived
def rings_of(stage: Stage, phase: Phase) -> tuple[Started, ...]:
    """Exchanges whose messages go round beside the parts of an operation, each kind once with its count."""
    operations: dict[tuple[str, Role], list[int]] = {}
    for layer, of_phase, role, group in stage.lowered.table.occurrences:
        if of_phase is phase and stage.lowered.table.operation_kinds[group] in CUT:
            operations.setdefault((layer, role), []).append(group)
    started = [
        (exchange, exchange.beside)
        for exchange in stage.placed.exchanges
        if exchange.kind == "pass_on" and exchange.phase is phase and exchange.beside is not None
    ]
    return _by_kind(stage, started, operations)


def started_s(stage: Stage, times: Any, roles: tuple[str, ...], exchanges: Any, *, samples: Any) -> Any:
    """Time by which exchanges beside products lengthen the backward turn. [s]"""
    exposed_s: Any = 0
    for exchange, groups, repeat in started_exchanges(stage, roles):
        exposed_s = exposed_s + repeat * slowed_exchange(
            ready_s=[0.0],
            message_s=[exchanges(exchange, exchange.size_bytes(samples), stage.placed)],
            computed_s=times.operations_s(groups) if groups else 0.0,
            slowdown=0.0 if exchanges.library is None else exchanges.taken_share(exchange, stage.placed),
        )
    return exposed_s


def rings_s(stage: Stage, times: Any, phase: Phase, exchanges: Any, *, samples: Any, placement: Placement) -> Any:
    """Time by which messages that groups pass on outlast the parts computed beside them. [s]"""
    from perfmodel.prediction.job.exchange_times import group_size

    exposed_s: Any = 0
    for exchange, groups, repeat in rings_of(stage, phase):
        ring_s = exposed_ring(
            message_s=exchanges(exchange, exchange.size_bytes(samples), stage.placed),
            computed_s=times.operations_s(groups) if groups else 0.0,
            parts=group_size(placement, exchange, stage.placed),
        )
        exposed_s = exposed_s + repeat * ring_s
    return exposed_s


@derived
def gathered_units(stage: Stage, phase: Phase) -> tuple[tuple[Exchange | None, tuple[int, ...]], ...]:
    """List a stage's units as they compute in a phase: the exchange that gathers their parameters, and their groups.

    A unit that computes again, or gathers nothing, has no exchange.
    """
    from perfmodel.parallelism.units import sharded_units

    graph = stage.subject.graph
    names = dict(zip((node.name for node in stage.placed.graph.layers), graph.layers, strict=True))
    gathers = {
        names[exchange.after_layer].name: exchange
        for exchange in stage.placed.exchanges
        if (exchange.kind, exchange.group, exchange.phase) == ("all_gather", "data", phase)
    }
    unit_of = {layer: unit.layers[0] for unit in sharded_units(graph) for layer in unit.layers}
    runs: list[tuple[Exchange | None, list[int]]] = []
    current = None
    for occurrence in stage.lowered.table.occurrences:
        if occurrence.phase is not phase:
            continue
        unit = unit_of.get(occurrence.layer, current)  # a layer without parameters belongs to the unit before it
        if not runs or unit != current:
            runs.append((gathers.pop(unit, None) if unit is not None else None, []))
            current = unit
        runs[-1][1].append(occurrence.group)
    # units without groups of their own, such as fused layers, come last
    return (*((exchange, tuple(groups)) for exchange, groups in runs), *((left, ()) for left in gathers.values()))


@derived
def _products(table: KernelTable) -> dict[tuple[str, Role], list[int]]:
    """Find the groups of the products of back-propagation, by layer and role."""
    groups_of: dict[tuple[str, Role], list[int]] = {}
    for layer, phase, role, group in table.occurrences:
        if phase is not Phase.BACKWARD:
            continue
        kind = table.operation_kinds[group]
        if kind == Attention.kind:  # products before attention end before the exchange begins
            groups_of.update({(layer, any_role): [] for any_role in Role})
        elif kind in PRODUCTS:
            groups_of.setdefault((layer, role), []).append(group)
    return groups_of


@derived
def alike_exchanges(placed: StageGraph) -> Mapping[Hashable, tuple[Exchange, int]]:
    """Exchanges of a stage without gradient sums: key of a kind -> one of that kind, and how many there are."""
    counted: dict[Hashable, tuple[Exchange, int]] = {}
    for exchange in placed.exchanges:
        if exchange.group != "data" or exchange.kind == "all_gather":
            beside = None if exchange.beside is None else exchange.beside.role
            key = (
                exchange.kind,
                exchange.group,
                exchange.phase,
                exchange.bytes_per_sample,
                exchange.fixed_bytes,
                beside,
            )
            first, count = counted.get(key, (exchange, 0))
            counted[key] = (first, count + 1)
    return counted
