"""The process in which the live check measures: fixed threads, kept memory, one JSON line for each result.

It reads a plan from its standard input and writes events to its standard output; ``live.check`` starts it.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from perfmodel.calibration.facts import freed_memory_kept
from perfmodel.validation.live.modules import OPTIMIZERS, WithLoss, tensors
from perfmodel.validation.live.prediction import LIVE_DTYPES, LIVE_NETWORKS, LiveCase, LivePlan

MOST_STEPS: Final = 200
"""Most timed steps of a case in a round [1]."""

REFERENCE_EDGES: Final = {"cpu": 1024, "cuda": 4096}
"""Rows and columns of the product whose time tells whether the machine became slower [1]."""

REFERENCE_RUNS: Final = 3
"""Products whose median time is taken [1]."""

Event = dict[str, Any]


@dataclass(slots=True)
class _Clock:
    """Times calls that follow one another without a pause."""

    device: torch.device

    def seconds(self, call: Callable[[], object], *, steps: int, at_least_s: float) -> list[float]:
        """Time at least ``steps`` calls, and more until ``at_least_s`` have passed."""
        timed = self._on_gpu if self.device.type == "cuda" else self._on_cpu
        times: list[float] = []
        while len(times) < steps or (sum(times) < at_least_s and len(times) < MOST_STEPS):
            times += timed(call, steps)
        return times

    def _on_cpu(self, call: Callable[[], object], steps: int) -> list[float]:
        times = []
        for _ in range(steps):
            begun = time.perf_counter()
            call()
            times.append(time.perf_counter() - begun)
        return times

    def _on_gpu(self, call: Callable[[], object], steps: int) -> list[float]:
        """Return the time between marks in the stream: a step's kernels, or its dispatch where that is longer."""
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(self.device)
        marks[0].record()
        for mark in marks[1:]:
            call()
            mark.record()
        torch.cuda.synchronize(self.device)
        return [1e-3 * marks[index].elapsed_time(marks[index + 1]) for index in range(steps)]


class _Trial:
    """A network ready to run, as training and as inference."""

    def __init__(self, case: LiveCase, device: torch.device) -> None:
        network = LIVE_NETWORKS[case.network]
        torch.manual_seed(0)
        self.module = WithLoss(network.module()).to(device)
        self.target, self.inputs = tensors(network, batch_size=case.batch_size, device=str(device))
        self.optimizer = OPTIMIZERS[network.optimizer](self.module.parameters())
        self.loss = torch.zeros(())

    def call(self, case: LiveCase) -> Callable[[], None]:
        """Return a function that runs one step of a case, each forward pass under autocast, as its manual says."""
        training = case.phase == "step"
        self.module.train(training)
        halves = case.dtype == "bf16"
        rounding = partial(torch.autocast, self.target.device.type, dtype=torch.bfloat16, enabled=halves)

        def step() -> None:
            self.optimizer.zero_grad()
            with rounding():
                self.loss = self.module(self.target, *self.inputs)["loss"]
            self.loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()

        def infer() -> None:
            with torch.inference_mode(), rounding():
                self.module.network(*self.inputs)

        return step if training else infer


def _reference(device: torch.device) -> Callable[[], object]:
    edge = REFERENCE_EDGES[device.type]
    left, right = torch.randn(edge, edge, device=device), torch.randn(edge, edge, device=device)
    return lambda: torch.mm(left, right)


def _set_rounding(dtype: str) -> None:
    """Switch the products of GPUs between full and TF32 precision."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"


def measure(plan: LivePlan, *, allocator: str) -> Iterator[Event]:
    """Measure every case of a plan, round by round."""
    torch.set_num_threads(plan.threads)
    unknown = {case.dtype for case in plan.cases} - set(LIVE_DTYPES)
    if unknown:  # it would run as fp32 under another name
        message = f"networks are not run in {', '.join(sorted(unknown))}"
        raise ValueError(message)
    device = torch.device(plan.device)
    yield {"facts": _software(device) | {"threads": str(plan.threads), "allocator": allocator}}
    clock, reference = _Clock(device), _reference(device)
    trials: dict[tuple[str, int], _Trial] = {}
    failed: set[int] = set()
    for _ in range(plan.repeats):
        for index, case in enumerate(plan.cases):
            if index in failed:
                continue
            _set_rounding("fp32")
            before = clock.seconds(reference, steps=REFERENCE_RUNS, at_least_s=0.0)
            try:
                seconds = _timed(case, plan, clock, trials)
            except (RuntimeError, torch.OutOfMemoryError) as error:
                failed.add(index)
                yield {"case": index, "failure": str(error).splitlines()[0]}
                continue
            _set_rounding("fp32")
            after = clock.seconds(reference, steps=REFERENCE_RUNS, at_least_s=0.0)
            yield {"case": index, "seconds": seconds, "reference_s": statistics.median(before + after)}
    yield {"facts": _page_faults()}


def _timed(case: LiveCase, plan: LivePlan, clock: _Clock, trials: dict[tuple[str, int], _Trial]) -> float:
    """Return the median step of a case."""
    key = (case.network, case.batch_size)
    if key not in trials:
        trials[key] = _Trial(case, clock.device)
    trial = trials[key]
    _set_rounding(case.dtype)
    call = trial.call(case)
    for _ in range(plan.warmup_steps):
        call()
    times = clock.seconds(call, steps=plan.steps, at_least_s=plan.seconds)
    if not math.isfinite(float(trial.loss.detach())):
        message = "the loss is not finite"
        raise RuntimeError(message)
    return statistics.median(times)


def _software(device: torch.device) -> dict[str, str]:
    import platform

    facts = {"python": platform.python_version(), "torch": torch.__version__}
    if device.type == "cuda":
        facts |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}  # type: ignore[no-untyped-call]
    return facts


def _page_faults() -> dict[str, str]:
    try:
        import resource
    except ImportError:  # not on Windows
        return {}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"minor page faults": str(usage.ru_minflt), "major page faults": str(usage.ru_majflt)}


def main() -> None:
    """Read a plan from standard input and write its results, a JSON line for each event."""
    plan = LivePlan.from_dict(json.load(sys.stdin))
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers, freed_memory_kept() as allocator:
        os.dup2(2, 1)  # output of libraries must not come between the events
        for event in measure(plan, allocator=allocator):
            answers.write(f"{json.dumps(event)}\n")
            answers.flush()


if __name__ == "__main__":
    main()
