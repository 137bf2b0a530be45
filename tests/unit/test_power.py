"""The clock under a power limit, and the energy of what works."""

from functools import partial

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel.cost.order_statistics import Normal
from perfmodel.cost.power import clock_under_power, energy_ratio, work_energy
from perfmodel.errors import ArgumentError
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_default
from perfmodel.hardware.gpu import Gpu
from perfmodel.layers import Dense
from perfmodel.prediction.device.gpu_clock import BUSY_IN_CONVOLUTIONS, clock_ratio, sustained_clocks_mhz

GPUS = [gpu for gpu in map(pm.load_device, spec_files.names("devices")) if isinstance(gpu, Gpu)]
VARIATION = load_default("every_gpu").energy_variation


def products(device, **arguments):
    graph = pm.LayerGraph("square", input_shape=(8192,))
    graph.add("product", Dense(units=8192), inputs=graph.input)
    return pm.predict(graph, batch_size=8192, device=device, phase="forward", framework="library_calls", **arguments)


def test_the_formula_takes_floats_arrays_and_symbols():
    known = {"limit_w": 400.0, "resting_w": 85.0, "arithmetic_w": 406.0}
    clock = clock_under_power(**known)
    assert clock**3 * 406 + 85 == pytest.approx(400)  # what is drawn is the limit
    assert clock_under_power(**{**known, "arithmetic_w": 100.0}, highest=1.05) == 1.05
    limits = np.array([200.0, 300.0, 400.0])
    each = [clock_under_power(**{**known, "limit_w": limit}) for limit in limits]
    assert clock_under_power(**{**known, "limit_w": limits}) == pytest.approx(each)
    limit_w = sympy.Symbol("P", positive=True)
    expression = clock_under_power(**{**known, "limit_w": limit_w})
    assert float(expression.subs(limit_w, 300.0)) == pytest.approx(each[1])


def test_energy_is_the_sum_of_what_works_and_never_above_the_limit():
    assert work_energy(duration_s=2.0, idle_w=10.0, arithmetic_j=5.0, memory_j=1.0, limit_w=100.0) == 26.0
    assert work_energy(duration_s=2.0, idle_w=10.0, arithmetic_j=500.0, memory_j=1.0, limit_w=100.0) == 200.0


UNPUBLISHED = {"tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e", "trainium2"}
"""Boards of which no energy of a FLOP or byte follows from anything published."""


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu.stem not in UNPUBLISHED], ids=lambda gpu: gpu.stem)
def test_every_board_says_what_its_work_costs_and_holds_a_clock_below_its_limit(gpu):
    assert gpu.power is not None
    assert gpu.idle_w is not None
    assert gpu.idle_w < 0.25 * gpu.tdp_w
    for kind, clock_mhz in sustained_clocks_mhz(gpu).items():
        assert 0.5 * gpu.clock_boost_mhz < clock_mhz <= gpu.highest_clock_ratio * gpu.clock_boost_mhz + 1e-9
        assert clock_ratio(gpu, kind, busy_share=BUSY_IN_CONVOLUTIONS) >= clock_ratio(gpu, kind)
    assert 1 <= gpu.highest_clock_ratio < 1.2


def test_energy_of_one_chip_does_not_depend_on_the_board():
    """Two boards of a chip differ in limit, rest and boost clock alone: a FLOP at one clock costs the same.

    Boards whose tensor cores run at half of the chip's rate are apart: their FLOP is known less well.
    """
    by_chip = {}
    for gpu in GPUS:
        if "tensor_cores" not in gpu.powered_types:
            continue
        of_unit = gpu.peak_flop_per_s(gpu.powered_types["tensor_cores"]) / gpu.unit_count
        of_cycle = round(np.log2(of_unit / gpu.clock_hz))
        energy_at_one_clock = gpu.power.tensor_cores_pj / of_unit**2
        by_chip.setdefault((gpu.architecture, gpu.l2_bytes, gpu.unit_count, of_cycle), []).append(energy_at_one_clock)
    alike = [energies for energies in by_chip.values() if len(energies) > 1]
    assert len(alike) >= 8
    for energies in alike:
        assert max(energies) < 1.03 * min(energies)  # listed peaks, which enter squared, are rounded by up to 1 %


