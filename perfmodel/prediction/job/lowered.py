"""A lowered graph: its kernel table and memory, made once per graph and set of rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from perfmodel.derived import derived, kept
from perfmodel.framework.fusion import chains, fused, in_softmax
from perfmodel.framework.kernel_table import (
    PROBE_BATCH_SIZES,
    KernelTable,
    LayerProbes,
    Occurrence,
    probed_table,
    probes_of,
)
from perfmodel.framework.mixed_precision import (
    LayerTypes,
    MixedPrecisionTable,
    cast_passes,
    layer_types,
)
from perfmodel.graph.liveness import TensorTypes
from perfmodel.graph.repeats import Shortened, shortened_for
from perfmodel.layers.optimizers import NoUpdate, Optimizer
from perfmodel.layers.passes import one_pass
from perfmodel.prediction.memory.footprint import GraphMemory, graph_memory
from perfmodel.records import ELEMENT_BYTES, SINGLE_BYTES, Attention, Contraction, MemoryPass, Operation, Phase, Role

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.framework.rules import LoweringRules
    from perfmodel.graph import LayerGraph
    from perfmodel.graph.execution import Recompute
    from perfmodel.graph.node import Node
    from perfmodel.hardware.library import LibrarySupport

Operations = list[LayerProbes]
"""Operations in the order in which they run."""


class GradientSizes(NamedTuple):
    """Size of an element: of a gradient that is added, and of the sum that is kept over micro-batches. [B]"""

    added: int
    kept: int

    def sum_of(self, size: int) -> MemoryPass:
        """Add a gradient to a sum, in elements of the sum."""
        return self._summed(size, read=self.added / self.kept + 1, written=1)

    def sum_in_product(self, size: int) -> MemoryPass:
        """Extra traffic of a product that adds its gradient to a sum instead of writing it."""
        return self._summed(size, read=1, written=1 - self.added / self.kept)

    @staticmethod
    @lru_cache(maxsize=1024)
    def _summed(size: int, *, read: float, written: float) -> MemoryPass:
        moved = {"read": read * size, "written": written * size, "tensor": size, "flop": size}
        return one_pass("gradient_sum", **moved, role=Role.WEIGHT_GRADIENT)


@dataclass(frozen=True, slots=True, eq=False)
class LoweredGraph:
    """A graph lowered by a framework's rules: everything in a step that depends on neither batch size nor hardware.

    ``gradient_passes`` are those over the gradient of each parameter tensor, by purpose: ``adding``, unless
    back-propagation adds gradients itself, and ``messages``, unless gradients are sent from where they lie.
    """

    table: KernelTable
    types: Mapping[str, LayerTypes] | None
    memory_rules: Mapping[str, Any]
    gradient_rules: Mapping[str, Any] = field(default_factory=dict)
    gradient_passes: Mapping[str, Callable[[int], MemoryPass]] = field(default_factory=dict)
    _memory: list[GraphMemory] = field(default_factory=list)
    _of_gradients: dict[str, KernelTable | None] = field(default_factory=dict)

    def memory(self, graph: LayerGraph) -> GraphMemory:
        """Memory of the step, computed on first use; holding the lowered graph here would keep it alive."""
        if not self._memory:
            self._memory.append(graph_memory(graph, self.table, **self.memory_rules))
        return self._memory[0]

    def over_gradients(self, purpose: str, graph: LayerGraph) -> KernelTable | None:
        """Kernels of the ``gradient_passes`` for a purpose; None if there are none."""
        if purpose not in self._of_gradients:
            named = [(node.name, math.prod(shape)) for node in graph.layers for shape in node.trained_shapes.values()]
            self._of_gradients[purpose] = self._over(purpose, self.gradient_passes.get(purpose), named)
        return self._of_gradients[purpose]

    def over_units(self, bytes_per_parameter: float, graph: LayerGraph) -> KernelTable | None:
        """Kernels that move so many bytes [B] for each parameter of the units that workers gather together."""
        from perfmodel.parallelism.units import sharded_units

        purpose = f"units {bytes_per_parameter:g}"
        if purpose not in self._of_gradients:
            element_bytes = self.gradient_rules["element_bytes"]
            named = [(unit.layers[0], unit.parameter_count) for unit in sharded_units(graph)]
            pass_of = partial(_moved, share=bytes_per_parameter / (2 * element_bytes))
            self._of_gradients[purpose] = self._over(purpose, pass_of, named)
        return self._of_gradients[purpose]

    def _over(
        self, purpose: str, pass_of: Callable[[int], MemoryPass] | None, named: list[tuple[str, int]]
    ) -> KernelTable | None:
        """Kernels of one pass over each tensor, named by layer and size."""
        rules = self.gradient_rules
        if pass_of is None or not named:
            return None
        first, sizes = {size: name for name, size in reversed(named)}, [size for _, size in named]
        counts = tuple(Counter(sizes).items())
        known, how = _over_gradients_by(rules["rules"]), (purpose, rules["element_bytes"], rules["processor"])

        def of_sizes() -> KernelTable:
            passes = [_at_any_size(first[size], pass_of(size)) for size, _ in counts]
            return probed_table(passes, **rules)

        def of_counts() -> KernelTable:
            key = (*how, tuple([size for size, _ in counts]))
            of_size: KernelTable = kept(known, key, of_sizes, most=MOST_OVER_GRADIENTS)
            repeated = zip(of_size.occurrences, counts, strict=True)
            return of_size.with_occurrences([kernel for kernel, (_, count) in repeated for _ in range(count)])

        table: KernelTable = kept(known, (*how, counts), of_counts, most=MOST_OVER_GRADIENTS)
        return table


MOST_OVER_GRADIENTS = 1024
"""Tables of passes over gradients kept per set of rules; the oldest is dropped first. [1]"""


@derived
def _over_gradients_by(rules: LoweringRules) -> dict[Any, KernelTable]:
    """Cache tables of passes over gradients: stages with gradients of the same sizes share them."""
    del rules
    return {}


@lru_cache(maxsize=1024)
def _gradient_copy(size: int) -> MemoryPass:
    return one_pass("gradient_copy", read=size, written=size, role=Role.WEIGHT_GRADIENT)


def _moved(size: int, *, share: float) -> MemoryPass:
    return one_pass("gradient_copy", read=share * size, written=share * size, tensor=size, role=Role.WEIGHT_GRADIENT)


def _at_any_size(layer: str, operation: MemoryPass, element_bytes: int | None = None) -> LayerProbes:
    """Return a pass over parameters or their gradients, which do not grow with the batch."""
    return LayerProbes(layer, Phase.BACKWARD, (operation,) * len(PROBE_BATCH_SIZES), element_bytes)


MOST_LOWERED = 64
"""Lowered forms cached per graph; the oldest is dropped first. [1]"""

MOST_TYPES = 12
"""Types of layers cached per graph: devices and ways to run the backward phase share them. [1]"""

MOST_OPERATIONS = 12
"""Operation lists cached per graph, one per way to run a phase; devices and frameworks share them. [1]"""


def _operations_of(
    graph: LayerGraph, *, part: Phase, optimizer: Optimizer, input_gradient: bool, recompute: Recompute
) -> Operations:
    """Operations of a single phase, the same for all frameworks and devices."""
    options: dict[str, Any] = {"optimizer": optimizer if part is Phase.UPDATE else NoUpdate()}
    if part is Phase.BACKWARD:
        options |= {"input_gradient": input_gradient, "recompute": recompute}

    def make() -> Operations:
        probed = graph.probed_operations(PROBE_BATCH_SIZES, phase=part, **options)
        return [LayerProbes(layer, part, operations) for layer, operations in probed]

    operations: Operations = kept(graph.kept("operations"), (part, *options.values()), make, most=MOST_OPERATIONS)
    return operations


def _forward_operations(graph: LayerGraph) -> Operations:
    return _operations_of(graph, part=Phase.FORWARD, optimizer=NoUpdate(), input_gradient=False, recompute=None)


def _types(graph: LayerGraph, *, rules: MixedPrecisionTable, dtype: str, gathers: bool) -> Mapping[str, LayerTypes]:
    """Types of the layers under automatic mixed precision."""
    narrow = gathers or rules.parameters == "narrow"  # as workers that share parameters gather them

    def make() -> tuple[MixedPrecisionTable, Mapping[str, LayerTypes]]:
        operations = ((probes.layer, probes.operations[0]) for probes in _forward_operations(graph))
        how: dict[str, Any] = {"narrow_bytes": ELEMENT_BYTES[dtype], "narrow_parameters": narrow}
        return rules, layer_types(graph.layers, operations, rules=rules, **how)

    # the entry keeps the rules alive, so that no others get their id
    types: Mapping[str, LayerTypes] = kept(graph.kept("types"), (id(rules), dtype, narrow), make, most=MOST_TYPES)[1]
    return types


def _cast_counts(graph: LayerGraph) -> Mapping[str, int]:
    """Parameters that are cast with their layer; packed ones are unpacked in the type of the product. [1]"""
    return {node.name: node.parameter_count - node.packed_count for node in graph.layers}


def _tensor_types(
    graph: LayerGraph, types: Mapping[str, LayerTypes], *, rules: MixedPrecisionTable, dtype: str, fuses: bool
) -> TensorTypes:
    """Types of the tensors that stay in memory."""
    counts = _cast_counts(graph)
    return TensorTypes(
        result_bytes={name: layer.result_bytes for name, layer in types.items()},
        cast_inputs={name: layer.cast_inputs for name, layer in types.items() if layer.cast_inputs},
        parameter_bytes=ELEMENT_BYTES[dtype] if rules.parameters == "narrow" else SINGLE_BYTES,
        copied_weight_bytes=ELEMENT_BYTES[dtype]
        * sum(counts.get(name, 0) for name, layer in types.items() if layer.casts_weights),
        softmax={} if fuses else {name: layer.softmax for name, layer in types.items() if layer.softmax is not None},
    )


def _with_casts(
    graph: LayerGraph,
    probed: Operations,
    types: Mapping[str, LayerTypes],
    *,
    rules: MixedPrecisionTable,
    dtype: str,
    input_gradient: bool,
    fuses: bool,
) -> Operations:
    """Give each operation the size of its elements, and put casts before layers and after their gradients.

    A compiler casts activations in the passes beside them.
    """
    narrow_bytes = ELEMENT_BYTES[dtype]
    nodes = {node.name: node for node in graph.layers}
    wanted, counts = graph.wants_gradient(input_gradient=input_gradient), _cast_counts(graph)
    cast_in: dict[Phase, set[str]] = {Phase.FORWARD: set(), Phase.BACKWARD: set()}
    with_casts: Operations = []
    for layer, phase, operations, _ in probed:
        if phase is Phase.UPDATE or layer not in nodes:  # of an input, gradients are summed
            with_casts.append(LayerProbes(layer, phase, operations, SINGLE_BYTES))
            continue
        node, own_types = nodes[layer], types[layer]
        if layer not in cast_in[phase]:
            cast_in[phase].add(layer)
            casts = _casts(
                node,
                own_types._replace(cast_inputs=()) if fuses else own_types,
                counts.get(layer, 0),
                narrow_bytes,
                None if phase is Phase.FORWARD else tuple(node.into(wanted)),
            )
            with_casts += [LayerProbes(layer, phase, cast, narrow_bytes) for cast in casts]
        if (softmax := own_types.softmax) is not None and not fuses:
            if isinstance(operations[0], Attention):
                operations = tuple([softmax.of(core) for core in operations if isinstance(core, Attention)])
            elif softmax.scales_wide and isinstance(operations[0], MemoryPass):  # over scores, beside softmax
                own_types = own_types._replace(element_bytes=SINGLE_BYTES)
        with_casts.append(LayerProbes(layer, phase, operations, own_types.element_bytes))
    return with_casts


@derived
def _casts(
    node: Node, types: LayerTypes, own_parameters: int, narrow_bytes: int, wanted: tuple[bool, ...] | None
) -> tuple[tuple[Operation, ...], ...]:
    """Casts of a layer's tensors in a phase; parts of a network that share the layer share them."""
    if not (types.cast_inputs or types.casts_weights):
        return ()
    how: dict[str, Any] = {"own_parameters": own_parameters, "narrow_bytes": narrow_bytes, "wanted": wanted}
    return tuple(zip(*[cast_passes(node, types, batch_size=size, **how) for size in PROBE_BATCH_SIZES], strict=True))


