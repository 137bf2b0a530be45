"""Exchanges of a stage by kind: those that software does not wait for at once, and products that run beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perfmodel.cost.overlap import slowed_exchange
from perfmodel.derived import derived
from perfmodel.numeric import maximum
from perfmodel.records import Attention, Contraction, Convolution, Phase, Role

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.parallelism.base import Exchange, StageGraph
    from perfmodel.prediction.job.stage import Stage

PRODUCTS: Final = frozenset({Contraction.kind, Convolution.kind})
"""Kinds of operations that hide an exchange: short passes before or after them are left out."""


class Started(NamedTuple):
    """Exchanges of one kind, beside each of which the same operations run, by their groups in the kernel table."""

    exchange: Exchange
    groups: tuple[int, ...]
    repeat: int


@derived
def started_exchanges(stage: Stage, roles: tuple[str, ...]) -> tuple[Started, ...]:
    """Exchanges of a stage that run beside products of these roles, each kind once, with how often it comes."""
    # a stage is lowered once for all of its structure: its layers have other names there, in the same order
    names = (node.name for node in stage.subject.graph.layers)
    lowered_name = dict(zip((node.name for node in stage.placed.graph.layers), names, strict=True))
    products = _products(stage.lowered.table)
    counted: dict[tuple[object, ...], Started] = {}
    for each in stage.placed.exchanges:
        if each.group == "context" or each.beside is None or each.beside.role not in roles:
            continue
        here = [lowered_name[name] for name in each.beside.layers if name in lowered_name]
        groups = tuple(group for name in here for group in products.get((name, each.beside.role), ()))
        key = (each.kind, each.bytes_per_sample, each.fixed_bytes, groups)
        first = counted.get(key, Started(each, groups, 0))
        counted[key] = first._replace(repeat=first.repeat + 1)
    return tuple(counted.values())


@derived
def rings_of(stage: Stage, phase: Phase) -> tuple[Started, ...]:
    """Exchanges that pass keys and values on while the attention that reads them computes, each kind once."""
    names = (node.name for node in stage.subject.graph.layers)
    lowered_name = dict(zip((node.name for node in stage.placed.graph.layers), names, strict=True))
    blocks: dict[tuple[str, Role], list[int]] = {}
    for layer, of_phase, role, group in stage.lowered.table.occurrences:
        if of_phase is phase and stage.lowered.table.operation_kinds[group] == Attention.kind:
            blocks.setdefault((layer, role), []).append(group)
    counted: dict[tuple[object, ...], Started] = {}
    for each in stage.placed.exchanges:
        if each.kind != "pass_on" or each.phase is not phase or each.beside is None:
            continue
        here = [lowered_name[name] for name in each.beside.layers]
        groups = tuple(group for name in here for group in blocks.get((name, each.beside.role), ()))
        key = (each.bytes_per_sample, groups)
        first = counted.get(key, Started(each, groups, 0))
        counted[key] = first._replace(repeat=first.repeat + 1)
    return tuple(counted.values())


def started_s(stage: Stage, times: Any, roles: tuple[str, ...], exchanges: Any, *, samples: Any) -> Any:
    """Time of the exchanges that software runs beside products, as far as it lengthens the backward turn. [s]"""
    exposed_s: Any = 0
    for exchange, groups, repeat in started_exchanges(stage, roles):
        exposed_s = exposed_s + repeat * slowed_exchange(
            ready_s=[0.0],
            message_s=[exchanges(exchange, exchange.size_bytes(samples), stage.placed)],
            computed_s=times.operations_s(groups) if groups else 0.0,
            slowdown=0.0 if exchanges.library is None else exchanges.taken_share(exchange, stage.placed),
        )
    return exposed_s


def rings_s(stage: Stage, times: Any, phase: Phase, exchanges: Any, *, samples: Any, size: int) -> Any:
    """Time of messages of rings of attention, as far as they take longer than the blocks beside them. [s]"""
    exposed_s: Any = 0
    for exchange, groups, repeat in rings_of(stage, phase):
        message_s = exchanges(exchange, exchange.size_bytes(samples), stage.placed)
        beside_s = times.operations_s(groups) * (1 - 1 / size)  # the last block has all it needs
        exposed_s = exposed_s + repeat * maximum(message_s - beside_s, 0.0)
    return exposed_s


@derived
def gathered_units(stage: Stage, phase: Phase) -> tuple[tuple[Exchange | None, tuple[int, ...]], ...]:
    """List what a stage computes in a phase, unit by unit, each with the exchange that gathers its parameters.

    A unit that computes again, or for which nothing is gathered, has no exchange.
    """
    from perfmodel.parallelism.units import sharded_units

    graph = stage.subject.graph
    names = dict(zip((node.name for node in stage.placed.graph.layers), graph.layers, strict=True))
    gathers = {
        names[each.after_layer].name: each
        for each in stage.placed.exchanges
        if (each.kind, each.group, each.phase) == ("all_gather", "data", phase)
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
    # what is gathered without computing by itself, as of fused layers, comes last
    return (*((exchange, tuple(groups)) for exchange, groups in runs), *((left, ()) for left in gathers.values()))


@derived
def _products(table: KernelTable) -> dict[tuple[str, Role], list[int]]:
    """Find the products of back-propagation by layer and role: their groups, in order."""
    found: dict[tuple[str, Role], list[int]] = {}
    for layer, phase, role, group in table.occurrences:
        if phase is not Phase.BACKWARD:
            continue
        kind = table.operation_kinds[group]
        if kind == Attention.kind:  # what a layer computes before its attention is done when its exchange begins
            found.update({(layer, made): [] for made in Role})
        elif kind in PRODUCTS:
            found.setdefault((layer, role), []).append(group)
    return found


@derived
def alike_exchanges(placed: StageGraph) -> list[tuple[Exchange, int]]:
    """Exchanges of a stage other than gradient sums, each kind once, with its count."""
    counted: dict[Any, tuple[Exchange, int]] = {}
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
    return list(counted.values())
