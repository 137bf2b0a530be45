"""Calls of torch operators as importers hand them to layers: on meta tensors, so that nothing is computed."""

import torch

from perfmodel.layers.shapes import SharedShape
from perfmodel.layers.translation import Operand, OperatorCall


def shared(tensor):
    """Mark a tensor as one that all samples share although no training changes it."""
    tensor.is_shared_by_samples = True
    return tensor


def _as_operand(tensor, key, *, is_shared=False):
    """An operand whose first axis is the batch, but for parameters, shared tensors and numbers."""
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    is_index = not tensor.dtype.is_floating_point
    if is_parameter or is_shared or tensor.dim() == 0 or getattr(tensor, "is_shared_by_samples", False):
        shape, axes = SharedShape(tensor.shape), tuple(range(tensor.dim()))
        return Operand(key=key, shape=shape, axes=axes, is_parameter=is_parameter, is_index=is_index)
    axes = (None, *range(tensor.dim() - 1))
    return Operand(key=key, shape=tuple(tensor.shape[1:]), axes=axes, is_index=is_index)


def _plain(value, key):
    if isinstance(value, torch.Tensor):
        return _as_operand(value, key)
    if isinstance(value, list | tuple):
        return tuple(_plain(each, f"{key}[{index}]") for index, each in enumerate(value))
    return value


def call_of(operator, *given, shared_output=False, **named):
    """Run an operator and return the call, its arguments by name with defaults filled in."""
    names = [argument.name for argument in operator._schema.arguments]
    arguments = {argument.name: argument.default_value for argument in operator._schema.arguments}
    arguments |= dict(zip(names, given, strict=False)) | named
    results = operator(*given, **named)
    outputs = results if isinstance(results, tuple | list) else (results,)
    return OperatorCall(
        operator=str(operator.overloadpacket),
        arguments={name: _plain(value, name) for name, value in arguments.items()},
        outputs=tuple(
            _as_operand(each, f"output{index}", is_shared=shared_output) for index, each in enumerate(outputs)
        ),
    )


def translated(layers, call):
    """Return the translations of a call by all layers that name its operator; there should be one."""
    readers = [kind.operators[call.operator] for kind in layers if call.operator in kind.operators]
    found = [translation for translation in (reader(call) for reader in readers) if translation is not None]
    assert len(found) <= 1, f"{call.operator} is read as {found}"
    return found[0] if found else None
