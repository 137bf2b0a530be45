"""Identity of the tensors in a traced run: by storage, through views and in-place writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.importers.recording import Call, Origin, Place, Recording, Ref, TensorFacts
from perfmodel.importers.translation import OVERWRITE, VIEW


@dataclass(slots=True)
class _Memory:
    """A storage: its owner and its present value."""

    key: int
    owner: str = ""
    version: int = 0


@dataclass(slots=True)
class _Entry:
    """A tensor object of the run: its key, and the version of its memory for which the key is valid."""

    key: int
    version: int


class TensorBook:
    """The tensors of a run by their identity.

    If the memory of a tensor was written through another view, the tensor becomes a view of the written value, as in a
    program without in-place writes.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._entries: dict[int, _Entry] = {}
        self._memory: dict[int, _Memory] = {}
        self._alive: list[Any] = []  # an id names a tensor only while the tensor lives

    def snapshot(self) -> tuple[dict[int, _Entry], dict[int, _Memory]]:
        """Return the present state, to restore later."""
        entries = {identity: replace(entry) for identity, entry in self._entries.items()}
        return entries, {identity: replace(memory) for identity, memory in self._memory.items()}

    def restore(self, known: tuple[dict[int, _Entry], dict[int, _Memory]]) -> None:
        """Restore a state."""
        self._entries, self._memory = known

    def hold(self, tensor: Any, *, origin: Origin, name: str) -> int:
        """Register a tensor that no call makes."""
        key = self._new(tensor, origin, name)
        if origin == "parameter":
            self.recording.tensors[key].part = (0, tensor.numel())
        self._memory[storage_of(tensor)] = _Memory(key, owner=name if origin == "parameter" else "")
        self._entries[id(tensor)] = _Entry(key, 0)
        return key

    def _new(self, tensor: Any, origin: Origin, name: str = "") -> int:
        self._alive.append(tensor)
        is_index = not (tensor.is_floating_point() or tensor.is_complex())
        facts = TensorFacts(
            shape=tuple(tensor.shape),
            is_index=is_index,
            origin=origin,
            is_complex=bool(tensor.is_complex()),
            name=name,
        )
        self.recording.tensors.append(facts)
        return len(self.recording.tensors) - 1

    def read(self, tensor: Any, *, path: str, with_gradient: bool) -> Ref:
        """Return the key of a tensor that a call reads."""
        entry = self._entries.get(id(tensor))
        if entry is None:
            self.hold_unknown(tensor)
            entry = self._entries[id(tensor)]
        memory = self._memory[storage_of(tensor)]
        if entry.version != memory.version and not memory.owner:
            self._refresh(tensor, entry, memory, path)
        facts = self.recording.tensors[entry.key]
        cut = with_gradient and facts.origin == "result" and not facts.is_index and not tensor.requires_grad
        return Ref(entry.key, is_detached=cut)

    def hold_unknown(self, tensor: Any) -> None:
        """Register a tensor that came from outside the run, or bypassed it."""
        memory = self._memory.get(storage_of(tensor))
        if memory is None:
            self.hold(tensor, origin="constant", name="constant")
            return
        key = self._new(tensor, "result")
        self._entries[id(tensor)] = _Entry(key, memory.version)
        if memory.owner:
            self._mark_parameter(tensor, key, memory.owner)
        self._record_view(key, memory.key, "")

    def _refresh(self, tensor: Any, entry: _Entry, memory: _Memory, path: str) -> None:
        current = self.recording.tensors[memory.key]
        if current.shape == tuple(tensor.shape):
            entry.key = memory.key
        else:
            entry.key = self._new(tensor, "result")
            self._record_view(entry.key, memory.key, path)
        entry.version = memory.version

    def _record_view(self, key: int, of: int, path: str) -> None:
        self._record(VIEW, {"self": Ref(of)}, key, path)

    def _record(self, operator: str, arguments: Mapping[str, Ref], made: int, path: str) -> None:
        place = Place(path=path, in_place=False)
        self.recording.calls.append(Call(operator=operator, arguments=arguments, outputs=(Ref(made),), place=place))

    def made(self, tensor: Any) -> Ref:
        """Register a result of a call."""
        key = self._new(tensor, "result")
        storage = storage_of(tensor)
        memory = self._memory.get(storage)
        if memory is None:
            memory = self._memory[storage] = _Memory(key)
        elif memory.owner:
            self._mark_parameter(tensor, key, memory.owner)
        self._entries[id(tensor)] = _Entry(key, memory.version)
        return Ref(key)

    def _mark_parameter(self, tensor: Any, key: int, owner: str) -> None:
        """Record that a result is still the parameter, or a part with each element once and in order."""
        shape, strides = tuple(tensor.shape), tuple(tensor.stride())
        is_transposed = len(shape) == 2 and not _is_dense(shape, strides) and _is_dense(shape[::-1], strides[::-1])
        if is_transposed or _is_dense(shape, strides):
            facts = self.recording.tensors[key]
            facts.origin, facts.name, facts.is_transposed = "parameter", owner, is_transposed
            facts.part = (tensor.storage_offset(), tensor.numel())

    def written(self, tensor: Any) -> Ref:
        """Register the new content of a tensor after an in-place call."""
        key = self._new(tensor, "result")
        memory = self._memory[storage_of(tensor)]
        memory.version += 1
        self._entries[id(tensor)] = _Entry(key, memory.version)
        if memory.owner:
            return Ref(key)
        whole = self.recording.tensors[memory.key]
        if math.prod(whole.shape) == tensor.numel():
            memory.key = key
        return Ref(key)

    def spread(self, tensor: Any, key: int, *, path: str) -> None:
        """Record that a write to a part of a memory makes a new value of the whole memory."""
        memory = self._memory[storage_of(tensor)]
        whole = self.recording.tensors[memory.key]
        if memory.key == key or memory.owner or not tensor.numel():
            return
        facts = replace(whole, origin="result", name="", part=None, is_transposed=False)
        self.recording.tensors.append(facts)
        new = len(self.recording.tensors) - 1
        self._record(OVERWRITE, {"self": Ref(memory.key), "part": Ref(key)}, new, path)
        memory.key = new


class UnfollowedTensorError(Exception):
    """A tensor has no identifiable memory: sparse, nested, or of a function transform (vmap, jvp)."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


def storage_of(tensor: Any) -> int:
    """Return the key of a tensor's memory; UnfollowedTensorError if it has none [-]."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError) as error:
        _, _, rest = str(error).partition("storage of ")
        raise UnfollowedTensorError(rest.split()[0] if rest else type(tensor).__name__) from error


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Tell whether the elements lie one after the other in the order of the axes; axes of one element do not matter."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True
