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
    "depthwise": "reduction",
    "depthwise_weight_gradient": "reduction",
    "transpose": "transpose",
    "gather": "gather",
    "scatter_add": "gather",
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
        ``elementwise``, ``reduction``, ``transpose`` or ``gather``. [-]

    Examples
    --------
    >>> pass_class("relu"), pass_class("batch_norm")
    ('elementwise', 'reduction')
    """
    return CLASS_OF_PASS.get(name, ELEMENTWISE)
