"""Jobs that copies to the devices bound: from pinned and from pageable buffers, in closed form and played."""

import pytest

import perfmodel as pm

BATCH = 256
FEATURES = 150_528
MOVED_BYTES = BATCH * (4 * FEATURES + 4)  # features as fp32, and a label
SLOT, WIDE_SLOT = pm.load_link("pcie_3_x16"), pm.load_link("pcie_4_x16")
PINNED, PAGEABLE = SLOT.effective_bandwidth_bytes_per_s, SLOT.pageable_bandwidth_bytes_per_s
ROOT = WIDE_SLOT.effective_bandwidth_bytes_per_s  # of survey_fig5, above four slots of PCIe 3.0


@pytest.fixture(scope="module")
def wide():
    """A network that takes 154 MB a step and computes next to nothing."""
    graph = pm.LayerGraph("wide", input_shape=(FEATURES,))
    x = graph.add("scores", pm.layers.Dense(units=10), inputs=graph.input)
    graph.add("loss", pm.layers.CrossEntropy(), inputs=x)
    return graph


def predict(graph, *, system, workers, pinned, prefetch=1, framework="generic"):
    return pm.predict(
        graph,
        batch_size=BATCH,
        system=system,
        workers=workers,
        sync="none",
        phase="forward",
        pinned=pinned,
        prefetch=prefetch,
        framework=framework,
    )


def periods(timeline):
    """Steady time of a step of each worker."""
    ends = {}
    for span in timeline.spans:
        if span.kind == "compute":
            ends.setdefault(span.resource, []).append(span.end_s)
    return [(end[-1] - end[3]) / (len(end) - 4) for end in ends.values()]


def test_pageable_copies_reach_half_of_what_pinned_ones_do():
    """What the links state: the ratio that all of these tests come back to."""
    for link in (SLOT, WIDE_SLOT):
        ratio = link.pageable_bandwidth_bytes_per_s / link.effective_bandwidth_bytes_per_s
        assert ratio == pytest.approx(link.family.pageable_efficiency / link.family.typical_efficiency)
        assert ratio == pytest.approx(0.5)


@pytest.mark.parametrize("prefetch", [0, 1, 2])
@pytest.mark.parametrize(
    ("system", "workers", "pinned_bytes_per_s", "pageable_bytes_per_s"),
    [
        ("survey_fig5", 1, PINNED, PAGEABLE),
        ("survey_fig5", 2, PINNED, PAGEABLE),  # the root carries 25.5 GB/s, two slots 24.9
        ("survey_fig5", 4, ROOT / 4, PAGEABLE),  # four pinned copies fill it, four pageable ones do not
        ("survey_fig6", 16, ROOT / 4, PAGEABLE),
        ("dgx_1_p100", 1, PINNED, PAGEABLE),
        ("dgx_1_p100", 8, PINNED / 2, PAGEABLE),  # two behind each switch: half each, of the same rate as pageable
        ("p2_16xlarge", 16, PINNED / 16, PINNED / 16),  # one uplink for all: buffers are no matter
    ],
)
def test_copies_bound_and_are_as_slow_as_their_buffers(
    wide, system, workers, pinned_bytes_per_s, pageable_bytes_per_s, prefetch
):
    for pinned, rate in ((True, pinned_bytes_per_s), (False, pageable_bytes_per_s)):
        p = predict(wide, system=system, workers=workers, pinned=pinned, prefetch=prefetch)
        assert p.bottleneck == "transfer"
        latency_s = p.transfer_s - MOVED_BYTES / rate  # of two copies: features, labels
        assert 2e-6 < latency_s < 60e-6
        if prefetch:
            assert p.step_s == pytest.approx(p.transfer_s)
        else:
            assert p.step_s > p.transfer_s + 0.5e-3
        played = periods(p.play(20))
        assert len(played) == workers
        assert max(played) == pytest.approx(p.step_s, rel=1e-9)
        assert min(played) == pytest.approx(p.step_s, rel=1e-9)


def test_alone_the_difference_is_that_of_the_bytes(wide):
    pinned, pageable = (predict(wide, system="survey_fig5", workers=1, pinned=pinned) for pinned in (True, False))
    more_s = MOVED_BYTES / PAGEABLE - MOVED_BYTES / PINNED
    assert pageable.step_s - pinned.step_s == pytest.approx(more_s, rel=1e-9)
    assert pageable.play(20).makespan_s - pinned.play(20).makespan_s == pytest.approx(20 * more_s, rel=1e-9)
    assert pageable.compute_s == pinned.compute_s
    assert pageable.memory.total_bytes == pinned.memory.total_bytes


def test_pageable_copies_leave_the_link_half_idle(wide):
    """The device's link is held throughout, and carries half of what it could."""
    for pinned, share in ((True, 1.0), (False, 0.5)):
        timeline = predict(wide, system="survey_fig5", workers=1, pinned=pinned).play(20)
        assert timeline.utilisation("root0>gpu0") == pytest.approx(share, rel=0.01)
        assert timeline.busy_s("root0>gpu0") / timeline.makespan_s > 0.9


def test_copies_that_hide_behind_computing_leave_the_step_alone():
    pinned, pageable = (
        pm.predict(pm.zoo.resnet50(), batch_size=32, system="survey_fig5", pinned=pinned) for pinned in (True, False)
    )
    assert pageable.transfer_s > 1.9 * pinned.transfer_s
    assert pageable.step_s == pinned.step_s
    assert pageable.exposed_transfer_s == 0


def test_a_framework_that_never_pins_is_not_made_to(wide):
    assert not pm.load_framework("caffe_1_0_rc3").feed.pinned
    steps = [
        predict(wide, system="survey_fig5", workers=1, pinned=pinned, framework="caffe_1_0_rc3").step_s
        for pinned in (True, False)
    ]
    assert steps[0] == steps[1] >= MOVED_BYTES / PAGEABLE


def test_unequal_sharing_is_what_pageable_buffers_even_out(wide):
    """Three of a DGX-1, two of them behind one switch: from pageable memory nobody fills the switch."""
    pinned, pageable = (
        periods(predict(wide, system="dgx_1_p100", workers=3, pinned=pinned).play(20)) for pinned in (True, False)
    )
    assert max(pinned) > 1.9 * min(pinned)
    assert max(pageable) == pytest.approx(min(pageable), rel=1e-9)
