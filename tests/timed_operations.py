"""What a calibration timed and what the live networks do, as operations that can be held against each other."""

from perfmodel.calibration.calibrate import benchmark_table
from perfmodel.calibration.journal import read_journal
from perfmodel.framework.measured_lowering import measured_kernel
from perfmodel.validation.live import prediction as live_prediction
from perfmodel.validation.live.prediction import cases_of, operations_of


def class_of(operation):
    """The kernel class of an operation."""
    return measured_kernel(operation, element_bytes=4).efficiency


SINCE_NAMED = {"transpose": "rearrange", "transpose_backward": "rearrange_backward"}
"""Name of a kernel in older records -> its name now."""


def recorded_operations(record):
    """Data type and operation of every point of a record."""
    content = read_journal(record)
    benchmarks = benchmark_table(content["header"]["backend"])
    return [
        (point.dtype, benchmarks[SINCE_NAMED.get(point.name, point.name)].operation(point.sizes))
        for point in content["points"]
    ]


def live_operations(*, processor="cpu", dtype="fp32"):
    """Every operation of the live networks with its class: what no calibrator may time.

    A network is traced once, as it trains: what it does at inference follows from that graph.
    """
    found = set()
    for network in live_prediction.LIVE_NETWORKS.values():
        (case,) = (each for each in cases_of((network,), processor=processor, dtypes=(dtype,)) if each.phase == "step")
        inference = live_prediction.imported(network.name, "step")[0].at_inference()
        done = [operation for _, operation in inference.operations(batch_size=case.batch_size, phase="forward")]
        found |= {(class_of(operation), operation) for operation in (*operations_of(case), *done)}
    return found
