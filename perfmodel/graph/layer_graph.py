"""LayerGraph: a network as a directed acyclic graph of layers, with shapes, totals per phase and JSON.

>>> from perfmodel.layers import CrossEntropy, Dense, ReLU
>>> g = LayerGraph("classifier", input_shape=(784,))
>>> x = g.add("hidden", Dense(units=100), inputs=g.input)
>>> x = g.add("relu", ReLU(), inputs=x)
>>> x = g.add("scores", Dense(units=10), inputs=x)
>>> x = g.add("loss", CrossEntropy(), inputs=x)
>>> g.parameter_count
79510
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Self

import networkx as nx

from perfmodel.atomic_write import replacement_of
from perfmodel.errors import GraphError, ShapeError, UnknownNameError
from perfmodel.graph.execution import (
    LayerOperations,
    Node,
    backward_operations,
    forward_operations,
    multiply_adds,
)
from perfmodel.graph.graph_file import GraphDocument, LayerEntry, read_document, unknown_input
from perfmodel.graph.summary import GraphSummary, LayerSummary
from perfmodel.layers import Layer, Optimizer, Shape, load_optimizer
from perfmodel.layers.base import shape_text
from perfmodel.layers.checks import check_path, check_text, checked_batch_size, checked_shape, refuse
from perfmodel.records import ELEMENT_BYTES, Phase, Work


class LayerGraph:
    """A network as a directed acyclic graph of named layers. Layers can be added, never changed or removed.

    Parameters
    ----------
    name : str
        What people call it. [-]
    input_shape : tuple of int or None
        Sample shape of the only input, which is then named ``input``. [1]
    inputs : mapping of str to tuple of int or None
        Sample shapes by name, where ``input_shape`` is not given. [1]

    Raises
    ------
    ArgumentError
        If not exactly one of the two is given, or a shape is none.
    """

    def __init__(
        self,
        name: str,
        *,
        input_shape: Sequence[int] | None = None,
        inputs: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        if (input_shape is None) == (inputs is None):
            refuse("input_shape", input_shape, "give either input_shape or inputs={name: shape}")
        check_text("name", name)
        if inputs is not None and (not isinstance(inputs, Mapping) or not inputs):
            refuse("inputs", inputs, "must be a mapping of at least one input's name to its shape")
        self.name = name
        shapes = inputs if inputs is not None else {"input": input_shape}
        self._input_shapes = {key: checked_shape(key, shape) for key, shape in shapes.items()}
        self._nodes: dict[str, Node] = {}
        self._digraph: nx.DiGraph[str] = nx.DiGraph()
        self._digraph.add_nodes_from(self._input_shapes)
        self._fingerprint: str | None = None

    def __repr__(self) -> str:
        return f"<LayerGraph {self.name!r}: {len(self._nodes)} layers, {self.parameter_count:,} parameters>"

    def add(self, name: str, layer: Layer, *, inputs: str | Sequence[str]) -> str:
        """Add a layer and infer its shape.

        Parameters
        ----------
        name : str
            Name of the layer, not yet taken. [-]
        layer : Layer
            What it computes. [-]
        inputs : str or sequence of str
            The layers or graph inputs it reads; names that ``add`` returned, or ``input``. [-]

        Returns
        -------
        str
            The name, to be the input of further layers. [-]

        Raises
        ------
        ArgumentError
            If an argument is of the wrong type.
        GraphError
            If the name is taken or an input does not exist.
        ShapeError
            If the inputs' shapes do not fit; names the layer and the shapes.
        """
        check_text("name", name)
        if not isinstance(layer, Layer):
            refuse("layer", layer, "must be a Layer, e.g. Dense(units=10)")
        if name in self._digraph:
            problem = f"the name {name!r} is given twice in graph {self.name!r}"
            raise GraphError(problem)
        if not isinstance(inputs, Sequence) or not all(isinstance(each, str) for each in inputs):
            refuse("inputs", inputs, "must be a layer's or graph input's name, or a sequence of them")
        input_names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        for input_name in input_names:
            if input_name not in self._digraph:
                raise GraphError(unknown_input(name, input_name, self._digraph))
        input_shapes = tuple(map(self.shape, input_names))
        self._nodes[name] = Node.of(name, layer, input_names=input_names, input_shapes=input_shapes)
        self._digraph.add_edges_from((input_name, name) for input_name in input_names)
        self._fingerprint = None
        return name

    @property
    def input(self) -> str:
        """Name of the only input; GraphError where there are several."""
        if len(self._input_shapes) != 1:
            problem = f"graph {self.name!r} has the inputs {', '.join(self._input_shapes)}: say which one"
            raise GraphError(problem)
        return next(iter(self._input_shapes))

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """Sample shape of each graph input."""
        return dict(self._input_shapes)

    @property
    def layers(self) -> tuple[Node, ...]:
        """All layers, each after those that it reads."""
        return tuple(self._nodes.values())

    @property
    def digraph(self) -> nx.DiGraph[str]:
        """Names of inputs and layers as a read-only networkx graph, for its algorithms."""
        return self._digraph.copy(as_view=True)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the layers that no other reads."""
        return tuple(name for name in self._nodes if not self._digraph.out_degree(name))

    def node(self, name: str) -> Node:
        """Return a layer by its name; UnknownNameError with the nearest match where there is none."""
        if name not in self._nodes:
            noun = "layer"
            raise UnknownNameError(noun, name, self._nodes)
        return self._nodes[name]

    def shape(self, name: str) -> Shape:
        """Return the sample shape of a graph input or of a layer's output [1]."""
        return self._input_shapes[name] if name in self._input_shapes else self.node(name).output_shape

    @property
    def parameter_counts(self) -> dict[str, int]:
        """Trainable parameters by layer [1]; layers without any are left out."""
        counts = {node.name: node.parameter_count for node in self.layers}
        return {name: count for name, count in counts.items() if count}

    @property
    def parameter_count(self) -> int:
        """Trainable parameters [1]."""
        return sum(self.parameter_counts.values())

    @property
    def input_elements(self) -> int:
        """Elements of one sample, over all inputs [1]."""
        return sum(map(math.prod, self._input_shapes.values()))

    @property
    def label_bytes_per_sample(self) -> int:
        """Bytes of labels that the loss layers need [B/sample]."""
        return sum(node.layer.label_bytes(node.input_shapes) for node in self.layers)

    def operations(
        self,
        *,
        batch_size: Any,
        phase: Phase | str,
        optimizer: str | Optimizer = "sgd",
        input_gradient: bool = False,
    ) -> LayerOperations:
        """Return every operation of a phase with the layer it belongs to, in order of execution.

        Parameters
        ----------
        batch_size : int, ndarray or sympy.Expr
            Samples. [samples]
        phase : str
            ``forward``, ``backward``, ``update``, ``forward_backward`` or ``step``. [-]
        optimizer : str or Optimizer
            What the update does. [-]
        input_gradient : bool
            Whether the gradient of the network's own input is computed too. [-]

        Returns
        -------
        tuple of tuple
            Pairs (layer, operation). [-]

        Notes
        -----
        Backward runs in reverse. A tensor wants a gradient if a parameter lies before it (with
        ``input_gradient``: always, unless it is an index); nothing else is differentiated. Where an output
        feeds f layers, f - 1 passes ``gradient_sum`` add their gradients; they belong to the layer that made
        the output.
        """
        batch_size = checked_batch_size(batch_size)
        parts = _checked_phase(phase).parts
        self._check_complete()
        updates = load_optimizer(optimizer)

        def update() -> LayerOperations:
            return updates.layer_operations(self.parameter_counts, batch_size=batch_size)

        make: dict[Phase, Callable[[], LayerOperations]] = {
            Phase.FORWARD: lambda: forward_operations(self.layers, batch_size=batch_size),
            Phase.BACKWARD: lambda: backward_operations(
                self._input_shapes, self.layers, batch_size=batch_size, input_gradient=input_gradient
            ),
            Phase.UPDATE: update,
        }
        return tuple(pair for part in parts for pair in make[part]())

    def _check_complete(self) -> None:
        """Raise GraphError for an empty graph, an input nobody reads, a layer that leads to no loss."""
        if not self._nodes:
            problem = f"graph {self.name!r} has no layers"
            raise GraphError(problem)
        unread = [name for name in self._input_shapes if not self._digraph.out_degree(name)]
        ends = {name: self._nodes[name].layer for name in self.outputs}
        has_loss = any(layer.is_loss for layer in ends.values())
        dangling = [name for name, layer in ends.items() if has_loss and not (layer.is_loss or layer.is_metric)]
        if unread or dangling:
            problems = [f"no layer reads the input {name!r}" for name in unread]
            problems += [f"the output of layer {name!r} leads to no loss" for name in dangling]
            problem = f"graph {self.name!r}: {'; '.join(problems)}"
            raise GraphError(problem)

    def work(
        self,
        *,
        batch_size: Any = 1,
        phase: Phase | str = "forward",
        optimizer: str | Optimizer = "sgd",
        dtype: str = "fp32",
        input_gradient: bool = False,
    ) -> Work:
        """Return the FLOP and bytes of a phase.

        Parameters
        ----------
        batch_size : int, ndarray or sympy.Expr
            Samples; a symbol gives exact expressions. [samples]
        phase : str
            ``forward``, ``backward``, ``update``, ``forward_backward`` or ``step``. [-]
        optimizer : str or Optimizer
            What the update does. [-]
        dtype : str
            Data type of every tensor, e.g. ``fp32``. [-]
        input_gradient : bool
            Whether the gradient of the network's own input is computed too. [-]

        Returns
        -------
        Work
            FLOP, bytes read and bytes written. [-]
        """
        element_bytes = _element_bytes(dtype)
        pairs = self.operations(batch_size=batch_size, phase=phase, optimizer=optimizer, input_gradient=input_gradient)
        parts = (operation.work(element_bytes=element_bytes) for _, operation in pairs)
        return reduce(add, parts, Work())

    def multiply_add_count(self, *, batch_size: Any = 1) -> Any:
        """Return the multiply-adds of all products of the forward phase [1], the figure that papers print."""
        pairs = self.operations(batch_size=batch_size, phase=Phase.FORWARD)
        return sum(multiply_adds(operation) for _, operation in pairs)

    def summary(self, *, batch_size: int = 1, dtype: str = "fp32") -> GraphSummary:
        """Return one row per layer: shape, parameters, FLOP and bytes; prints, renders, ``to_frame()``.

        Parameters
        ----------
        batch_size : int
            Samples. [samples]
        dtype : str
            Data type of every tensor. [-]

        Returns
        -------
        GraphSummary
            The rows and their totals. [-]
        """
        element_bytes = _element_bytes(dtype)
        works = {part: self._work_by_layer(part, batch_size, element_bytes) for part in Phase.STEP.parts[:2]}
        rows = tuple(
            LayerSummary(
                layer=node.name,
                kind=node.layer.kind,
                output_shape=shape_text(node.output_shape),
                parameter_count=node.parameter_count,
                forward_flop_count=works[Phase.FORWARD].get(node.name, Work()).flop_count,
                backward_flop_count=works[Phase.BACKWARD].get(node.name, Work()).flop_count,
                forward_bytes=works[Phase.FORWARD].get(node.name, Work()).moved_bytes,
                saved_bytes=node.saved_bytes(batch_size=batch_size, element_bytes=element_bytes),
            )
            for node in self.layers
        )
        return GraphSummary(self.name, batch_size, rows)

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def _work_by_layer(self, phase: Phase, batch_size: int, element_bytes: int) -> dict[str, Work]:
        works: dict[str, Work] = {}
        for name, operation in self.operations(batch_size=batch_size, phase=phase):
            works[name] = works.get(name, Work()) + operation.work(element_bytes=element_bytes)
        return works

    def _document(self) -> GraphDocument:
        entries = tuple(LayerEntry(node.name, node.layer, node.input_names) for node in self.layers)
        return GraphDocument(self.name, self.input_shapes, entries)

    @property
    def fingerprint(self) -> str:
        """Hash of the graph's content, the same in every session; kept until a layer is added."""
        if self._fingerprint is None:
            self._fingerprint = hashlib.sha256(self._document().to_text().encode()).hexdigest()
        return self._fingerprint

    def save(self, path: str | Path) -> None:
        """Write the graph to a JSON file, whole or not at all."""
        check_path("path", path)
        self._check_complete()
        with replacement_of(path) as temporary:
            temporary.write_text(self._document().to_text(), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a graph from a JSON file that ``save`` or a person wrote.

        Parameters
        ----------
        path : str or Path
            The file. [-]

        Returns
        -------
        LayerGraph
            The graph. [-]

        Raises
        ------
        ArgumentError
            If the argument is no path.
        SpecError, UnknownNameError, GraphError, ShapeError
            If the file is no graph: names file, layer, field, value, what is allowed and the nearest match.
        """
        check_path("path", path)
        document = read_document(path)
        graph = cls(document.name, inputs=document.inputs)
        try:
            for entry in document.layers:
                graph.add(entry.name, entry.layer, inputs=entry.inputs)
            graph._check_complete()
        except ShapeError as error:
            raise ShapeError(error.layer, f"{error.problem} (in {path})") from error
        except GraphError as error:
            problem = f"{path}: {error}"
            raise GraphError(problem) from error
        return graph


def _element_bytes(dtype: str) -> int:
    if dtype not in ELEMENT_BYTES:
        noun = "data type"
        raise UnknownNameError(noun, str(dtype), ELEMENT_BYTES)
    return ELEMENT_BYTES[dtype]


def _checked_phase(phase: Phase | str) -> Phase:
    if phase not in list(Phase):
        noun = "phase"
        raise UnknownNameError(noun, str(phase), [known.value for known in Phase])
    return Phase(phase)