def _with_fusion(graph: LayerGraph, probed: Operations) -> Operations:
    """Join the passes that a compiler fuses."""
    forward = [(probes.layer, probes.operations[0]) for probes in _forward_operations(graph)]
    fused_chains = chains(graph.layers, forward)
    return probes_of(
        fused(in_softmax([probes.at(place) for probes in probed]), fused_chains, batch_size=size)
        for place, size in enumerate(PROBE_BATCH_SIZES)
    )


def _with_gradient_buffers(
    graph: LayerGraph, probed: Operations, *, sizes: GradientSizes, in_product: bool
) -> Operations:
    """Add each parameter's gradient to its buffer once its layer has computed it.

    Clearing a buffer counts, unless products add to it: then it is cleared only once a step.
    """
    shapes = {node.name: node.trained_shapes.values() for node in graph.layers}
    last = {probes.layer: place for place, probes in enumerate(probed) if probes.phase is Phase.BACKWARD}
    products = {probes.layer for probes in probed if in_product and _is_weight_gradient(probes.operations[0])}
    with_buffers: Operations = []
    for place, probes in enumerate(probed):
        with_buffers.append(probes)
        if last.get(probes.layer) != place:
            continue
        for shape in shapes.get(probes.layer, ()):
            size, adds_itself = math.prod(shape), probes.layer in products and len(shape) > 1
            summed = sizes.sum_in_product(size) if adds_itself else sizes.sum_of(size)
            cleared = one_pass("clear", read=0, written=size, role=Role.WEIGHT_GRADIENT)
            passes = (summed,) if in_product else (cleared, summed)
            with_buffers += [_at_any_size(probes.layer, pass_, sizes.kept) for pass_ in passes]
    return with_buffers


