"""What TensorFlow 0.9 launched in one step of AlexNet, as a profiler saw it: counts, no times.

The counts are of the run "tfcnn-old" in the traces that the authors of shi2016 published with their scripts
(github.com/hclhkbu/dlbench, MIT): nvprof on a GTX 980, mini-batch 16, one step between two copies of the images. The
trace is of the laboratory whose table is scored, so it may say what runs, but no constant comes from it.
"""

from collections import Counter

import numpy as np
import pytest

import perfmodel as pm

TRACED = {
    # SwapDimension1And2InTensor3 (40) and SwapDimension0And2InTensor3 (14): three around every convolution, forward,
    # back and for the weights, but two fewer where conv1 has no gradient of its input; four around each gradient of
    # pooling
    "transpose": 42,
    "max_pool_backward": 18,  # with 12 of the transposes, 3 setTensor4d_kernel and 3 pooling_bw_kernel_max
    "pad": 2,  # PadInputCustomKernelNHWC: conv1 forward and its weight gradient
    "conv": 11,  # maxwell_scudnn_128x...: conv1, conv3, conv4, conv5 in three roles, without conv1's input gradient
    "fft_gemm": 3,  # cgemm: conv2 in three roles
    "max_pool": 3,  # MaxPoolForwardNHWC
    "bias": 8,  # BiasNHWCKernel
    "bias_gradient_backward": 8,  # BiasGradNHWC_SharedAtomics
}


@pytest.fixture(scope="module")
def launches():
    measured = pm.measurements.load("shi2016")
    (run,) = [run for run in measured.runs if (run.framework, run.network) == ("tensorflow_0_9", "alexnet")]
    p = pm.predict(run, device="gtx_980")
    names = (*p.table.matmul_efficiency, *p.table.stream_efficiency)
    of_row = np.concatenate([columns.at(p.batch_size)["launches"] for columns in (p.table.matmul, p.table.stream)])
    ends = [*p.table.alternative_starts[1:], len(p.table.row_order)]
    counts = Counter()
    for occurrence in p.table.occurrences:
        chosen = p.groups.chosen[occurrence.group]
        for row in p.table.row_order[p.table.alternative_starts[chosen] : ends[chosen]]:
            counts["conv" if names[row].startswith("conv_") else names[row]] += int(of_row[row])
    return counts


@pytest.mark.parametrize(("name", "count"), TRACED.items())
def test_a_step_launches_what_the_profiler_saw(launches, name, count):
    assert launches[name] == count


def test_nothing_is_updated_in_what_was_timed(launches):
    assert not {"sgd", "momentum"} & set(launches)
