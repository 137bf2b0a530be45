"""Benchmarks of torch, and the tools and the clock of a GPU that they run with."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from perfmodel import layers
from perfmodel.calibration import families
from perfmodel.calibration.backends import torch_kernels
from perfmodel.calibration.backends.base import Clock, Timing
from perfmodel.calibration.benchmark import Axis, Benchmark, Prepare, Prepared, Run, Sizes
from perfmodel.calibration.families import ELEMENTS, Family, pass_benchmark
from perfmodel.layers.passes import elementwise
from perfmodel.records import Operation, Role

POOL: Final = 1 << 22
"""Random numbers that are drawn; larger tensors repeat them [1]."""


class TorchTools:
    """Makes operands on a device in a data type."""

    def __init__(self, torch: Any, *, device: str, dtype: str, seed: int, pool: int = POOL) -> None:
        self.torch = torch
        self.device = torch.device(device)
        self.dtype = getattr(torch, dtype)
        self._seed = seed
        self._generator = torch.Generator(device=self.device).manual_seed(seed)
        self._pool = torch.randn(pool, generator=self._generator, device=self.device).to(self.dtype)
        self._shift = 0

    def restart(self) -> None:
        """Reset the generator, so that the same operands are drawn again."""
        self._generator.manual_seed(self._seed)
        self.torch.manual_seed(self._seed)
        self._shift = 0

    @property
    def on_gpu(self) -> bool:
        """Whether kernels run on a GPU."""
        return bool(self.device.type == "cuda")

    def normal(self, *shape: int, grad: bool = False) -> Any:
        """Return a tensor of random normal numbers [1] in its own memory, with or without a gradient."""
        count = math.prod(shape)
        self._shift = (self._shift + 9973) % (len(self._pool) // 2)
        tensor = self.torch.empty(count, dtype=self.dtype, device=self.device)
        start = self._shift
        for first in range(0, count, len(self._pool) - start):
            piece = tensor[first : first + len(self._pool) - start]
            piece.copy_(self._pool[start : start + piece.numel()])
        return tensor.view(shape).requires_grad_(grad)

    def integers(self, high: int, *shape: int) -> Any:
        """Return a tensor of random whole numbers below ``high`` [1]."""
        return self.torch.randint(high, shape, generator=self._generator, device=self.device)

    def full(self, value: float, *shape: int) -> Any:
        """Return a tensor of one value [1]."""
        return self.torch.full(shape, value, dtype=self.dtype, device=self.device)


LAUNCHES: Final = 20
"""Back-to-back launches of a short kernel between two events [1]."""

BATCHES: Final = 3
"""Pairs of events whose median is taken [1]."""

BATCH_S: Final = 0.02
"""Least time of a batch of long kernels: thousands of times the resolution of an event [s]."""

FEWEST_LAUNCHES: Final = 3
"""Fewest launches in a batch, even of a long kernel [1]."""

LONG_RUN_S: Final = 0.02
"""A kernel that takes longer is timed in one batch [s]."""

AHEAD: Final = 2.0
"""Time for which the queue is held over the usual time of the host's launches, in case the host is slower [1]."""

LONGEST_HOLD_S: Final = 0.1
"""Longest time for which the queue is held [s]."""

HOLD_CYCLES: Final = 2_000_000
"""Cycles of the waiting kernel when its clock is measured [1]."""