def _is_weight_gradient(operation: Operation) -> bool:
    return isinstance(operation, Contraction) and operation.role is Role.WEIGHT_GRADIENT


def _repeated(operations: Operations, evaluation_count: int) -> Operations:
    """Repeat the forward and backward phases before an update that needs several losses and gradients."""
    updates = [probes for probes in operations if probes.phase is Phase.UPDATE]
    if evaluation_count == 1 or not updates:
        return operations
    return evaluation_count * [probes for probes in operations if probes.phase is not Phase.UPDATE] + updates


def _with_outputs_again(graph: LayerGraph, probed: Operations) -> Operations:
    """Compute the output of each layer with parameters once more before its gradients."""
    forward: dict[str, Operations] = {node.name: [] for node in graph.layers if node.trained_shapes}
    for probes in _forward_operations(graph):
        if probes.layer in forward:
            forward[probes.layer].append(probes._replace(phase=Phase.BACKWARD))
    repeated: Operations = []
    for probes in probed:
        if probes.phase is Phase.BACKWARD:
            repeated += forward.pop(probes.layer, [])
        repeated.append(probes)
    return repeated


def gradient_dtype(profile: FrameworkProfile, processor: str, *, dtype: str, asked: str | None) -> str:
    """Type of gradients: as asked, or that of the job unless mixed precision keeps them in single. [-]"""
    mixed = getattr(profile, processor).lowering.mixed(dtype)
    return asked or ("fp32" if mixed is not None and mixed.gradients == "single" else dtype)


