"""A framework runs recurrent layers by the DNN library where it calls it and the library has them."""

from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.framework.recurrence import FUSED, PERSISTENT, recurrence_alternatives
from perfmodel.hardware.catalogue import load_library
from perfmodel.kernels import Matmul, Stream
from perfmodel.layers import LSTM
from perfmodel.records import Recurrence, Role
from tests.lowering_rules import CELLS, changed

STEPS, HIDDEN = 50, 256
LAYER = Recurrence(
    batch_size=32,
    steps=STEPS,
    input_size=128,
    hidden_size=HIDDEN,
    gate_count=4,
    pointwise_flop_count=18,
    state_count=2,
)
OF_CELLS = changed(CELLS, gate_products="per_gate")


def network(hidden=HIDDEN):
    graph = pm.LayerGraph("one layer", input_shape=(STEPS, 128))
    graph.add("lstm", LSTM(hidden_size=hidden), inputs=graph.input)
    return graph


def kernels(rules, role=Role.OUTPUT, element_bytes=4, library=(), **changes):
    alternatives = recurrence_alternatives(
        replace(LAYER, role=role, **changes), rules=rules, library=library, element_bytes=element_bytes
    )
    return {each.name: each.kernels for each in alternatives}


def test_without_the_library_cells_run_as_the_framework_has_them():
    (of_cells,) = kernels(OF_CELLS).values()
    assert sum(each.launches for each in of_cells) == STEPS * (8 + 17)
    assert all(each.library_launches == 0 for each in of_cells)


def test_the_librarys_layer_is_one_call_of_one_product_beforehand_and_two_launches_a_step():
    over_time, through_time, pointwise = kernels(OF_CELLS, library=(FUSED,))[FUSED]
    assert (over_time.m, over_time.launches, over_time.efficiency) == (32 * STEPS, 1, "gemm")
    assert (through_time.m, through_time.n, through_time.launches) == (32, 4 * HIDDEN, STEPS)
    assert through_time.efficiency == "recurrent_gemm"
    assert (pointwise.launches, type(pointwise)) == (STEPS, Stream)
    assert [each.library_launches for each in (over_time, through_time, pointwise)] == [0, STEPS, STEPS]


@pytest.mark.parametrize("role", list(Role)[:3])
def test_both_do_the_same_arithmetic(role):
    def product_flop_count(**library):
        (of_layer,) = kernels(OF_CELLS, role, **library).values()
        return sum(each.flop_count * each.launches for each in of_layer if isinstance(each, Matmul))

    assert product_flop_count() == product_flop_count(library=(FUSED,))


def test_weights_stay_in_registers_only_in_half_precision_and_where_the_framework_asks():
    asks, both = changed(CELLS, persistent_units=1024), {"library": (FUSED, PERSISTENT)}
    assert set(kernels(asks, element_bytes=2, **both)) == {FUSED, PERSISTENT}
    assert set(kernels(asks, element_bytes=4, **both)) == {FUSED}
    assert set(kernels(asks, element_bytes=2, **both, hidden_size=1152)) == {FUSED}
    assert set(kernels(asks, element_bytes=2, **both, hidden_size=200)) == {FUSED}
    assert set(kernels(asks, Role.WEIGHT_GRADIENT, element_bytes=2, **both)) == {FUSED}
    assert set(kernels(changed(asks, persistent_units=None), element_bytes=2, **both)) == {FUSED}
    _, whole = kernels(asks, element_bytes=2, **both)[PERSISTENT]
    assert (whole.launches, whole.count, whole.efficiency) == (1, STEPS, "recurrent_persistent")
    assert whole.read_bytes == 2 * (4 * HIDDEN * HIDDEN + STEPS * 32 * HIDDEN)


@pytest.mark.parametrize(
    ("framework", "library", "kernel"),
    [
        ("generic", None, FUSED),
        ("pytorch_2", None, FUSED),
        ("torch7_cudnn5", None, FUSED),
        ("generic", "cudnn_4", "hoisted_grouped"),
        ("torch_423cfba", None, "per_step_grouped"),
        ("tensorflow_0_9", None, "concatenated_grouped"),
    ],
)
def test_a_prediction_takes_what_framework_and_library_have(framework, library, kernel):
    p = pm.predict(network(), batch_size=32, device="titan_x_maxwell", framework=framework, library=library)
    assert p.layers.to_frame().kernel[0] == kernel


def test_a_fused_layer_is_dispatched_once_and_unfused_cells_at_every_launch():
    fused, cells = (
        pm.predict(network(), batch_size=32, device="titan_x_pascal", framework=framework, phase="forward")
        for framework in ("torch7_cudnn5", "torch_423cfba")
    )
    # both frameworks take 16 us for a launch; inside the library's call a launch takes the driver 3 us
    assert fused.dispatch_s - fused.step_overhead_s == pytest.approx(16e-6 + 2 * STEPS * 3e-6)
    assert cells.dispatch_s - cells.step_overhead_s == pytest.approx(STEPS * 18 * 16e-6)
    assert cells.step_s > 3 * fused.step_s


def test_half_precision_on_volta_keeps_small_layers_on_chip():
    def kernel(device, dtype, hidden):
        p = pm.predict(
            network(hidden), batch_size=32, device=device, framework="pytorch_2", dtype=dtype, phase="forward"
        )
        return next(row.kernel for row in p.layers if row.kernel != "cast")  # automatic casts come before the layer

    assert kernel("v100_sxm2", "fp16", 1024) == PERSISTENT
    assert kernel("v100_sxm2", "fp16", 1152) == FUSED
    assert kernel("v100_sxm2", "fp32", 1024) == FUSED
    assert kernel("t4", "fp16", 1024) == FUSED  # as PyTorch leaves Turing out


@pytest.mark.parametrize("name", ["cudnn_5", "cudnn_6", "cudnn_8"])
def test_a_library_that_offers_fused_layers_says_how_fast_they_are(name):
    library = load_library(name)
    for architecture in ("kepler", "maxwell", "pascal", "pascal_gp100", "volta", "an architecture of tomorrow"):
        if FUSED in library.algorithms_for(architecture):
            assert 0 < library.constants_for(architecture)["recurrent_thin"] <= 1
