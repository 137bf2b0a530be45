"""Memory-bound passes of torch: for each its layer, and the calls that run it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from perfmodel import layers
from perfmodel.calibration import families
from perfmodel.calibration.backends.base import Clock, Timing
from perfmodel.calibration.benchmark import Benchmark, Prepared, Run, Sizes
from perfmodel.calibration.families import ELEMENTS, MAPS, TWO_OF_ELEMENTS, Family, pass_benchmark
from perfmodel.layers import Layer
from perfmodel.layers.passes import elementwise
from perfmodel.records import Convolution, Operation, Role

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


Call = Callable[..., Any] | Sequence[Any]
"""Call of a pass: a function of torch and the operands, or the dotted name of a torch function and its arguments:
``x`` and ``z`` the inputs, ``y`` the result, ``g`` its gradient, other values unchanged. A name adds no Python call."""


def _bound(call: Call, torch: Any, operands: Mapping[str, Any]) -> Run:
    if callable(call):
        return partial(call, torch, *operands.values())
    function, *arguments = call
    return partial(
        attrgetter(function)(torch), *(operands[name] if isinstance(name, str) else name for name in arguments)
    )


def passes(
    name: str,
    family: Family,
    layer: Layer | Callable[[Sizes], Layer],
    forward: Call,
    backward: Call | None = None,
    *,
    random: bool = False,
    weight: float = 1.0,
) -> Iterator[Benchmark]:
    """Yield the benchmark of a pass and that of its gradient; its function takes gradient, result and inputs."""

    def forward_of(tools: TorchTools, sizes: Sizes) -> tuple[Run, dict[str, Any]]:
        inputs = {key: tools.normal(*family.tensor(sizes)) for key in ("x", "z", "third")[: family.inputs]}
        return _bound(forward, tools.torch, inputs), inputs

    def prepare(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
        return Prepared(forward_of(tools, sizes)[0], random=random)

    def prepare_backward(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
        assert backward is not None
        run, inputs = forward_of(tools, sizes)
        result = run()
        operands = {"g": tools.normal(*result.shape), "y": result, **inputs}
        return Prepared(_bound(backward, tools.torch, operands))

    yield pass_benchmark(name, family, layer, prepare, weight=weight)
    if backward is not None:
        yield pass_benchmark(f"{name}_backward", family, layer, prepare_backward, weight=weight)


def _layer_of(kind: str, **options: Any) -> Layer:
    return layers.LAYERS[kind](**options)


def _element_wise() -> Iterator[Benchmark]:
    for name, stated in families.STATED["torch_pass"].items():
        options = {**stated, "layer": _layer_of(**stated["layer"])}
        yield from passes(name, TWO_OF_ELEMENTS if "z" in stated["forward"] else ELEMENTS, **options)
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
    yield from passes(
        "power",
        ELEMENTS,
        layers.Unary(function="power"),
        lambda torch, x: torch.pow(x, 3.0),
        lambda torch, g, y, x: g * (3.0 * torch.pow(x, 2.0)),
    )
    yield from passes(
        "dropout",
        ELEMENTS,
        layers.Dropout(rate=0.3),
        lambda torch, x: torch.nn.functional.dropout(x, 0.3, True),
        random=True,
        weight=1.5,
    )
    yield pass_benchmark("dropout_backward", ELEMENTS, layers.Dropout(rate=0.3), _dropout_gradient)
    drawn = layers.Unary(function="bernoulli")
    yield from passes("bernoulli", ELEMENTS, drawn, lambda torch, x: torch.empty_like(x).bernoulli_(0.5), random=True)


def _dropout_gradient(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the gradient from the dropout mask: kept as Booleans on a GPU, as numbers on a CPU."""
    gradient, kept = (tools.normal(*ELEMENTS.tensor(sizes)) for _ in range(2))
    if tools.on_gpu:
        return Prepared(partial(tools.torch.ops.aten.native_dropout_backward, gradient, kept > 0, 1.4))
    return Prepared(partial(tools.torch.mul, gradient, kept))


