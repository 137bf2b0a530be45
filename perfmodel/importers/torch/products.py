"""Arithmetic of matrix products as torch counts it: of every recorded call, forward and backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from perfmodel.errors import TraceError
from perfmodel.importers.recording import Call
from perfmodel.importers.torch.program import trained_outputs
from perfmodel.importers.torch.run import Run


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


def excess(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], returned: Any) -> int:
    """Return what torch's formula counts too much for one operator [FLOP].

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
        For the filters' gradient of a convolution in g groups it takes every channel with every filter, g times the
        products there are; 0 for all else. [FLOP]
    """
    if func._overloadpacket is not torch.ops.aten.convolution_backward:
        return 0
    *others, groups, wanted = args
    filters_only = counted(func, (*others, groups, [False, wanted[1], False]), kwargs, returned)
    return filters_only - filters_only // int(groups)


@dataclass(frozen=True, slots=True)
class BackwardProducts:
    """Products of the backward phase as torch counts them.

    Parameters
    ----------
    by_call : dict of int to int
        By index of the recorded call that caused them. [FLOP]
    excess : dict of int to int
        What of that is counted too much. [FLOP]
    astray : int
        Products of no recorded call. [FLOP]
    """

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


def backward_products(run: Run) -> BackwardProducts:
    """Run the backward phase on fake tensors and return its products by the call that caused them.

    Parameters
    ----------
    run : Run
        A run with gradients. [-]

    Returns
    -------
    BackwardProducts
        Products by recorded call. [FLOP]

    Raises
    ------
    TraceError
        If an operator of the module has no gradient.
    """
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
