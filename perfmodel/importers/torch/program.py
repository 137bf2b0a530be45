"""From traced runs to a program: tensors as samples, parameters by their parts, calls as layers read them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from perfmodel.importers.batch_axes import Layout
from perfmodel.importers.plan import ParameterTensor, Program, Step
from perfmodel.importers.recording import Call, Recording, Ref, refs_of
from perfmodel.layers.shapes import Shape, SharedShape
from perfmodel.layers.translation import Operand, OperatorCall

LOSS_NAME: Final = "loss"
"""What networks that return several things call what training minimises."""

COMPLEX_PARTS: Final = (2,)
"""A complex number is two of the others: tensors of them get an axis more, the last [1]."""

Part = tuple[int, int]
"""First element of a part of a parameter, and how many it has [1]."""


class ProgramReader:
    """A recording with the layouts of its tensors.

    Parameters
    ----------
    recording : Recording
        The run at the batch size that was given. [-]
    layouts : sequence of Layout
        Each tensor as samples. [-]
    trained : mapping of str to bool
        Whether each parameter wants a gradient. [-]
    """

    def __init__(self, recording: Recording, layouts: Sequence[Layout], *, trained: Mapping[str, bool]) -> None:
        self.recording = recording
        self.layouts = layouts
        self.trained = trained
        self.parts = self._parts_used()

    def _parts_used(self) -> dict[str, list[Part]]:
        """Return the parts of each parameter that calls read, where they make it up without overlap; else none."""
        used: dict[str, set[Part]] = defaultdict(set)
        for call in self.recording.calls:
            if not self._only_looks(call):
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

    def _only_looks(self, call: Call) -> bool:
        """Tell whether all that a call makes is still a parameter."""
        return bool(call.outputs) and all(self._is_view_of_parameter(ref) for ref in call.outputs)

    def _is_view_of_parameter(self, ref: Ref) -> bool:
        facts = self.recording.tensors[ref.key]
        return facts.origin == "parameter" and isinstance(self.layouts[ref.key].shape, SharedShape)

    def _is_parameter(self, ref: Ref) -> bool:
        facts = self.recording.tensors[ref.key]
        return self._is_view_of_parameter(ref) and facts.part in self.parts[facts.name]

    def key(self, ref: Ref) -> str:
        """Return what identifies a tensor: the parameter, or its number in the run [-]."""
        if not self._is_parameter(ref):
            return f"%{ref.key}"
        facts = self.recording.tensors[ref.key]
        parts = self.parts[facts.name]
        return facts.name if len(parts) == 1 else f"{facts.name}[{parts.index(facts.part)}]"  # type: ignore[arg-type]

    def operand(self, ref: Ref) -> Operand:
        """Return a tensor as layers read it."""
        facts, layout = self.recording.tensors[ref.key], self.layouts[ref.key]
        parts = COMPLEX_PARTS if facts.is_complex else ()
        shape = type(layout.shape)((*layout.shape, *parts))
        return Operand(
            key=self.key(ref),
            shape=shape,
            axes=layout.axes,
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
            path=call.path,
            visit=call.visit,
            in_place=call.in_place,
            region=call.region,
            reruns_all=call.reruns_all,
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

    def program(self, name: str, *, fixed_batch_size: int | None) -> tuple[Program, list[int]]:
        """Return the program, and for each of its steps the index of the call it is.

        Parameters
        ----------
        name : str
            Name of the graph. [-]
        fixed_batch_size : int or None
            The only batch size it holds for. [samples]

        Returns
        -------
        tuple
            The program, and the index of the call of each step. [-]
        """
        kept = [
            index
            for index, call in enumerate(self.recording.calls)
            if not self._looks_at_parts_in_use(call) and not self._is_empty(call)
        ]
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
            wholes={} if fixed_batch_size is None else self._wholes(),
        ), kept

    def _wholes(self) -> dict[str, Shape]:
        return {
            self.key(Ref(index)): (*facts.shape, *(COMPLEX_PARTS if facts.is_complex else ()))
            for index, facts in enumerate(self.recording.tensors)
        }

    def _is_empty(self, call: Call) -> bool:
        return not any(math.prod(self.recording.tensors[ref.key].shape) for ref in call.outputs)

    def _looks_at_parts_in_use(self, call: Call) -> bool:
        return bool(call.outputs) and all(map(self._is_parameter, call.outputs))

    def _sources(self) -> tuple[dict[str, Operand], dict[str, str]]:
        """Return what is fed for each sample, and the names of tensors that all samples share."""
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
    """Return the outputs at which training starts.

    Parameters
    ----------
    recording : Recording
        The run. [-]

    Returns
    -------
    list of int
        Index of the output named ``loss``, where there is one with a gradient; else of every output with a gradient;
        where none has one, of every output that could have. [-]
    """
    labels = [label for label, _ in recording.outputs]
    named = [index for index in sorted(recording.differentiable) if labels[index] == LOSS_NAME]
    could = [index for index, (_, ref) in enumerate(recording.outputs) if not recording.tensors[ref.key].is_index]
    return named or sorted(recording.differentiable) or could


def guessed_loss(recording: Recording) -> str:
    """Return why nobody can tell which output training minimises.

    Parameters
    ----------
    recording : Recording
        The run. [-]

    Returns
    -------
    str
        What the outputs are; empty where it is clear. [-]
    """
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
    """Tell whether parts follow one another without gap or overlap from the first element to the last."""
    position = whole[0]
    for start, count in parts:
        if start != position:
            return False
        position += count
    return bool(parts) and position == whole[0] + whole[1]


def read_keys(recording: Recording) -> set[int]:
    """Return the tensors on whose shapes layers depend: those that calls read, first results, and outputs.

    Parameters
    ----------
    recording : Recording
        The run. [-]

    Returns
    -------
    set of int
        Their keys. [-]
    """
    keys = {ref.key for _, ref in recording.outputs}
    for call in recording.calls:
        keys |= {ref.key for ref in refs_of(tuple(call.arguments.values()))}
        keys |= {ref.key for ref in call.outputs[:1]}
    return keys
