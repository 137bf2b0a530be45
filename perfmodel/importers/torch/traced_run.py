"""One traced run of a torch module on fake tensors, which leaves its own tensors, mode and memory untouched."""

from __future__ import annotations

import inspect
import logging
import sys
import sysconfig
import traceback
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import transformer
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils import checkpoint as torchs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from perfmodel.errors import TraceError
from perfmodel.importers.recording import Call, Place, Recording
from perfmodel.importers.torch.modes import FunctionMode, OperatorMode, Recorder, Site
from perfmodel.importers.torch.module import trained_outputs
from perfmodel.importers.torch.tensors import UnfollowedTensorError, storage_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Arguments that a module is called with."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    batch_axis: int | None

    @property
    def tensors(self) -> list[Any]:
        """All tensors among the arguments."""
        return [tensor for _, tensor in _labelled((self.args, dict(self.kwargs)), "")]

    @property
    def batch_size(self) -> int:
        """Extent of the first tensor along the batch axis [samples]; 1 where there is none."""
        for tensor in self.tensors:
            if self.batch_axis is not None and tensor.dim() > self.batch_axis:
                return int(tensor.shape[self.batch_axis])
        return 1


@dataclass(slots=True)
class TracedRun:
    """A traced run: its operators, the labelled fake tensors that the module returned, and the mode of its tensors."""

    recording: Recording
    returned: list[tuple[str, Any]]
    fake_mode: FakeTensorMode


def named_arguments(module: torch.nn.Module, example: Example) -> list[tuple[str, Any]]:
    """Return the arguments by the names that the module's forward gives them."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [taken.name for taken in inspect.signature(module.forward).parameters.values() if taken.kind in kinds]
    names += [f"input_{index}" for index in range(len(names), len(example.args))]
    return [*zip(names, example.args, strict=False), *example.kwargs.items()]


def trace(
    module: torch.nn.Module,
    example: Example,
    *,
    batch_size: int,
    training: bool,
    claimed: Collection[str],
    split: Collection[Site] = (),
    count_products: Callable[..., int] | None = None,
    on_module: Callable[[], None] = lambda: None,
) -> TracedRun:
    """Run a module on fake tensors and record its operators."""
    recording = Recording(batch_size=batch_size)
    substitutes: dict[int, Any] = {}
    recorder = Recorder(recording, claimed=claimed, split=split, substitutes=substitutes)
    recorder.count_products = count_products
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with ExitStack() as stack:
        stack.enter_context(left_untouched(module))
        stack.enter_context(_surroundings(module, training=training))
        with fake:
            try:
                own_tensors = _fake_module_tensors(module, recorder, substitutes)
            except UnfollowedTensorError as error:
                raise trace_error(error, path="", module=module, arguments=()) from error
            arguments = [(name, _fake(value, example, batch_size)) for name, value in named_arguments(module, example)]
        for name, value in arguments:
            tensors = _labelled(value, name)
            for label, tensor in tensors:
                recorder.book.hold(tensor, origin="input", name=label)
        args = tuple(value for _, value in arguments[: len(example.args)])
        kwargs = dict(arguments[len(example.args) :])
        stack.enter_context(_places(module, recorder, on_module))
        stack.enter_context(checkpoints_seen(recorder))
        for mode in (fake, OperatorMode(recorder), FunctionMode(recorder)):
            stack.enter_context(mode)
        try:
            returned = torch.func.functional_call(module, own_tensors, args, kwargs)
        except Exception as error:
            raise trace_error(error, path=recorder.place.path, module=module, arguments=arguments) from error
    outputs = [(label, tensor) for label, tensor in _labelled(returned, "") if isinstance(tensor, torch.Tensor)]
    for label, tensor in outputs:
        ref = recorder.book.read(tensor, path="", with_gradient=False)
        recording.outputs.append((label, ref))
    recording.differentiable = {index for index, (_, tensor) in enumerate(outputs) if tensor.requires_grad}
    return TracedRun(recording, outputs, fake)


@contextmanager
def _surroundings(module: torch.nn.Module, *, training: bool) -> Iterator[None]:
    """Set the training mode, and for a while everything else that decides which operators run."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was_silent, log.disabled = log.disabled, True  # our own error reports a failing module
    detects = transformer._detect_is_causal_mask
    was_fast, was_fused = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    was_for_many = torch._C._get_nnpack_enabled()
    try:
        if module.training != training:
            module.train(training)
        torch.backends.mha.set_fastpath_enabled(False)
        torch._C._set_mkldnn_enabled(False)
        torch._C._set_nnpack_enabled(False)  # this kernel takes only 16 samples or more, in its own layout
        transformer._detect_is_causal_mask = _is_causal_if_said
        with torch.set_grad_enabled(training), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        log.disabled = was_silent
        torch.backends.mha.set_fastpath_enabled(was_fast)
        torch._C._set_mkldnn_enabled(was_fused)
        torch._C._set_nnpack_enabled(was_for_many)
        transformer._detect_is_causal_mask = detects


