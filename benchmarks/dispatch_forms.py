"""Compare ways in which the host's dispatch and the device's kernels may add up to a step.

    python benchmarks/dispatch_forms.py                       # nothing fitted: shi2016 and other laboratories
    python benchmarks/dispatch_forms.py leave_one_device_out  # a protocol that fits, on shi2016 (GPU)

The prediction's own form is the smooth maximum of each launch (``perfmodel/cost/roofline.py``). The others replace what
it exposes and leave all else alone, so that a protocol fits its constants anew for each form:

- sum: nothing is hidden
- launch: the longer of each launch's kernel and its dispatch
- queue: an asynchronous queue without end in the order of execution. The host issues one launch after the other, a
  kernel starts when it is issued and the one before has ended. Unrolled, the end is the longest path that follows the
  host up to some launch and the device from there: the largest sum of dispatch before and kernels after a launch.
- queue of 1024, queue of 1: the same, where the host waits when it is that many launches ahead
- step: the longer of all kernels and all dispatch

Errors are 100 x mean |ln(predicted / measured)| and the geometric mean of the ratio.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import replace
from typing import Any

import numpy as np

import perfmodel as pm
from perfmodel.framework.kernel_table import KernelTable
from perfmodel.prediction.device.step_time import GroupTimes, ProcessorNumbers, StepTime, step_time
from perfmodel.prediction.job import prepared

TABLES = ("shi2016", "rnn2016", "johnson2016", "lambda2019", "mxnet2017", "sako2018", "tensorflow2017", "nvidia2021")


def in_order(table: KernelTable, groups: GroupTimes, numbers: ProcessorNumbers) -> tuple[Any, Any, Any]:
    """Return launches, host seconds and device seconds of every operation in the order of execution."""
    places = np.array([occurrence.group for occurrence in table.occurrences])
    busy_s = groups.compute_s + groups.memory_s + groups.launches * numbers.launch_s
    launches = np.broadcast_to(groups.launches, busy_s.shape)
    dispatch_s = np.broadcast_to(groups.dispatch_s, busy_s.shape)
    return launches[places], dispatch_s[places], busy_s[places]


def exposed_by_sum(launches: Any, host_s: Any, busy_s: Any) -> Any:
    """Return all of the dispatch."""
    del launches, busy_s
    return host_s.sum(axis=0)


def exposed_by_launch(launches: Any, host_s: Any, busy_s: Any) -> Any:
    """Return what exceeds each operation's own kernels."""
    del launches
    return np.maximum(host_s - busy_s, 0.0).sum(axis=0)


def exposed_by_step(launches: Any, host_s: Any, busy_s: Any) -> Any:
    """Return what exceeds all kernels."""
    del launches
    return np.maximum(host_s.sum(axis=0) - busy_s.sum(axis=0), 0.0)


def exposed_by_queue(launches: Any, host_s: Any, busy_s: Any) -> Any:
    """Return what the longest path through host and device adds to the kernels; like launches within an operation."""
    runs = launches > 0
    count = np.maximum(launches, 1)
    issued_s = np.cumsum(host_s, axis=0)
    left_s = np.cumsum(busy_s[::-1], axis=0)[::-1]
    from_first = issued_s - host_s + host_s / count + left_s
    from_last = issued_s + busy_s / count + left_s - busy_s
    end_s = np.where(runs, np.maximum(from_first, from_last), 0.0).max(axis=0)
    total_s = busy_s.sum(axis=0)
    return np.maximum(end_s, total_s) - total_s


def exposed_by_bounded_queue(depth: int) -> Any:
    """Return the form of a queue in which the host is never more than ``depth`` launches ahead."""

    def exposed(launches: Any, host_s: Any, busy_s: Any) -> Any:
        host_end_s, device_end_s = np.zeros_like(busy_s[0]), np.zeros_like(busy_s[0])
        for count, host, busy in zip(launches, host_s, busy_s, strict=True):
            runs, single = count > 0, np.maximum(count, 1)
            started = np.maximum(device_end_s, host_end_s + host / single) + busy
            ended = np.maximum(started, host_end_s + host + busy / single)
            device_end_s = np.where(runs, ended, device_end_s)
            free_s = device_end_s - depth * busy / single
            host_end_s = np.where(runs, np.maximum(host_end_s + host, free_s), host_end_s)
        return device_end_s - busy_s.sum(axis=0)

    return exposed


FORMS = {
    "smooth": None,
    "sum": exposed_by_sum,
    "launch": exposed_by_launch,
    "queue": exposed_by_queue,
    "queue of 1024": exposed_by_bounded_queue(1024),
    "queue of 1": exposed_by_bounded_queue(1),
    "step": exposed_by_step,
}


def composed(form: Any) -> Any:
    """Return step_time with another form of exposed dispatch on GPUs."""

    def with_form(table: KernelTable, numbers: ProcessorNumbers, **arguments: Any) -> StepTime:
        parts = step_time(table, numbers, **arguments)
        if form is None or numbers.overlap_exponent == 1:
            return parts
        groups = arguments["groups"]
        exposed_s = form(*in_order(table, groups, numbers))
        smooth_s = table.multiplicity @ groups.exposed_dispatch_s
        return replace(parts, overhead_s=parts.overhead_s - smooth_s + exposed_s)

    return with_form


def main() -> None:
    """Print every form's scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol", nargs="?", default="nothing_fitted")
    protocol = parser.parse_args().protocol
    tables = TABLES if protocol == "nothing_fitted" else TABLES[:1]
    for name, form in FORMS.items():
        prepared.step_time = composed(form)
        os.environ["PERFMODEL_CACHE"] = tempfile.mkdtemp()  # a kept fit does not know of the form
        scores = []
        for table in tables:
            report = pm.validate(table, protocol=protocol, only="gpu")
            scores.append(f"{table} {100 * report.mean_abs_log_ratio:.1f} ({report.geometric_mean_ratio:.2f})")
        print(f"{name:13s} {protocol}: " + "  ".join(scores), flush=True)


if __name__ == "__main__":
    main()