def whole_dtype(profile: FrameworkProfile, processor: str, *, dtype: str) -> str:
    """Type of parameters that a device holds whole: that of the job unless mixed precision keeps single. [-]"""
    mixed = getattr(profile, processor).lowering.mixed(dtype)
    return "fp32" if mixed is not None and mixed.parameters == "single" else dtype


def gradient_sizes(
    profile: FrameworkProfile,
    processor: str,
    *,
    dtype: str,
    asked: str | None = None,
    gathers: bool = False,
    shared: bool = False,
) -> GradientSizes:
    """Sizes of an element of gradients; parameters arrive narrow if it ``gathers``, sums are shares if ``shared``."""
    whole = whole_dtype(profile, processor, dtype=dtype)
    added = gradient_dtype(profile, processor, dtype=dtype, asked=asked)
    kept_bytes = max(ELEMENT_BYTES[whole], ELEMENT_BYTES[added])
    has_buffers = isinstance(getattr(profile, processor).lowering.gradient_accumulation, str)
    of_sums = shared and not has_buffers  # of what workers have added up
    return GradientSizes(kept_bytes if of_sums else ELEMENT_BYTES[dtype if gathers else whole], kept_bytes)


def exchanged_dtype(profile: FrameworkProfile, processor: str, *, dtype: str, asked: str | None) -> str:
    """Type of gradients that workers exchange: as asked, as the framework converts them for it, or as they are. [-]"""
    return asked or profile.exchange.sums_in or gradient_dtype(profile, processor, dtype=dtype, asked=None)


