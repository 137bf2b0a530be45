"""Torch's own count of the products of a module, forward and backward."""

import math

import torch
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

aten = torch.ops.aten


def _convolution_backward(
    grad_out_shape, x_shape, w_shape, bias, stride, padding, dilation, transposed, output_padding, groups, mask, **_
):
    """Count both gradients of a convolution.

    Torch's formula for the filters' gradient knows no groups: it takes every pair of channels, ``groups`` times too
    many (tests/published/test_zoo_vision.py shows it). Each of the gradients does the forward's arithmetic.
    """
    del bias, stride, padding, dilation, output_padding, groups
    return sum(mask[:2]) * conv_flop_count(x_shape, w_shape, grad_out_shape, transposed)


CORRECTED = {aten.convolution_backward: _convolution_backward}


def parameter_count(module):
    """Return the parameters of a module, each once."""
    return sum(math.prod(parameter.shape) for parameter in module.parameters())


def flop_counts(module, *inputs, corrections=None):
    """Return the FLOP of the products, forward and backward from the sum of all outputs."""
    with FlopCounterMode(display=False, custom_mapping=corrections or {}) as forward:
        outputs = module(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    with FlopCounterMode(display=False, custom_mapping=corrections or {}) as backward:
        sum(output.sum() for output in outputs).backward()
    return forward.get_total_flops(), backward.get_total_flops()
