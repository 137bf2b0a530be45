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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Self

from perfmodel.atomic_write import save_text
from perfmodel.derived import kept
from perfmodel.errors import GraphError, ShapeError, UnknownNameError, check_known, is_one_of
from perfmodel.graph.arena import gap_bytes
from perfmodel.graph.execution import (
    LayerOperations,
    ProbedOperations,
    Recompute,
    Segment,
    Steps,
    backward_steps,
    check_recompute,
    forward_steps,
    multiplies_by_weights,
    segments,
    stays_dense,
    wants_gradient,
    way_of,
)
from perfmodel.graph.graph_file import GraphDocument, LayerEntry, read_document
from perfmodel.graph.liveness import Lifetimes, Liveness, MemoryRules, Step
from perfmodel.graph.pruning import STRUCTURED, shrunk_layers
from perfmodel.graph.repeats import LongLifetimes, lifetimes_of_blocks
from perfmodel.graph.structure import GraphStructure, check_complete, check_density, with_history
from perfmodel.graph.summary import GraphSummary, summarise
from perfmodel.layers import Layer, Optimizer, Shape, load_optimizer
from perfmodel.layers.checks import check_count, check_flag, check_path, check_texts, refuse
from perfmodel.numeric import expanded
from perfmodel.records import ELEMENT_BYTES, PACKED_BYTES, SPARSITIES, Phase, Work
from perfmodel.symbolic import substituted

MOST_PLAYED = 16
"""Ways to run a step of which a graph keeps the storages. [1]"""


def _symbols(value: Any) -> set[Any]:
    """Return the symbols in a number, an expression, or a tuple of them."""
    if isinstance(value, tuple):
        return {symbol for part in value for symbol in _symbols(part)}
    return set(getattr(value, "free_symbols", ()))


def _substituted(value: Any, by_name: Mapping[str, int]) -> Any:
    """Return the value with numbers for symbols; whole results become plain integers."""
    if isinstance(value, tuple):
        return tuple(_substituted(part, by_name) for part in value)
    symbols = _symbols(value)
    if not symbols:
        return value
    result = substituted(value, {symbol: by_name[symbol.name] for symbol in symbols if symbol.name in by_name})
    return int(result) if result.is_Integer else result


