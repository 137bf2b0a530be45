"""Activation checkpoints of a traced module: its regions run once, as they are, and are told of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import checkpoint as torchs

from perfmodel.importers.torch.modes import Recorder


@contextmanager
def checkpoints_seen(recorder: Recorder) -> Iterator[None]:
    """Let ``torch.utils.checkpoint`` run what it is given, and tell the recorder where such a region is.

    Its two ways of running are replaced, not its function, which modules hold under names of their own.

    Parameters
    ----------
    recorder : Recorder
        What is told. [-]
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
    """Stands in for what runs checkpointed functions."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.count = 0

    @contextmanager
    def _region(self, *, reruns_all: bool) -> Iterator[None]:
        """Mark what is recorded within; a region within another runs again with that one."""
        recorder = self.recorder
        if recorder.region or not torch.is_grad_enabled():
            yield
            return
        self.count += 1
        recorder.region, recorder.reruns_all = f"checkpoint_{self.count}", reruns_all
        try:
            yield
        finally:
            recorder.region, recorder.reruns_all = "", False

    def not_reentrant(self, _: Any, __: Any, context_fn: Any, *___: Any, **____: Any) -> Iterator[None]:
        """Stand around a function that the caller runs."""
        if context_fn is not torchs.noop_context_fn:
            self.recorder.recording.keeps_some = True
        with self._region(reruns_all=False):
            yield

    def apply(self, function: Callable[..., Any], _: Any, *args: Any) -> Any:
        """Run a function; without gradients where none of its arguments has one, as torch does."""
        wants = any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)
        with torch.set_grad_enabled(wants and torch.is_grad_enabled()), self._region(reruns_all=True):
            return function(*args)
