"""Modules left as they were by a run that changes them: caches, buffers, training mode, hooks."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

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
