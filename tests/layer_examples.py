"""Options and input shapes of each kind of layer with which tests check the contract of all, at least one pair."""

from perfmodel.layers import SharedShape

EXAMPLES = {
    "accuracy": (
        ({}, ((10,),)),
        ({"labels": "one_hot"}, ((5, 6),)),
    ),
    "adaptive_avg_pool": (
        ({"output_size": 3}, ((4, 9, 7),)),
        ({"output_size": (5,)}, ((2, 4, 12),)),
    ),
    "adaptive_max_pool": (
        ({"output_size": 3}, ((4, 9, 7),)),
        ({"output_size": (5,)}, ((2, 4, 12),)),
    ),
    "add": (
        ({}, ((4, 9, 9), (4, 9, 9))),
        ({}, ((10,), (10,), (10,))),
    ),
    "avg_pool_1d": (
        ({"kernel_size": 2, "ceil_mode": True}, ((4, 9),)),
        ({"kernel_size": None}, ((4, 9),)),
    ),
    "avg_pool_2d": (
        ({"kernel_size": 2, "ceil_mode": True}, ((4, 9, 9),)),
        ({"kernel_size": None}, ((4, 9, 9),)),
    ),
    "avg_pool_3d": (
        ({"kernel_size": 2, "ceil_mode": True}, ((4, 5, 9, 9),)),
        ({"kernel_size": None}, ((4, 5, 9, 9),)),
    ),
    "batch_norm": (
        ({}, ((4, 9, 9),)),
        ({"affine": False}, ((10,),)),
        ({"axis": 0, "statistics": "given"}, ((5, 6),)),
        ({"scale": False}, ((4, 9, 9),)),
    ),
    "batch_view": (
        ({"shape": (3, 7)}, ((7,),)),
        ({"shape": (7,), "whole": False}, (SharedShape((3, 7)),)),
    ),
    "binary": (
        ({"function": "multiply"}, ((4, 9, 9), (4, 1, 1))),
        ({"function": "add"}, ((5, 6), SharedShape((1, 5, 6)))),
        ({"function": "subtract"}, ((10,), (10,))),
        ({"function": "power"}, (SharedShape(()), (10,))),
    ),
    "binary_cross_entropy": (
        ({}, ((10,),)),
        ({"over": "probabilities"}, ((5, 6), (5, 6))),
    ),
    "class_softmax": (
        ({"vocabulary": 12, "classes": 3}, ((5, 6),)),
        ({"vocabulary": 4, "classes": 4}, ((10,),)),
    ),
    "concat": (
        ({}, ((4, 9, 9), (4, 9, 9))),
        ({"axis": 1}, ((5, 6), (5, 6))),
        ({"axis": 1, "new_axis": True}, ((5, 6), (5, 6), (5, 6))),
    ),
    "constant": (({"shape": (5, 6)}, ()),),
    "contrastive_divergence": (
        ({"hidden_units": 4}, ((10,),)),
        ({"hidden_units": 7, "steps": 3}, ((10,),)),
    ),
    "convolution_1d": (
        ({"out_channels": 6, "kernel_size": 3, "padding": "same", "stride": 2}, ((4, 9),)),
        ({"out_channels": 6, "kernel_size": 3, "groups": 2, "dilation": 2, "bias": False}, ((4, 9),)),
    ),
    "convolution_2d": (
        ({"out_channels": 6, "kernel_size": 3, "padding": "same", "stride": 2}, ((4, 9, 9),)),
        ({"out_channels": 6, "kernel_size": (3, 1), "groups": 2, "dilation": 2, "bias": False}, ((4, 9, 9),)),
        ({"out_channels": 4, "kernel_size": 3, "padding": ((1, 2), (0, 1))}, ((4, 9, 9),)),
    ),
    "convolution_3d": (
        ({"out_channels": 6, "kernel_size": 3, "padding": 1, "stride": 2}, ((4, 5, 9, 9),)),
        ({"out_channels": 6, "kernel_size": (1, 2, 2), "groups": 2, "bias": False}, ((4, 5, 6, 7),)),
    ),
    "copy": (({}, ((4, 9, 9),)),),
    "dequantize": (({}, ((4, 9, 9),)),),
    "quantize": (({}, ((4, 9, 9),)),),
    "cross_entropy": (
        ({}, ((10,),)),
        ({"over": "probabilities"}, ((5, 6),)),
        ({"over": "log_probabilities", "axis": 0}, ((4, 9, 9), (9, 9))),
    ),
    "cumulative": (
        ({}, ((5, 6),)),
        ({"function": "product"}, ((10,),)),
    ),
    "dense": (
        ({"units": 3}, ((10,),)),
        ({"units": 3, "bias": False}, ((5, 6),)),
        ({"units": 3, "adds_bias_apart": True}, ((5, 6),)),
    ),
    "detach": (({}, ((4, 9, 9),)),),
    "dropout": (({"rate": 0.3}, ((4, 9, 9),)),),
    "embedding": (
        ({"vocabulary": 20, "features": 4}, ((5,),)),
        ({"vocabulary": 20, "features": 4}, ((5, 3),)),
    ),
    "expand": (
        ({"shape": (4, 9, 9)}, ((4, 1, 1),)),
        ({"shape": (1, 6), "per_sample": True}, (SharedShape((1, 1, 6)),)),
    ),
    "fill": (
        ({"shape": (5, 6)}, ()),
        ({"shape": (10,), "function": "normal", "per_sample": True}, ()),
        ({"shape": (5,), "function": "range"}, ()),
    ),
    "flatten": (({}, ((4, 9, 9),)),),
    "gaussian_sample": (({}, ((10,), (10,))),),
    "gelu": (
        ({}, ((5, 6),)),
        ({"approximation": "tanh"}, ((10,),)),
    ),
    "glu": (({}, ((10,),)), ({"axis": 0}, ((4, 9, 9),))),
    "group_norm": (
        ({"groups": 2}, ((4, 9, 9),)),
        ({"groups": 5, "affine": False}, ((5, 6),)),
    ),
    "gru": (
        ({"hidden_size": 7}, ((5, 6),)),
        ({"hidden_size": 7, "bias_vectors": 2, "bidirectional": True}, ((5, 6), (2, 7))),
    ),
    "huber": (({}, ((4,), (4,))),),
    "kl_divergence": (
        ({}, ((10,), (10,))),
        ({"against": "distribution"}, ((5, 6), (5, 6))),
    ),
    "layer_norm": (
        ({}, ((5, 6),)),
        ({"axis_count": 3, "affine": False}, ((4, 9, 9),)),
        ({"bias": False}, ((10,),)),
    ),
    "leaky_relu": (({"slope": 0.2}, ((4, 9, 9),)),),
    "local_response_norm": (({"size": 3}, ((4, 9, 9),)),),
    "log_softmax": (
        ({}, ((10,),)),
        ({"axis": 0}, ((4, 9, 9),)),
    ),
    "lstm": (
        ({"hidden_size": 7}, ((5, 6),)),
        ({"hidden_size": 7, "layer_count": 3, "bias_vectors": 2, "return_sequences": False}, ((5, 6),)),
        ({"hidden_size": 7, "layer_count": 2, "bidirectional": True, "dropout": 0.1}, ((5, 6), (4, 7), (4, 7))),
    ),
    "matmul": (
        ({"transpose_second": True}, ((4, 9, 8), (4, 7, 8))),
        ({}, ((5, 6), SharedShape((6, 3)))),
        ({}, (SharedShape((3, 5)), (5, 6))),
        ({}, ((4, 9, 8), (1, 8, 7), SharedShape((7,)))),
        ({"samples_are_rows": True}, ((4, 6), SharedShape((4, 6, 3)))),
        ({"samples_are_inner": True}, ((4, 6), (4, 3), SharedShape((3,)))),
        ({"over_batch": True, "transpose_first": True}, ((9, 6), (9, 3))),
    ),
    "latent_attention": (
        ({"heads": 4, "latent": 6, "head_size": 4, "rotary_size": 2, "value_size": 5, "causal": True}, ((9, 8),)),
        ({"heads": 2, "latent": 6, "query_latent": 5, "head_size": 3, "rotary_size": 2, "value_size": 3}, ((9, 8),)),
    ),
    "max_pool_1d": (({"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, ((4, 9),)),),
    "max_pool_2d": (({"kernel_size": 3, "stride": 2, "padding": 1}, ((4, 9, 9),)),),
    "max_pool_3d": (({"kernel_size": (1, 3, 3), "stride": 2, "padding": "same"}, ((4, 5, 9, 9),)),),
    "mean_absolute_error": (({}, ((5, 6), (5, 6))),),
    "mean_squared_error": (
        ({}, ((10,),)),
        ({}, ((4, 9, 9), (4, 9, 9))),
    ),
    "mixture_of_experts": (
        ({"experts": 4, "chosen": 2, "intermediate": 6}, ((10, 8),)),
        ({"experts": 3, "chosen": 3, "intermediate": 4}, ((5, 6),)),
    ),
    "multi_head_attention": (
        ({"heads": 4}, ((9, 8),)),
        ({"heads": 4, "scores": "materialised", "dropout": 0.1, "bias": False}, ((9, 8), (5, 6))),
        ({"heads": 4, "key_heads": 2, "head_size": 3, "causal": True}, ((9, 8),)),
    ),
    "opaque": (
        ({"operator": "custom::polish", "shape": (5, 6)}, ((4, 9, 9), SharedShape((7,)))),
        ({"operator": "custom::spectral_norm", "shape": (), "over_batch": True}, ((10,),)),
    ),
    "output": (({}, ((4, 9, 9),)),),
    "overwrite": (({}, ((4, 9), (2, 9))),),
    "pad": (
        ({"padding": ((0, 0), (1, 2), (1, 1))}, ((4, 9, 9),)),
        ({"padding": ((2, 2),), "mode": "reflect"}, ((5,),)),
    ),
    "parameter": (({"shape": (1, 6)}, ()),),
    "positional_embedding": (({"positions": 9}, ((5, 6),)),),
    "rearrange": (
        ({"shape": (1, 18, 18)}, ((4, 9, 9),)),
        ({"shape": (10, 6)}, ((5, 6),)),
    ),
    "recurrent_state": (({"shape": (4, 7)}, ((5, 14),)),),
    "reduction": (
        ({"function": "mean", "axes": (-1, -2)}, ((4, 9, 9),)),
        ({"function": "max", "axes": (0,), "keep_axes": True}, ((5, 6),)),
        ({"function": "max_and_place", "axes": (-1,)}, ((5, 6),)),
        ({"function": "sum", "over_batch": True}, ((10,),)),
        ({"function": "var"}, ((5, 6),)),
    ),
    "relu": (({}, ((4, 9, 9),)),),
    "relu6": (({}, ((4, 9, 9),)),),
    "reshape": (({"shape": (9, 36)}, ((4, 9, 9),)),),
    "rms_norm": (
        ({}, ((5, 6),)),
        ({"affine": False}, ((10,),)),
    ),
    "rnn": (
        ({"hidden_size": 7}, ((5, 6),)),
        ({"hidden_size": 7, "function": "relu", "bias_vectors": 0, "direction_axis": True}, ((5, 6), (7,))),
    ),
    "rotary_embedding": (
        ({}, ((4, 9, 8),)),
        ({}, ((9, 8),)),
    ),
    "scale": (
        ({}, ((4, 9, 9),)),
        ({"bias": False}, ((5, 6),)),
    ),
    "scaled_dot_product_attention": (
        ({}, ((4, 9, 8), (4, 9, 8), (4, 9, 8))),
        ({"causal": True, "scores": "materialised", "dropout": 0.1}, ((4, 9, 8), (2, 5, 8), (2, 5, 6))),
        ({"scores": "materialised"}, ((4, 9, 8), (4, 5, 8), (4, 5, 8), (9, 5))),
        ({"heads": 4, "key_heads": 2}, ((9, 8), (5, 4), (5, 6), (1, 9, 5))),
        ({"adds_bias": True}, ((4, 9, 8), (4, 5, 8), (4, 5, 8), (4, 9, 5))),
        ({"causal": True, "ring": 3}, ((4, 8, 6), (2, 8, 6), (2, 8, 6))),
        ({"scores": "materialised", "dropout": 0.1, "ring": 2}, ((4, 8, 6), (4, 8, 6), (4, 8, 6))),
    ),
    "scatter": (
        ({}, ((5, 6), (2, 6), (2, 6))),
        ({"adds": True}, ((10,), (4,), (4,))),
        ({"has_source": False}, ((5, 6), (5, 1))),
    ),
    "shard_view": (
        ({"parts": 2, "gathered": True}, ((4, 6),)),
        ({"parts": 2, "gathered": False}, ((4, 6),)),
        ({"parts": 3, "gathered": False, "axis": -1}, ((4, 6),)),
    ),
    "sigmoid": (({}, ((10,),)),),
    "silu": (({}, ((5, 6),)),),
    "slice": (
        ({"shape": (2, 9)}, ((4, 9, 9),)),
        ({"shape": (2, 9, 9), "is_joined": True}, ((4, 9, 9),)),
        ({"shape": (4, 9, 4, 3), "overlaps": True}, ((4, 9, 9),)),
    ),
    "softmax": (
        ({}, ((10,),)),
        ({}, ((5, 6),)),
        ({"axis": 0}, ((4, 9, 9),)),
    ),
    "take": (
        ({"shape": (3, 6), "row_elements": 6}, ((5, 6), (3,))),
        ({"shape": (5, 2)}, ((5, 6), (5, 2))),
        ({"shape": (4, 4, 8), "row_elements": 8}, (SharedShape((9, 8)), SharedShape((4, 4)))),
    ),
    "tanh": (({}, ((5, 6),)),),
    "top_k": (
        ({"count": 2}, ((5, 6),)),
        ({"count": 3, "axis": 0, "result": "index"}, ((4, 9, 9),)),
    ),
    "transpose": (
        ({"axes": (1, 2, 0)}, ((4, 9, 8),)),
        ({"axes": (1, 0), "copies": True}, ((5, 6),)),
    ),
    "transposed_convolution_1d": (
        ({"out_channels": 6, "kernel_size": 4, "padding": 1, "stride": 2}, ((4, 9),)),
        ({"out_channels": 6, "kernel_size": 3, "groups": 2, "dilation": 2, "bias": False}, ((4, 9),)),
    ),
    "transposed_convolution_2d": (
        ({"out_channels": 6, "kernel_size": 4, "padding": 1, "stride": 2}, ((4, 9, 9),)),
        ({"out_channels": 6, "kernel_size": 3, "stride": 2, "output_padding": 1, "groups": 2}, ((4, 9, 9),)),
        ({"out_channels": 4, "kernel_size": 3, "stride": 2, "padding": "same", "bias": False}, ((4, 9, 9),)),
    ),
    "transposed_convolution_3d": (
        ({"out_channels": 6, "kernel_size": 4, "padding": 1, "stride": 2}, ((4, 3, 4, 5),)),
        ({"out_channels": 6, "kernel_size": (1, 3, 2), "groups": 2, "bias": False}, ((4, 3, 4, 5),)),
    ),
    "unary": (
        ({"function": "exp"}, ((5, 6),)),
        ({"function": "softplus"}, ((4, 9, 9),)),
        ({"function": "add_number"}, ((10,),)),
    ),
    "upsample": (
        ({"scale_factor": 2}, ((4, 9, 9),)),
        ({"output_size": (20,), "mode": "linear"}, ((4, 9),)),
        ({"scale_factor": (1.5, 2), "mode": "cubic"}, ((4, 9, 9),)),
    ),
    "where": (
        ({}, ((1, 5, 5), (4, 5, 5))),
        ({}, (SharedShape((5, 6)), (5, 6), (1, 6))),
    ),
}
