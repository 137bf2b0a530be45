"""One traced run of a torch module: on fake tensors, with its own tensors, mode and memory left alone."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import transformer
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from perfmodel.importers.recording import Recording
from perfmodel.importers.torch.checkpoints import checkpoints_seen
from perfmodel.importers.torch.faults import trace_error
from perfmodel.importers.torch.modes import FunctionMode, OperatorMode, Recorder, Site
from perfmodel.importers.torch.tensors import UnfollowedTensorError, storage_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What a module is called with.

    Parameters
    ----------
    args : tuple
        Positional arguments. [-]
    kwargs : mapping of str to object
        Named arguments. [-]
    batch_axis : int or None
        Axis of the tensors that holds the samples; None where none does. [-]
    """

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
class Run:
    """A traced run.

    Parameters
    ----------
    recording : Recording
        Its operators. [-]
    returned : list of tuple
        What the module returned: label and fake tensor. [-]
    fake_mode : FakeTensorMode
        The mode its tensors belong to. [-]
    """

    recording: Recording
    returned: list[tuple[str, Any]]
    fake_mode: FakeTensorMode


def named_arguments(module: torch.nn.Module, example: Example) -> list[tuple[str, Any]]:
    """Return the arguments by the names that the module's forward gives them.

    Parameters
    ----------
    module : torch.nn.Module
        The module. [-]
    example : Example
        What it is called with. [-]

    Returns
    -------
    list of tuple
        Name and value, positional arguments first. [-]
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in inspect.signature(module.forward).parameters.values() if each.kind in kinds]
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
) -> Run:
    """Run a module on fake tensors and record its operators.

    Parameters
    ----------
    module : torch.nn.Module
        The module; its tensors, training mode and hooks are as before afterwards. [-]
    example : Example
        What it is called with. [-]
    batch_size : int
        Samples to run it with. [samples]
    training : bool
        Whether it trains: its mode, and whether gradients are recorded. [-]
    claimed : collection of str
        Operators that some layer knows. [-]
    split : collection of tuple
        Calls to record as their parts although a layer knows the operator. [-]
    count_products : callable or None
        Counts the matrix products of an operator's call [FLOP]. [-]
    on_module : callable
        Called whenever a submodule begins. [-]

    Returns
    -------
    Run
        The operators, and what the module returned. [-]

    Raises
    ------
    TraceError
        If the module's forward fails, or what it does depends on the content of tensors.
    """
    recording = Recording(batch_size=batch_size)
    substitutes: dict[int, Any] = {}
    recorder = Recorder(recording, claimed=claimed, split=split, substitutes=substitutes)
    recorder.count_products = count_products
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with ExitStack() as stack:
        stack.enter_context(_surroundings(module, training=training))
        with fake:
            try:
                own = _fake_module_tensors(module, recorder, substitutes)
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
            returned = torch.func.functional_call(module, own, args, kwargs)
        except Exception as error:
            raise trace_error(error, path=recorder.path, module=module, arguments=arguments) from error
    outputs = [(label, tensor) for label, tensor in _labelled(returned, "") if isinstance(tensor, torch.Tensor)]
    for label, tensor in outputs:
        ref = recorder.book.read(tensor, path="", with_gradient=False)
        recording.outputs.append((label, ref))
    recording.differentiable = {index for index, (_, tensor) in enumerate(outputs) if tensor.requires_grad}
    return Run(recording, outputs, fake)


@contextmanager
def _surroundings(module: torch.nn.Module, *, training: bool) -> Iterator[None]:
    """Set the training mode and what else decides which operators run, and set all of it back."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was_silent, log.disabled = log.disabled, True  # a failing module is told of by our own error
    modes = [(each, each.training) for each in module.modules()]
    detects = transformer._detect_is_causal_mask
    was_fast, was_fused = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    try:
        if module.training != training:
            module.train(training)
        torch.backends.mha.set_fastpath_enabled(False)
        torch._C._set_mkldnn_enabled(False)
        transformer._detect_is_causal_mask = _is_causal_if_said
        with torch.set_grad_enabled(training), sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        log.disabled = was_silent
        torch.backends.mha.set_fastpath_enabled(was_fast)
        torch._C._set_mkldnn_enabled(was_fused)
        transformer._detect_is_causal_mask = detects
        for each, was_training in modes:
            each.training = was_training


def _is_causal_if_said(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Stand in for what torch's transformers find out by reading a mask, which has no content here."""
    return bool(is_causal)


def _fake_module_tensors(module: torch.nn.Module, recorder: Recorder, substitutes: dict[int, Any]) -> dict[str, Any]:
    """Return a fake tensor for every parameter and buffer by name; one tensor under two names stays one."""
    made: dict[Any, Any] = {}
    own: dict[str, Any] = {}
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
        own[name] = substitutes[id(tensor)] = made[identity]
    return own


def _fake(value: Any, example: Example, batch_size: int) -> Any:
    """Return a value with fake tensors of ``batch_size`` samples in the place of its tensors."""
    if isinstance(value, torch.Tensor):
        shape, axis = list(value.shape), example.batch_axis
        if axis is not None and len(shape) > axis and shape[axis] == example.batch_size:
            shape[axis] = batch_size
        return torch.empty(shape, dtype=value.dtype, device="cpu")
    if isinstance(value, Mapping):
        return {key: _fake(each, example, batch_size) for key, each in value.items()}
    if isinstance(value, list | tuple):
        each = [_fake(one, example, batch_size) for one in value]
        return type(value)(*each) if hasattr(value, "_fields") else type(value)(each)
    return value


def _labelled(value: Any, label: str) -> list[tuple[str, Any]]:
    """Return the tensors within a value, each with the keys that lead to it."""
    if isinstance(value, torch.Tensor):
        return [(label, value)]
    if isinstance(value, Mapping):
        entries = list(value.items())
    elif isinstance(value, list | tuple):
        entries = list(enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        entries = [(each.name, getattr(value, each.name)) for each in fields(value)]
    else:
        return []
    many = len(entries) > 1 or isinstance(value, Mapping)
    return [
        pair
        for key, each in entries
        for pair in _labelled(each, f"{label}_{key}" if label and many else str(key) if many else label)
    ]


@contextmanager
def _places(module: torch.nn.Module, recorder: Recorder, on_module: Callable[[], None]) -> Iterator[None]:
    """Tell the recorder which submodule is running; after a failure it keeps the one that failed."""
    paths = {id(each): path for path, each in reversed(list(module.named_modules(remove_duplicate=False)))}
    stack: list[tuple[str, int]] = []
    visits = 0

    def enter(submodule: torch.nn.Module, _: Any) -> None:
        nonlocal visits
        visits += 1
        stack.append((recorder.path, recorder.visit))
        recorder.path, recorder.visit = paths.get(id(submodule), recorder.path), visits
        on_module()

    def leave(_: torch.nn.Module, __: Any, ___: Any) -> None:
        recorder.path, recorder.visit = stack.pop()

    handles = (register_module_forward_pre_hook(enter), register_module_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