class CudaClock(Clock):
    """Device time of kernels.

    A kernel that only waits is launched first, so that the host has made all launches before the first of them starts:
    the device is timed, not the host that feeds it. If a run launches more kernels than fit in a queue, or waits for
    the device itself, the host's pace is part of its time.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        self._cycles_per_s: float | None = None

    def _between_events(self, run: Run, launches: int = 1) -> float:
        """Return the device time from the begin of the first launch to the end of the last. [s]"""
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(launches):
            run()
        end.record()
        end.synchronize()
        return max(float(start.elapsed_time(end)) * 1e-3, 1e-9)

    def _measured_cycles_per_s(self) -> float:
        """Measure the clock that the waiting kernel counts [1/s]."""
        wait = partial(self._torch.cuda._sleep, HOLD_CYCLES)
        wait()  # the first call loads the kernel
        return HOLD_CYCLES / self._between_events(wait)

    def hold_queue(self, seconds: float) -> None:
        """Let the device wait, so that launches queue up meanwhile; at most a tenth of a second [s]."""
        if self._cycles_per_s is None:
            self._cycles_per_s = self._measured_cycles_per_s()
        self._torch.cuda._sleep(int(min(seconds, LONGEST_HOLD_S) * self._cycles_per_s))

    def _batch(self, run: Run, launches: int, *, hold_s: float) -> float:
        self.hold_queue(hold_s)
        return self._between_events(run, launches) / launches

    def _host_s(self, run: Run) -> float:
        """Time the launch of a kernel on the host [s]."""
        self._torch.cuda.synchronize(self._device)
        begin = time.perf_counter()
        run()
        launched = time.perf_counter() - begin
        self._torch.cuda.synchronize(self._device)
        return launched

    def time(self, run: Run) -> Timing:
        """Return the device time of a kernel: warmed up, then events around several batches of launches."""
        for _ in range(3):
            run()
        host_s = self._host_s(run)
        once = self._batch(run, 1, hold_s=AHEAD * host_s + 1e-4)
        enough = math.ceil(BATCH_S / max(once, 1e-9))
        launches = min(LAUNCHES, max(FEWEST_LAUNCHES, enough))
        batches = BATCHES if once < LONG_RUN_S else 1
        hold_s = AHEAD * launches * host_s + 1e-4
        return Timing.of([self._batch(run, launches, hold_s=hold_s) for _ in range(batches)])

    def time_after(self, before: Run, run: Run, *, samples: int = 3) -> Timing:
        """Return the device time of single launches, each after a run of ``before``."""
        run()
        hold_s = AHEAD * (self._host_s(before) + self._host_s(run)) + 1e-4
        taken = []
        for _ in range(samples):
            self.hold_queue(hold_s)
            before()
            taken.append(self._between_events(run))
        return Timing.of(taken)


def _bound(call: Sequence[Any], torch: Any, operands: Mapping[str, Any]) -> Run:
    """Bind a function of ``torch_kernels`` or, by its dotted name, of torch; this one adds no Python call."""
    name, *arguments = call
    own = getattr(torch_kernels, name, None)
    run = attrgetter(name)(torch) if own is None else partial(own, torch)
    return partial(run, *(operands[entry] if isinstance(entry, str) else entry for entry in arguments))


def _pass(stated: Mapping[str, Any], family: Family, phase: str) -> Prepare:
    """Return the maker of a pass of ``shapes.toml`` or of its gradient, for which the pass runs once before."""
    call = stated[phase]
    if isinstance(call, str):
        prepare: Prepare = getattr(torch_kernels, call)
        return prepare

    def prepare_call(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
        operands = {name: tools.normal(*family.tensor(sizes)) for name in ("x", "z", "third")[: family.inputs]}
        forward = _bound(stated["forward"], tools.torch, operands)
        if phase == "forward":
            return Prepared(forward, random=stated.get("random", False))
        operands["y"] = forward()
        operands["g"] = tools.normal(*operands["y"].shape)
        return Prepared(_bound(call, tools.torch, operands))

    return prepare_call


def pass_benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of passes: those of ``shapes.toml``, and some with operations of their own."""
    kernels = torch_kernels
    yield from families.stated_passes("torch", _pass)
    yield Benchmark(
        name="gradient_sum_backward",
        axes=ELEMENTS.axes,
        operation=lambda sizes: elementwise(
            "gradient_sum", sizes["elements"], reads=2, flop_per_element=1, role=Role.INPUT_GRADIENT
        ),
        prepare=lambda tools, sizes, _: Prepared(
            partial(tools.torch.add, *(tools.normal(*ELEMENTS.tensor(sizes)) for _ in range(2)))
        ),
        weight=1.5,
    )
    windows = families.family("maps", {"window": Axis(values=(0, 2, 3)), "stride": Axis(values=(1, 2))})
    groups = {"groups": Axis(values=(2, 4, 8))}
    for suffix, role, parts in (("", None, {}), ("_backward", families.part_of_gradient, families.PARTS)):
        yield pass_benchmark(f"avg_pool{suffix}", windows, kernels.average_layer, kernels.average_pool)
        yield pass_benchmark(
            f"group_norm{suffix}",
            families.family("maps", groups | parts),
            lambda sizes: layers.GroupNorm(groups=sizes["groups"]),
            kernels.group_norm,
            shapes=kernels.group_shapes,
            role=role,
            weight=0.5,
        )


DENSE_POINTS: Final = 60
"""Shapes of each product of a dense layer, where most networks spend most of their time [1]."""


def product_benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of products, recurrent layers, attention, embedding tables and optimizers."""
    kernels, of_roles = torch_kernels, families.role_benchmarks
    dense = families.by_role("gemm")
    yield from of_roles(
        dense, families.CONTRACTION_AXES, families.contraction, kernels.dense, point_count=DENSE_POINTS, weight=4
    )
    # the layer of batched products calls both its gradients input gradients
    batched = families.by_role("batched_gemm", (Role.OUTPUT, Role.INPUT_GRADIENT))
    yield from of_roles(batched, families.BATCHED_AXES, families.batched_contraction, kernels.batched)
    for family in families.CONVOLUTIONS:
        names = families.by_role(family.name)
        yield from of_roles(names, family.axes, family.operation, kernels.convolution, weight=family.weight)
    for cell, weight in (("lstm", 2.0), ("gru", 0.5), ("rnn", 0.5)):
        make, prepare = partial(families.recurrence, cell), partial(kernels.recurrent, cell)
        yield from of_roles(families.by_role(cell), families.RECURRENT_AXES, make, prepare, weight=weight)
    attentions = {Role.OUTPUT: "attention", Role.INPUT_GRADIENT: "attention_backward"}
    yield from of_roles(attentions, families.ATTENTION_AXES, families.attention, kernels.attention, weight=2)
    yield from of_roles(families.GATHERS, families.GATHER_AXES, families.gather, kernels.gather)
    yield from families.update_benchmarks(kernels.UPDATES, kernels.update)