def test_a_limited_board_is_slower_in_products_by_the_cube_root_and_as_fast_in_passes():
    board = pm.load_device("a100_80_sxm")
    limited = board.with_power_limit(330)
    whole, less = products(board, dtype="bf16"), products(limited, dtype="bf16")
    resting_w = board.idle_w + board.memory_w_in_products
    ratio = ((330 - resting_w) / (400 - resting_w)) ** (1 / 3)
    assert whole.peak_flop_per_s * ratio == pytest.approx(less.peak_flop_per_s)
    assert 1 < less.step_s / whole.step_s < 1.01 / ratio
    assert products(board).step_s == products(limited).step_s  # fp32 does not reach either limit
    assert board.with_power_limit(400).power_limit_w == 400
    assert products(board.with_power_limit(400), dtype="bf16").step_s == whole.step_s
    assert limited.identity != board.identity
    steps = [products(board.with_power_limit(watts), dtype="bf16").step_s for watts in (200, 250, 300, 350, 400)]
    assert steps == sorted(steps, reverse=True)


@pytest.mark.parametrize("watts", [0, -5, 60, 601, float("nan"), "330", True, None])
def test_a_limit_that_cannot_be_is_refused(watts):
    with pytest.raises(ArgumentError, match="power_limit_w must be a number above"):
        pm.load_device("a100_80_sxm").with_power_limit(watts)


def test_a_file_without_energies_keeps_its_clock_and_cannot_be_limited(tmp_path):
    text = spec_files.find("devices", "gtx_1080").read_text(encoding="utf-8")
    head, rest = text.split("[power]", 1)
    rest = "[memory]" + rest.split("[memory]", 1)[1]
    rest = rest.replace('fields = ["idle_w", "power.memory_pj"]', 'fields = ["idle_w"]')
    sources = [part for part in rest.split("[[source]]") if '"power.lanes_pj"' not in part]
    path = tmp_path / "plain.toml"
    path.write_text(head + "[[source]]".join(sources), encoding="utf-8")
    plain = pm.load_device(path)
    assert clock_ratio(plain, "lanes") == pytest.approx(1850 / 1733)
    with pytest.raises(ArgumentError, match=r"\[power\]"):
        plain.with_power_limit(100)
    p = products(plain)
    assert p.energy_j() == pytest.approx(180 * p.step_s)  # the bound that is left
    with pytest.raises(ArgumentError, match="part must"):
        p.energy_j(part="idle")


def test_parts_of_the_energy_sum_and_follow_what_works():
    p = products("a100_80_sxm", dtype="bf16")
    parts = {part: p.energy_j(part=part) for part in ("idle", "arithmetic", "memory")}
    assert sum(parts.values()) == pytest.approx(p.energy_j())
    assert parts["idle"] == pytest.approx(55 * p.step_s)
    assert parts["arithmetic"] > 5 * parts["memory"]
    assert p.energy_j() / p.step_s <= 400 + 1e-6
    assert p.energy_j() / p.step_s > 330  # throttled by power, so it draws about the limit
    passes = pm.predict(pm.zoo.resnet50(), batch_size=64, device="a100_80_sxm", dtype="bf16")
    assert passes.energy_j() / passes.step_s < 0.75 * 400
    with pytest.raises(ArgumentError, match="part must be one of idle, arithmetic, memory"):
        p.energy_j(part="fans")
    limited = products(pm.load_device("a100_80_sxm").with_power_limit(250), dtype="bf16")
    assert limited.energy_j() < p.energy_j()  # slower and cheaper


def test_a_sweep_and_a_fit_follow_the_energy():
    from perfmodel.framework.profile import load_framework
    from perfmodel.prediction.device.gpu_target import GpuTarget

    target = GpuTarget(pm.load_device("a100_80_sxm"))
    profile = load_framework("library_calls")
    libraries = target.libraries(profile, None)
    name = "devices/a100_80_sxm/power.tensor_cores_pj"
    factors = np.array([0.5, 1.0, 2.0])
    rates = target.numbers(profile, libraries, dtype="bf16", factors={name: factors}).peak_flop_per_s
    plain = target.numbers(profile, libraries, dtype="bf16").peak_flop_per_s
    assert rates[1] == pytest.approx(plain)
    assert rates[2] == pytest.approx(plain / 2 ** (1 / 3))
    assert plain < rates[0] <= 312e12


