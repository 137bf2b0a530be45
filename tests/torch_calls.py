"""Calls of torch operators as importers hand them to layers: on meta tensors, so that nothing is computed."""

import torch

from perfmodel.layers.shapes import SharedShape
from perfmodel.layers.translation import Operand, OperatorCall


def _as_operand(tensor, key):
    """An operand whose first axis is the batch, but for parameters."""
    if isinstance(tensor, torch.nn.Parameter):
        shape = SharedShape(tensor.shape)
        return Operand(key=key, shape=shape, axes=tuple(range(len(shape))), is_parameter=True)
    return Operand(key=key, shape=tuple(tensor.shape[1:]), axes=(None, *range(tensor.dim() - 1)))


def _plain(value, key):
    if isinstance(value, torch.Tensor):
        return _as_operand(value, key)
    return tuple(value) if isinstance(value, list) else value


def call_of(operator, *given):
    """Run an operator and return the call, its arguments by name with defaults filled in."""
    names = [argument.name for argument in operator._schema.arguments]
    arguments = {argument.name: argument.default_value for argument in operator._schema.arguments}
    arguments |= dict(zip(names, given, strict=False))
    results = operator(*given)
    outputs = results if isinstance(results, tuple) else (results,)
    return OperatorCall(
        operator=str(operator.overloadpacket),
        arguments={name: _plain(value, name) for name, value in arguments.items()},
        outputs=tuple(_as_operand(each, f"output{index}") for index, each in enumerate(outputs)),
    )


def translated(layers, call):
    """Return the translations of a call by all layers that name its operator; there should be one."""
    readers = [kind.torch_operators[call.operator] for kind in layers if call.operator in kind.torch_operators]
    found = [translation for translation in (reader(call) for reader in readers) if translation is not None]
    assert len(found) <= 1, f"{call.operator} is read as {found}"
    return found[0] if found else None
