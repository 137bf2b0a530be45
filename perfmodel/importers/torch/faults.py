"""What went wrong in a traced run, in words: where, why, and what helps."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from perfmodel.errors import TraceError
from perfmodel.importers.torch.tensors import UnfollowedTensorError

_NOT_THE_USERS = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parent.parent),
    sysconfig.get_path("stdlib"),
    "<",
)


def trace_error(
    error: Exception, *, path: str, module: torch.nn.Module, arguments: Sequence[tuple[str, Any]]
) -> TraceError:
    """Return what to tell about a failed run.

    Parameters
    ----------
    error : Exception
        What the module raised. [-]
    path : str
        Path of the submodule that was running. [-]
    module : torch.nn.Module
        The whole module. [-]
    arguments : sequence of tuple
        Names and values it was called with. [-]

    Returns
    -------
    TraceError
        The error for the user. [-]
    """
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
        problem = f"{where} calls {_operator(error)}, of which torch knows no shapes: register a fake kernel for it"
    else:
        problem = f"{where} fails: {_first_line(error)} (called with {_called_with(arguments)})"
    return TraceError(path, problem)


def _unsupported(error: Exception) -> str:
    """Return what of torch no import can follow, whatever the module does with it; empty where it is something else."""
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
