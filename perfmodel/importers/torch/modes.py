"""The modes that record a torch module's operators while it runs on fake tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import FunctionType
from typing import Any, Final

import torch
from torch._decomp import decomposition_table
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from perfmodel.importers.recording import Call, Place, Recording, Ref
from perfmodel.importers.torch.tensors import TensorBook, storage_of
from perfmodel.importers.translation import VIEW

NO_OPERATION: Final = frozenset(
    {"prim.device", "aten.is_same_size", "aten.sym_size", "aten.sym_stride", "aten.sym_numel", "aten._assert_async"}
)
"""Operators that the dispatcher shows although they compute nothing."""
CONSTANTS: Final = frozenset({"aten.lift_fresh", "aten.lift_fresh_copy"})
"""Operators that bring a constant of the Python program into a run."""
UNCOUNTED: Final = frozenset({"aten.mv", "aten.addmv", "aten.dot", "aten.vdot"})
"""Operators with products for which torch's FlopCounterMode has no formula."""
FUSED_ATTENTION: Final = "aten.scaled_dot_product_attention"
"""Attention that is recorded as one kernel without stored scores, although it runs product by product here."""
RUNS_OTHERWISE: Final = frozenset({FUSED_ATTENTION, "aten.lstm", "aten.gru", "aten.rnn_tanh", "aten.rnn_relu"})
"""Operators recorded whole whose kernels differ from the parts that run here."""
BATCH_NORM: Final = torch.ops.aten.native_batch_norm.default
"""Operator that torch splits in Python on fake tensors, in a fifth to half of the time of an import."""
COPY: Final = "aten.clone"
"""Operator by which torch reorders the elements of a tensor."""
GUARDS: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
"""Functions that torch calls to decide whether a Python function goes to a mode."""

_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
Site = tuple[str, str, int]
"""Module path, operator, and the number of its earlier calls in the module."""