def _is_causal_if_said(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Replace torch's detection of causal masks, which reads their content; fake ones have none."""
    return bool(is_causal)


def _fake_module_tensors(module: torch.nn.Module, recorder: Recorder, substitutes: dict[int, Any]) -> dict[str, Any]:
    """Return a fake tensor for every parameter and buffer by name; one tensor under two names stays one."""
    made: dict[Any, Any] = {}
    fakes: dict[str, Any] = {}
    tensors = [
        *((name, tensor, True) for name, tensor in module.named_parameters(remove_duplicate=False)),
        *((name, tensor, False) for name, tensor in module.named_buffers(remove_duplicate=False)),
    ]
    for name, tensor, is_parameter in tensors:
        identity = (storage_of(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        if identity not in made:
            fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            if is_parameter:
                fake = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
            recorder.book.hold(fake, origin="parameter" if is_parameter else "constant", name=name)
            made[identity] = fake
        fakes[name] = substitutes[id(tensor)] = made[identity]
    return fakes


def _fake(value: Any, example: Example, batch_size: int) -> Any:
    """Replace the tensors in a value by fake ones of ``batch_size`` samples."""
    if isinstance(value, torch.Tensor):
        shape, axis = list(value.shape), example.batch_axis
        if axis is not None and len(shape) > axis and shape[axis] == example.batch_size:
            shape[axis] = batch_size
        return torch.empty(shape, dtype=value.dtype, device="cpu")
    if isinstance(value, Mapping):
        return {key: _fake(entry, example, batch_size) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        entries = [_fake(one, example, batch_size) for one in value]
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    return value


def _labelled(value: Any, label: str) -> list[tuple[str, Any]]:
    """Return the tensors within a value, each with its keys."""
    if isinstance(value, torch.Tensor):
        return [(label, value)]
    if isinstance(value, Mapping):
        entries = list(value.items())
    elif isinstance(value, list | tuple):
        entries = list(enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        entries = [(field.name, getattr(value, field.name)) for field in fields(value)]
    else:
        return []
    many = len(entries) > 1 or isinstance(value, Mapping)
    return [
        pair
        for key, entry in entries
        for pair in _labelled(entry, f"{label}_{key}" if label and many else str(key) if many else label)
    ]


@contextmanager
def _places(module: torch.nn.Module, recorder: Recorder, on_module: Callable[[], None]) -> Iterator[None]:
    """Tell the recorder which submodule is running; after a failure it still names the failed one."""
    paths = {id(part): path for path, part in reversed(list(module.named_modules(remove_duplicate=False)))}
    stack: list[Place] = []
    visits = 0

    def enter(submodule: torch.nn.Module, _: Any) -> None:
        nonlocal visits
        visits += 1
        stack.append(recorder.place)
        path = paths.get(id(submodule), recorder.place.path)
        recorder.place = replace(recorder.place, path=path, visit=visits)
        on_module()

    def leave(_: torch.nn.Module, __: Any, ___: Any) -> None:
        recorder.place = stack.pop()

    handles = (register_module_forward_pre_hook(enter), register_module_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def checkpoints_seen(recorder: Recorder) -> Iterator[None]:
    """Make ``torch.utils.checkpoint`` run its function, and tell the recorder where each region is.

    Its two runners are replaced, because modules may have imported the function itself under another name.
    """
    regions = _Regions(recorder)
    saving, function = torchs._checkpoint_without_reentrant_generator, torchs.CheckpointFunction
    torchs._checkpoint_without_reentrant_generator = regions.not_reentrant  # type: ignore[assignment]
    torchs.CheckpointFunction = regions  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        torchs._checkpoint_without_reentrant_generator = saving
        torchs.CheckpointFunction = function  # type: ignore[misc]


class _Regions:
    """Replacement for torch's runners of checkpointed functions."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.count = 0

    @contextmanager
    def _region(self, *, reruns_all: bool) -> Iterator[None]:
        """Mark the calls in the block as a region; a nested region runs again with the outer one."""
        recorder = self.recorder
        if recorder.place.region or not torch.is_grad_enabled():
            yield
            return
        self.count += 1
        recorder.place = replace(recorder.place, region=f"checkpoint_{self.count}", reruns_all=reruns_all)
        try:
            yield
        finally:
            recorder.place = replace(recorder.place, region="", reruns_all=False)

    def not_reentrant(self, _: Any, __: Any, context_fn: Any, *___: Any, **____: Any) -> Iterator[None]:
        """Enter the region around a function that the caller runs."""
        if context_fn is not torchs.noop_context_fn:
            self.recorder.recording.keeps_some = True
        with self._region(reruns_all=False):
            yield

    def apply(self, function: Callable[..., Any], _: Any, *args: Any) -> Any:
        """Run a function; without gradients if no argument has one, as torch does."""
        wants = any(isinstance(value, torch.Tensor) and value.requires_grad for value in args)
        with torch.set_grad_enabled(wants and torch.is_grad_enabled()), self._region(reruns_all=True):
            return function(*args)


_NOT_THE_USERS = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parent.parent),
    sysconfig.get_path("stdlib"),
    "<",
)


def trace_error(
    error: Exception, *, path: str, module: torch.nn.Module, arguments: Sequence[tuple[str, Any]]
) -> TraceError:
    """Return the error of a failed run."""
    kind = type(module.get_submodule(path)).__name__
    where = f"module {path!r} ({kind})" if path else f"the module ({kind})"
    line = _line_of_user(error)
    if line:
        where += f" at {line}"
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        problem = (
            f"{where} asks for the content of a tensor ({_operator(error)}: .item(), bool(tensor), a mask as index or "
            "the like), which has none while it is traced; take the decision from shapes or from an argument that is "
            "no tensor, or import the parts on either side of it"
        )
    elif _unsupported(error):
        problem = (
            f"{where} computes with {_unsupported(error)}, which cannot be followed: sparse and nested tensors and "
            "function transforms (vmap, jvp, flex_attention) are not supported; import the parts around them"
        )
    elif isinstance(error, UnsupportedOperatorException):
        problem = f"{where} calls {_operator(error)}, whose shapes torch cannot infer: register a fake kernel for it"
    else:
        problem = f"{where} fails: {_first_line(error)} (called with {_called_with(arguments)})"
    return TraceError(path, problem)


def _unsupported(error: Exception) -> str:
    """Name the torch feature that no import supports; empty if the failure has another cause."""
    if isinstance(error, UnfollowedTensorError):
        return f"a {error.kind}"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, NotImplementedError) and Path(frames[-1].filename).stem == "flex_attention":
        return "flex_attention"
    operator = _operator(error) if isinstance(error, UnsupportedOperatorException) else ""
    return next((f"a {kind} tensor ({operator})" for kind in ("nested", "sparse") if kind in operator), "")


def _operator(error: Any) -> str:
    return str(getattr(error, "func", error))


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


def _line_of_user(error: Exception) -> str:
    """Return file and line of the innermost code that is neither torch's nor ours."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_NOT_THE_USERS):
            return f"{frame.filename}:{frame.lineno}"
    return ""


def _called_with(arguments: Sequence[tuple[str, Any]]) -> str:
    texts = [
        f"{name}: {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"{name}: {type(value).__name__}"
        for name, value in arguments
    ]
    return ", ".join(texts) or "nothing"


def counted(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], returned: Any) -> int:
    """Return torch's FlopCounterMode count for one operator [FLOP]."""
    formula = flop_registry.get(func._overloadpacket)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=returned))


def excess(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], returned: Any) -> int:
    """Return the FLOP that torch's formula counts too much for one operator [FLOP]."""
    if func._overloadpacket is not torch.ops.aten.convolution_backward:
        return 0
    *others, groups, wanted = args
    filters_only = counted(func, (*others, groups, [False, wanted[1], False]), kwargs, returned)
    return filters_only - filters_only // int(groups)


@dataclass(frozen=True, slots=True)
class BackwardProducts:
    """Products of the backward phase by torch's count."""

    by_call: dict[int, int]
    excess: dict[int, int]
    astray: int


class _BackwardMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts products by the number of the autograd node that runs them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.by_node: Counter[int] = Counter()
        self.excess: Counter[int] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        returned = func(*args, **(kwargs or {}))
        products = counted(func, args, kwargs or {}, returned)
        if products:
            node = torch._C._current_autograd_node()
            number = node._sequence_nr() if node is not None else -1
            self.by_node[number] += products
            self.excess[number] += excess(func, args, kwargs or {}, returned)
        return returned


def backward_products(run: TracedRun) -> BackwardProducts:
    """Run the backward phase on fake tensors and return its products by the call that caused them."""
    outputs = [run.returned[index][1] for index in trained_outputs(run.recording)]
    outputs = [tensor for tensor in outputs if tensor.requires_grad]
    mode = _BackwardMode()
    with run.fake_mode, mode:
        try:
            if outputs:
                torch.autograd.backward(outputs, [torch.ones_like(tensor) for tensor in outputs])
        except RuntimeError as error:
            problem = f"the module's backward phase fails: {str(error).splitlines()[0]}"
            raise TraceError("", problem) from error
    owners = _owners(run.recording.calls)
    by_call: Counter[int] = Counter()
    too_much: Counter[int] = Counter()
    astray = 0
    for node, products in mode.by_node.items():
        if node in owners:
            by_call[owners[node]] += products
            too_much[owners[node]] += mode.excess[node]
        else:
            astray += products
    return BackwardProducts(by_call, too_much, astray)


def _owners(calls: Sequence[Call]) -> dict[int, int]:
    """Return the index of the call that made each autograd node."""
    return {node: index for index, call in enumerate(calls) for node in range(*call.sequence)}


_NOT_THE_MODULES: Final = {*sys.stdlib_module_names, "torch"}
"""Packages whose objects are left alone where a module holds one: loggers, locks, processes."""


@contextmanager
def left_untouched(module: torch.nn.Module) -> Iterator[None]:
    """Restore every attribute of a module, of its submodules, and of the containers and objects that they hold."""
    restorers = [_restorer(container) for container in _held(module)]
    try:
        yield
    finally:
        for restore in restorers:
            restore()


def _held(module: torch.nn.Module) -> list[Any]:
    """Return all that can change within a module: dictionaries of attributes, and other containers."""
    containers: dict[int, Any] = {}
    waiting: list[Any] = [module]
    while waiting:
        value = waiting.pop()
        if _is_object(value):
            value = vars(value)
        if isinstance(value, dict | list | set | deque):
            if id(value) in containers:
                continue
            containers[id(value)] = value
        elif not isinstance(value, tuple):
            continue
        waiting.extend(value.values() if isinstance(value, dict) else value)
    return list(containers.values())


def _is_object(value: Any) -> bool:
    if isinstance(value, torch.nn.Module):
        return True
    known = isinstance(value, type | torch.Tensor | dict | list | set | tuple | deque) or not hasattr(value, "__dict__")
    return not known and type(value).__module__.partition(".")[0] not in _NOT_THE_MODULES


def _restorer(held: Any) -> Callable[[], None]:
    """Return a function that puts the present content back into a container."""
    content = list(held.items() if isinstance(held, dict) else held)

    def restore() -> None:
        now = list(held.items() if isinstance(held, dict) else held)
        if len(now) == len(content) and all(map(_is_same, now, content)):
            return
        held.clear()
        held.update(content) if isinstance(held, dict | set) else held.extend(content)

    return restore


def _is_same(now: Any, before: Any) -> bool:
    if isinstance(now, tuple) and isinstance(before, tuple) and len(now) == len(before):
        return all(one is other for one, other in zip(now, before, strict=True))
    return now is before