class LayerGraph(GraphStructure):
    """A network as a directed acyclic graph of named layers. Layers can be added, never changed or removed.

    Parameters
    ----------
    name : str
        Its name. [-]
    input_shape : tuple of int or None
        Sample shape of the only input, which is then named ``input``. [1]
    inputs : mapping of str to tuple of int or None
        Sample shapes by name, if ``input_shape`` is not given. [1]
    fixed_batch_size : int or None
        The only batch size of this graph, because a shape or option depends on it; None for any. [samples]
    image_layout : str or None
        Order of images in memory, ``channels_first`` or ``channels_last``; None for the framework's usual one. [-]

    Raises
    ------
    ArgumentError
        Unless exactly one of the two is given and shapes are valid.
    """

    def operations(
        self,
        *,
        batch_size: Any,
        phase: Phase | str,
        optimizer: str | Optimizer = "sgd",
        input_gradient: bool = False,
        recompute: Recompute = None,
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
        recompute : str, int or None
            ``full``: recompute activations inside every block; ``sqrt``: inside about sqrt(n) segments; ``selective``:
            only the cores of attention; a number: that many numbered blocks; None: only in regions the graph marks. See
            ``perfmodel.graph.execution``. [-]

        Returns
        -------
        tuple of tuple
            Pairs (layer, operation). [-]

        Notes
        -----
        Backward runs in reverse. A tensor needs a gradient if a parameter lies before it (with
        ``input_gradient``: always, unless it is an index); nothing else is differentiated. Where an output
        feeds f layers, f - 1 passes ``gradient_sum`` add their gradients; they belong to the layer that made
        the output.
        """
        batch_size = self.samples(batch_size)
        parts = _checked_phase(phase).parts
        steps = self._steps(parts, input_gradient=input_gradient, recompute=recompute)
        pairs = [(step.name, operation) for step in steps for operation in step.at(batch_size)]
        if Phase.UPDATE in parts:
            updates = load_optimizer(optimizer)
            pairs *= updates.evaluation_count
            counts, shapes = self.trained_parameter_counts, self.updated_shapes
            pairs += updates.layer_operations(counts, batch_size=batch_size, shapes=shapes)
        return tuple(pairs)

    def probed_operations(
        self,
        sizes: tuple[int, ...],
        *,
        phase: Phase,
        optimizer: Optimizer,
        input_gradient: bool = False,
        recompute: Recompute = None,
    ) -> ProbedOperations:
        """Return each operation at several batch sizes [samples]; see ``operations``."""
        steps = self._steps(phase.parts, input_gradient=input_gradient, recompute=recompute)
        pairs = [(step.name, operations) for step in steps for operations in step.probed(sizes)]
        if Phase.UPDATE in phase.parts:
            pairs *= optimizer.evaluation_count
            counts, shapes = self.trained_parameter_counts, self.updated_shapes
            updates = optimizer.layer_operations(counts, batch_size=sizes[0], shapes=shapes)  # of any size
            pairs += [(name, (operation,) * len(sizes)) for name, operation in updates]
        return tuple(pairs)

    def _steps(self, parts: Sequence[Phase], *, input_gradient: bool, recompute: Recompute) -> Steps:
        """Return the steps of the forward and backward phases, for any batch size."""
        check_recompute(way_of(recompute))
        self._check_complete()
        steps: Steps = []
        if Phase.FORWARD in parts:
            steps += forward_steps(self.layers)
        if Phase.BACKWARD in parts:
            wanted = self.wants_gradient(input_gradient=input_gradient)
            segments = self.segments(input_gradient=input_gradient, recompute=recompute)
            steps += backward_steps(self._input_shapes, self.layers, wanted=wanted, parts=segments)
        return steps

    def wants_gradient(self, *, input_gradient: bool) -> dict[str, bool]:
        """Return for each input and each layer's output whether its gradient is computed."""
        key, shapes = ("wanted", input_gradient), self._input_shapes
        return self._once(key, lambda: wants_gradient(shapes, self.layers, input_gradient=input_gradient))

    def segments(self, *, input_gradient: bool, recompute: Recompute) -> tuple[Segment, ...]:
        """Return the segments between the checkpoints of training."""
        wanted = self.wants_gradient(input_gradient=input_gradient)
        key = ("segments", input_gradient, recompute)
        return self._once(key, lambda: segments(self.layers, wanted=wanted, recompute=recompute))

    @property
    def free_sizes(self) -> tuple[str, ...]:
        """Names of the symbols in shapes and options; ``with_sizes`` gives them values."""

        def derive() -> tuple[str, ...]:
            options = tuple(tuple(layer.options().values()) for layer in self._kinds)
            return tuple(sorted(symbol.name for symbol in _symbols((*self._input_shapes.values(), *options))))

        return self._once("free_sizes", derive)

    def with_sizes(self, **sizes: int) -> Self:
        """Return the same network with values for symbols in its shapes and options.

        Parameters
        ----------
        **sizes : int
            Values by name of the symbol. [1]

        Returns
        -------
        LayerGraph
            The network with these sizes. [-]

        Raises
        ------
        UnknownNameError
            If no symbol has the name.
        ArgumentError
            If a size is not a whole number above zero, or a symbol.
        ShapeError
            If a layer does not fit at these sizes.
        """
        remedy = "" if self.free_sizes else f"Graph {self.name!r} has no free sizes."
        for name, size in sizes.items():
            check_known(f"free size of graph {self.name!r}:", name, self.free_sizes, remedy=remedy)
            check_count(name, size)
        shapes = {name: _substituted(tuple(shape), sizes) for name, shape in self._input_shapes.items()}
        layers = []
        for layer in self._kinds:
            options = {name: _substituted(value, sizes) for name, value in layer.options().items() if _symbols(value)}
            layers.append(replace(layer, **options) if options else layer)
        return self._rebuilt(shapes, layers)

    def at_inference(self) -> Self:
        """Return the network as it runs at inference: fixed statistics, no dropout.

        Returns
        -------
        LayerGraph
            The same names, shapes and parameters; the network itself if no layer differs. [-]
        """
        return self._once("at_inference", self._without_training)

    def _without_training(self) -> Self:
        layers = [node.layer.at_inference(node.input_shapes) for node in self.layers]
        if layers == [node.layer for node in self.layers]:
            return self
        return with_history(self._rebuilt(self._input_shapes, layers), "at_inference", {}, before=self)

    def quantised(self, dtype: str, *, frozen_only: bool = False) -> Self:
        """Return the network with the weights of its products stored in fewer bits; the arithmetic is unchanged.

        Parameters
        ----------
        dtype : str
            ``int8``, ``fp8`` or ``int4``. [-]
        frozen_only : bool
            Whether trained layers keep full weights, as adapters beside a quantised network do (QLoRA). [-]

        Returns
        -------
        LayerGraph
            The same layers; those that multiply by weights of their own store them in this type. [-]
        """
        check_known("data type of weights:", dtype, PACKED_BYTES)
        check_flag("frozen_only", frozen_only)
        return self._once(("quantised", dtype, frozen_only), lambda: self._with_stored(dtype, frozen_only))

    def _with_stored(self, dtype: str, frozen_only: bool) -> Self:
        chosen = self.frozen_weighted_layers if frozen_only else self.weighted_layers
        graph = self._rebuilt(self._input_shapes, self._kinds, {name: {"weight_dtype": dtype} for name in chosen})
        return with_history(graph, "quantised", {"dtype": dtype, "frozen_only": frozen_only}, before=self)

    def pruned(self, density: float, *, pattern: str = "unstructured", layers: Sequence[str] | None = None) -> Self:
        """Return the network with some of the weights of its products left out.

        Parameters
        ----------
        density : float
            Share of the weights that is left; 0.5 for ``2:4``; of the output channels for ``structured``. [1]
        pattern : str
            ``unstructured``: any weights, stored as values with a column number each; ``2:4``: two of four neighbours,
            stored as values with 2 bits each; ``structured``: whole output channels of dense layers and convolutions,
            rounded, with what other layers read of them. [-]
        layers : sequence of str or None
            Layers to prune; None for all that multiply by weights of their own, with ``structured`` only those whose
            outputs may have any width: not terms of a sum, nor the network's outputs. [-]

        Returns
        -------
        LayerGraph
            The same layers and parameters, stored in fewer bytes; with ``structured`` layers of fewer channels; the
            network itself at density 1. [-]

        Raises
        ------
        ArgumentError
            If the density is not allowed, or layers cannot shrink; names those that must shrink together.

        Notes
        -----
        Products skip zeros only where a framework's kernels do, for 2:4 on sparse tensor cores; elsewhere a pass
        writes the dense weights before each product. ``parameter_count`` and ``work`` stay those of dense products,
        ``nonzero_count`` has those that are left. Pruned channels are in no count.

        Examples
        --------
        >>> from perfmodel.zoo import vgg16
        >>> [vgg16().parameter_count, vgg16().pruned(0.5, pattern="structured").parameter_count]
        [138357544, 35617672]
        """
        check_known("pattern of pruned weights:", pattern, (*SPARSITIES, STRUCTURED))
        check_density(density)
        check_texts("layers", () if layers is None else layers)
        for name in layers or ():
            check_known("layer with weights of products", name, self.weighted_layers)
        options = {"density": density, "pattern": pattern, "layers": layers}
        if pattern == STRUCTURED:
            return with_history(self._with_fewer_channels(density, layers), "pruned", options, before=self)
        chosen = self.weighted_layers if layers is None else tuple(layers)
        if density == 1 and pattern == "unstructured":
            return self
        if not chosen:
            refuse("density", density, f"1 for {self.name!r}, which has no dense layers, convolutions or attention")
        stored = {name: {"density": density, "sparsity": pattern} for name in chosen}
        return with_history(self._rebuilt(self._input_shapes, self._kinds, stored), "pruned", options, before=self)

    def _with_fewer_channels(self, density: float, layers: Sequence[str] | None) -> Self:
        if density == 1:
            return self
        changed = shrunk_layers(self.layers, density=density, chosen=layers)
        return self._rebuilt(self._input_shapes, [changed.get(node.name, node.layer) for node in self.layers])

    @property
    def weighted_layers(self) -> tuple[str, ...]:
        """Names of the layers that multiply by their own weights: dense ones, convolutions, attention."""
        return self._once("weighted", lambda: tuple(node.name for node in self.layers if multiplies_by_weights(node)))

    @property
    def frozen_weighted_layers(self) -> tuple[str, ...]:
        """Names of the frozen layers among ``weighted_layers``."""
        return tuple(name for name in self.weighted_layers if not self.node(name).trains_weights)

    @property
    def dense_layers(self) -> tuple[str, ...]:
        """Names of the layers whose tables of weights stay dense when others are packed: recurrences, embeddings."""
        return self._once("dense", lambda: tuple(node.name for node in self.layers if stays_dense(node)))

    @property
    def _kinds(self) -> list[Layer]:
        return [node.layer for node in self.layers]

    def _rebuilt(
        self,
        input_shapes: Mapping[str, Shape],
        layers: Sequence[Layer],
        changed: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Self:
        document, options = self._document(), {} if changed is None else changed
        entries = [
            replace(entry, layer=layer, usage=replace(entry.usage, **options.get(entry.name, {})))
            for entry, layer in zip(document.layers, layers, strict=True)
        ]
        return self._of(replace(document, inputs=dict(input_shapes), layers=tuple(entries)))

    @classmethod
    def _of(cls, document: GraphDocument) -> Self:
        how: dict[str, Any] = {"fixed_batch_size": document.fixed_batch_size, "image_layout": document.image_layout}
        graph = cls(document.name, inputs=document.inputs, **how)
        for entry in document.layers:
            graph.add(entry.name, entry.layer, inputs=entry.inputs, **entry.usage.options)
        return graph

    def _check_complete(self) -> None:
        check_complete(self.name, input_names=self._input_shapes, nodes=self.layers)

    def work(
        self,
        *,
        batch_size: Any = None,
        phase: Phase | str = "forward",
        optimizer: str | Optimizer = "sgd",
        dtype: str = "fp32",
        input_gradient: bool = False,
        recompute: Recompute = None,
    ) -> Work:
        """Return the FLOP and bytes of a phase.

        Parameters
        ----------
        batch_size : int, ndarray or sympy.Expr
            Samples, one unless given; a symbol gives exact expressions. [samples]
        phase : str
            ``forward``, ``backward``, ``update``, ``forward_backward`` or ``step``. [-]
        optimizer : str or Optimizer
            What the update does. [-]
        dtype : str
            Data type of every tensor, e.g. ``fp32``. [-]
        input_gradient : bool
            Whether the gradient of the network's own input is computed too. [-]
        recompute : str, int or None
            As in ``operations``. [-]

        Returns
        -------
        Work
            FLOP, bytes read and bytes written. [-]
        """
        element_bytes = _element_bytes(dtype)
        pairs = self.operations(
            batch_size=batch_size,
            phase=phase,
            optimizer=optimizer,
            input_gradient=input_gradient,
            recompute=recompute,
        )
        parts = (operation.work(element_bytes=element_bytes) for _, operation in pairs)
        return reduce(add, parts, Work()).simplified()

    def liveness(
        self, *, phase: Phase | str = "step", rules: MemoryRules | None = None, input_gradient: bool = False
    ) -> Liveness:
        """Return the bytes in memory at every moment of a phase, excluding weights, optimizer state and inputs.

        Parameters
        ----------
        phase : str
            ``step``, ``forward_backward`` or ``forward``. [-]
        rules : MemoryRules
            Element sizes, which layers work in place, checkpoints; by default fp32, none in place, no checkpoints. [-]
        input_gradient : bool
            Whether the gradient of the network's own input is computed too. [-]

        Returns
        -------
        Liveness
            Bytes at every moment, as coefficients of the batch size.
        """
        chosen = _checked_phase(phase)
        rules = self._own_rules(MemoryRules() if rules is None else rules)

        def derive() -> Liveness:
            return self._storages(chosen, rules=rules, input_gradient=input_gradient).result()

        return self._once((chosen, rules, input_gradient), derive)

    def gap_bytes_per_sample(self, phase: Phase, *, rules: MemoryRules, input_gradient: bool) -> int:
        """Return the memory that an allocator reserves beyond the most in use at a moment, found once. [B/sample]"""
        rules = self._own_rules(rules)

        def derive() -> int:
            return gap_bytes(self._storages(phase, rules=rules, input_gradient=input_gradient).spans)

        return self._once(("gaps", phase, rules, input_gradient), derive)

    def _storages(self, phase: Phase, **how: Any) -> Lifetimes | LongLifetimes:
        return lifetimes_of_blocks(self, phase=phase, **how) or self.lifetimes(phase, **how)

    def lifetimes(self, phase: Phase, *, rules: MemoryRules, input_gradient: bool) -> Lifetimes:
        """Return when each storage of a phase is first and last in use, found once."""
        rules = self._own_rules(rules)
        play = partial(self._played, phase, rules=rules, input_gradient=input_gradient)
        key, known = (phase, rules, input_gradient), self.kept("played")
        lifetimes: Lifetimes = kept(known, key, play, most=MOST_PLAYED, weighed=True)
        return lifetimes

    def _own_rules(self, rules: MemoryRules) -> MemoryRules:
        """Return the same rules for the kinds of layers that there are; hashable."""
        return rules.among(self._once("kinds", lambda: {node.layer.kind for node in self.layers}))

    def _played(self, phase: Phase, *, rules: MemoryRules, input_gradient: bool) -> Lifetimes:
        self._check_complete()
        wanted = self.wants_gradient(input_gradient=input_gradient)
        if Phase.BACKWARD in phase.parts:
            parts = self.segments(input_gradient=input_gradient, recompute=rules.recompute)
        else:
            wanted = dict.fromkeys(wanted, False)
            parts = segments(self.layers, wanted=wanted, recompute=rules.recompute)
        return Step(self._input_shapes, self.layers, wanted=wanted, parts=parts, rules=rules).run(phase)

    def kept_bytes(self, *, batch_size: Any = None, dtype: str = "fp32", recompute: Recompute = None) -> Any:
        """Return the bytes kept in memory from the forward phase until back-propagation reads them [B].

        Parameters
        ----------
        batch_size : int, ndarray or sympy.Expr
            Samples, one unless given; a symbol gives an exact expression. [samples]
        dtype : str
            Data type of every tensor. [-]
        recompute : str, int or None
            As in ``operations``. [-]

        Returns
        -------
        int, ndarray or sympy.Expr
            Size of activations, masks, indices and statistics; without the network's inputs. [B]

        Examples
        --------
        >>> from perfmodel.layers import CrossEntropy, Dense, ReLU
        >>> g = LayerGraph("classifier", input_shape=(784,))
        >>> x = g.add("hidden", Dense(units=100), inputs=g.input)
        >>> x = g.add("relu", ReLU(), inputs=x, in_place=True)
        >>> x = g.add("scores", Dense(units=10), inputs=x)
        >>> x = g.add("loss", CrossEntropy(), inputs=x)
        >>> g.kept_bytes(batch_size=2)  # 100 of relu and 10 probabilities of 4 B
        880
        """
        rules = MemoryRules(element_bytes=_element_bytes(dtype), recompute=check_recompute(recompute))
        constant, slope = self.liveness(rules=rules).kept
        return expanded(constant + slope * self.samples(batch_size))

    def multiply_add_count(self, *, batch_size: Any = None) -> Any:
        """Return the multiply-adds of all products of the forward phase, the figure that papers print [1]."""
        pairs = self.operations(batch_size=batch_size, phase=Phase.FORWARD)
        return sum(operation.product_flop_count // 2 for _, operation in pairs)

    def summary(self, *, batch_size: int | None = None, dtype: str = "fp32") -> GraphSummary:
        """Return one row per layer: shape, parameters, FLOP and bytes; prints, renders, ``to_frame()``.

        Parameters
        ----------
        batch_size : int
            Samples, one unless given. [samples]
        dtype : str
            Data type of every tensor. [-]

        Returns
        -------
        GraphSummary
            The rows and their totals. [-]
        """
        pairs = {part: self.operations(batch_size=batch_size, phase=part) for part in Phase.STEP.parts[:2]}
        return summarise(
            self.name,
            self.layers,
            pairs,
            batch_size=self.samples(batch_size),
            element_bytes=_element_bytes(dtype),
        )

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def _document(self) -> GraphDocument:
        entries = tuple(LayerEntry(node.name, node.layer, node.input_names, node.usage) for node in self.layers)
        return GraphDocument(self.name, self.input_shapes, entries, self.fixed_batch_size, self.image_layout)

    @property
    def fingerprint(self) -> str:
        """Hash of the graph's content, equal in every session; recomputed when a layer is added."""
        return self._once("fingerprint", lambda: hashlib.sha256(self._document().to_text().encode()).hexdigest())

    def save(self, path: str | Path) -> None:
        """Write the graph to a JSON file, which appears complete or not at all."""
        check_path("path", path)
        self._check_complete()
        if self.free_sizes:
            problem = f"graph {self.name!r} has free sizes; set {', '.join(self.free_sizes)} by with_sizes() first"
            raise GraphError(problem)
        save_text(path, self._document().to_text())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a graph from a JSON file.

        Parameters
        ----------
        path : str or Path
            The file. [-]

        Raises
        ------
        ArgumentError
            If the argument is not a path.
        SpecError, UnknownNameError, GraphError, ShapeError
            If the file is not a graph; names file, layer, field, value, what is allowed and the nearest match.
        """
        check_path("path", path)
        document = read_document(path)
        try:
            graph = cls._of(document)
            graph._check_complete()
        except ShapeError as error:
            raise ShapeError(error.layer, f"{error.problem} (in {path})") from error
        except GraphError as error:
            raise GraphError(problem=f"{path}: {error}") from error
        return graph


def _element_bytes(dtype: str) -> int:
    check_known("data type", dtype, ELEMENT_BYTES)
    return ELEMENT_BYTES[dtype]


def _checked_phase(phase: Phase | str) -> Phase:
    if not is_one_of(phase, list(Phase)):
        raise UnknownNameError(kind="phase", name=phase, known=[known.value for known in Phase])
    return Phase(phase)
