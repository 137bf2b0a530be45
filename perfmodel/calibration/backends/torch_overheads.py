"""Time that torch takes beyond its kernels: recording, the engine, optimizers, the launch queue, host copies."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from perfmodel.calibration.backends.base import share_of_chain
from perfmodel.calibration.backends.torch_passes import CudaClock, TorchTools
from perfmodel.calibration.facts import child_environment, page_fault_s
from perfmodel.errors import CalibrationError

MODULE: Final = "perfmodel.calibration.backends.torch_overheads"

SIZES_BYTES: Final = {"gloo": (1024, 2**24), "nccl": (1024, 2**28)}
"""Library -> bytes of the smallest and the largest tensor [B]."""

ALL_REDUCE_REPEATS: Final = 9
"""Repeats whose median is taken [1]."""

LOOPBACK: Final = Path("/sys/class/net/lo")
"""Usual name of the network interface over which gloo's processes reach each other."""

LONGEST_S: Final = 30.0
"""Time after which processes that do not find each other are ended [s]."""

POLL_S: Final = 0.05
"""Time between looks at a process [s]."""


def all_reduces(*, library: str, process_count: int, threads: int) -> list[dict[str, Any]]:
    """Return the time of an all-reduce of tensors that lie in several processes."""
    with tempfile.TemporaryDirectory(prefix="perfmodel_") as folder:
        plan = {"library": library, "process_count": process_count, "store": str(Path(folder) / "store")}
        seconds = _joined([_started(plan | {"rank": rank}, threads) for rank in range(process_count)])
    small, large = SIZES_BYTES[library]
    rate = (large - small) / max(seconds[1] - seconds[0], 1e-9)
    return [{"library": library, "process_count": process_count, "latency_s": seconds[0], "bytes_per_s": rate}]


def _started(plan: Mapping[str, Any], threads: int) -> subprocess.Popen[str]:
    environment = child_environment(threads)
    if LOOPBACK.exists():  # all processes run on this machine, whose name need not resolve
        environment.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK.name)
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, json.dumps(plan)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )


def _joined(processes: Sequence[subprocess.Popen[str]]) -> list[float]:
    """Wait for all processes, return the output of the first, and end the rest."""
    deadline = time.monotonic() + LONGEST_S
    outputs: dict[int, tuple[str, str]] = {}
    try:
        while len(outputs) < len(processes):
            for rank, process in enumerate(processes):
                with suppress(subprocess.TimeoutExpired):
                    outputs[rank] = outputs.get(rank) or process.communicate(timeout=POLL_S)
                if process.returncode:  # the other processes would wait for it
                    last = (outputs[rank][1].strip().splitlines() or ["no message"])[-1]
                    message = f"a process of an all-reduce ended with code {process.returncode}: {last}"
                    raise CalibrationError(message)
            if time.monotonic() > deadline:
                message = f"processes did not meet for an all-reduce within {LONGEST_S:g} s"
                raise CalibrationError(message)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    seconds: list[float] = json.loads(outputs[0][0])
    return seconds


