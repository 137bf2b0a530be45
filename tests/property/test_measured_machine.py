"""Properties of steps on a measured machine: what must rise, and what must not depend on what."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from measured_machines import machine, predicted, three_layers
from perfmodel.hardware.measured_machine import CONSTANTS_OF_FAMILY

OVERHEADS = ("grad_forward_s", "backward_s", "parameter_s", "step_s")
NETWORKS = {"three_layers": three_layers, "alexnet": pm.zoo.alexnet, "fcn5": pm.zoo.fcn5}


def with_constant(measured, name, constant, value):
    """The same machine with another value of one constant of one class."""
    kernel = tuple(
        each.model_copy(update={"constants": each.constants | {constant: value}}) if each.name == name else each
        for each in measured.kernel
    )
    return measured.model_copy(update={"kernel": kernel})


@settings(max_examples=15, deadline=None)
@given(
    network=st.sampled_from(sorted(NETWORKS)),
    phase=st.sampled_from(["step", "forward"]),
    processor=st.sampled_from(["cpu", "gpu"]),
    sizes=st.lists(st.integers(1, 2048), min_size=2, max_size=4, unique=True),
)
def test_a_larger_batch_takes_longer_and_no_less_memory(network, phase, processor, sizes):
    graph, device = NETWORKS[network](), machine(hot=False, processor=processor, dispatch_s=1e-6)
    found = [predicted(device, graph=graph, batch_size=size, phase=phase) for size in sorted(sizes)]
    assert np.all(np.diff([p.step_s for p in found]) >= 0)
    assert np.all(np.diff([p.memory.total_bytes for p in found]) > 0)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from([each.name for each in machine().kernel]),
    place=st.integers(0, 4),
    factor=st.floats(1.5, 100),
)
def test_a_larger_constant_never_shortens_a_step_and_lengthens_those_that_use_it(name, place, factor):
    device = machine(hot=False)
    (curve,) = [each for each in device.kernel if each.name == name]
    names = CONSTANTS_OF_FAMILY[curve.family]
    constant = names[place % len(names)]
    value = curve.constants.get(constant, 0.0)
    usual = predicted(device, batch_size=256)
    slower = predicted(with_constant(device, name, constant, value * factor + 1e-13), batch_size=256)
    assert slower.step_s >= usual.step_s
    used = {row.kernel for row in usual.layers}
    if name in used and constant in ("call_s", "s_per_flop") and curve.family != "stream":
        assert slower.step_s > usual.step_s


@pytest.mark.parametrize("name", OVERHEADS)
def test_what_a_framework_adds_lengthens_training_alone(name):
    longer = machine(**{name: 1e-3})
    assert predicted(longer).step_s > predicted().step_s
    assert predicted(longer, phase="forward").step_s == predicted(phase="forward").step_s


@settings(max_examples=15, deadline=None)
@given(
    reuse_mib=st.floats(1e-3, 1e5),
    network=st.sampled_from(sorted(NETWORKS)),
    phase=st.sampled_from(["step", "forward"]),
    batch_size=st.integers(1, 512),
)
def test_cold_data_never_shorten_a_step_nor_cost_more_than_all_bytes_would(reuse_mib, network, phase, batch_size):
    graph = NETWORKS[network]()
    options = {"graph": graph, "phase": phase, "batch_size": batch_size}
    cold, hot = predicted(machine(hot=False, reuse_mib=reuse_mib), **options), predicted(machine(), **options)
    most_s = max(each.cold_s_per_byte for each in machine(hot=False).kernel) * sum(row.bytes for row in hot.layers)
    assert hot.step_s <= cold.step_s <= hot.step_s + most_s


@settings(max_examples=10, deadline=None)
@given(batch_size=st.integers(1, 512), phase=st.sampled_from(["step", "forward_backward", "forward"]))
def test_parts_sum_to_the_step_and_layers_to_its_kernels(batch_size, phase):
    p = predicted(machine(hot=False), batch_size=batch_size, phase=phase)
    assert sum(p.breakdown.values()) == pytest.approx(p.step_s, rel=1e-12)
    kernels_s = p.compute_s + p.memory_bound_s + p.update_s
    assert sum(row.seconds for row in p.layers) == pytest.approx(kernels_s, rel=1e-9)
