"""A torch module as a layer graph: run on tensors without content at three batch sizes, then built."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import (
    ArgumentError,
    BackwardWarning,
    FixedBatchWarning,
    MissingPackageError,
    OpaqueLayerWarning,
    ParameterWarning,
    TraceError,
)
from perfmodel.graph import LayerGraph
from perfmodel.importers.batch_axes import Layout, guessed_layouts, layout, same_structure, whole
from perfmodel.importers.build import Built, Hole, build, counted_by_bytes, listed
from perfmodel.importers.plan import translators_of
from perfmodel.importers.recording import Progress, import_progress
from perfmodel.importers.torch.program import ProgramReader, guessed_loss, read_keys
from perfmodel.layers.checks import check_flag, check_text, refuse

if TYPE_CHECKING:
    import torch

    from perfmodel.importers.recording import Recording
    from perfmodel.importers.torch.modes import Site
    from perfmodel.importers.torch.run import Example, Run

MORE_BATCHES: Final = (2, 3)
"""Multiples of the given batch size at which a module is run too, to see which axes grow with it [1]."""
INSTEAD_OF_ONE: Final = (2, 3, 5)
"""Batch sizes for an example of one sample whose network seems to hold for one only: extents of one are special."""
MOST_ROUNDS: Final = 4
"""How often a network is traced again with more of its operators taken apart [1]."""


@dataclass(slots=True, kw_only=True)
class Imported:
    """An imported module and the run it came from.

    Parameters
    ----------
    built : Built
        The graph, and where its layers came from. [-]
    run : Run
        The run at the given batch size. [-]
    calls : list of int
        Index of the recorded call of each step of the program. [-]
    batch_size : int
        The given batch size. [samples]
    why_fixed : str
        Why the network holds for this batch size only; empty where it holds for any. [-]
    """

    built: Built
    run: Run
    calls: list[int]
    batch_size: int
    why_fixed: str


def from_torch(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    batch_axis: int | None = 0,
    training: bool = True,
    name: str | None = None,
    progress: bool | None = None,
) -> LayerGraph:
    """Return a torch module as a layer graph, without computing anything or allocating its weights.

    Parameters
    ----------
    module : torch.nn.Module
        Any module, on any device, also ``meta``; its tensors, training mode and hooks stay as they are. [-]
    example_inputs : Tensor, tuple, list or mapping
        What ``forward`` is called with: one tensor, positional arguments, or arguments by name. Only shapes and types
        of tensors matter; other values are passed on as they are. [-]
    batch_axis : int or None
        Axis of the inputs that holds the samples; None where the tensors are one sample. [-]
    training : bool
        Whether the module is taken as it trains, with gradients and active dropout, or as it infers. [-]
    name : str or None
        Name of the graph; the module's class unless given. [-]
    progress : bool or None
        Whether to show progress; None: on a terminal, once the import takes longer than a second. [-]

    Returns
    -------
    LayerGraph
        Layers by their paths in the module. Its batch size is free wherever the module allows it. [-]

    Raises
    ------
    ArgumentError
        If an argument is of the wrong kind.
    TraceError
        If the module's forward fails, or what it does depends on the content of tensors.
    MissingPackageError
        If torch is not installed.

    Warns
    -----
    OpaqueLayerWarning
        For every operator that no layer is: it is counted by its bytes and one FLOP per element.
    FixedBatchWarning
        Where the network holds for the given batch size only.
    ParameterWarning
        Where parameters are not counted as they are stored, or not used at all.
    BackwardWarning
        Where the network does not say what training minimises, or its backward phase is more than what is counted.
    """
    imported = import_torch(
        module, example_inputs, batch_axis=batch_axis, training=training, name=name, progress=progress
    )
    for category, message in messages(imported):
        warnings.warn(message, category, stacklevel=2)
    return imported.built.graph


def import_torch(
    module: Any,
    example_inputs: Any,
    *,
    batch_axis: int | None = 0,
    training: bool = True,
    name: str | None = None,
    progress: bool | None = None,
    counts: bool = False,
) -> Imported:
    """Import a torch module and keep the run it came from.

    Parameters
    ----------
    module, example_inputs, batch_axis, training, name, progress : object
        See :func:`from_torch`. [-]
    counts : bool
        Whether the run's matrix products are counted as torch counts them. [-]

    Returns
    -------
    Imported
        The graph, and the run. [-]
    """
    example = _checked(module, example_inputs, batch_axis=batch_axis, training=training, name=name)
    module = getattr(module, "_orig_mod", module)  # what torch.compile made of a module calls it
    sizes = [example.batch_size, *(factor * example.batch_size for factor in MORE_BATCHES)]
    sizes = sizes if example.batch_axis is not None else sizes[:1]
    parts = sum(1 for _ in module.modules())
    with import_progress(f"importing {name or type(module).__name__}", len(sizes) * parts, shown=progress) as advance:
        importing = _Importing(
            module=module,
            example=example,
            sizes=sizes,
            training=training,
            name=name or type(module).__name__,
            advance=advance,
            counts=counts,
        )
        imported = importing.imported()
        if imported.why_fixed and sizes[0] == 1 and len(sizes) > 1 and not counts:
            return _of_several(replace(importing, sizes=list(INSTEAD_OF_ONE)), otherwise=imported)
        return imported


def _of_several(importing: _Importing, *, otherwise: Imported) -> Imported:
    """Return an import at other sizes than one, at which torch takes other paths; ``otherwise`` if none holds."""
    try:
        imported = importing.imported()
    except TraceError:
        return otherwise
    return otherwise if imported.why_fixed else imported


@dataclass(slots=True, kw_only=True)
class _Importing:
    """One import: traces, and what was learnt from them."""

    module: Any
    example: Example
    sizes: list[int]
    training: bool
    name: str
    advance: Progress
    counts: bool
    translators: dict[str, Any] = field(default_factory=lambda: translators_of("torch"))

    def imported(self) -> Imported:
        split: set[Site] = set()
        for _ in range(MOST_ROUNDS):
            imported = self._round(split)
            run, calls = imported.run, imported.calls
            refused = [run.recording.calls[calls[hole.step]] for hole in imported.built.holes]
            further = {call.site for call in refused if call.can_decompose} - split
            if not further:
                break
            split |= further
        return imported

    def _trace(self, batch_size: int, split: set[Site], *, counts: bool = False) -> Run:
        from perfmodel.importers.torch.run import counted, trace

        return trace(
            self.module,
            self.example,
            batch_size=batch_size,
            training=self.training,
            claimed=self.translators,
            split=split,
            count_products=counted if counts else None,
            on_module=self.advance,
        )

    def _round(self, split: set[Site]) -> Imported:
        """Trace at every batch size and build, taking apart the calls in ``split``."""
        run = self._trace(self.sizes[0], split, counts=self.counts)
        layouts, why_fixed = self._layouts(run.recording, split)
        trained = {name: each.requires_grad for name, each in self.module.named_parameters()}
        reader = ProgramReader(run.recording, layouts, trained=trained)
        program, calls = reader.program(self.name, fixed_batch_size=self.sizes[0] if why_fixed else None)
        built = build(program, self.translators)
        return Imported(built=built, run=run, calls=calls, batch_size=self.sizes[0], why_fixed=why_fixed)

    def _layouts(self, recording: Recording, split: set[Site]) -> tuple[list[Layout], str]:
        """Return every tensor as samples, and why that holds for the given batch size only, if it does."""
        recordings = [recording]
        axis = self.example.batch_axis
        if axis is None:
            return [_as_sample(facts.shape, facts.origin) for facts in recording.tensors], "it has no batch axis"
        for size in self.sizes[1:]:
            try:
                recordings.append(self._trace(size, split).recording)
            except TraceError as error:
                return guessed_layouts(recording, batch_axis=axis), f"at batch size {size}, {error}"
        difference = same_structure(recordings)
        if difference:
            return guessed_layouts(recording, batch_axis=axis), difference
        found = [
            layout([each.tensors[key].shape for each in recordings], batch_sizes=self.sizes)
            for key in range(len(recording.tensors))
        ]
        unclear = [key for key in read_keys(recording) if found[key] is None]
        if unclear:
            shapes = " / ".join(str(each.tensors[min(unclear)].shape) for each in recordings)
            reason = f"a tensor is not made of samples: {shapes} at {', '.join(map(str, self.sizes))} samples"
            return guessed_layouts(recording, batch_axis=axis), reason
        return [each or whole(facts.shape) for each, facts in zip(found, recording.tensors, strict=True)], ""


def _as_sample(shape: tuple[int, ...], origin: str) -> Layout:
    """Return a tensor of a network without batch axis: what it computes is one sample."""
    layout = whole(shape)
    return layout if origin in ("parameter", "constant") else Layout(tuple(shape), layout.axes)


def _checked(module: Any, example_inputs: Any, *, batch_axis: Any, training: Any, name: Any) -> Example:
    """Return the example to run with; a PerfmodelError for arguments of the wrong kind."""
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError("torch", "from_torch()", "torch") from error
    from perfmodel.importers.torch.run import Example

    if not isinstance(module, torch.nn.Module):
        refuse("module", module, "must be a torch.nn.Module")
    if isinstance(module, torch.jit.ScriptModule):
        refuse("module", type(module).__name__, "must be a module as written, before torch.jit made a script of it")
    if isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        allowed = "must be the module that it spreads over devices: pass .module of it"
        refuse("module", type(module).__name__, allowed)
    lazy = [name for name, each in module.named_parameters() if torch.nn.parameter.is_lazy(each)]
    if lazy:
        refuse("module", type(module).__name__, f"must have its shapes: run it once, so that {lazy[0]!r} is made")
    check_flag("training", training)
    if name is not None:
        check_text("name", name)
    if batch_axis is not None and (isinstance(batch_axis, bool) or not isinstance(batch_axis, int) or batch_axis < 0):
        refuse("batch_axis", batch_axis, "must be a whole number >= 0, or None where there is none")
    if isinstance(example_inputs, Mapping):
        example = Example(args=(), kwargs=dict(example_inputs), batch_axis=batch_axis)
    elif isinstance(example_inputs, tuple | list):
        example = Example(args=tuple(example_inputs), kwargs={}, batch_axis=batch_axis)
    elif isinstance(example_inputs, torch.Tensor):
        example = Example(args=(example_inputs,), kwargs={}, batch_axis=batch_axis)
    else:
        refuse("example_inputs", type(example_inputs).__name__, "must be a tensor, a tuple, or a mapping of arguments")
    if not example.tensors:
        raise ArgumentError("example_inputs", example_inputs, "must hold at least one tensor")
    _check_tensors(example)
    return example


def _check_tensors(example: Example) -> None:
    """Refuse tensors without extents along the batch axis, and those that are no arrays of numbers."""
    import torch

    for tensor in example.tensors:
        if tensor.is_nested or tensor.layout is not torch.strided:
            kind = "nested" if tensor.is_nested else "sparse"
            refuse("example_inputs", f"a {kind} tensor", "sparse and nested tensors are not supported, only dense ones")
    axis = example.batch_axis
    if axis is None:
        return
    most = max(tensor.dim() for tensor in example.tensors)
    if axis >= most:
        refuse("batch_axis", axis, f"must be an axis of example_inputs, which have at most {most}, counted from 0")
    if example.batch_size == 0:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in example.tensors)
        refuse("example_inputs", shapes, f"must have at least one sample along batch_axis={axis}")


def messages(imported: Imported) -> list[tuple[type[Warning], str]]:
    """Return what a user should know about an import.

    Parameters
    ----------
    imported : Imported
        The import. [-]

    Returns
    -------
    list of tuple
        Class and text of each warning. [-]
    """
    graph = imported.built.graph
    found: list[tuple[type[Warning], str]] = []
    if imported.why_fixed:
        size = imported.batch_size
        found.append((FixedBatchWarning, f"{graph.name} holds for batch size {size} only: {imported.why_fixed}"))
    by_operator: dict[str, list[Hole]] = {}
    for hole in imported.built.holes:
        by_operator.setdefault(hole.operator, []).append(hole)
    for operator, holes in by_operator.items():
        counts = counted_by_bytes(graph, [hole.layer for hole in holes], batch_size=imported.batch_size)
        places = listed([repr(hole.layer) for hole in holes])
        text = f"{graph.name}: no layer is {operator} in {places} ({holes[0].reason}); {counts}"
        found.append((OpaqueLayerWarning, text))
    doubts = (guessed_loss(imported.run.recording), *_uncounted(imported.run.recording))
    found += [(BackwardWarning, f"{graph.name}: {doubt}") for doubt in doubts if doubt]
    found += [(ParameterWarning, f"{graph.name}: {note}") for note in imported.built.notes]
    return found


def _uncounted(recording: Recording) -> list[str]:
    """Return what of the backward phase is not in the graph."""
    found = []
    modules = sorted({call.path for call in recording.calls if call.is_gradient})
    if modules:
        found.append(
            "gradients are computed inside forward, to be differentiated in turn (create_graph=True), in "
            f"{listed(list(map(repr, modules)))}: "
            "gradients of gradients are not counted in full"
        )
    if recording.keeps_some:
        found.append(
            "a checkpointed region chooses what it keeps (context_fn): it is taken to keep its input only, and to "
            "compute the rest again"
        )
    return found
