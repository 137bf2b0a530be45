"""Lowering for a measured machine: each neutral operation is one kernel, whose class is a name. No times here.

A machine is measured with the same functions that a framework calls, so no rules of a framework are needed: whatever
it runs for an operation is inside the measured time. Kernels of one class follow one curve. The class of an operation,
and the columns that its curve depends on, are derived only here, for prediction and for fitting alike.

Classes by kind of operation, where a role is ``output``, ``input_gradient`` or ``weight_gradient``:

- contraction: ``gemm_<role>``; ``batched_gemm_<role>`` of several products at once;
- convolution: ``conv{1,2,3}d_{1x1|3x3|large}_{s1|s2}[_grouped]_<role>``, ``depthwise_{small|large}_<role>`` and
  ``stem_<role>`` of raw samples; a transposed one counts as the convolution that it mirrors;
- memory pass: its name, ``_backward`` appended for gradients; of the optimizer ``sgd``, ``adam`` ...;
- gather: ``gather`` and ``scatter_add``;
- recurrence: ``lstm_<role>``, ``gru_<role>``, ``rnn_<role>``; attention: ``attention`` and ``attention_backward``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from perfmodel.files import file_toml
from perfmodel.framework.convolution import THIN_CHANNELS, implicit_product
from perfmodel.kernels import Alternative, Kernel, Matmul, Stream
from perfmodel.records import Attention, Contraction, Convolution, Gather, MemoryPass, Operation, Recurrence, Role

ELEMENTWISE = "elementwise"
_CLASSES: Final = file_toml(Path(__file__).with_name("pass_classes.toml"))
CLASS_OF_PASS: dict[str, str] = {
    **{name: kind for kind, names in _CLASSES["one_way"].items() for name in names},
    **{
        f"{name}{way}": kind
        for way in ("", "_backward")
        for kind, names in _CLASSES["both_ways"].items()
        for name in names
    },
}
"""Pass name -> class; a pass that is not listed streams element by element."""


@cache
def pass_class(name: str) -> str:
    """Return the class of a pass by its name.

    >>> pass_class("relu"), pass_class("batch_norm")
    ('elementwise', 'reduction')
    """
    return CLASS_OF_PASS.get(name, ELEMENTWISE)


POOLED_CONTRACTION: Final = "contraction"
"""Class of all products together, the substitute for classes that were not measured."""
POOLED_CONVOLUTION: Final = "convolution"
"""Beginning of the classes of all convolutions of one role together, e.g. ``convolution_output``."""
POOLED_RECURRENCE: Final = "recurrence"
"""Class of all recurrent layers together."""
CELLS: Final = {4: "lstm", 3: "gru", 1: "rnn"}
"""Gates of a recurrent cell -> its name."""
_BACKWARD = (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
_ROLES = "|".join(role.value for role in (Role.OUTPUT, *_BACKWARD))
_PRODUCT = re.compile(rf"(?:batched_)?gemm_(?P<role>{_ROLES})")
_CONVOLUTION = re.compile(
    rf"(?:conv[123]d_(?:1x1|3x3|large)_s[12](?:_grouped)?|depthwise_\w+?|stem)_(?P<role>{_ROLES})"
)
_RECURRENCE = re.compile(rf"(?:{'|'.join(CELLS.values())})_(?:{_ROLES})")


def _extent(operation: Convolution) -> str:
    """Return the class of a filter's size by its number of taps: 1x7 belongs to 3x3."""
    taps, axes = math.prod(operation.kernel_size), len(operation.kernel_size)
    if taps == 1:
        return "1x1"
    return "3x3" if taps <= 3**axes else "large"


def is_depthwise(operation: Convolution) -> bool:
    """Return whether every channel is convolved separately."""
    return operation.groups == operation.in_channels and operation.groups > 1


def _convolution_class(plain: Convolution) -> str:
    if is_depthwise(plain):
        size = "large" if _extent(plain) == "large" else "small"
        return f"depthwise_{size}_{plain.role.value}"
    if plain.groups == 1 and plain.in_channels <= THIN_CHANNELS:
        return f"stem_{plain.role.value}"
    step = "s1" if max(plain.stride) == 1 else "s2"
    grouped = "_grouped" if plain.groups > 1 else ""
    return f"conv{len(plain.kernel_size)}d_{_extent(plain)}_{step}{grouped}_{plain.role.value}"


def _of_contraction(operation: Contraction, *, element_bytes: int) -> Kernel:
    work = operation.work(element_bytes=element_bytes)
    batched = "" if operation.count == 1 else "batched_"
    return Matmul(
        m=operation.m,
        n=operation.n,
        k=operation.k,
        count=operation.count,
        read_bytes=work.read_bytes,
        written_bytes=work.written_bytes,
        efficiency=f"{batched}gemm_{operation.role.value}",
    )


