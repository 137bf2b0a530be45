"""Arithmetic of matrix products as torch counts it: of every recorded call, forward and backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from perfmodel.importers.recording import Call
from perfmodel.importers.torch_program import loss_index
from perfmodel.importers.torch_run import Run


def counted(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], returned: Any) -> int:
    """Return what torch's FlopCounterMode counts for one operator [FLOP].

    Parameters
    ----------
    func : torch.OpOverload
        The operator. [-]
    args, kwargs : sequence, mapping
        What it was called with. [-]
    returned : object
        What it returned. [-]

    Returns
    -------
    int
        2 FLOP for each multiply-add of its products; 0 for operators of which torch has no formula. [FLOP]
    """
    formula = flop_registry.get(func._overloadpacket)
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=returned))


class _BackwardMode(TorchDispatchMode):
    """Counts products by the number of the autograd node that runs them."""

    def __init__(self) -> None:
        super().__init__()
        self.by_node: Counter[int] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        returned = func(*args, **(kwargs or {}))
        products = counted(func, args, kwargs or {}, returned)
        if products:
            node = torch._C._current_autograd_node()
            self.by_node[node._sequence_nr() if node is not None else -1] += products
        return returned


def backward_products(run: Run) -> tuple[dict[int, int], int]:
    """Run the backward phase on fake tensors and return its products by the call that caused them.

    Parameters
    ----------
    run : Run
        A run with gradients. [-]

    Returns
    -------
    tuple
        Products by index of the recorded call, and products of no call. [FLOP]
    """
    index = loss_index(run.recording)
    outputs = [tensor for _, tensor in (run.returned if index is None else run.returned[index : index + 1])]
    outputs = [tensor for tensor in outputs if tensor.requires_grad]
    mode = _BackwardMode()
    with run.fake_mode, mode:
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(tensor) for tensor in outputs])
    owners = _owners(run.recording.calls)
    by_call: Counter[int] = Counter()
    astray = 0
    for node, products in mode.by_node.items():
        if node in owners:
            by_call[owners[node]] += products
        else:
            astray += products
    return dict(by_call), astray


def _owners(calls: Sequence[Call]) -> dict[int, int]:
    """Return the index of the call that made each autograd node."""
    return {node: index for index, call in enumerate(calls) for node in range(*call.sequence)}
