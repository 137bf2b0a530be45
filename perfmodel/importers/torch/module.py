"""Torch modules as layer graphs: run on tensors without content at three batch sizes, then translated."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.calls import CALLER, in_words
from perfmodel.errors import (
    ArgumentError,
    BackwardWarning,
    FixedBatchWarning,
    OpaqueLayerWarning,
    ParameterWarning,
    TraceError,
    package_for,
)
from perfmodel.graph import LayerGraph
from perfmodel.importers.build import Built, build, holes_by_operator, listed
from perfmodel.importers.recording import (
    Advance,
    Call,
    Layout,
    Recording,
    Ref,
    guessed_layouts,
    import_progress,
    layout,
    refs_of,
    same_structure,
    whole,
)
from perfmodel.importers.translation import ParameterTensor, Program, Step, all_translators
from perfmodel.layers.checks import check_flag, check_text, refuse
from perfmodel.layers.shapes import SharedShape
from perfmodel.layers.translation import Operand, OperatorCall

if TYPE_CHECKING:
    import torch

    from perfmodel.importers.recording import Recording
    from perfmodel.importers.torch.modes import Site
    from perfmodel.importers.torch.traced_run import Example, TracedRun


LOSS_NAME: Final = "loss"
"""Key of the loss in networks that return several outputs."""

COMPLEX_PARTS: Final = (2,)
"""Real numbers in a complex one: complex tensors get another axis at the end [1]."""

Part = tuple[int, int]
"""First element and number of elements of a part of a parameter [1]."""


class ProgramReader:
    """Reads the program of a recording whose layouts are known."""

    def __init__(self, recording: Recording, layouts: Sequence[Layout], *, trained: Mapping[str, bool]) -> None:
        self.recording = recording
        self.layouts = layouts
        self.trained = trained
        self.parts = self._parts_used()

    def _parts_used(self) -> dict[str, list[Part]]:
        """Return the parts of each parameter that calls read, if together they cover it without overlap; else none."""
        used: dict[str, set[Part]] = defaultdict(set)
        for call in self.recording.calls:
            if not call.outputs or not all(map(self._is_view_of_parameter, call.outputs)):
                for ref in call.inputs:
                    facts = self.recording.tensors[ref.key]
                    if facts.origin == "parameter" and facts.part is not None:
                        used[facts.name].add(facts.part)
        parts: dict[str, list[Part]] = {}
        for facts in self.recording.tensors:
            if facts.origin == "parameter" and facts.name not in parts and facts.part is not None:
                in_order = sorted(used[facts.name])
                parts[facts.name] = in_order if _make_up(in_order, facts.part) else [facts.part]
        return parts

    def _is_view_of_parameter(self, ref: Ref) -> bool:
        facts = self.recording.tensors[ref.key]
        return facts.origin == "parameter" and isinstance(self.layouts[ref.key].shape, SharedShape)

    def _is_parameter(self, ref: Ref) -> bool:
        facts = self.recording.tensors[ref.key]
        return self._is_view_of_parameter(ref) and facts.part in self.parts[facts.name]

    def key(self, ref: Ref) -> str:
        """Return the key of a tensor: its parameter, or its number in the run [-]."""
        if not self._is_parameter(ref):
            return f"%{ref.key}"
        facts = self.recording.tensors[ref.key]
        parts = self.parts[facts.name]
        return facts.name if len(parts) == 1 else f"{facts.name}[{parts.index(facts.part)}]"  # type: ignore[arg-type]

    def operand(self, ref: Ref) -> Operand:
        """Return a tensor in the form that layers read."""
        facts, layout = self.recording.tensors[ref.key], self.layouts[ref.key]
        parts = COMPLEX_PARTS if facts.is_complex else ()
        shape = type(layout.shape)((*layout.shape, *parts))
        return Operand(
            key=self.key(ref),
            shape=shape,
            axes=layout.axes,
            merged_axis=layout.merged_axis,
            is_parameter=self._is_parameter(ref),
            is_transposed=facts.is_transposed,
            is_index=facts.is_index,
            is_complex=facts.is_complex,
        )

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self.operand(value)
        return tuple(map(self._argument, value)) if isinstance(value, tuple) else value

    def _step(self, call: Call) -> Step:
        arguments = {name: self._argument(value) for name, value in call.arguments.items()}
        detached = {self.key(ref) for ref in call.inputs if ref.is_detached}
        return Step(
            call=OperatorCall(
                operator=call.operator,
                overload=call.overload,
                arguments=arguments,
                outputs=tuple(map(self.operand, call.outputs)),
                parts=frozenset(call.parts),
                moved=frozenset(call.moved),
            ),
            place=call.place,
            detached=frozenset(detached),
        )

    def _parameters(self) -> dict[str, ParameterTensor]:
        tensors: dict[str, ParameterTensor] = {}
        for name, parts in self.parts.items():
            whole = next(facts for facts in self.recording.tensors if facts.name == name and facts.part is not None)
            for index, (_, count) in enumerate(parts):
                key = name if len(parts) == 1 else f"{name}[{index}]"
                shape = whole.shape if len(parts) == 1 else (count,)
                tensors[key] = ParameterTensor(name=name, shape=shape, is_trained=self.trained[name])
        return tensors

    def program(
        self, name: str, *, fixed_batch_size: int | None, image_layout: str | None
    ) -> tuple[Program, list[int]]:
        """Return the program, and the index of the recorded call behind each of its steps."""
        kept = [index for index, call in enumerate(self.recording.calls) if self._computes(call)]
        wholes = {
            self.key(Ref(index)): (*facts.shape, *(COMPLEX_PARTS if facts.is_complex else ()))
            for index, facts in enumerate(() if fixed_batch_size is None else self.recording.tensors)
        }
        inputs, constants = self._sources()
        outputs = [(label, self.operand(ref)) for label, ref in self.recording.outputs]
        return Program(
            name=name,
            inputs=inputs,
            parameters=self._parameters(),
            constants=constants,
            steps=[self._step(self.recording.calls[index]) for index in kept],
            outputs=[operand for _, operand in outputs],
            starts=frozenset(outputs[index][1].key for index in trained_outputs(self.recording)),
            fixed_batch_size=fixed_batch_size,
            image_layout=image_layout,
            wholes=wholes,
        ), kept

    def _computes(self, call: Call) -> bool:
        """Tell whether a call makes elements, other than by looking at parts of parameters."""
        has_elements = any(math.prod(self.recording.tensors[ref.key].shape) for ref in call.outputs)
        return has_elements and not all(map(self._is_parameter, call.outputs))

    def _sources(self) -> tuple[dict[str, Operand], dict[str, str]]:
        """Return the inputs that hold samples, and the names of tensors that all samples share."""
        inputs: dict[str, Operand] = {}
        constants: dict[str, str] = {}
        for index, facts in enumerate(self.recording.tensors):
            operand = self.operand(Ref(index))
            if facts.origin == "input" and not operand.is_shared:
                inputs[facts.name or "input"] = operand
            elif facts.origin in ("input", "constant"):
                constants[operand.key] = facts.name
        return inputs, constants


def trained_outputs(recording: Recording) -> list[int]:
    """Return the outputs at which training starts."""
    labels = [label for label, _ in recording.outputs]
    named = [index for index in sorted(recording.differentiable) if labels[index] == LOSS_NAME]
    could = [index for index, (_, ref) in enumerate(recording.outputs) if not recording.tensors[ref.key].is_index]
    return named or sorted(recording.differentiable) or could


def guessed_loss(recording: Recording) -> str:
    """Return the reason why the output that training minimises can only be guessed."""
    starts = [recording.outputs[index] for index in trained_outputs(recording)]
    numbers = [label for label, ref in starts if recording.tensors[ref.key].shape == ()]
    if not recording.differentiable or not numbers or len(starts) == 1:
        return ""
    labels = ", ".join(label for label, _ in starts)
    return (
        f"it returns several tensors with gradients ({labels}), some of them single numbers, and calls none of them "
        f"{LOSS_NAME!r}: back-propagation is taken to start at all of them"
    )


def _make_up(parts: Sequence[Part], whole: Part) -> bool:
    """Tell whether parts follow one another from the first element to the last, without gap or overlap."""
    position = whole[0]
    for start, count in parts:
        if start != position:
            return False
        position += count
    return bool(parts) and position == whole[0] + whole[1]


def read_keys(recording: Recording) -> set[int]:
    """Return the tensors whose shapes decide layers: inputs of calls, their first results, and outputs."""
    keys = {ref.key for _, ref in recording.outputs}
    for call in recording.calls:
        keys |= {ref.key for ref in refs_of(tuple(call.arguments.values()))}
        keys |= {ref.key for ref in call.outputs[:1]}
    return keys


MORE_BATCHES: Final = (2, 3)
"""Multiples of the given batch size at which a module also runs, to find the axes that grow with it [1]."""
INSTEAD_OF_ONE: Final = (2, 3, 5)
"""Batch sizes tried if a network seems to hold for one sample only, because extents of one are special."""
MOST_ROUNDS: Final = 4
"""Most rounds of tracing, each with more operators decomposed [1]."""


@dataclass(slots=True, kw_only=True)
class Imported:
    """An imported module and the run behind it."""

    built: Built
    run: TracedRun
    calls: list[int]
    batch_size: int
    why_fixed: str


def _image_layout(module: torch.nn.Module) -> str | None:
    """Order of images as the filters lie, which convolutions follow; None without filters of images."""
    import torch

    filters = [tensor for tensor in module.parameters() if tensor.dim() == IMAGE_AXES]
    last = [
        not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last) for tensor in filters
    ]
    return ("channels_last" if any(last) else "channels_first") if filters else None


IMAGE_AXES = 4
"""Axes of images, and of the filters of two-dimensional convolutions. [1]"""


@in_words
def from_torch(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    batch_axis: int | None = 0,
    training: bool = True,
    name: str | None = None,
    progress: bool | None = None,
) -> LayerGraph:
    """Build the layer graph of a torch module, without computing anything or allocating its weights.

    Parameters
    ----------
    module : torch.nn.Module
        Any module, on any device, also ``meta``; its tensors, training mode and hooks are not changed. [-]
    example_inputs : Tensor, tuple, list or mapping
        Inputs of ``forward``: one tensor, positional arguments, or arguments by name. Only shapes and types
        of tensors matter; other values are passed on as they are. [-]
    batch_axis : int or None
        Axis of the inputs that holds the samples; None if the tensors are one sample. [-]
    training : bool
        Whether to import the module in training, with gradients and active dropout, or in inference. [-]
    name : str or None
        Name of the graph; by default the module's class. [-]
    progress : bool or None
        Whether to show progress; None: on a terminal, once the import takes longer than a second. [-]

    Returns
    -------
    LayerGraph
        Layers by their paths in the module. Its batch size is symbolic if the module allows it. [-]

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
        For every operator without a layer: it counts by its bytes and one FLOP per element.
    FixedBatchWarning
        If the network holds for the given batch size only.
    ParameterWarning
        If parameters are not counted as they are stored, or not used at all.
    BackwardWarning
        If the network does not say what training minimises, or its backward phase has uncounted parts.
    """
    imported = import_torch(
        module, example_inputs, batch_axis=batch_axis, training=training, name=name, progress=progress
    )
    for category, message in messages(imported):
        warnings.warn(message, category, stacklevel=CALLER)
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
    """Import a torch module, keeping the run behind it."""
    example = _checked(module, example_inputs, batch_axis=batch_axis, training=training, name=name)
    module = getattr(module, "_orig_mod", module)  # a module after torch.compile wraps the original
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
    """Return an import at batch sizes above 1, as torch runs other code for 1; ``otherwise`` if none works."""
    try:
        imported = importing.imported()
    except TraceError:
        return otherwise
    return otherwise if imported.why_fixed else imported


@dataclass(slots=True, kw_only=True)
class _Importing:
    """One import: its traces, and the findings from them."""

    module: Any
    example: Example
    sizes: list[int]
    training: bool
    name: str
    advance: Advance
    counts: bool
    translators: dict[str, Any] = field(default_factory=all_translators)

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

    def _trace(self, batch_size: int, split: set[Site], *, counts: bool = False) -> TracedRun:
        from perfmodel.importers.torch.traced_run import counted, trace

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
        """Trace at every batch size and build, with the calls in ``split`` decomposed."""
        run = self._trace(self.sizes[0], split, counts=self.counts)
        layouts, why_fixed = self._layouts(run.recording, split)
        trained = {name: parameter.requires_grad for name, parameter in self.module.named_parameters()}
        reader = ProgramReader(run.recording, layouts, trained=trained)
        program, calls = reader.program(
            self.name,
            fixed_batch_size=self.sizes[0] if why_fixed else None,
            image_layout=_image_layout(self.module),
        )
        built = build(program, self.translators)
        return Imported(built=built, run=run, calls=calls, batch_size=self.sizes[0], why_fixed=why_fixed)

    def _layouts(self, recording: Recording, split: set[Site]) -> tuple[list[Layout], str]:
        """Return every tensor as samples, and the reason if that holds for the given batch size only."""
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
        layouts = [
            layout([run.tensors[key].shape for run in recordings], batch_sizes=self.sizes)
            for key in range(len(recording.tensors))
        ]
        unclear = [key for key in read_keys(recording) if layouts[key] is None]
        if unclear:
            shapes = " / ".join(str(run.tensors[min(unclear)].shape) for run in recordings)
            reason = f"a tensor is not made of samples: {shapes} at {', '.join(map(str, self.sizes))} samples"
            return guessed_layouts(recording, batch_axis=axis), reason
        return [known or whole(facts.shape) for known, facts in zip(layouts, recording.tensors, strict=True)], ""


def _as_sample(shape: tuple[int, ...], origin: str) -> Layout:
    """Return a tensor of a network without batch axis as one sample."""
    layout = whole(shape)
    return layout if origin in ("parameter", "constant") else Layout(tuple(shape), layout.axes)


def _checked(module: Any, example_inputs: Any, *, batch_axis: Any, training: Any, name: Any) -> Example:
    """Return the example to run with; a PerfmodelError for arguments of the wrong kind."""
    torch = package_for("torch", "from_torch()", "torch")
    from perfmodel.importers.torch.traced_run import Example

    if not isinstance(module, torch.nn.Module):
        refuse("module", module, "must be a torch.nn.Module")
    if isinstance(module, torch.jit.ScriptModule):
        refuse("module", type(module).__name__, "must be the module before torch.jit scripted it")
    if isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        allowed = "must be the module inside the wrapper: pass its .module"
        refuse("module", type(module).__name__, allowed)
    lazy = [name for name, parameter in module.named_parameters() if torch.nn.parameter.is_lazy(parameter)]
    if lazy:
        refuse("module", type(module).__name__, f"must have all shapes: run it once to create {lazy[0]!r}")
    check_flag("training", training)
    if name is not None:
        check_text("name", name)
    if batch_axis is not None and (isinstance(batch_axis, bool) or not isinstance(batch_axis, int) or batch_axis < 0):
        refuse("batch_axis", batch_axis, "must be a whole number >= 0, or None without a batch axis")
    if isinstance(example_inputs, Mapping):
        example = Example(args=(), kwargs=dict(example_inputs), batch_axis=batch_axis)
    elif isinstance(example_inputs, tuple | list):
        example = Example(args=tuple(example_inputs), kwargs={}, batch_axis=batch_axis)
    elif isinstance(example_inputs, torch.Tensor):
        example = Example(args=(example_inputs,), kwargs={}, batch_axis=batch_axis)
    else:
        refuse("example_inputs", type(example_inputs).__name__, "must be a tensor, a tuple, or a mapping of arguments")
    if not example.tensors:
        raise ArgumentError("example_inputs", example_inputs, "inputs with at least one tensor")
    _check_tensors(example)
    return example


def _check_tensors(example: Example) -> None:
    """Reject tensors without extents along the batch axis, and those that are not arrays of numbers."""
    import torch

    for tensor in example.tensors:
        if tensor.is_nested or tensor.layout is not torch.strided:
            kind = "nested" if tensor.is_nested else "sparse"
            refuse("example_inputs", f"a {kind} tensor", "must be dense tensors")
    axis = example.batch_axis
    if axis is None:
        return
    most = max(tensor.dim() for tensor in example.tensors)
    if axis >= most:
        refuse("batch_axis", axis, f"must be an axis of example_inputs, counted from 0; they have at most {most}")
    if example.batch_size == 0:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in example.tensors)
        refuse("example_inputs", shapes, f"must have at least one sample along batch_axis={axis}")


def messages(imported: Imported) -> list[tuple[type[Warning], str]]:
    """Return the warnings of an import."""
    graph = imported.built.graph
    warned: list[tuple[type[Warning], str]] = []
    if imported.why_fixed:
        size = imported.batch_size
        warned.append((FixedBatchWarning, f"{graph.name} holds for batch size {size} only: {imported.why_fixed}"))
    for operator, holes, counts in holes_by_operator(imported.built, batch_size=imported.batch_size):
        places = listed([repr(hole.layer) for hole in holes])
        text = f"{graph.name}: no layer is {operator} in {places} ({holes[0].reason}); {counts}"
        warned.append((OpaqueLayerWarning, text))
    doubts = (guessed_loss(imported.run.recording), *_uncounted(imported.run.recording))
    warned += [(BackwardWarning, f"{graph.name}: {doubt}") for doubt in doubts if doubt]
    warned += [(ParameterWarning, f"{graph.name}: {note}") for note in imported.built.notes]
    return warned


def _uncounted(recording: Recording) -> list[str]:
    """Return the parts of the backward phase that are not in the graph."""
    differences = []
    modules = sorted({call.place.path for call in recording.calls if call.is_gradient})
    if modules:
        differences.append(
            "gradients are computed inside forward, to be differentiated in turn (create_graph=True), in "
            f"{listed(list(map(repr, modules)))}: "
            "gradients of gradients are not counted in full"
        )
    if recording.keeps_some:
        differences.append(
            "a checkpointed region chooses what it keeps (context_fn): it is taken to keep its input only, and to "
            "compute the rest again"
        )
    return differences
