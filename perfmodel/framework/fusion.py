"""Fusion: chains of passes that a compiler turns into one kernel; tensors in between stay on chip. No times here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfmodel.framework.kernel_classes import pass_class
from perfmodel.framework.kernel_table import LayerOperation
from perfmodel.layers.shapes import element_count
from perfmodel.records import MemoryPass, Phase

if TYPE_CHECKING:
    from perfmodel.graph.node import Node

FUSED_CLASSES = ("elementwise", "reduction")
"""Classes of passes that a compiler fuses: element-wise ones, normalisations and reductions. [-]"""


def chains(nodes: Sequence[Node], forward: Iterable[tuple[str, object]]) -> list[list[Node]]:
    """Return the chains of layers that a compiler fuses, each layer read by the next one alone.

    Parameters
    ----------
    nodes : sequence of Node
        Layers in the order in which they run. [-]
    forward : iterable of tuple
        Layers and operations of the forward phase. [-]

    Returns
    -------
    list of list of Node
        Chains of two layers or more. [-]

    Notes
    -----
    Valid for: compilers that fuse element-wise passes, normalisations and reductions, and leave products as they are.
    Ignores: fusion with what else reads a tensor, and views between two passes.
    """
    operations: dict[str, list[object]] = {}
    for layer, operation in forward:
        operations.setdefault(layer, []).append(operation)
    readers: dict[str, int] = {}
    for node in nodes:
        for name in node.input_names:
            readers[name] = readers.get(name, 0) + 1
    chain_of: dict[str, list[Node]] = {}
    found = []
    for node in nodes:
        if not _is_fused(operations.get(node.name, [])):
            continue
        before = next(
            (name for name in node.input_names if name in chain_of and readers[name] == 1),
            None,
        )
        chain = [] if before is None else chain_of[before]
        if before is None:
            found.append(chain)
        chain.append(node)
        chain_of[node.name] = chain
    return [chain for chain in found if len(chain) > 1]


def _is_fused(operations: Sequence[object]) -> bool:
    passes = [each for each in operations if isinstance(each, MemoryPass) and pass_class(each.name) in FUSED_CLASSES]
    return bool(passes) and len(passes) == len(operations)


def fused(
    operations: Sequence[LayerOperation], fused_chains: Sequence[Sequence[Node]], *, batch_size: int
) -> list[LayerOperation]:
    """Return the operations of a step with the passes of each chain as one, without traffic between them.

    Parameters
    ----------
    operations : sequence of LayerOperation
        In the order in which they run. [-]
    fused_chains : sequence of sequence of Node
        A result of ``chains``. [-]
    batch_size : int
        Samples. [samples]

    Returns
    -------
    list of LayerOperation
        The fused pass of a phase stands where the chain's last one of it was, under the name of its longest. [-]
    """
    place = {
        node.name: (index, position) for index, chain in enumerate(fused_chains) for position, node in enumerate(chain)
    }
    members: dict[tuple[int, Phase], list[int]] = {}
    for index, each in enumerate(operations):
        if each.layer in place and isinstance(each.operation, MemoryPass) and each.phase is not Phase.UPDATE:
            members.setdefault((place[each.layer][0], each.phase), []).append(index)
    replaced: dict[int, LayerOperation] = {}
    for (index, _), indices in members.items():
        present = {place[operations[each].layer][1] for each in indices}
        chain = fused_chains[index]
        spared = sum(
            element_count(chain[position].output_shape, batch_size=batch_size)
            for position in present
            if position + 1 in present
        )
        replaced[indices[-1]] = _joined([operations[each] for each in indices], spared=spared)
    dropped = {index for indices in members.values() for index in indices[:-1]}
    return [replaced.get(index, each) for index, each in enumerate(operations) if index not in dropped]


def _joined(parts: Sequence[LayerOperation], *, spared: int) -> LayerOperation:
    """Join passes of one chain and phase into one that spares a write and a read of each tensor in between."""
    passes = [each.operation for each in parts if isinstance(each.operation, MemoryPass)]
    largest = max(range(len(passes)), key=lambda index: float(passes[index].read_elements))
    read, written = sum(each.read_elements for each in passes), sum(each.written_elements for each in passes)
    operation = replace(
        passes[largest],
        read_elements=read - spared,
        written_elements=written - spared,
        flop_count=sum(each.flop_count for each in passes),
        read_index_bytes=sum(each.read_index_bytes for each in passes),
        written_index_bytes=sum(each.written_index_bytes for each in passes),
    )
    return parts[largest]._replace(operation=operation)
