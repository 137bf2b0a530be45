"""ONNX files as layer graphs: operators and shapes are read, weights are not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from warnings import warn

from perfmodel.errors import FixedBatchWarning, OpaqueLayerWarning, SpecError
from perfmodel.graph import LayerGraph
from perfmodel.importers.build import Built, build, counted_by_bytes
from perfmodel.importers.onnx.batch import BATCH_SIZES, NoSampleShapeError, Traced, trace_model
from perfmodel.importers.onnx.calls import NodeCalls
from perfmodel.importers.onnx.model import read_model
from perfmodel.importers.plan import translators_of
from perfmodel.importers.program import ParameterTensor, Program, Step
from perfmodel.importers.progress import import_progress
from perfmodel.layers.checks import check_text

NAMES_SHOWN: Final = 5
"""Nodes that a warning names [1]."""


def from_onnx(
    path: str | Path,
    *,
    batch_size: int | None = None,
    sizes: Mapping[str, int] | None = None,
    name: str | None = None,
    progress: bool | None = None,
) -> LayerGraph:
    """Return the network in an ONNX file; its batch size stays free where the network allows it.

    Parameters
    ----------
    path : str or Path
        The file. Content of large tensors is never read, whether it lies in this file's neighbours or not. [-]
    batch_size : int or None
        Samples, where the network holds for one batch size only and the file leaves it open. [samples]
    sizes : mapping of str to int or None
        Values of the file's other free sizes, by their names, e.g. ``{"sequence": 128}``. [1]
    name : str or None
        What the graph is called; None for the file's name without its ending. [-]
    progress : bool or None
        Whether to show progress; None: on a terminal, once the import takes longer than a second. [-]

    Returns
    -------
    LayerGraph
        The network, layers under the names of the file's nodes. [-]

    Raises
    ------
    MissingPackageError
        If the package onnx is not installed.
    ArgumentError
        If an argument is of the wrong kind.
    SpecError
        If the file is none of ONNX, truncated, or lacks a file of its tensors; if a size stays free, shapes do not
        fit, or what is executed depends on data. Names the file and the node, input or tensor.
    UnknownNameError
        If a value is given for a size that the file does not have.

    Warns
    -----
    FixedBatchWarning
        Where it holds for one batch size only.
    OpaqueLayerWarning
        Of operators that no layer claims, which become opaque layers.

    Notes
    -----
    A file does not say what is trained. Stored tensors of fractional numbers with at least one axis count as
    parameters, except where they are read only as running statistics, subtrahend, divisor, exponent, bound or operand
    of a comparison, as a vector times a stored matrix, or as a square first factor of a product with data (edges of
    a graph); and where they hold -10 000 or less (a mask of scores). Single numbers are constants. A table that is
    added counts as trained: whether it is learned, the file cannot tell.

    A file exported at one batch size is read as if the first axis of its inputs (the second in recurrent networks that
    put time first) could have any extent, and the leading number in fixed targets of reshapes likewise; where shapes
    then no longer fit, the graph is one of the exported batch size only. The bias added to a product with a weight is
    part of that dense layer.
    """
    model = read_model(path)
    if name is not None:
        check_text("name", name)
    parts = len(BATCH_SIZES) * len(model.nodes)
    with import_progress(f"importing {model.path.name}", parts, shown=progress) as advance:
        traced = trace_model(model, batch_size=batch_size, sizes=dict(sizes or {}), advance=advance)
    try:
        program = _program(traced, name=name or model.path.stem)
    except NoSampleShapeError as error:
        raise SpecError(model.path, [str(error)]) from error
    built = build(program, translators_of("onnx"))
    if traced.fixed_batch_size is not None:
        message = f"{model.path}: holds for batch_size={traced.fixed_batch_size} only: {traced.problem}"
        warn(FixedBatchWarning(message), stacklevel=2)
    _warn_of_holes(built, program, file=model.path)
    return built.graph


def _program(traced: Traced, *, name: str) -> Program:
    """Return the calls of a file whose shapes are known."""
    calls = NodeCalls(traced)
    model = traced.model
    given = [each.name for each in model.inputs if calls.is_needed(each.name)]
    operands = {each: calls.operand(each) for each in given}
    inputs = {each: operand for each, operand in operands.items() if not operand.is_shared}
    if not inputs:
        raise SpecError(model.path, ["its outputs depend on none of its inputs"])
    steps = [
        Step(call=call, path=step) for node in model.nodes if calls.is_layer(node) for step, call in calls.of(node)
    ]
    read = {operand.key: operand for step in steps for operand in step.call.operands}
    made = {operand.key for step in steps for operand in step.call.outputs} | inputs.keys()
    return Program(
        name=name,
        inputs=inputs,
        parameters={
            key: ParameterTensor(name=key, shape=tuple(operand.shape))
            for key, operand in read.items()
            if operand.is_parameter and key not in made
        },
        constants={key: key for key, operand in read.items() if not operand.is_parameter and key not in made},
        steps=steps,
        outputs=[calls.operand(each) for each in model.outputs if not calls.is_known(each)],
        fixed_batch_size=traced.fixed_batch_size,
        wholes={} if traced.fixed_batch_size is None else calls.whole_shapes,
    )


def _warn_of_holes(built: Built, program: Program, *, file: Path) -> None:
    """Warn of each operator that no layer takes, with the names of its nodes."""
    samples = built.graph.fixed_batch_size or 1
    nodes: dict[str, list[str]] = {}
    for hole in built.holes:
        operator = program.steps[hole.step].call.operator
        nodes.setdefault(operator, []).append(hole.layer)
    for operator, names in nodes.items():
        shown = ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
        counts = counted_by_bytes(built.graph, names, batch_size=samples)
        message = f"{file}: no layer takes the operator {operator!r} ({len(names)} of them: {shown}); {counts}"
        warn(OpaqueLayerWarning(message), stacklevel=3)