def test_products_of_attention_cost_what_tensor_cores_do_and_stages_their_own_work():
    network = {"layers": 8, "width": 2048, "heads": 16, "vocabulary": 64}
    job = {"device": "h100_sxm", "dtype": "bf16", "framework": "megatron_core", "batch_size": 1}
    short, long = (pm.predict(pm.zoo.gpt(**network, sequence_length=length), **job) for length in (16_384, 32_768))
    board = pm.load_device("h100_sxm")
    clock = clock_ratio(board, "tensor_cores", busy_share=BUSY_IN_CONVOLUTIONS)
    of_attention = [sum(row.flop_count for row in p.layers if "attention" in row.kernel) for p in (short, long)]
    assert of_attention[1] == pytest.approx(4 * of_attention[0], rel=1e-3)
    # all other arithmetic doubles, so that what is left of twice as long is that of attention alone
    parts = [p.energy_j(part="arithmetic") for p in (short, long)]
    flop_j = (parts[1] - 2 * parts[0]) / (of_attention[1] - 2 * of_attention[0])
    assert flop_j == pytest.approx(board.power.tensor_cores_pj * 1e-12 * clock**2, rel=0.01)
    # the second stage has the head of a large vocabulary, which no longer counts twice
    wide = pm.zoo.gpt(layers=2, width=1024, heads=16, sequence_length=512, vocabulary=131_072)
    how = {"batch_size": 8, "dtype": "bf16", "framework": "megatron_core"}
    one = pm.predict(wide, **how, device="h100_sxm")
    two = pm.predict(wide, **how, system="dgx_h100", stages=2, micro_batches=1, parallelism="pipeline")
    for part in ("arithmetic", "memory"):
        assert two.energy_j(part=part) == pytest.approx(one.energy_j(part=part), rel=0.05)  # one is at its limit


def test_each_pass_of_fused_attention_takes_the_energy_of_its_own_clock():
    network = {"layers": 1, "width": 2048, "heads": 16, "key_heads": 16, "vocabulary": 64}
    board, library = pm.load_device("h100_sxm"), pm.load_library("flash_attention_3")
    how = {"device": board, "dtype": "bf16", "library": library, "framework": "pytorch_2", "batch_size": 1}
    short, long = (
        pm.predict(pm.zoo.llama(**network, sequence_length=length), phase="forward_backward", **how)
        for length in (16_384, 32_768)
    )
    known = library.constants_for("hopper", dtype="bf16")
    clocks = {phase: clock_ratio(board, "tensor_cores", busy_share=known[f"{phase}_efficiency"])
              for phase in ("forward", "backward")}  # fmt: skip
    assert clocks["forward"] < clocks["backward"] < 1
    # all other arithmetic doubles, so that what is left of twice as long is that of attention alone
    left_j = sum(sign * p.energy_j(part="arithmetic") for sign, p in ((1, long), (-2, short)))
    expected_j = sum(
        sign * row.flop_count * board.power.tensor_cores_pj * 1e-12 * clocks[row.phase] ** 2
        for sign, p in ((1, long), (-2, short))
        for row in p.layers
        if "attention" in row.kernel
    )
    assert left_j == pytest.approx(expected_j, rel=0.002)


slowest_of = partial(energy_ratio, variation=VARIATION)


