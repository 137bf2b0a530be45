"""Classes of memory-bound passes: which of a framework's few bandwidth fractions each pass reaches."""

from __future__ import annotations

from functools import cache

ELEMENTWISE = "elementwise"
BOTH_WAYS: dict[str, str] = {
    "reduction": (
        "batch_norm bias_gradient softmax cross_entropy class_softmax local_response_norm max_pool avg_pool "
        "log_softmax layer_norm rms_norm group_norm cumulative"
    ),
    "transpose": "transpose rearrange",
    "gather": "take scatter",
}
"""Class -> passes that are of it forward and backward."""
ONE_WAY: dict[str, str] = {
    "reduction": (
        "positional_embedding_backward argmax sum mean max min prod var std norm log_sum_exp argmin any all "
        "count mean_squared_error mean_absolute_error huber binary_cross_entropy kl_divergence top_k "
        "broadcast_sum_backward depthwise depthwise_weight_gradient"
    ),
    "update": "sgd momentum nesterov adam gradient_norm gradient_scale",
    "gather": "gather scatter_add top_k_backward",
}
"""Class -> passes that are of it as they are named here."""
CLASS_OF_PASS: dict[str, str] = {
    **{name: kind for kind, names in ONE_WAY.items() for name in names.split()},
    **{
        f"{name}{way}": kind for kind, names in BOTH_WAYS.items() for name in names.split() for way in ("", "_backward")
    },
}
"""Pass name -> class; a pass that is not listed streams element by element."""


@cache
def pass_class(name: str) -> str:
    """Return the class of a pass by its name.

    Examples
    --------
    >>> pass_class("relu"), pass_class("batch_norm")
    ('elementwise', 'reduction')
    """
    return CLASS_OF_PASS.get(name, ELEMENTWISE)
