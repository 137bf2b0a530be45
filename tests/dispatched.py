"""What torch dispatches in a step, beside what a prediction on a measured machine prices, family by family."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from perfmodel.framework.measured_lowering import is_product_class, measured_kernel
from perfmodel.records import Phase, Role

NO_KERNEL = {"detach", "device", "empty", "empty_like", "empty_strided", "new_empty", "_unsafe_view", "_reshape_alias"}
"""What is dispatched although it touches no element."""

FAMILIES = {
    "product": ("mm", "addmm", "bmm", "baddbmm"),
    "convolution": ("convolution", "convolution_backward"),
    "norm": ("native_batch_norm", "native_layer_norm", "native_batch_norm_backward", "native_layer_norm_backward"),
    "attention": (
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    "recurrence": ("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"),
    "activation": (
        *("relu", "relu_", "threshold_backward", "gelu", "gelu_backward", "tanh", "tanh_backward"),
        *("sigmoid", "sigmoid_backward", "_softmax", "_softmax_backward_data"),
    ),
    "scaling": ("mul", "div"),
    "pool": (
        *("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward"),
        "mean",
    ),
    "loss": ("nll_loss_forward", "nll_loss_backward"),
    "table": ("embedding", "embedding_dense_backward"),
    "sum of two": ("add",),
    "sum over rows": ("sum",),
    "copy": ("clone", "stack", "cat", "select_backward", "slice_backward", "copy_", "_to_copy"),
}
"""Family -> operators of torch, each one kernel with work or one call of a library."""

PRICED_FAMILIES = {
    "norm": ("batch_norm", "frozen_batch_norm", "layer_norm"),
    "attention": ("attention",),
    "recurrence": ("lstm_output", "lstm_weight_gradient"),
    "activation": ("relu", "gelu", "tanh", "sigmoid", "softmax"),
    "scaling": ("multiply_by_number", "dropout", "mean_backward"),
    "pool": ("max_pool", "avg_pool", "mean"),
    "loss": ("cross_entropy",),
    "table": ("gather", "scatter_add"),
    "sum of two": ("add", "gradient_sum_backward"),
    "sum over rows": ("bias_gradient_backward", "broadcast_sum_backward", "sum"),
    "copy": ("copy", "rearrange", "concat", "slice_backward"),
}
"""The same of classes of kernels; ``_backward`` of each belongs to it unless it has a place of its own."""

FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}
PRICED_FAMILY_OF = {name: family for family, names in PRICED_FAMILIES.items() for name in names}
ONE_NODE = {"convolution", "norm", "attention"}
"""Families in which torch makes all gradients of a layer by one operator."""


@dataclass(slots=True)
class Counted:
    """Kernels of one family in one phase."""

    count: int = 0
    moved_bytes: float = 0.0


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _stored_bytes(tensor):
    """Bytes in memory that a tensor shows: an axis of stride 0 shows the same again."""
    elements = tensor.element_size()
    for extent, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= extent if stride else 1
    return elements


class Dispatched(TorchDispatchMode):
    """Writes down every operator that touches memory, by phase."""

    def __init__(self):
        super().__init__()
        self.phase = Phase.FORWARD
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        returned = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        is_view = any(each.alias_info and not each.alias_info.is_write for each in func._schema.returns)
        tensors = [*_tensors([*args, *(kwargs or {}).values()]), *_tensors(returned)]
        if name not in NO_KERNEL and not is_view and tensors:
            self.calls.append((self.phase, name, sum(map(_stored_bytes, tensors))))
        return returned


def dispatched_calls(module, inputs, optimizer):
    """Return every operator of one training step, on fake tensors: (phase, name, bytes).

    ``module(*inputs)`` is the loss; ``optimizer`` makes one from parameters. With ``optimizer=None``: of inference.
    """
    with FakeTensorMode(allow_non_fake_inputs=False):
        module, inputs = module(), inputs()
        mode = Dispatched()
        if optimizer is None:
            with torch.no_grad(), mode:
                module.eval()(*inputs)
            return mode.calls
        steps = optimizer(module.parameters())

        def step():
            mode.phase = Phase.UPDATE
            steps.zero_grad()
            mode.phase = Phase.FORWARD
            loss = module(*inputs)
            mode.phase = Phase.BACKWARD
            (loss["loss"] if isinstance(loss, dict) else loss).backward()
            mode.phase = Phase.UPDATE
            steps.step()

        step()  # makes the optimizer's state
        with mode:
            step()
        return mode.calls


def by_family(calls):
    """Return calls of torch by phase and family, and what belongs to none."""
    found, others = defaultdict(Counted), Counter()
    for phase, name, moved in calls:
        if phase is Phase.UPDATE:
            continue
        if name not in FAMILY_OF:
            others[name] += moved
            continue
        entry = found[phase, FAMILY_OF[name]]
        entry.count += 1
        entry.moved_bytes += moved
    return found, others


def priced_by_family(graph, *, batch_size, phases=(Phase.FORWARD, Phase.BACKWARD)):
    """Return the operations of a graph by phase and family, and what belongs to none."""
    found, others = defaultdict(Counted), Counter()
    for phase in phases:
        seen = set()
        for layer, operation in graph.operations(batch_size=batch_size, phase=phase, optimizer="none"):
            work, name = operation.work(element_bytes=4), measured_kernel(operation, element_bytes=4).efficiency
            if name == "concat_backward":
                continue  # autograd hands on parts of the gradient, without a kernel
            if is_product_class(name):
                family = "product" if "gemm" in name else "convolution"
            else:
                family = PRICED_FAMILY_OF.get(name) or PRICED_FAMILY_OF.get(name.removesuffix("_backward"), "")
            if name == "bias_gradient_backward" and (layer, "convolution") in seen:
                family = "convolution"
            if family == "recurrence" and operation.role is Role.INPUT_GRADIENT:
                continue
            if not family:
                others[name] += work.moved_bytes
                continue
            entry = found[phase, family]
            entry.count += not (family in ONE_NODE and (layer, family) in seen)
            entry.moved_bytes += work.moved_bytes
            seen.add((layer, family))
    return found, others
