"""Classes of memory-bound passes: which of a framework's few bandwidth fractions each pass reaches."""

from __future__ import annotations

from functools import cache

ELEMENTWISE = "elementwise"
CLASS_OF_PASS: dict[str, str] = {
    "batch_norm": "reduction",
    "batch_norm_backward": "reduction",
    "bias_gradient": "reduction",
    "bias_gradient_backward": "reduction",
    "softmax": "reduction",
    "softmax_backward": "reduction",
    "cross_entropy": "reduction",
    "cross_entropy_backward": "reduction",
    "class_softmax": "reduction",
    "class_softmax_backward": "reduction",
    "local_response_norm": "reduction",
    "local_response_norm_backward": "reduction",
    "positional_embedding_backward": "reduction",
    "argmax": "reduction",
    "max_pool": "reduction",
    "max_pool_backward": "reduction",
    "avg_pool": "reduction",
    "avg_pool_backward": "reduction",
    "log_softmax": "reduction",
    "log_softmax_backward": "reduction",
    "layer_norm": "reduction",
    "layer_norm_backward": "reduction",
    "rms_norm": "reduction",
    "rms_norm_backward": "reduction",
    "group_norm": "reduction",
    "group_norm_backward": "reduction",
    "sum": "reduction",
    "mean": "reduction",
    "max": "reduction",
    "min": "reduction",
    "prod": "reduction",
    "var": "reduction",
    "std": "reduction",
    "norm": "reduction",
    "log_sum_exp": "reduction",
    "argmin": "reduction",
    "any": "reduction",
    "all": "reduction",
    "count": "reduction",
    "mean_squared_error": "reduction",
    "mean_absolute_error": "reduction",
    "huber": "reduction",
    "binary_cross_entropy": "reduction",
    "kl_divergence": "reduction",
    "cumulative": "reduction",
    "cumulative_backward": "reduction",
    "top_k": "reduction",
    "broadcast_sum_backward": "reduction",
    "depthwise": "reduction",
    "depthwise_weight_gradient": "reduction",
    "transpose": "transpose",
    "transpose_backward": "transpose",
    "rearrange": "transpose",
    "rearrange_backward": "transpose",
    "sgd": "update",
    "momentum": "update",
    "nesterov": "update",
    "adam": "update",
    "gradient_norm": "update",
    "gradient_scale": "update",
    "gather": "gather",
    "scatter_add": "gather",
    "take": "gather",
    "take_backward": "gather",
    "scatter": "gather",
    "scatter_backward": "gather",
    "top_k_backward": "gather",
}
"""Pass name -> class; a pass that is not listed streams element by element."""


@cache
def pass_class(name: str) -> str:
    """Return the class of a pass by its name.

    Parameters
    ----------
    name : str
        Name of the pass, e.g. ``batch_norm_backward``. [-]

    Returns
    -------
    str
        ``elementwise``, ``reduction``, ``transpose``, ``gather`` or ``update``. [-]

    Examples
    --------
    >>> pass_class("relu"), pass_class("batch_norm")
    ('elementwise', 'reduction')
    """
    return CLASS_OF_PASS.get(name, ELEMENTWISE)