def test_the_slowest_of_several_devices_draws_what_normal_order_statistics_say():
    assert slowest_of(rank=1, count=1) == 1
    for count in (4, 8, 64, 512):
        for rank in (count // 2, count - 1, count):
            exact = Normal(cv=VARIATION).order_statistic(rank=rank, count=count)
            assert slowest_of(rank=rank, count=count) == pytest.approx(float(exact), abs=0.06 * VARIATION)
    counts = np.array([1, 2, 8, 1024])
    each = [slowest_of(rank=count, count=count) for count in counts.tolist()]
    assert slowest_of(rank=counts, count=counts) == pytest.approx(each)
    assert np.all(np.diff(each) > 0)
    n = sympy.Symbol("n", positive=True)
    assert float(slowest_of(rank=n, count=n).subs(n, 8)) == pytest.approx(each[2])


def trained(device, **job):
    """Return a step of products alone, on a device in the slots of a system."""
    graph = pm.LayerGraph("square", input_shape=(8192,))
    graph.add("product", Dense(units=8192), inputs=graph.input)
    how = {"batch_size": 8192, "system": "dgx_a100_x4", "device": device, "framework": "pytorch_2"} | job
    return pm.predict(graph, **how)


def test_a_step_of_several_devices_is_as_slow_as_the_slowest_that_its_power_limit_slows():
    alone = trained("a100_80_sxm", dtype="bf16")
    for workers in (2, 8, 32):
        p = trained("a100_80_sxm", dtype="bf16", workers=workers, sync="all_reduce")
        slower = slowest_of(rank=workers, count=workers) ** (1 / 3)
        assert p.compute_s == pytest.approx(slower * alone.compute_s, rel=1e-3)
        assert p.memory_bound_s == pytest.approx(alone.memory_bound_s, rel=0.05)
    assert any("the slowest of 32 devices" in note for note in p.remarks)


def test_the_variation_is_a_constant_with_its_source_and_its_effect_on_the_step():
    graph = pm.zoo.gpt(layers=2, width=4096, heads=32, sequence_length=2048, vocabulary=4096)
    how = {"batch_size": 4, "system": "dgx_a100", "dtype": "bf16", "framework": "pytorch_2"}
    alone, p = (pm.predict(graph, workers=count, **how) for count in (1, 8))
    row = next(row for row in p.provenance if row.constant == "defaults/every_gpu/energy_variation")
    assert (row.value, row.provenance, row.source[:9]) == (VARIATION, "measured", "P. Sinha ")
    longer, shorter = (np.log(p.basis.prepared.step({row.constant: factor}).parts.step_s) for factor in (1.01, 0.99))
    assert row.sensitivity == pytest.approx((longer - shorter) / 0.02, rel=0.1)
    assert 0.005 < row.sensitivity < 0.05
    assert not any("variation" in row.constant for row in alone.provenance)


def test_owners_of_devices_state_how_much_they_vary(tmp_path, monkeypatch):
    def slower(workers=32):
        alone, p = (trained("a100_80_sxm", dtype="bf16", workers=count, sync="all_reduce") for count in (1, workers))
        return p.compute_s / alone.compute_s

    usual = slower()
    for folder, stem, before, stated in (
        ("devices", "a100_80_sxm", "tdp_w = 400", "tdp_w = 400\nenergy_variation = 0"),
        ("defaults", "every_gpu", "energy_variation = 0.045", "energy_variation = 0.09"),
    ):
        own = tmp_path / folder / folder
        own.mkdir(parents=True)
        text = (spec_files.shipped_folder() / folder / f"{stem}.toml").read_text(encoding="utf-8")
        sourced = text.replace("fields = [\n", 'fields = [\n  "energy_variation",\n', 1).replace(before, stated, 1)
        (own / f"{stem}.toml").write_text(sourced, encoding="utf-8")
    monkeypatch.setenv(spec_files.ENVIRONMENT_VARIABLE, str(tmp_path / "devices"))
    assert slower() == 1
    monkeypatch.setenv(spec_files.ENVIRONMENT_VARIABLE, str(tmp_path / "defaults"))
    assert slower() > 1 + 1.5 * (usual - 1)
    own = tmp_path / "defaults/defaults/every_gpu.toml"
    own.write_text(own.read_text(encoding="utf-8").replace("0.09", "0.0"), encoding="utf-8")
    assert slower() == 1


@pytest.mark.parametrize("job", [{"sync": "none"}, {"sync": "downpour"}, {"sync": "all_reduce", "phase": "forward"}])
def test_devices_that_wait_for_nobody_are_the_mean_ones(job):
    alone = trained("a100_80_sxm", dtype="bf16", phase=job.get("phase", "step"))
    p = trained("a100_80_sxm", dtype="bf16", workers=8, **job)
    assert p.compute_s == alone.compute_s
    assert not any("slowest" in note for note in p.remarks)


@pytest.mark.parametrize("device", ["tesla_p100_pcie", "gtx_titan_black"])
def test_devices_that_no_limit_slows_are_alike(device):
    how = {"system": "survey_fig6", "device": device, "sync": "ring_all_reduce"}
    alone, p = (trained(workers=count, **how) for count in (1, 16))
    assert p.compute_s == alone.compute_s


@pytest.mark.parametrize(
    ("job", "count"),
    [({"sync": "mixed", "group_size": 4}, 4), ({"sync": "bounded_staleness", "staleness_bound": 3}, 8)],
)
def test_groups_and_bounds_of_staleness_wait_for_their_slowest_device(job, count):
    p = trained("a100_80_sxm", dtype="bf16", workers=8, **job)
    alike = trained("a100_80_sxm", dtype="bf16", workers=count, sync="all_reduce")
    assert p.basis.prepared.devices_waited_for == (count, count, 1)
    assert p.compute_s == alike.compute_s


def test_every_device_that_computes_is_counted_but_backup_workers():
    graph = pm.zoo.gpt(layers=4, width=512, heads=8, sequence_length=256, vocabulary=4096)
    how = {"batch_size": 8, "system": "dgx_a100", "dtype": "bf16", "framework": "pytorch_2", "sync": "all_reduce"}
    layouts = (
        {"workers": 8},
        {"workers": 8, "shard_stage": 3},
        {"workers": 4, "context_size": 2},
        {"workers": 2, "parallelism": "pipeline", "stages": 4, "micro_batches": 4},
        {"workers": 2, "parallelism": "tensor", "tensor_size": 4},
        {"workers": 1, "parallelism": "pipeline", "tensor_size": 4, "stages": 2, "micro_batches": 4},
    )
    slowest = [pm.predict(graph, **how, **layout).basis.prepared for layout in layouts]
    assert [prepared.devices_waited_for for prepared in slowest] == [(8, 8, 1)] * 6
    backup = {"straggler": {"distribution": "normal", "cv": 0.1}, "backup_workers": 2}
    p = pm.predict(graph, **how, workers=8, **backup)
    assert p.basis.prepared.devices_waited_for == (6, 8, 1)
    assert 1 < p.basis.prepared.energy_ratio < slowest[0].energy_ratio


@pytest.mark.parametrize(("counted", "copies", "each"), [(1, 2, 4), (6, 8, 4), (3, 4, 8), (7, 8, 8)])
def test_a_worker_of_several_devices_is_as_slow_as_its_slowest(counted, copies, each):
    drawn = np.random.default_rng(2).normal(1.0, VARIATION, size=(20_000, copies, each))
    wanted = np.sort(drawn.max(axis=2), axis=1)[:, counted - 1].mean()
    assert slowest_of(rank=counted, count=copies, each=each) == pytest.approx(wanted, abs=0.1 * VARIATION)
    assert slowest_of(rank=counted, count=copies, each=each) < slowest_of(rank=copies * each, count=copies * each)


def test_a_remark_on_the_slowest_device_is_made_only_where_it_is_slower():
    graph = pm.zoo.gpt(layers=4, width=512, heads=8, sequence_length=256, vocabulary=4096)
    how = {"batch_size": 8, "system": "dgx_a100", "framework": "pytorch_2", "sync": "all_reduce", "workers": 8}
    for dtype, is_slower in (("bf16", True), ("fp32", False)):
        remarks = [note for note in pm.predict(graph, dtype=dtype, **how).remarks if "slowest" in note]
        assert bool(remarks) == is_slower


@pytest.mark.parametrize("sync", ["all_reduce", "downpour", "none"])
def test_sweeps_wait_for_the_slowest_device_as_predictions_do(sync):
    graph = pm.zoo.gpt(layers=4, width=512, heads=8, sequence_length=256, vocabulary=4096)
    how = {"system": "dgx_a100_x4", "dtype": "bf16", "framework": "pytorch_2", "sync": sync}
    for axes in ({"workers": [1, 2, 8, 32]}, {"workers": [1, 4], "parallelism": "pipeline", "stages": [1, 2, 4]}):
        swept = pm.sweep(graph, batch_size=[8, 16], device=["a100_80_sxm", "h100_sxm"], **axes, **how)
        for index, row in enumerate(swept):
            if row["fits"]:
                assert row["step_s"] == pytest.approx(swept.prediction(index).step_s, rel=1e-12)
