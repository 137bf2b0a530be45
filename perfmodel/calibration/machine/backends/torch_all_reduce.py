"""All-reduce between processes of one machine: gloo between two on a CPU, NCCL between the GPUs of a box.

As a module it is one of the processes: it reads what to do from its argument, and the first of them writes the times.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from perfmodel.calibration.machine.process_allocator import child_environment
from perfmodel.errors import CalibrationError

MODULE: Final = "perfmodel.calibration.machine.backends.torch_all_reduce"

SIZES_BYTES: Final = {"gloo": (1024, 2**24), "nccl": (1024, 2**28)}
"""Library -> bytes of the smallest and the largest tensor [B]."""

REPEATS: Final = 9
"""Repeats of which the median is taken [1]."""

LOOPBACK: Final = Path("/sys/class/net/lo")
"""The interface by which gloo's processes reach each other, where the system calls it so."""

LONGEST_S: Final = 30.0
"""Time after which processes that do not find each other are ended [s]."""


def all_reduces(*, library: str, process_count: int, threads: int) -> list[dict[str, Any]]:
    """Return the time of an all-reduce of tensors that lie in several processes.

    Parameters
    ----------
    library : str
        ``gloo`` or ``nccl``. [-]
    process_count : int
        Processes; of ``nccl`` each has the GPU of its number. [1]
    threads : int
        Threads of each. [1]

    Returns
    -------
    list of dict
        One table ``all_reduce`` of a file: time of the smallest tensor [s], rate of a large one [B/s].

    Raises
    ------
    CalibrationError
        If the processes fail, or do not find each other in time; quotes what one of them wrote.
    """
    with tempfile.TemporaryDirectory(prefix="perfmodel_") as folder:
        plan = {"library": library, "process_count": process_count, "store": str(Path(folder) / "store")}
        seconds = _joined([_started(plan | {"rank": rank}, threads) for rank in range(process_count)])
    small, large = SIZES_BYTES[library]
    rate = (large - small) / max(seconds[1] - seconds[0], 1e-9)
    return [{"library": library, "process_count": process_count, "latency_s": seconds[0], "bytes_per_s": rate}]


def _started(plan: Mapping[str, Any], threads: int) -> subprocess.Popen[str]:
    environment = child_environment(threads)
    if LOOPBACK.exists():  # the processes are of one machine, whose name need not lead anywhere
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
    """Return what the first process wrote once all have ended; none is left behind."""
    deadline = time.monotonic() + LONGEST_S
    try:
        told = [each.communicate(timeout=max(deadline - time.monotonic(), 0.1)) for each in processes]
    except subprocess.TimeoutExpired:
        message = f"processes did not meet for an all-reduce within {LONGEST_S:g} s"
        raise CalibrationError(message) from None
    finally:
        for each in processes:
            if each.poll() is None:
                each.kill()
                each.communicate()
    for process, (_, errors) in zip(processes, told, strict=True):
        if process.returncode != 0:
            last = (errors.strip().splitlines() or ["no message"])[-1]
            message = f"a process of an all-reduce ended with code {process.returncode}: {last}"
            raise CalibrationError(message)
    seconds: list[float] = json.loads(told[0][0])
    return seconds


def timed(plan: Mapping[str, Any]) -> list[float]:
    """Return the median time of the smallest and of the largest tensor, as one of several processes.

    Parameters
    ----------
    plan : mapping
        ``library``, ``process_count``, ``rank`` and ``store``, the file by which they find each other. [-]

    Returns
    -------
    list of float
        By size. [s]
    """
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
        for repeat in range(REPEATS + 2):
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


if __name__ == "__main__":
    main()
