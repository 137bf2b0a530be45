"""Rules of a made-up framework, for tests that say only what differs."""

from perfmodel.framework.rules import LoweringRules, RecurrentTable

CELLS = RecurrentTable(
    gate_products="grouped",
    input_product="per_step",
    weight_gradient="per_step",
    forward_pointwise_kernels=17,
    backward_pointwise_kernels=25,
)
PLAIN = LoweringRules(
    convolution_algorithms=(),
    bias="separate",
    batched_contraction="batched",
    gradient_accumulation=False,
    convolution_transposes=False,
    weight_layout="in_out",
    recurrent=CELLS,
)


def changed(rules, **differing):
    """Rules with some of them changed."""
    return type(rules)(**(rules.__dict__ | differing))