class Recorder:
    """Base of both modes: holds the recording and the current position in the module."""

    def __init__(
        self,
        recording: Recording,
        *,
        claimed: Collection[str],
        split: Collection[Site],
        substitutes: Mapping[int, Any],
    ) -> None:
        self.recording = recording
        self.book = TensorBook(recording)
        self.split = split
        self.substitutes = substitutes
        self.claimed = claimed
        self.composites = {name for name in claimed if is_composite(name)}
        self.place = Place()
        self.is_muted = False
        self.hopeless: set[str] = set()
        self.parts_since: int | None = None
        self.sequence = _sequence_number()
        self.occurrences: Counter[tuple[str, str]] = Counter()
        self.count_products: Callable[..., int] | None = None
        self.products = 0
        self.is_uncounted = False
        self.parts_run: list[str] = []
        self.parts_moved: set[tuple[int, int, int]] = set()

    def site(self, operator: str) -> Site:
        """Return the key of the next call of an operator at this place."""
        return (self.place.path, operator, self.occurrences[self.place.path, operator])

    @contextmanager
    def within_parts(self) -> Iterator[None]:
        """Mark the calls recorded in the block as parts of one operator."""
        before = self.parts_since
        self.parts_since = len(self.recording.tensors) if before is None else before
        try:
            yield
        finally:
            self.parts_since = before

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Record nothing in the block, while a call recorded whole is running."""
        before, self.is_muted = self.is_muted, True
        try:
            yield
        finally:
            self.is_muted = before

    def refs(self, value: Any) -> Any:
        """Return an argument as plain values and references to recorded tensors."""
        if isinstance(value, torch.Tensor):
            ref = self.book.read(value, path=self.place.path, with_gradient=torch.is_grad_enabled())
            # gradients belong to the whole operator, not to its parts
            return Ref(ref.key) if self.parts_since is not None and ref.key >= self.parts_since else ref
        if isinstance(value, list | tuple):
            return tuple(map(self.refs, value))
        if value is None or isinstance(value, bool | int | float | complex | str):
            return value
        return str(value)

    def exchanged(self, value: Any) -> Any:
        """Return the fake tensor that replaces one of the module's own, also within a list."""
        if isinstance(value, torch.Tensor):
            return self.substitutes.get(id(value), value)
        if type(value) in (list, tuple) and any(isinstance(entry, torch.Tensor) for entry in value):
            return type(value)(self.substitutes.get(id(entry), entry) for entry in value)
        return value

    def tried(self, decomposition: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a decomposition; NotImplemented, with nothing recorded, if it leads to operators without a layer."""
        recording, calls, tensors = self.recording, len(self.recording.calls), len(self.recording.tensors)
        sequence, occurrences, known = self.sequence, self.occurrences.copy(), self.book.snapshot()
        returned = decomposition(*args, **kwargs)
        if all(call.operator in self.claimed or call.operator == VIEW for call in recording.calls[calls:]):
            return returned
        del recording.calls[calls:], recording.tensors[tensors:]
        self.sequence, self.occurrences = sequence, occurrences
        self.book.restore(known)
        return NotImplemented

    def record(
        self, operator: str, schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], run: Callable[[], Any]
    ) -> Any:
        """Run a call and record it."""
        values = bound(schema, args, kwargs)
        arguments = {name: self.refs(value) for name, value in values.items()}
        self.products, self.is_uncounted = 0, False
        self.parts_run, self.parts_moved = [], set()
        returned = run()
        tensors = [value for value in flat(returned) if isinstance(value, torch.Tensor)]
        written = [values[name] for name in written_names(schema) if isinstance(values.get(name), torch.Tensor)]
        mutated = {id(tensor) for tensor in written} & {id(tensor) for tensor in tensors}
        passed = {id(value) for value in flat(tuple(values.values()))}
        if not mutated and all(id(tensor) in passed for tensor in tensors):
            return returned  # no result, or arguments returned unchanged (dropout at inference)
        first, self.sequence = self.sequence, _sequence_number()
        call = Call(
            operator=operator,
            overload=schema.overload_name,
            arguments=arguments,
            outputs=(),
            place=replace(self.place, in_place=bool(mutated)),
            occurrence=self.occurrences[self.place.path, operator],
            can_decompose=operator in self.composites or has_decomposition(operator, schema),
            sequence=(first, self.sequence),
            product_flop_count=self.products,
            has_uncounted_products=self.is_uncounted,
            parts=() if operator in RUNS_OTHERWISE else tuple(self.parts_run),
            moved=() if operator in RUNS_OTHERWISE else self._moved(operator, values, returned),
            is_gradient=torch.is_grad_enabled() and torch._C._current_autograd_node() is not None,
        )
        self.occurrences[self.place.path, operator] += 1
        self.recording.calls.append(call)
        call.outputs = tuple(
            self.book.written(tensor) if id(tensor) in mutated else self.book.made(tensor) for tensor in tensors
        )
        for tensor, ref in zip(tensors, call.outputs, strict=True):
            if id(tensor) in mutated:
                self.book.spread(tensor, ref.key, path=self.place.path)
        return returned

    def watch_part(self, operator: str, args: tuple[Any, ...], returned: Any) -> None:
        """Note one part of a call recorded whole: its ``operator``, and the argument that it reorders."""
        self.parts_run.append(operator)
        if operator == COPY and is_reordered(args[0], returned):
            self.parts_moved.add(_elements(args[0]))

    def _moved(self, operator: str, arguments: Mapping[str, Any], returned: Any) -> tuple[str, ...]:
        """Return the names of the arguments that a call reorders first."""
        if operator == COPY:
            return ("self",) if is_reordered(arguments["self"], returned) else ()
        tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        return tuple(
            name for name, tensor in tensors.items() if self.parts_moved and _elements(tensor) in self.parts_moved
        )


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators that reach torch's dispatcher below autograd."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        recorder = self.recorder
        args, kwargs = self._with_substitutes(args, kwargs or {})
        operator = operator_name(func)

        def run() -> Any:
            returned = batch_norm_without_content(*args) if func is BATCH_NORM and not kwargs else NotImplemented
            returned = func(*args, **kwargs) if returned is NotImplemented else returned
            if recorder.count_products is not None:
                recorder.products += recorder.count_products(func, args, kwargs, returned)
                recorder.is_uncounted |= operator in UNCOUNTED
            if recorder.is_muted:
                recorder.watch_part(operator, args, returned)
            return returned

        if recorder.is_muted or operator in NO_OPERATION:
            return run()
        if operator in CONSTANTS:
            returned = run()
            recorder.book.hold_unknown(returned)
            return returned
        if operator not in recorder.claimed or recorder.site(operator) in recorder.split:
            parts = self._parts(func, operator, args, kwargs)
            if parts is not NotImplemented:
                return parts
        return recorder.record(operator, func._schema, args, kwargs, run)

    def _with_substitutes(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], Any]:
        exchanged = [self.recorder.exchanged(value) for value in args]
        return tuple(exchanged), {name: self.recorder.exchanged(value) for name, value in kwargs.items()}

    def _parts(self, func: Any, operator: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a call as its parts, and record these; NotImplemented if it has none."""
        recorder = self.recorder
        if written_names(func._schema) or operator in recorder.hopeless:
            return NotImplemented
        site = recorder.site(operator)
        recorder.occurrences[site[:2]] += 1
        with self, recorder.within_parts():
            parts = func.decompose(*args, **kwargs)
            if parts is NotImplemented and func in decomposition_table:
                parts = recorder.tried(decomposition_table[func], args, kwargs)
        if parts is NotImplemented:
            recorder.hopeless.add(operator)
            recorder.occurrences[site[:2]] -= 1
        return parts


class FunctionMode(TorchFunctionMode):
    """Records whole operators that the dispatcher would only see in parts, and substitutes the module's own tensors."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self._unguarded: dict[Any, Any] = {}
        self._globals: dict[int, dict[str, Any]] = {}
        self._entered: set[Any] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        recorder = self.recorder
        args = tuple(recorder.exchanged(value) for value in args)
        kwargs = {name: recorder.exchanged(value) for name, value in (kwargs or {}).items()}
        if recorder.is_muted:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        operator = f"aten.{name}"
        if operator in recorder.composites and recorder.site(operator) not in recorder.split:
            schema = schema_of(name, args, kwargs)
            if schema is not None:

                def run() -> Any:
                    with recorder.muted():
                        returned = func(*args, **kwargs)
                        if operator != FUSED_ATTENTION:
                            return returned
                        return _laid_out_like(returned, queries=args[0] if args else kwargs["query"])

                return recorder.record(operator, schema, args, kwargs, run)
        if isinstance(func, FunctionType) and func not in self._entered:
            self._entered.add(func)
            try:
                with self:  # a function written in Python calls others, which must be recorded too
                    return self._without_guard(func)(*args, **kwargs)
            finally:
                self._entered.discard(func)
        return func(*args, **kwargs)

    def _without_guard(self, function: FunctionType) -> Callable[..., Any]:
        """Return a copy of torch's Python function that does not hand itself to a mode again."""
        if function not in self._unguarded:
            known = function.__globals__
            if id(known) not in self._globals:
                self._globals[id(known)] = known | {guard: _never for guard in GUARDS if guard in known}
            copy = FunctionType(
                function.__code__,
                self._globals[id(known)],
                function.__name__,
                function.__defaults__,
                function.__closure__,
            )
            copy.__kwdefaults__ = function.__kwdefaults__
            self._unguarded[function] = copy
        return self._unguarded[function]  # type: ignore[no-any-return]


def batch_norm_without_content(
    x: torch.Tensor, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *_: float
) -> tuple[torch.Tensor, ...] | Any:
    """Return the results of a batch norm without content; NotImplemented if types or layout differ from ``x``."""
    is_plain = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
    of_channels = [tensor for tensor in (weight, bias, mean, variance) if tensor is not None]
    if not is_plain or any(tensor.dtype != x.dtype for tensor in of_channels):
        return NotImplemented
    channel_count = x.shape[1] if training else 0  # kept by back-propagation for each channel
    return torch.empty_like(x), x.new_empty(channel_count), x.new_empty(channel_count)


def _never(*_: Any) -> bool:
    return False


def _laid_out_like(result: torch.Tensor, *, queries: torch.Tensor) -> torch.Tensor:
    """Return the result of an attention in the memory layout of its queries, as fused kernels write it.

    The code that runs here, product by product, keeps the heads separate, which would need another copy.
    """
    order = sorted(range(queries.dim()), key=queries.stride, reverse=True)
    return result.permute(order).contiguous().permute([order.index(axis) for axis in range(len(order))])


def _elements(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Key of a tensor's elements without its shape: memory, first position and number."""
    return (storage_of(tensor), int(tensor.storage_offset()), int(tensor.numel()))


def schema_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the schema of the overload that accepts some arguments."""
    try:
        overload = torch._C._jit_resolve_packet(f"aten::{name}", *args, **kwargs)
    except (RuntimeError, TypeError):
        return None
    schema = getattr(getattr(torch.ops.aten, name), overload)._schema
    return schema if is_made_of_others(schema.name, schema.overload_name) else None


def operator_name(func: Any) -> str:
    """Return the name of an operator ``func`` without overload and the underscore of in-place variants [-]."""
    namespace, _, name = func._schema.name.partition("::")
    return f"{namespace}.{name}" if name.endswith("__") else f"{namespace}.{name.removesuffix('_')}"


@cache
def is_composite(operator: str) -> bool:
    """Tell whether an operator, in any of its overloads, is split into others before the dispatcher shows it [-]."""
    namespace, _, name = operator.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return packet is not None and any(is_made_of_others(f"{namespace}::{name}", one) for one in packet.overloads())


@cache
def is_made_of_others(name: str, overload: str) -> bool:
    """Tell whether an ``overload`` of the operator ``name`` is split into others before the dispatcher shows it [-]."""
    full = f"{name}.{overload}" if overload not in ("", "default") else name
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"))
    except RuntimeError:  # an overload of TorchScript's numbers, unknown to the dispatcher
        return False


def has_decomposition(operator: str, schema: Any) -> bool:
    """Tell whether torch can decompose the overload of an ``operator`` with this ``schema`` [-]."""
    namespace, _, name = operator.partition(".")
    overload = getattr(getattr(getattr(torch.ops, namespace), name, None), schema.overload_name or "default", None)
    return overload in decomposition_table


def bound(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by their names."""
    arguments = {}
    for position, argument in enumerate(schema.arguments):
        if argument.name in kwargs:
            arguments[argument.name] = kwargs[argument.name]
        elif position < len(args) and not argument.kwarg_only:
            arguments[argument.name] = args[position]
        else:
            arguments[argument.name] = argument.default_value if argument.has_default_value() else None
    return arguments


def written_names(schema: Any) -> list[str]:
    """Return the names of the arguments that an operator of this ``schema`` writes to [-]."""
    return [taken.name for taken in schema.arguments if taken.alias_info is not None and taken.alias_info.is_write]


def flat(value: Any) -> Iterator[Any]:
    """Yield the items of a ``value`` of nested lists and tuples [-]."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from flat(part)
    else:
        yield value


def axis_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the axes of a tensor from the outermost in memory to the innermost."""
    axes = [axis for axis, extent in enumerate(tensor.shape) if extent > 1]
    if any(tensor.stride(axis) == 0 for axis in axes):
        return None
    return tuple(sorted(axes, key=tensor.stride, reverse=True))


def is_reordered(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Tell whether a copy ``after`` has the elements of ``before`` in another memory order [-]."""
    orders = axis_order(before), axis_order(after)
    return None not in orders and orders[0] != orders[1]
