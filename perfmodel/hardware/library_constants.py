"""Constants that predictions read of each kind of library, so that a file without one is refused where it is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

TILES: Final = ("tile_rows", "tile_columns", "tile_efficiency", "split_k")
"""Lists that describe a library's tiles; equally long. [-]"""

RECURRENT_TILES: Final = ("recurrent_tile_rows", "recurrent_tile_columns", "recurrent_tile_efficiency")
"""The same of its recurrent layers. [-]"""

_GPU: Final = (*TILES, "translation_efficiency", "matmul_bandwidth_fraction", "latency_cycles")
_WITH_GRADIENT: Final = ("conv_1x1", "conv_3x3", "conv_large", "conv_one_channel", "conv_thin")

READ: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("blas", "gpu"): (*_GPU, "gemm", "ramp_steps", "skinny_bandwidth_fraction"),
    ("dnn", "gpu"): (
        *_GPU,
        "issue_us",
        "conv_gemm",
        "conv_strided_input_gradient",
        *(name + suffix for name in _WITH_GRADIENT for suffix in ("", "_weight_gradient")),
    ),
    ("attention", "gpu"): (
        "tile_rows",
        "block_rows",
        "most_splits",
        "bandwidth_fraction",
        "dropout_instructions",
        "exponentials_per_cycle",
        *(
            f"{part}_{name}"
            for part in ("forward", "backward")
            for name in ("efficiency", "ramp_rows", "softmax_instructions")
        ),
    ),
    ("blas", "cpu"): (
        "gemm_efficiency",
        "fp64_efficiency",
        "packing_efficiency",
        "packing_bytes_per_cycle",
        "register_tile_rows",
        "register_tile_columns",
        "result_passes",
        "serial_fraction",
        "smallest_parallel_product",
        "smallest_side_per_thread",
        "fork_join_us",
    ),
}
"""Kind and processor of a library -> constants that each of its architectures has. [-]"""

_RECURRENT: Final = (
    *RECURRENT_TILES,
    "recurrent_gemm",
    "recurrent_thin",
    "recurrent_latency_cycles",
    "recurrent_narrow_latency_cycles",
    "recurrent_ramp_steps",
    "recurrent_bandwidth_fraction",
    "recurrent_step_us",
)

READ_BY_ALGORITHM: Final[Mapping[str, tuple[str, ...]]] = {
    "gemm": ("im2col",),
    "fft": ("fft_gemm", "fft_transform"),
    "fft_tiling": ("fft_gemm", "fft_transform"),
    "winograd": ("winograd",),
    "winograd_nonfused": ("winograd_gemm", "winograd_transform"),
    "recurrence_fused": _RECURRENT,
    "recurrence_persistent": (*_RECURRENT, "recurrent_persistent"),
}
"""Algorithm that a library offers -> constants that it needs besides. [-]"""

READ_WITH: Final[Mapping[str, tuple[str, ...]]] = {
    "fed_flop_per_clock": ("architecture_factor",),
    "recurrent_gemm": _RECURRENT,
    "conv_grouped": ("conv_grouped_gradient",),
}
"""Constant -> constants that are read where it is stated. [-]"""


def faults_of(
    constants: Mapping[str, Any], *, kind: str, processor: str, algorithms: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a line for each constant that a prediction would miss, and for lists of tiles of unequal length."""
    needed = [*READ.get((kind, processor), ())]
    for names in (READ_BY_ALGORITHM.get(algorithm, ()) for algorithm in algorithms):
        needed += names
    for stated, names in READ_WITH.items():
        needed += names if stated in constants else ()
    for name in dict.fromkeys(needed):
        if name not in constants:
            yield f"{name}: required constant is missing"
    if (kind, processor) == ("dnn", "gpu") and not any(not name.startswith("recurrence") for name in algorithms):
        yield "algorithms: must name a way to convolve"
    for menu in (TILES, RECURRENT_TILES):
        lengths = {name: len(constants[name]) for name in menu if isinstance(constants.get(name), tuple)}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            yield f"{menu[0]}: lists of tiles must be equally long, but {told}"
