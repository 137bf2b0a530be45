"""The modes that record a torch module's operators while it runs on fake tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any, Final

import torch
from torch._decomp import decomposition_table
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from perfmodel.importers.program import VIEW
from perfmodel.importers.recording import Call, Recording, Ref
from perfmodel.importers.torch.tensors import TensorBook

NO_OPERATION: Final = frozenset(
    {"prim.device", "aten.is_same_size", "aten.sym_size", "aten.sym_stride", "aten.sym_numel", "aten._assert_async"}
)
"""What the dispatcher passes on although nothing is computed."""
CONSTANTS: Final = frozenset({"aten.lift_fresh", "aten.lift_fresh_copy"})
"""How a tensor of the Python program enters a run."""
UNCOUNTED: Final = frozenset({"aten.mv", "aten.addmv", "aten.dot", "aten.vdot"})
"""Operators with products of which torch's FlopCounterMode has no formula."""
FUSED_ATTENTION: Final = "aten.scaled_dot_product_attention"
"""Taken whole it stands for a kernel that keeps no scores, while here it runs product by product."""
GUARDS: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
"""What torch's Python functions ask before they hand themselves to a mode."""

_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
Site = tuple[str, str, int]
"""Module path, operator, and how many calls of it the module made before."""


class Recorder:
    """What both modes share: the recording, where the run is, and what is taken whole.

    Parameters
    ----------
    recording : Recording
        Where calls are written. [-]
    claimed : collection of str
        Operators that some layer knows. [-]
    split : collection of tuple
        Calls, by module path, operator and count, that are recorded as their parts although a layer knows them. [-]
    substitutes : mapping of int to Tensor
        Fake tensors by the ids of the module's own. [-]
    """

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
        self.composites = {name for name in claimed if _is_composite(name)}
        self.path = ""
        self.visit = 0
        self.is_muted = False
        self.region = ""
        self.reruns_all = False
        self.hopeless: set[str] = set()
        self.parts_since: int | None = None
        self.sequence = _sequence_number()
        self.occurrences: Counter[tuple[str, str]] = Counter()
        self.count_products: Callable[..., int] | None = None
        self.products = 0
        self.is_uncounted = False

    def site(self, operator: str) -> Site:
        """Return what identifies the next call of an operator at this place."""
        return (self.path, operator, self.occurrences[self.path, operator])

    @contextmanager
    def within_parts(self) -> Iterator[None]:
        """Note that what is recorded within are the parts of one operator."""
        before = self.parts_since
        self.parts_since = len(self.recording.tensors) if before is None else before
        try:
            yield
        finally:
            self.parts_since = before

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Record nothing within: a call taken whole is running."""
        before, self.is_muted = self.is_muted, True
        try:
            yield
        finally:
            self.is_muted = before

    def refs(self, value: Any) -> Any:
        """Return an argument as plain values and tensors of the recording."""
        if isinstance(value, torch.Tensor):
            ref = self.book.read(value, path=self.path, with_gradient=torch.is_grad_enabled())
            # within the parts of an operator nothing carries gradients, which are the whole operator's
            return Ref(ref.key) if self.parts_since is not None and ref.key >= self.parts_since else ref
        if isinstance(value, list | tuple):
            return tuple(map(self.refs, value))
        if value is None or isinstance(value, bool | int | float | complex | str):
            return value
        return str(value)

    def exchanged(self, value: Any) -> Any:
        """Return the fake tensor in the place of one of the module's own, also within a list."""
        if isinstance(value, torch.Tensor):
            return self.substitutes.get(id(value), value)
        if type(value) in (list, tuple) and any(isinstance(each, torch.Tensor) for each in value):
            return type(value)(self.substitutes.get(id(each), each) for each in value)
        return value

    def tried(self, decomposition: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a decomposition; NotImplemented, and nothing recorded, where it leads to operators no layer knows."""
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
        """Run a call and write it down.

        Parameters
        ----------
        operator : str
            Its name. [-]
        schema : torch.FunctionSchema
            Names, defaults and aliases of its arguments. [-]
        args, kwargs : tuple, mapping
            What it is called with. [-]
        run : callable
            Runs it. [-]

        Returns
        -------
        object
            What it returns. [-]
        """
        given = _bound(schema, args, kwargs)
        arguments = {name: self.refs(value) for name, value in given.items()}
        self.products, self.is_uncounted = 0, False
        returned = run()
        tensors = [each for each in _flat(returned) if isinstance(each, torch.Tensor)]
        written = [given[name] for name in _written_names(schema) if isinstance(given.get(name), torch.Tensor)]
        mutated = {id(each) for each in written} & {id(each) for each in tensors}
        passed = {id(each) for each in _flat(tuple(given.values()))}
        if not mutated and all(id(tensor) in passed for tensor in tensors):
            return returned  # nothing is made, or arguments are handed on as they are (dropout at inference)
        first, self.sequence = self.sequence, _sequence_number()
        call = Call(
            operator=operator,
            overload=schema.overload_name,
            arguments=arguments,
            outputs=(),
            path=self.path,
            visit=self.visit,
            occurrence=self.occurrences[self.path, operator],
            can_decompose=operator in self.composites or _has_decomposition(operator, schema),
            in_place=bool(mutated),
            sequence=(first, self.sequence),
            product_flop_count=self.products,
            has_uncounted_products=self.is_uncounted,
            region=self.region,
            reruns_all=self.reruns_all,
            is_gradient=torch.is_grad_enabled() and torch._C._current_autograd_node() is not None,
        )
        self.occurrences[self.path, operator] += 1
        self.recording.calls.append(call)
        call.outputs = tuple(
            self.book.written(tensor) if id(tensor) in mutated else self.book.made(tensor) for tensor in tensors
        )
        for tensor, ref in zip(tensors, call.outputs, strict=True):
            if id(tensor) in mutated:
                self.book.spread(tensor, ref.key, path=self.path)
        return returned


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records what reaches torch's dispatcher below autograd.

    Parameters
    ----------
    recorder : Recorder
        Where it is recorded. [-]
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        recorder = self.recorder
        args, kwargs = self._with_substitutes(args, kwargs or {})
        operator = _operator_name(func)

        def run() -> Any:
            returned = func(*args, **kwargs)
            if recorder.count_products is not None:
                recorder.products += recorder.count_products(func, args, kwargs, returned)
                recorder.is_uncounted |= operator in UNCOUNTED
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
        exchanged = [self.recorder.exchanged(each) for each in args]
        return tuple(exchanged), {name: self.recorder.exchanged(each) for name, each in kwargs.items()}

    def _parts(self, func: Any, operator: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a call as the operators it is made of, recording these; NotImplemented where it has no such parts."""
        recorder = self.recorder
        if _written_names(func._schema) or operator in recorder.hopeless:
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
    """Takes whole those operators that the dispatcher only sees in parts, and keeps the module's own tensors out.

    Parameters
    ----------
    recorder : Recorder
        Where they are recorded. [-]
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self._unguarded: dict[Any, Any] = {}
        self._globals: dict[int, dict[str, Any]] = {}
        self._entered: set[Any] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        recorder = self.recorder
        args = tuple(recorder.exchanged(each) for each in args)
        kwargs = {name: recorder.exchanged(each) for name, each in (kwargs or {}).items()}
        if recorder.is_muted:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        operator = f"aten.{name}"
        if operator in recorder.composites and recorder.site(operator) not in recorder.split:
            schema = _schema_of(name, args, kwargs)
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
                with self:  # a function written in Python calls others, which shall be seen too
                    return self._without_guard(func)(*args, **kwargs)
            finally:
                self._entered.discard(func)
        return func(*args, **kwargs)

    def _without_guard(self, function: FunctionType) -> Callable[..., Any]:
        """Return a copy of a Python function of torch that does not hand itself to a mode again."""
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


def _never(*_: Any) -> bool:
    return False


def _laid_out_like(result: torch.Tensor, *, queries: torch.Tensor) -> torch.Tensor:
    """Return the result of an attention in the layout of its queries, as kernels that keep no scores write it.

    What runs here instead, product by product, leaves the heads apart, and a copy would follow that is not needed.
    """
    order = sorted(range(queries.dim()), key=queries.stride, reverse=True)
    return result.permute(order).contiguous().permute([order.index(axis) for axis in range(len(order))])


def _schema_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the schema of the overload that takes these arguments, if it is made of other operators; else None."""
    try:
        overload = torch._C._jit_resolve_packet(f"aten::{name}", *args, **kwargs)
    except (RuntimeError, TypeError):
        return None
    schema = getattr(getattr(torch.ops.aten, name), overload)._schema
    return schema if _is_made_of_others(schema.name, schema.overload_name) else None


def _operator_name(func: Any) -> str:
    """Return the name of an operator without overload and without the underscore of variants in place."""
    namespace, _, name = func._schema.name.partition("::")
    return f"{namespace}.{name}" if name.endswith("__") else f"{namespace}.{name.removesuffix('_')}"


@cache
def _is_composite(operator: str) -> bool:
    """Tell whether an operator, in one of its overloads, is made of others before the dispatcher shows it."""
    namespace, _, name = operator.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return packet is not None and any(_is_made_of_others(f"{namespace}::{name}", each) for each in packet.overloads())


@cache
def _is_made_of_others(name: str, overload: str) -> bool:
    full = f"{name}.{overload}" if overload not in ("", "default") else name
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"))
    except RuntimeError:  # an overload of TorchScript's numbers, unknown to the dispatcher
        return False


def _has_decomposition(operator: str, schema: Any) -> bool:
    namespace, _, name = operator.partition(".")
    overload = getattr(getattr(getattr(torch.ops, namespace), name, None), schema.overload_name or "default", None)
    return overload in decomposition_table


def _bound(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by their names in a schema, those left out with their defaults."""
    given = {}
    for position, argument in enumerate(schema.arguments):
        if argument.name in kwargs:
            given[argument.name] = kwargs[argument.name]
        elif position < len(args) and not argument.kwarg_only:
            given[argument.name] = args[position]
        else:
            given[argument.name] = argument.default_value if argument.has_default_value() else None
    return given


def _written_names(schema: Any) -> list[str]:
    return [each.name for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _flat(each)
    else:
        yield value