def timed(plan: Mapping[str, Any]) -> list[float]:
    """Return the median time of the smallest and of the largest tensor, as one of several processes."""
    import torch
    from torch import distributed

    library, count, rank = plan["library"], plan["process_count"], plan["rank"]
    on_gpu = library == "nccl"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    distributed.init_process_group(
        library,
        init_method=f"file://{plan['store']}",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=LONGEST_S),
    )
    medians = []
    for size in SIZES_BYTES[library]:
        tensor = torch.ones(size // 4, device=device)
        samples = []
        for repeat in range(ALL_REDUCE_REPEATS + 2):
            tensor.fill_(1)
            distributed.barrier()
            if on_gpu:
                torch.cuda.synchronize(device)
            begin = time.perf_counter()
            distributed.all_reduce(tensor)
            if on_gpu:
                torch.cuda.synchronize(device)
            if repeat > 1:  # the first two connect and warm up
                samples.append(time.perf_counter() - begin)
        if not bool((tensor == count).all()):
            message = f"the sum over {count} processes is wrong"
            raise RuntimeError(message)
        medians.append(statistics.median(samples))
    distributed.destroy_process_group()
    return medians


def main() -> None:
    """Take part in an all-reduce; the first process writes the times to standard output."""
    plan = json.loads(sys.argv[1])
    seconds = timed(plan)
    if plan["rank"] == 0:
        with suppress(BrokenPipeError):
            sys.stdout.write(json.dumps(seconds))


ELEMENTS: Final = 64
"""Elements of the tiny tensors on which calls are timed: next to nothing to compute [1]."""

REPEATS: Final = 15
"""Repeats of a chain whose median is taken [1]."""

HELD_S: Final = 0.01
"""Time for which a GPU waits while a chain is launched: longer than the launches take [s]."""

PINNED_BYTES: Final = (4096, 256 * 2**20)
"""Bytes of the smallest and the largest copy from the host [B]."""


def median_s(run: Callable[[], Any], *, repeats: int = REPEATS, wait: Callable[[], Any] | None = None) -> float:
    """Return the median time of a call."""
    samples = []
    for _ in range(repeats + 2):
        if wait is not None:
            wait()
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    if wait is not None:
        wait()
    return statistics.median(samples[2:])


def _chain_of(tools: TorchTools, *, grad: bool) -> Callable[[int], Any]:
    torch = tools.torch
    x, factor = tools.normal(ELEMENTS, grad=grad), tools.normal(ELEMENTS)

    def chain(length: int) -> Any:
        y = x
        for _ in range(length):
            y = torch.mul(y, factor)
        return y

    return chain


def _module_s(tools: TorchTools) -> float:
    """Time the call of a module beyond the kernels that it runs [s]."""
    module = tools.torch.nn.Identity()
    x = tools.normal(ELEMENTS)

    def called() -> None:
        for _ in range(100):
            module(x)

    return median_s(called) / 100


def _parameter_s(tools: TorchTools, kernel_s: float) -> float:
    torch = tools.torch

    def step_of(count: int) -> float:
        weights = [tools.normal(ELEMENTS, grad=True) for _ in range(count)]
        for weight in weights:
            weight.grad = tools.normal(ELEMENTS)
        return median_s(torch.optim.SGD(weights, lr=1e-6).step, wait=_saturating(tools))

    return max(0.0, share_of_chain(step_of) - kernel_s)


def _step_s(tools: TorchTools, known_s: float) -> float:
    """Time the parts that a step has once: clearing, starting the engine, calling the optimizer [s]."""
    torch = tools.torch
    weight = tools.normal(ELEMENTS, grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-6)

    def step() -> None:
        optimizer.zero_grad()
        torch.mul(weight, 2.0).sum().backward()
        optimizer.step()

    return max(0.0, median_s(step, wait=_saturating(tools)) - known_s)


def _saturating(tools: TorchTools) -> Callable[[], Any] | None:
    """Return a function that empties a GPU's queue and then makes it wait, so that launches queue up.

    Launches to an idle GPU take a different time from those of a step, in which the GPU lags behind the host.
    """
    if not tools.on_gpu:
        return None
    clock = CudaClock(tools.torch, tools.device)

    def saturate() -> None:
        tools.torch.cuda.synchronize(tools.device)
        clock.hold_queue(HELD_S)

    return saturate


def overheads(tools: TorchTools) -> dict[str, float]:
    """Return the table ``overheads`` of a file.

    On a CPU a call of a tiny kernel is timed without and with recording. The kernel's own time is subtracted from the
    time of its gradient in the engine, and from an optimizer's time per tensor. On a GPU these are host times while the
    device lags behind, less the time of a launch (``dispatch_s``).
    """
    torch, wait = tools.torch, _saturating(tools)
    plain, recorded = _chain_of(tools, grad=False), _chain_of(tools, grad=True)
    call_s = share_of_chain(lambda length: median_s(lambda: plain(length), wait=wait))
    recorded_s = share_of_chain(lambda length: median_s(lambda: recorded(length), wait=wait))
    module_s = _module_s(tools)

    def backward_of(length: int) -> float:
        result, gradient = recorded(length), tools.normal(ELEMENTS)
        inputs = _leaves(result)
        return median_s(lambda: torch.autograd.grad(result, inputs, gradient, retain_graph=True), wait=wait)

    backward_s = max(0.0, share_of_chain(backward_of) - call_s)
    recording_s = max(0.0, recorded_s - call_s) + module_s
    parameter_s = _parameter_s(tools, call_s)
    known_s = 2 * (recording_s + backward_s) + parameter_s + 5 * call_s
    return {
        "grad_forward_s": recording_s,
        "backward_s": backward_s,
        "parameter_s": parameter_s,
        "step_s": _step_s(tools, known_s),
        "dispatch_s": call_s if tools.on_gpu else 0.0,
        "page_fault_s": page_fault_s(),
    }


def _leaves(result: Any) -> list[Any]:
    """Return the tensors that a result was made of and that need a gradient."""
    node = result.grad_fn
    while node.next_functions and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return [node.variable]


def host_copies(tools: TorchTools) -> list[dict[str, Any]]:
    """Return copies between host and GPU: time of the smallest, rate of a large one."""
    torch, rows = tools.torch, []
    wait = (lambda: torch.cuda.synchronize(tools.device)) if tools.on_gpu else None
    for pinned in (True, False):
        for direction in ("to_device", "to_host"):
            seconds = []
            for size in PINNED_BYTES:
                host = torch.empty(size, dtype=torch.uint8, pin_memory=pinned).fill_(1)
                device = torch.ones(size, dtype=torch.uint8, device=tools.device)
                target, source = (device, host) if direction == "to_device" else (host, device)

                def copied(target: Any = target, source: Any = source) -> None:
                    target.copy_(source, non_blocking=True)
                    torch.cuda.synchronize(tools.device)

                seconds.append(median_s(copied, repeats=7, wait=wait))
            rate = (PINNED_BYTES[1] - PINNED_BYTES[0]) / max(seconds[1] - seconds[0], 1e-9)
            rows.append({"direction": direction, "pinned": pinned, "latency_s": seconds[0], "bytes_per_s": rate})
    return rows


if __name__ == "__main__":
    main()
