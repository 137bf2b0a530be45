"""Fusion: chains of passes that a compiler turns into one kernel; tensors in between stay on chip. No times here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfmodel.framework.kernel_table import LayerOperation
from perfmodel.framework.measured_lowering import pass_class
from perfmodel.layers.attention import SCORE_PASSES
from perfmodel.layers.shapes import element_count
from perfmodel.records import Attention, MemoryPass, Phase

if TYPE_CHECKING:
    from perfmodel.graph.node import Node

SUMMED = ("read_elements", "written_elements", "flop_count", "read_index_bytes", "written_index_bytes")
"""Counts of a chain's passes that add up in the fused one."""
FUSED_CLASSES = ("elementwise", "reduction")
"""Classes of passes that a compiler fuses: element-wise ones, normalisations and reductions. [-]"""


def chains(nodes: Sequence[Node], forward: Iterable[tuple[str, object]]) -> list[list[Node]]:
    """Return the chains of layers that a compiler fuses, each layer read by the next one alone.

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
    all_chains = []
    for node in nodes:
        if not _is_fused(operations.get(node.name, [])):
            continue
        before = next((name for name in node.input_names if name in chain_of and readers[name] == 1), None)
        chain = [] if before is None else chain_of[before]
        if before is None:
            all_chains.append(chain)
        chain.append(node)
        chain_of[node.name] = chain
    return [chain for chain in all_chains if len(chain) > 1]


def _is_fused(operations: Sequence[object]) -> bool:
    return bool(operations) and all(
        isinstance(operation, MemoryPass) and pass_class(operation.name) in FUSED_CLASSES for operation in operations
    )


def fused(
    operations: Sequence[LayerOperation], fused_chains: Sequence[Sequence[Node]], *, batch_size: int
) -> list[LayerOperation]:
    """Return the operations of a step with the passes of each chain as one, without traffic between them."""
    place = {
        node.name: (index, position) for index, chain in enumerate(fused_chains) for position, node in enumerate(chain)
    }
    members: dict[tuple[int, Phase], list[int]] = {}
    for index, member in enumerate(operations):
        if member.layer in place and isinstance(member.operation, MemoryPass) and member.phase is not Phase.UPDATE:
            members.setdefault((place[member.layer][0], member.phase), []).append(index)
    replaced: dict[int, LayerOperation] = {}
    for (index, _), indices in members.items():
        present = {place[operations[member].layer][1] for member in indices}
        chain = fused_chains[index]
        between = [chain[position] for position in present if position + 1 in present]
        spared, spared_bytes = (
            sum(
                element_count(node.output_shape, batch_size=batch_size)
                for node in between
                if node.layer.makes_mask is of_bytes
            )
            for of_bytes in (False, True)
        )
        parts = [operations[member] for member in indices]
        replaced[indices[-1]] = _joined(parts, spared=spared, spared_bytes=spared_bytes)
    dropped = {index for indices in members.values() for index in indices[:-1]}
    return [replaced.get(index, operation) for index, operation in enumerate(operations) if index not in dropped]


def in_softmax(operations: Sequence[LayerOperation]) -> list[LayerOperation]:
    """Return the operations without the passes that scale and mask materialised scores, which a compiler fuses.

    Notes
    -----
    Valid for: compilers that scale, mask and normalise scores in one kernel, and likewise their gradients. Ignores: the
    mask that this kernel reads; dropout, which stays a pass of its own.
    """
    scores: dict[tuple[str, Phase], set[object]] = {}
    for layer, phase, operation in ((each.layer, each.phase, each.operation) for each in operations):
        if isinstance(operation, Attention) and operation.scores == "materialised":
            scores.setdefault((layer, phase), set()).add(operation.score_elements)

    def is_beside_softmax(member: LayerOperation) -> bool:
        operation, known = member.operation, scores.get((member.layer, member.phase), ())
        if not isinstance(operation, MemoryPass) or operation.name not in SCORE_PASSES:
            return False
        return operation.tensor_elements in known

    return [member for member in operations if not is_beside_softmax(member)]


def _joined(parts: Sequence[LayerOperation], *, spared: int, spared_bytes: int) -> LayerOperation:
    """Join passes of one chain and phase into one that spares a write and a read of each tensor in between.

    Tensors of the network's type spare elements, masks and quantised tensors a byte for each.
    """
    passes = [part.operation for part in parts if isinstance(part.operation, MemoryPass)]
    largest = max(range(len(passes)), key=lambda index: float(passes[index].read_elements))
    totals = {name: sum(getattr(one_pass, name) for one_pass in passes) for name in SUMMED}
    totals["read_elements"] -= spared
    totals["written_elements"] -= spared
    for name in ("read_index_bytes", "written_index_bytes"):
        totals[name] = max(0, totals[name] - spared_bytes)  # where a mask is read as if it had the network's type
    return parts[largest]._replace(operation=replace(passes[largest], **totals))