def _of_convolution(operation: Convolution, *, element_bytes: int) -> Kernel:
    plain = operation.mirrored if operation.transposed else operation
    product, work = implicit_product(plain), operation.work(element_bytes=element_bytes)
    return product.matmul(work.read_bytes, work.written_bytes, count=plain.groups, efficiency=_convolution_class(plain))


def streamed(operation: Operation, name: str, *, element_bytes: int, serial_steps: Any = 0) -> Stream:
    """Return an operation as one kernel that streams its bytes."""
    work = operation.work(element_bytes=element_bytes)
    return Stream(
        read_bytes=work.read_bytes,
        written_bytes=work.written_bytes,
        flop_count=work.flop_count,
        serial_steps=serial_steps,
        efficiency=name,
    )


def _of_memory_pass(operation: MemoryPass, *, element_bytes: int) -> Kernel:
    name = f"{operation.name}_backward" if operation.role in _BACKWARD else operation.name
    return streamed(operation, name, element_bytes=element_bytes)


def _of_gather(operation: Gather, *, element_bytes: int) -> Kernel:
    name = "gather" if operation.role is Role.OUTPUT else "scatter_add"
    return streamed(operation, name, element_bytes=element_bytes)


def _of_recurrence(operation: Recurrence, *, element_bytes: int) -> Kernel:
    name = f"{CELLS.get(operation.gate_count, 'rnn')}_{operation.role.value}"
    return streamed(operation, name, element_bytes=element_bytes, serial_steps=operation.steps)


def _of_attention(operation: Attention, *, element_bytes: int) -> Kernel:
    name = "attention" if operation.role is Role.OUTPUT else "attention_backward"
    return streamed(operation, name, element_bytes=element_bytes)


KERNEL_OF: Final[dict[str, Callable[..., Kernel]]] = {
    Contraction.kind: _of_contraction,
    Convolution.kind: _of_convolution,
    Attention.kind: _of_attention,
    MemoryPass.kind: _of_memory_pass,
    Gather.kind: _of_gather,
    Recurrence.kind: _of_recurrence,
}
"""Kind of operation -> its one kernel on a measured machine."""


def measured_kernel(operation: Operation, *, element_bytes: int) -> Kernel:
    """Return the one kernel of an operation on a measured machine; ``efficiency`` names its class."""
    return KERNEL_OF[operation.kind](operation, element_bytes=element_bytes)


def lower_as_measured(operation: Operation, *, element_bytes: int) -> tuple[Alternative, ...]:
    """Lower an operation to the one kernel of a measured machine, whatever the framework's rules."""
    kernel = measured_kernel(operation, element_bytes=element_bytes)
    return (Alternative(name=kernel.efficiency, kernels=(kernel,)),)


def is_product_class(name: str) -> bool:
    """Return whether kernels of a class are products, with the columns m, n and k."""
    return family_of(name) != "stream"


def family_of(name: str) -> str:
    """Return the family of a class, which decides the features of its time.

    >>> [family_of(name) for name in ("gemm_output", "depthwise_small_output", "convolution_output", "adam")]
    ['contraction', 'convolution', 'convolution', 'stream']
    """
    if _PRODUCT.fullmatch(name) or name == POOLED_CONTRACTION:
        return "contraction"
    pooled = name in {f"{POOLED_CONVOLUTION}_{role}" for role in _ROLES.split("|")}
    return "convolution" if pooled or _CONVOLUTION.fullmatch(name) else "stream"


def pooled_classes(name: str) -> tuple[str, ...]:
    """Return the substitutes for a class that was not measured, nearest first."""
    if of_product := _PRODUCT.fullmatch(name):
        chain = [f"gemm_{of_product['role']}", POOLED_CONTRACTION]
    elif of_convolution := _CONVOLUTION.fullmatch(name):
        ungrouped = name.replace("_grouped", "")
        flat = re.sub(r"^conv[13]d", "conv2d", ungrouped)
        role = of_convolution["role"]
        chain = [ungrouped, flat, flat.replace("_s2_", "_s1_"), f"{POOLED_CONVOLUTION}_{role}", POOLED_CONTRACTION]
    elif _RECURRENCE.fullmatch(name):
        chain = [POOLED_RECURRENCE]
    elif name in ("attention", "attention_backward"):
        chain = ["attention"]
    else:
        chain = [pass_class(name), ELEMENTWISE]
    return tuple(pooled for pooled in dict.fromkeys(chain) if pooled != name)