def lowered_graph(
    graph: LayerGraph,
    *,
    phase: Phase,
    optimizer: Optimizer,
    input_gradient: bool,
    dtype: str,
    profile: FrameworkProfile,
    processor: str,
    support: LibrarySupport,
    recompute: Recompute = None,
    lowered_for: str | None = None,
    gathers: bool = False,
    gradients: GradientSizes | None = None,
) -> LoweredGraph:
    """Lower a graph by a framework's rules, once; parameters that workers gather arrive in the narrow type."""
    lowering = getattr(profile, processor).lowering
    sizes = gradient_sizes(profile, processor, dtype=dtype, gathers=gathers) if gradients is None else gradients
    # Rules are frozen, so the same id means the same content; the entry keeps them alive so that no id is reused.
    key = (
        phase, optimizer, input_gradient, dtype, processor, support,
        recompute, lowered_for, gathers, sizes, id(lowering), id(profile.memory),
    )  # fmt: skip

    def make() -> tuple[Any, LoweredGraph]:
        how: dict[str, Any] = {"phase": phase, "optimizer": optimizer, "dtype": dtype, "profile": profile}
        how |= {"input_gradient": input_gradient, "processor": processor, "recompute": recompute}
        how |= {"support": support, "lowered_for": lowered_for, "gathers": gathers, "gradients": sizes}
        short = None if lowering.fuses else shortened_for(graph, input_gradient=input_gradient, recompute=recompute)
        of_short = None if short is None else lowered_graph(short.graph, **how)
        lengthened = None if short is None or of_short is None else _lengthened(graph, short, of_short)
        table, types = lengthened or _lowered_layers(graph, **how)
        rules = {"rules": lowering.rules(support), "processor": lowered_for or processor}
        memory_rules = {
            "phase": phase,
            "optimizer": optimizer,
            "element_bytes": ELEMENT_BYTES[dtype],
            "policy": profile.memory,
            "input_gradient": input_gradient,
            "recompute": recompute,
            "types": None
            if types is None
            else replace(
                _tensor_types(graph, types, rules=lowering.mixed_precision, dtype=dtype, fuses=lowering.fuses),
                of_short=None if lengthened is None or of_short is None else of_short.memory_rules["types"],
            ),
        }
        passes: dict[str, Callable[[int], MemoryPass]] = {}
        if Phase.BACKWARD in phase.parts:
            passes |= {} if lowering.gradient_accumulation else {"adding": sizes.sum_of}
            passes |= {"messages": _gradient_copy} if lowering.message_copies else {}
        lowered = LoweredGraph(table, types, memory_rules, rules | {"element_bytes": sizes.kept}, passes)
        return (lowering, profile.memory), lowered

    lowered: LoweredGraph = kept(graph.kept("lowered"), key, make, most=MOST_LOWERED, weighed=True)[1]
    return lowered


_TableAndTypes = tuple[KernelTable, Mapping[str, LayerTypes] | None]


def _lowered_layers(
    graph: LayerGraph,
    *,
    phase: Phase,
    optimizer: Optimizer,
    input_gradient: bool,
    dtype: str,
    profile: FrameworkProfile,
    processor: str,
    support: LibrarySupport,
    recompute: Recompute,
    lowered_for: str | None,
    gathers: bool,
    gradients: GradientSizes,
) -> _TableAndTypes:
    """Lower a graph layer by layer; return its types too under automatic mixed precision."""
    lowering = getattr(profile, processor).lowering
    options: dict[str, Any] = {"optimizer": optimizer, "input_gradient": input_gradient, "recompute": recompute}
    operations = [probes for part in phase.parts for probes in _operations_of(graph, part=part, **options)]
    if lowering.outputs_again:
        operations = _with_outputs_again(graph, operations)
    if lowering.fuses:
        operations = _with_fusion(graph, operations)
    mixed, types = lowering.mixed(dtype), None
    if mixed is not None:
        types = _types(graph, rules=mixed, dtype=dtype, gathers=gathers)
        how_mixed: dict[str, Any] = {"fuses": lowering.fuses, "input_gradient": input_gradient}
        operations = _with_casts(graph, operations, types, rules=mixed, dtype=dtype, **how_mixed)
    if isinstance(lowering.gradient_accumulation, str):
        in_product = lowering.gradient_accumulation == "in_product"
        operations = _with_gradient_buffers(graph, operations, sizes=gradients, in_product=in_product)
    operations = _repeated(operations, optimizer.evaluation_count)
    how = {"rules": lowering.rules(support), "processor": lowered_for or processor}
    return probed_table(operations, element_bytes=ELEMENT_BYTES[dtype], **how), types


def _lengthened(graph: LayerGraph, short: Shortened, lowered: LoweredGraph) -> _TableAndTypes | None:
    """Lower a graph by way of a short one with fewer of its blocks."""
    occurrences, types = lowered.table.occurrences, lowered.types
    rows = short.spread([occurrence.layer for occurrence in occurrences])
    if rows is None:
        return None
    names = short.names_in(graph)
    spread = [(occurrences[place], moved) for place, moved in zip(*rows, strict=True)]
    table = lowered.table.with_occurrences(
        [Occurrence(names.get((one.layer, moved), one.layer), one.phase, one.role, one.group) for one, moved in spread]
    )
    if types is None:
        return table, None
    listed = list(types)
    rows = short.spread(listed)
    assert rows is not None, "layers are listed in their order"
    return table, {names[listed[place], moved]: types[listed[place]] for place, moved in zip(*rows, strict=True)}