def _maps() -> Iterator[Benchmark]:
    yield from passes(
        "concat",
        families.family("maps", inputs=3),
        layers.Concat(),
        lambda torch, *parts: torch.cat(parts, 1),
        lambda torch, g, _, *parts: g.chunk(len(parts), 1),  # autograd passes parts of the gradient without a copy
    )
    yield from passes(
        "rearrange",
        MAPS,
        lambda sizes: layers.Rearrange(shape=(sizes["height"], sizes["width"], sizes["channels"])),
        lambda torch, x: x.permute(0, 2, 3, 1).contiguous(),
        lambda torch, g, y, x: g.permute(0, 3, 1, 2).contiguous(),
    )
    yield from passes(
        "pad",
        MAPS,
        layers.Pad(padding=((0, 0), (1, 2), (1, 2))),
        lambda torch, x: torch.nn.functional.pad(x, (1, 2, 1, 2)),
        lambda torch, g, y, x: torch.nn.functional.pad(g, (-1, -2, -1, -2)),
    )
    yield from passes(
        "upsample",
        MAPS,
        layers.Upsample(scale_factor=2),
        lambda torch, x: torch.nn.functional.interpolate(x, scale_factor=2),
        lambda torch, g, y, x: torch.ops.aten.upsample_nearest2d_backward(g, list(y.shape[2:]), list(x.shape)),
    )


def pass_benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of element-wise passes and copies."""
    yield from _element_wise()
    yield from _maps()


DENSE_POINTS: Final = 60
"""Shapes of each product of a dense layer, where most networks spend most of their time [1]."""


def _dense(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare the products of ``F.linear`` and its autograd; weights are kept by outputs."""
    rows, inputs, outputs = sizes["rows"], sizes["inputs"], sizes["outputs"]
    if operation.role is Role.OUTPUT:
        linear = tools.torch.nn.functional.linear
        return Prepared(
            partial(linear, tools.normal(rows, inputs), tools.normal(outputs, inputs), tools.normal(outputs))
        )
    gradient = tools.normal(rows, outputs)
    if operation.role is Role.INPUT_GRADIENT:
        return Prepared(partial(tools.torch.mm, gradient, tools.normal(outputs, inputs)))
    return Prepared(partial(tools.torch.mm, gradient.t(), tools.normal(rows, inputs)))


def _batched(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    return Prepared(partial(tools.torch.bmm, *families.batched_operands(tools, sizes, operation)))


def _convolution(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a convolution, or one of its gradients by the output mask of ``convolution_backward``."""
    assert isinstance(operation, Convolution)
    op, torch = operation, tools.torch
    along = len(op.kernel_size)
    maps = tools.normal(op.batch_size, op.in_channels, *op.input_size)
    filters = tools.normal(op.out_channels, op.in_channels // op.groups, *op.kernel_size)
    padding = [first for first, _ in op.padding]
    stride, dilation = list(op.stride), list(op.dilation)
    if op.role is Role.OUTPUT:
        convolve = getattr(torch.nn.functional, f"conv{along}d")
        return Prepared(partial(convolve, maps, filters, None, stride, padding, dilation, op.groups))
    wanted = [op.role is Role.INPUT_GRADIENT, op.role is Role.WEIGHT_GRADIENT, False]
    gradient = tools.normal(op.batch_size, op.out_channels, *op.output_size)
    geometry = (stride, padding, dilation, False, [0] * along, op.groups, wanted)
    return Prepared(partial(torch.ops.aten.convolution_backward, gradient, maps, filters, None, *geometry))


def product_benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of products."""
    dense = families.by_role("gemm")
    yield from families.role_benchmarks(
        dense, families.CONTRACTION_AXES, families.contraction, _dense, point_count=DENSE_POINTS, weight=4
    )
    # the layer of batched products calls both its gradients input gradients
    batched = families.by_role("batched_gemm", (Role.OUTPUT, Role.INPUT_GRADIENT))
    yield from families.role_benchmarks(batched, families.BATCHED_AXES, families.batched_contraction, _batched)
    for family in families.CONVOLUTIONS:
        names = families.by_role(family.name)
        yield from families.role_benchmarks(names, family.axes, family.operation, _convolution, weight=family.weight)
