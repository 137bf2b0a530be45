"""No NaN, infinity or negative time leaves ``predict``; a faster link is never longer, more work never shorter.

Turning points, which these properties leave out:

- a slightly larger mini-batch may take less time where a library changes its algorithm or a last wave of tiles fills
  up, so that work grows here by whole factors;
- memory of more bandwidth draws more power at the same energy per byte, which lowers the clock of a GPU whose power is
  limited: fcn5 on a GTX 1080 with thirty times its bandwidth has 4.5 TFLOP/s left of 9.4. So the energy of a byte falls
  here as its bandwidth rises;
- a library takes the algorithm whose kernels are fastest, though it may have more of them to dispatch: where the host
  is the bottleneck, the step takes longer (LeNet-5 on a Titan RTX with ten times its bandwidth: FFT, 1.2 %). So the
  times of kernels are compared here, not those of steps;
- a higher peak beside the same bandwidth lengthens products of cuDNN by up to a third where their sums are short:
  ``write_out_steps`` turns the writing of a tile into steps of the sum, of which a faster unit does more meanwhile, and
  each step has the latency of one that multiplies (AlexNet of one image, seven times the peak: 0.7 % of all kernels).
  So the peak rises here together with the bandwidth.

``PERFMODEL_FUZZ=5000`` tries that many examples.
"""

import math
import os
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.layers import Dense
from perfmodel.prediction.certainty import basis

EXAMPLES = settings(max_examples=int(os.environ.get("PERFMODEL_FUZZ", "25")), deadline=None, derandomize=True)
GRAPHS = {name: pm.zoo.build(name) for name in ("alexnet", "fcn5", "resnet50")}
SYNCS = ("ring_all_reduce", "binomial_tree", "halving_doubling", "parameter_server", "downpour", "delay_compensated")
counts = st.integers(0, 62).map(lambda power: 2**power)


@EXAMPLES
@given(
    network=st.sampled_from(sorted(GRAPHS)), batch_size=counts, steps=counts, workers=st.sampled_from((1, 2, 8)),
    sync=st.sampled_from(SYNCS), bucket_bytes=st.sampled_from((None, 0, 5e-324, 1.0, 1e308, math.inf)),
)  # fmt: skip
def test_all_times_are_finite_and_none_is_negative(network, batch_size, steps, workers, sync, bucket_bytes):
    exchange = {"sync": sync} if workers > 1 else {}
    if workers > 1 and sync not in ("downpour", "delay_compensated"):
        exchange["bucket_bytes"] = bucket_bytes
    p = pm.predict(GRAPHS[network], batch_size=batch_size, system="dgx_a100", workers=workers, **exchange)
    assert all(-1e-9 * p.step_s <= seconds < math.inf for seconds in p.parts)
    assert 0 < p.step_s < math.inf
    assert 0 < p.samples_per_s < math.inf


@EXAMPLES
@given(network=st.sampled_from(sorted(GRAPHS)), batch_size=st.integers(1, 2**40), factor=st.integers(2, 1000))
def test_a_multiple_of_a_mini_batch_never_takes_less_time(network, batch_size, factor):
    few, many = (
        pm.predict(GRAPHS[network], batch_size=n, device="gtx_1080") for n in (batch_size, factor * batch_size)
    )
    assert many.step_s >= few.step_s


@EXAMPLES
@given(batch_size=st.integers(1, 2**40), factor=st.floats(1, 1e6))
def test_a_faster_link_never_takes_longer(batch_size, factor):
    f, rate = formula(), "link_bandwidth_bytes_per_s"
    now = f.stated[rate]
    assert f(batch_size=batch_size, **{rate: factor * now}) <= f(batch_size=batch_size, **{rate: now}) * (1 + 1e-12)


RATES = {
    "bandwidth": lambda d, f: {
        "memory": d.memory.model_copy(update={"bandwidth_gb_per_s": f * d.memory.bandwidth_gb_per_s}),
        "power": d.power and d.power.model_copy(update={"memory_pj": d.power.memory_pj / f}),
    },
    "peak and bandwidth": lambda d, f: {
        "memory": d.memory.model_copy(update={"bandwidth_gb_per_s": f * d.memory.bandwidth_gb_per_s}),
        "peak_tflop_per_s": d.peak_tflop_per_s.model_copy(
            update={name: f * peak for name, peak in d.peak_tflop_per_s.stated().items()}
        ),
        "power": None,  # else the power limits it
    },
    "launch": lambda d, f: {"launch": d.launch.model_copy(update={"latency_us": d.launch.latency_us / f})},
}
DEVICES = ("gtx_1080", "tesla_k80_gk210", "titan_rtx", "a100_80_sxm", "h100_sxm", "mi300x")


@EXAMPLES
@given(
    rate=st.sampled_from(sorted(RATES)), device=st.sampled_from(DEVICES), network=st.sampled_from(sorted(GRAPHS)),
    framework=st.sampled_from(("torch_423cfba", "tensorflow_0_9", "pytorch_2", "generic")),
    batch_size=st.integers(1, 4096), factor=st.floats(1, 1e3),
)  # fmt: skip
def test_kernels_of_a_faster_device_never_take_longer(rate, device, network, framework, batch_size, factor):
    loaded, seconds = pm.load_device(device), []
    for times in (1.0, factor):
        changed = loaded.model_copy(update=RATES[rate](loaded, times))
        p = pm.predict(GRAPHS[network], batch_size=batch_size, device=changed, framework=framework)
        seconds.append(math.fsum(row["seconds"] for row in p.layers.to_dicts()))
    assert seconds[1] <= seconds[0] * (1 + 1e-12)


def test_memory_of_more_bandwidth_takes_power_from_arithmetic():
    """The known turning point, by its reason: without a power limit it is not there."""
    loaded = pm.load_device("gtx_1080")
    ratios = []
    for power in (None, loaded.power):
        times = [
            pm.predict(GRAPHS["fcn5"], batch_size=16, device=loaded.model_copy(update={"power": power, **faster}))
            for faster in ({"memory": RATES["bandwidth"](loaded, by)["memory"]} for by in (10, 30))
        ]
        ratios.append(times[1].step_s / times[0].step_s)
    assert ratios[0] < 1 < ratios[1]


@cache
def formula():
    free = ("batch_size", "link_bandwidth_bytes_per_s")
    return pm.formula(graph=GRAPHS["fcn5"], device="gtx_1080", batch_size=1, free=free)


@pytest.mark.parametrize("part", ["compute_s", "exposed_sync_s", "dispatch_s"])
@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("batch_size", [1, 16])
def test_a_wrong_time_is_refused_wherever_it_arises(part, seconds, batch_size):
    p = pm.predict(GRAPHS["fcn5"], batch_size=batch_size, device="gtx_1080")
    with pytest.raises(ArgumentError, match=part) as refused:
        basis._check_times(p.parts._replace(**{part: seconds}), p.basis.prepared)
    assert refused.value.argument == ("graph" if batch_size == 1 else "batch_size")


@pytest.mark.parametrize("power", [150, 160, 200])
def test_a_layer_wider_than_any_number_is_refused(power):
    graph = pm.LayerGraph("wide", input_shape=(10**power,))
    graph.add("dense", Dense(units=10**power), inputs=graph.input)
    with pytest.raises(ArgumentError, match="graph"):
        pm.predict(graph, batch_size=2**40, device="gtx_1080")
