"""Arguments of predict for type checkers and completion. Written by tools/generate_arguments.py."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from perfmodel.framework.profile import FrameworkProfile
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.device import Runnable
from perfmodel.hardware.fit_file import FitFile
from perfmodel.hardware.library import LibraryProfile
from perfmodel.hardware.storage import Storage
from perfmodel.hardware.wiring import Wired
from perfmodel.layers.optimizers import Optimizer
from perfmodel.prediction.job.straggler import Straggler

class JobArguments(TypedDict, total=False):
    """Arguments by name, as callers give them."""

    batch_size: int | None
    global_batch_size: int | None
    device: str | Path | Runnable | None
    system: str | Path | Wired | None
    machines: int | None
    framework: str | Path | FrameworkProfile
    strict: bool
    threads: int | None
    phase: str
    dtype: str
    weight_dtype: str | None
    optimizer: str | Optimizer
    weight_penalty: str | None
    recompute: str | int | None
    image_layout: str | None
    workers: int
    parallelism: str
    sync: str
    overlap: bool
    bucket_bytes: float | str | None
    server_count: int
    server_on: str | None
    group_size: int | None
    staleness_bound: int | None
    stages: int
    stage_cut: str
    micro_batches: int
    schedule: str
    interleave: int
    tensor_size: int
    sequence_parallel: bool
    context_size: int
    context_method: str
    shard_stage: int
    shard_group: int | None
    prefetch_limit: int
    no_sync: bool
    gradient_dtype: str | None
    accumulation_steps: int
    backup_workers: int
    push_period: int
    pull_period: int
    straggler: Mapping[str, Any] | Straggler | None
    library: str | Path | LibraryProfile | None
    dataset: str | Path | Dataset | None
    input_from: str | Path | Storage | None
    prefetch: int
    pinned: bool
    decode_cores: int | None
    input_variation: float
    calibration: str | Path | FitFile | None

class JobAttributes:
    """Arguments as a Job has them, with their defaults."""

    batch_size: int | None = None
    global_batch_size: int | None = None
    device: str | Path | Runnable | None = None
    system: str | Path | Wired | None = None
    machines: int | None = None
    framework: str | Path | FrameworkProfile = "generic"
    strict: bool = False
    threads: int | None = None
    phase: str = "step"
    dtype: str = "fp32"
    weight_dtype: str | None = None
    optimizer: str | Optimizer = "sgd"
    weight_penalty: str | None = None
    recompute: str | int | None = None
    image_layout: str | None = None
    workers: int = 1
    parallelism: str = "data"
    sync: str = "ring_all_reduce"
    overlap: bool = True
    bucket_bytes: float | str | None = None
    server_count: int = 1
    server_on: str | None = None
    group_size: int | None = None
    staleness_bound: int | None = None
    stages: int = 1
    stage_cut: str = "balanced"
    micro_batches: int = 1
    schedule: str = "1f1b"
    interleave: int = 1
    tensor_size: int = 1
    sequence_parallel: bool = False
    context_size: int = 1
    context_method: str = "ring"
    shard_stage: int = 0
    shard_group: int | None = None
    prefetch_limit: int = 1
    no_sync: bool = False
    gradient_dtype: str | None = None
    accumulation_steps: int = 1
    backup_workers: int = 0
    push_period: int = 1
    pull_period: int = 1
    straggler: Straggler | None = None
    library: str | Path | LibraryProfile | None = None
    dataset: str | Path | Dataset | None = None
    input_from: str | Path | Storage | None = None
    prefetch: int = 1
    pinned: bool = True
    decode_cores: int | None = None
    input_variation: float = 0.0
    calibration: str | Path | FitFile | None = None
