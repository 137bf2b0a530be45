"""Structure of a layer graph: named layers, their inputs, shapes and parameters, and checks for missing ones.

It also records the changes made to a graph since it was built, so that another one can be changed alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from perfmodel.derived import Weighed
from perfmodel.errors import GraphError, ShapeError, check_known, is_one_of
from perfmodel.graph.graph_file import IMAGE_LAYOUTS, unknown_input
from perfmodel.graph.node import Node, ParameterName, Usage
from perfmodel.layers import Layer, Shape
from perfmodel.layers.checks import check_count, check_text, checked_batch_size, checked_shape, refuse
from perfmodel.layers.shapes import shape_text
from perfmodel.numeric import NO_NUMBERS, expanded
from perfmodel.presentation.quantities import cell_text, counted
from perfmodel.records import PACKED_BYTES, SPARSITIES

if TYPE_CHECKING:
    import networkx as nx

    from perfmodel.graph.layer_graph import LayerGraph


def check_complete(name: str, *, input_names: Iterable[str], nodes: Sequence[Node]) -> None:
    """Raise GraphError for an empty graph, an unread input, or a layer that leads to no loss."""
    if not nodes:
        raise GraphError(problem=f"graph {name!r} has no layers")
    read = {name for node in nodes for name in node.input_names}
    ends = [node for node in nodes if node.name not in read]
    has_loss = any(node.layer.is_loss for node in ends)
    dangling = [node.name for node in ends if has_loss and not (node.layer.is_loss or node.layer.is_metric)]
    problems = [f"no layer reads the input {name!r}" for name in input_names if name not in read]
    problems += [f"the output of layer {name!r} leads to no loss" for name in dangling]
    if problems:
        raise GraphError(problem=f"graph {name!r}: {'; '.join(problems)}")


def check_density(density: float) -> None:
    """Raise an error for a share of weights or channels outside 0 to 1."""
    if isinstance(density, NO_NUMBERS) or not isinstance(density, Real) or not 0 < density <= 1:
        refuse("density", density, "a number above 0 and at most 1; a pattern is given by pattern='2:4'")


def check_weight_format(usage: Usage) -> None:
    """Raise an error for an unknown data type or pattern of weights, or a density outside 0 to 1."""
    if usage.weight_dtype is not None:
        check_known("data type of weights:", usage.weight_dtype, PACKED_BYTES)
    if usage.sparsity is not None:
        check_known("pattern of pruned weights:", usage.sparsity, SPARSITIES)
    check_density(usage.density)
    if (usage.density != 1) != (usage.sparsity is not None):
        refuse("density", usage.density, "1 without sparsity, and below 1 with it")
    if usage.sparsity == "2:4" and usage.density != 0.5:  # two of four
        refuse("density", usage.density, "0.5 with sparsity='2:4', which keeps two of four weights")


def check_sharing(node: Node, *, owner: Node | None, parameter: str, of: ParameterName) -> None:
    """Raise an error for a shared parameter that does not fit both layers."""
    wanted = node.layer.parameter_shapes(node.input_shapes).get(parameter)
    shapes = {} if owner is None else owner.parameter_shapes
    if wanted is None:
        problem = f"has no parameter {parameter!r} to share"
    elif of[1] not in shapes:
        problem = f"shares the parameter {of[1]!r} of layer {of[0]!r}, which does not exist or is itself shared"
    elif expanded(math.prod(shapes[of[1]]) - math.prod(wanted)) != 0:
        problem = (
            f"has a parameter {parameter!r} of {shape_text(wanted)}, but {of[1]!r} of layer {of[0]!r} is "
            f"{shape_text(shapes[of[1]])}"
        )
    else:
        return
    raise ShapeError(node.name, problem)


Derived = TypeVar("Derived")


class GraphStructure:
    """Named layers in a directed acyclic graph. Layers can be added, never changed or removed."""

    def __init__(
        self,
        name: str,
        *,
        input_shape: Sequence[int] | None = None,
        inputs: Mapping[str, Sequence[int]] | None = None,
        fixed_batch_size: int | None = None,
        image_layout: str | None = None,
    ) -> None:
        if (input_shape is None) == (inputs is None):
            refuse("input_shape", input_shape, "a sample shape, or None with inputs={name: shape}")
        check_text("name", name)
        if inputs is not None and (not isinstance(inputs, Mapping) or not inputs):
            refuse("inputs", inputs, "must be a mapping of at least one input's name to its shape")
        if fixed_batch_size is not None:
            check_count("fixed_batch_size", fixed_batch_size)
        if image_layout not in (None, *IMAGE_LAYOUTS):
            refuse("image_layout", image_layout, f"{' or '.join(map(repr, IMAGE_LAYOUTS))}, or None")
        self.name = name
        self.image_layout = image_layout
        self.fixed_batch_size = fixed_batch_size
        shapes = inputs if inputs is not None else {"input": input_shape}
        self._input_shapes = {key: checked_shape(key, shape) for key, shape in shapes.items()}
        self._nodes: dict[str, Node] = {}
        self._readers: dict[str, list[str]] = {name: [] for name in self._input_shapes}
        self._derived: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        parameters = cell_text(self.parameter_count)
        return f"<{type(self).__name__} {self.name!r}: {counted(len(self._nodes), 'layer')}, {parameters} parameters>"

    def __contains__(self, name: object) -> bool:
        """Return whether an input or a layer has this name."""
        return name in self._readers

    def add(
        self,
        name: str,
        layer: Layer,
        *,
        inputs: str | Sequence[str] = (),
        shared_parameters: Mapping[str, ParameterName] | None = None,
        is_trained: bool = True,
        frozen_parameters: Sequence[str] = (),
        in_place: bool | None = None,
        recomputed_in: str | None = None,
        reruns_all: bool | None = False,
        keeps_result: bool = False,
        weight_dtype: str | None = None,
        density: float = 1.0,
        sparsity: str | None = None,
    ) -> str:
        """Add a layer and infer its shape."""
        check_text("name", name)
        if not isinstance(layer, Layer):
            refuse("layer", layer, "must be a Layer, e.g. Dense(units=10)")
        if not isinstance(inputs, Sequence) or not all(isinstance(name, str) for name in inputs):
            refuse("inputs", inputs, "must be a layer's or graph input's name, or a sequence of them")
        input_names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        self._check_place(name, input_names)
        shared = {parameter: (of[0], of[1]) for parameter, of in (shared_parameters or {}).items()}
        usage = Usage(
            shared_parameters=shared,
            is_trained=is_trained,
            frozen_parameters=tuple(frozen_parameters),
            in_place=in_place,
            recomputed_in=recomputed_in,
            reruns_all=reruns_all,
            keeps_result=keeps_result,
            weight_dtype=weight_dtype,
            density=density,
            sparsity=sparsity,
        )
        check_weight_format(usage)
        input_shapes = tuple(map(self.shape, input_names))
        node = Node.of(name, layer, input_names=input_names, input_shapes=input_shapes, usage=usage)
        for parameter in usage.frozen_parameters:
            check_known(f"parameter of layer {name!r}", parameter, layer.parameter_shapes(input_shapes))
        for parameter, of in shared.items():
            check_sharing(node, owner=self._nodes.get(of[0]), parameter=parameter, of=of)
        self._put(node)
        return name

    def take(self, node: Node) -> None:
        """Add a layer of another graph, whose inputs have the same shapes here and which shares no parameters."""
        if not isinstance(node, Node):
            refuse("node", node, "must be a layer of a graph with its inputs, as graph.node(name) returns")
        self._check_place(node.name, node.input_names)
        self._put(node)

    def _check_place(self, name: str, input_names: Iterable[str]) -> None:
        """Raise if there is a layer of that name, or an input of the new layer is not there."""
        if name in self:
            raise GraphError(problem=f"the name {name!r} appears twice in graph {self.name!r}")
        for input_name in input_names:
            if input_name not in self:
                raise GraphError(unknown_input(name, input_name, self._readers))

    def _put(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._readers[node.name] = []
        for input_name in dict.fromkeys(node.input_names):
            self._readers[input_name].append(node.name)
        self._derived.clear()

    def _once(self, key: Hashable, derive: Callable[[], Derived]) -> Derived:
        """Return a value derived from the current layers; adding a layer discards it."""
        if key not in self._derived:
            self._derived[key] = derive()
        derived: Derived = self._derived[key]
        return derived

    def kept(self, what: str) -> dict[Any, Any]:
        """Return a cache for values derived from the graph; adding a layer empties it."""
        try:
            made: dict[Any, Any] = self._derived[Weighed, what]  # every prediction asks for several
        except KeyError:
            made = self._once((Weighed, what), lambda: Weighed(len(self._nodes)))
        return made

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_derived": {}}

    @property
    def input(self) -> str:
        """Name of the only input; GraphError if there are several."""
        if len(self._input_shapes) != 1:
            problem = f"graph {self.name!r} has several inputs; name one of {', '.join(self._input_shapes)}"
            raise GraphError(problem)
        return next(iter(self._input_shapes))

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """Sample shape of each graph input."""
        return dict(self._input_shapes)

    @property
    def layers(self) -> tuple[Node, ...]:
        """All layers, each after those that it reads."""
        return self._once("layers", lambda: tuple(self._nodes.values()))

    @property
    def digraph(self) -> nx.DiGraph[str]:
        """Names of inputs and layers as a new networkx graph."""
        import networkx as nx

        digraph: nx.DiGraph[str] = nx.DiGraph()
        digraph.add_nodes_from(self._readers)
        digraph.add_edges_from((name, reader) for name, readers in self._readers.items() for reader in readers)
        return digraph

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the layers that no other reads."""
        return tuple(name for name in self._nodes if not self._readers[name])

    def node(self, name: str) -> Node:
        """Return a layer by its name; UnknownNameError with the nearest match if there is none."""
        check_known("layer", name, self._nodes)
        return self._nodes[name]

    def shape(self, name: str) -> Shape:
        """Return the sample shape of a graph input or of a layer's output [1]."""
        return self._input_shapes[name] if is_one_of(name, self._input_shapes) else self.node(name).output_shape

    @property
    def parameter_counts(self) -> dict[str, int]:
        """Parameters by layer, shared ones with their owner [1]; layers without any are left out."""
        counts = {node.name: node.parameter_count for node in self.layers}
        return {name: count for name, count in counts.items() if count}

    @property
    def trained_parameter_counts(self) -> dict[str, int]:
        """Parameters by layer that an optimizer updates, i.e. without frozen ones [1]."""

        def count() -> dict[str, int]:
            counts = {node.name: node.trained_parameter_count for node in self.layers}
            return {name: count for name, count in counts.items() if count}

        return dict(self._once("trained", count))

    @property
    def updated_shapes(self) -> dict[str, tuple[Shape, ...]]:
        """Shapes of the parameters that an optimizer updates, by layer, shared ones with their owner [1]."""

        def shapes() -> dict[str, tuple[Shape, ...]]:
            counted = self.trained_parameter_counts
            return {node.name: node.updated_shapes for node in self.layers if node.name in counted}

        return dict(self._once("updated_shapes", shapes))

    @property
    def parameter_count(self) -> int:
        """Parameters, each once however many layers use it [1]."""
        count: int = expanded(sum(self.parameter_counts.values()))
        return count

    @property
    def nonzero_count(self) -> int:
        """Parameters after pruning, each once [1]; ``parameter_count`` and all work still count the pruned ones."""
        count: int = expanded(sum(node.nonzero_count for node in self.layers))
        return count

    def weight_bytes(self, *, element_bytes: int) -> Any:
        """Return the bytes of all parameters as they are stored, at ``element_bytes`` [B] per dense element. [B]"""
        check_count("element_bytes", element_bytes)
        holders = [node for node in self.layers if node.parameter_count]
        return expanded(sum(node.stored_bytes(element_bytes=element_bytes) for node in holders))

    @property
    def trained_parameter_count(self) -> int:
        """Parameters that an optimizer updates [1]."""
        count: int = self._once("trained_count", lambda: expanded(sum(self.trained_parameter_counts.values())))
        return count

    @property
    def input_elements(self) -> int:
        """Elements of one sample, over all inputs [1]."""
        return sum(map(math.prod, self._input_shapes.values()))

    @property
    def label_bytes_per_sample(self) -> int:
        """Bytes of labels that the loss layers need [B/sample]."""
        return self._once("labels", lambda: sum(node.layer.label_bytes(node.input_shapes) for node in self.layers))

    def samples(self, batch_size: Any) -> Any:
        """Check a batch size against the graph and return it. [samples]"""
        if self.fixed_batch_size is None:
            return checked_batch_size(1 if batch_size is None else batch_size)
        if batch_size is not None and not (np.ndim(batch_size) == 0 and batch_size == self.fixed_batch_size):
            refuse("batch_size", batch_size, f"{self.fixed_batch_size}, the only batch size of graph {self.name!r}")
        return self.fixed_batch_size


Graph = TypeVar("Graph", bound="GraphStructure")


def with_history(graph: Graph, method: str, options: Mapping[str, Any], *, before: Graph) -> Graph:
    """Record on a derived network the recipe and changes of the one before, and the method that made it."""
    if graph is not before:
        changes = before.kept("changes")
        graph.kept("recipes").update(before.kept("recipes"))
        graph.kept("changes").update({**changes, len(changes): (method, dict(options))})
    return graph


def changes_of(graph: GraphStructure) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return the methods, with options, that changed a network since it was built; none once layers were added."""
    return tuple(graph.kept("changes").values())


def changed_like(graph: LayerGraph, other: GraphStructure) -> LayerGraph:
    """Quantise, prune or bring a network to inference as was done to another one."""
    for method, options in changes_of(other):
        graph = getattr(graph, method)(**options)
    return graph
