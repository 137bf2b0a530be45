"""What torch says of its operators: their names, their arguments, and what they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table


def schema_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the schema of the overload that takes some arguments.

    Parameters
    ----------
    name : str
        Operator, without namespace. [-]
    args, kwargs : tuple, mapping
        What it is called with. [-]

    Returns
    -------
    torch.FunctionSchema or None
        None unless it is made of other operators. [-]
    """
    try:
        overload = torch._C._jit_resolve_packet(f"aten::{name}", *args, **kwargs)
    except (RuntimeError, TypeError):
        return None
    schema = getattr(getattr(torch.ops.aten, name), overload)._schema
    return schema if is_made_of_others(schema.name, schema.overload_name) else None


def operator_name(func: Any) -> str:
    """Return the name of an operator ``func`` without overload and the underscore of variants in place [-]."""
    namespace, _, name = func._schema.name.partition("::")
    return f"{namespace}.{name}" if name.endswith("__") else f"{namespace}.{name.removesuffix('_')}"


@cache
def is_composite(operator: str) -> bool:
    """Tell whether an operator, in one of its overloads, is made of others before the dispatcher shows it [-]."""
    namespace, _, name = operator.partition(".")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return packet is not None and any(is_made_of_others(f"{namespace}::{name}", each) for each in packet.overloads())


@cache
def is_made_of_others(name: str, overload: str) -> bool:
    """Tell whether an ``overload`` of the operator ``name`` is made of others before the dispatcher shows it [-]."""
    full = f"{name}.{overload}" if overload not in ("", "default") else name
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(full, "CompositeImplicitAutograd"))
    except RuntimeError:  # an overload of TorchScript's numbers, unknown to the dispatcher
        return False


def has_decomposition(operator: str, schema: Any) -> bool:
    """Tell whether torch can write the overload of an ``operator`` with this ``schema`` as others [-]."""
    namespace, _, name = operator.partition(".")
    overload = getattr(getattr(getattr(torch.ops, namespace), name, None), schema.overload_name or "default", None)
    return overload in decomposition_table


def bound(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by their names.

    Parameters
    ----------
    schema : torch.FunctionSchema
        Names and defaults. [-]
    args, kwargs : tuple, mapping
        What an operator is called with. [-]

    Returns
    -------
    dict of str to object
        All arguments, those left out with their defaults. [-]
    """
    given = {}
    for position, argument in enumerate(schema.arguments):
        if argument.name in kwargs:
            given[argument.name] = kwargs[argument.name]
        elif position < len(args) and not argument.kwarg_only:
            given[argument.name] = args[position]
        else:
            given[argument.name] = argument.default_value if argument.has_default_value() else None
    return given


def written_names(schema: Any) -> list[str]:
    """Return the names of the arguments that an operator of this ``schema`` writes [-]."""
    return [each.name for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]


def flat(value: Any) -> Iterator[Any]:
    """Yield what is in a ``value`` of nested lists and tuples [-]."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from flat(each)
    else:
        yield value


def axis_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the axes of a tensor from the outermost in memory to the innermost.

    Parameters
    ----------
    tensor : torch.Tensor
        A dense tensor. [-]

    Returns
    -------
    tuple of int or None
        Axes of more than one element [-]; None where elements are repeated.
    """
    axes = [axis for axis, extent in enumerate(tensor.shape) if extent > 1]
    if any(tensor.stride(axis) == 0 for axis in axes):
        return None
    return tuple(sorted(axes, key=tensor.stride, reverse=True))


def is_reordered(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Tell whether a copy ``after`` has the elements of ``before`` in another order in memory [-]."""
    orders = axis_order(before), axis_order(after)
    return None not in orders and orders[0] != orders[1]
