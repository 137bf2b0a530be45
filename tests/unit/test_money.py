"""Money and energy: formulas against worked numbers and against simulation, prices with dates, costs of predictions."""

import json
import math
import re
from datetime import date

import numpy as np
import pytest
import sympy
from scipy.optimize import minimize_scalar

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.cost.money import (
    daly_interval,
    energy,
    energy_cost,
    hire_cost,
    interrupted_time,
    storage_cost,
    sustained_use_hours,
    young_interval,
)
from perfmodel.errors import ArgumentError, SpecError, UnknownNameError
from perfmodel.hardware import spec_files

YEAR_H = 8760
RULE = {"tier_multipliers": (1.0, 0.8, 0.6, 0.4), "hours_per_month": 730.0}

PRINTED = {  # the published table, typed from its page: machines, vCPU, RAM, GPUs, VRAM [GB], USD a year
    "gce_n1_standard_1_2016": (4, 4, 15, 0, 0, 1272.17),
    "gce_n1_standard_8_2016": (4, 32, 120, 0, 0, 12244.24),
    "gce_n1_highmem_16_2016": (4, 64, 416, 0, 0, 27156.53),
    "gce_n1_standard_1_k80_2017": (1, 1, 3.75, 1, 24, 4598.06),
    "gce_n1_standard_8_k80_x4_2017": (1, 8, 30, 4, 96, 20595.77),
    "gce_n1_highmem_16_k80_x8_2017": (1, 16, 104, 8, 192, 41410.21),
}


def test_the_published_table_is_kept_as_printed_with_its_errors_beside():
    rows = {name: pm.load_price(name) for name in spec_files.names("prices")}
    rows = {name: price for name, price in rows.items() if getattr(price, "published", None) is not None}
    assert {name: tuple(price.published.model_dump().values()) for name, price in rows.items()} == PRINTED
    fixed = {(name, each.field) for name, price in rows.items() for each in price.correction}
    assert fixed == {
        ("gce_n1_standard_1_2016", "usd_per_year"),
        ("gce_n1_standard_8_2016", "usd_per_year"),
        ("gce_n1_standard_1_k80_2017", "usd_per_year"),
        *((name, "vram_gb") for name in PRINTED if "k80" in name),
    }
    assert rows["gce_n1_highmem_16_k80_x8_2017"].corrected.vram_gb == 96
    assert rows["gce_n1_standard_8_2016"].corrected.usd_per_year == 13244.24


@pytest.mark.parametrize("name", PRINTED)
def test_formulas_give_the_corrected_table_and_not_the_printed_one(name):
    """A year of sustained use and a local SSD of 375 GB; with GPUs within 1 %, as their price is rounded to cents."""
    price, disk = pm.load_price(name), pm.load_price("gce_local_ssd_2015")
    hours = sustained_use_hours(used_hours=YEAR_H, **price.sustained_use.model_dump())
    of_one = hire_cost(duration_s=3600 * hours, usd_per_hour=price.usd_per_hour) + storage_cost(
        size_bytes=375e9, duration_s=3600 * YEAR_H, usd_per_gb_month=disk.usd_per_gb_month, hours_per_month=730
    )
    row = price.corrected
    tolerance = {"rel": 0.01} if row.gpu_count else {"abs": 0.5}
    assert row.instance_count * of_one == pytest.approx(row.usd_per_year, **tolerance)
    if row.usd_per_year != price.published.usd_per_year:
        assert row.instance_count * of_one != pytest.approx(price.published.usd_per_year, rel=0.05)


def test_worked_numbers():
    assert sustained_use_hours(used_hours=730, **RULE) / 730 == pytest.approx(0.7)  # the mean of the tiers
    assert hire_cost(duration_s=20 * 3.55, usd_per_hour=0.19, instance_count=12) == pytest.approx(0.04497, abs=5e-6)
    year = energy(duration_s=YEAR_H * 3600, busy_w=3200)
    assert year / 3.6e6 == pytest.approx(28_032)
    bill = energy_cost(energy_j=year, usd_per_kwh=0.12)
    assert bill == pytest.approx(3363.84)
    assert bill / 129_000 == pytest.approx(0.026, abs=5e-4)  # of the machine's price: not what restricts it
    gtx = pm.load_device("gtx_1080").tdp_w
    die = pm.load_device("tesla_k80_gk210").tdp_w
    assert energy(duration_s=1 / 1333, busy_w=gtx) == pytest.approx(0.135, abs=5e-4)
    assert energy(duration_s=1 / 250, busy_w=die) == pytest.approx(0.600)
    # 8 dies on a large machine over four small ones: 32.6 as printed, 8.14 corrected
    many, few = pm.load_price("gce_n1_highmem_16_k80_x8_2017"), pm.load_price("gce_n1_standard_1_2016")
    assert many.published.usd_per_year / few.published.usd_per_year == pytest.approx(32.6, abs=0.06)
    assert many.corrected.usd_per_year / few.corrected.usd_per_year == pytest.approx(8.14, abs=0.005)


def test_power_between_rest_and_work_and_the_building():
    assert energy(duration_s=10, busy_w=200, idle_w=50, utilisation=0.4, device_count=3) == pytest.approx(3 * 110 * 10)
    assert energy(duration_s=10, busy_w=200, power_usage_effectiveness=1.5) == 3000


def test_sustained_use_is_the_integral_of_its_tiers():
    hour = np.arange(0, 3000, 0.5)
    share = np.array([1.0, 0.8, 0.6, 0.4])[((hour % 730) // 182.5).astype(int)]
    for hours in (0.0, 100.0, 182.5, 500.0, 730.0, 900.0, 2500.0):
        billed = sustained_use_hours(used_hours=hours, **RULE)
        assert billed == pytest.approx(0.5 * share[hour < hours].sum())
    assert sustained_use_hours(used_hours=99.0, tier_multipliers=(1.0,), hours_per_month=730) == pytest.approx(99.0)


def simulated(rng, *, work_s, interval_s, checkpoint_s, restart_s, mean_uptime_s):
    """Play one job: the machine dies at random; what was done since the last checkpoint is lost."""
    now = done = 0.0
    dies_at = rng.exponential(mean_uptime_s)
    while done < work_s:
        needs = interval_s + checkpoint_s
        if now + needs <= dies_at:
            now, done = now + needs, done + interval_s
            continue
        now = dies_at
        dies_at = now + rng.exponential(mean_uptime_s)
        while now + restart_s > dies_at:
            now, dies_at = dies_at, dies_at + rng.exponential(mean_uptime_s)
        now += restart_s
    return now


def test_expected_time_is_the_mean_of_a_simulation():
    rng = np.random.default_rng(7)
    job = {"work_s": 10_000.0, "interval_s": 500.0, "checkpoint_s": 50.0, "restart_s": 200.0, "mean_uptime_s": 2_000.0}
    times = [simulated(rng, **job) for _ in range(4000)]
    error = 4 * np.std(times) / math.sqrt(len(times))  # four standard errors of the mean
    assert float(interrupted_time(**job)) == pytest.approx(np.mean(times), abs=error)
    assert error < 0.02 * np.mean(times)


@pytest.mark.parametrize(("checkpoint_s", "mean_uptime_s"), [(10.0, 86_400.0), (60.0, 7200.0), (300.0, 3600.0)])
def test_daly_loses_no_more_than_the_best_interval(checkpoint_s, mean_uptime_s):
    job = {"work_s": 1e9, "checkpoint_s": checkpoint_s, "restart_s": 30.0, "mean_uptime_s": mean_uptime_s}
    best = minimize_scalar(
        lambda tau: float(interrupted_time(interval_s=tau, **job)), bounds=(1, 1e5), method="bounded"
    )
    at = {"checkpoint_s": checkpoint_s, "mean_uptime_s": mean_uptime_s}
    daly, young = (float(interrupted_time(interval_s=rule(**at), **job)) for rule in (daly_interval, young_interval))
    assert best.fun <= daly < 1.001 * best.fun
    assert daly <= young
    assert float(daly_interval(**at)) == pytest.approx(best.x, rel=0.01)


def test_a_short_job_writes_one_checkpoint_and_a_calm_one_loses_nothing():
    short = interrupted_time(work_s=60, interval_s=1e4, checkpoint_s=5, restart_s=0, mean_uptime_s=1e15)
    assert float(short) == pytest.approx(65)
    calm = interrupted_time(work_s=1e6, interval_s=1e3, checkpoint_s=1e-9, restart_s=9, mean_uptime_s=1e18)
    assert float(calm) == pytest.approx(1e6, rel=1e-9)


def test_formulas_serve_numbers_arrays_and_symbols():
    numbers = {"work_s": 9e4, "interval_s": 800.0, "checkpoint_s": 20.0, "restart_s": 60.0, "mean_uptime_s": 5e3}
    symbols = {name: sympy.Symbol(name, positive=True) for name in numbers}
    at = {symbols[name]: value for name, value in numbers.items()}
    plain = float(interrupted_time(**numbers))
    assert float(interrupted_time(**symbols).subs(at).doit()) == pytest.approx(plain, rel=1e-12)
    arrays = {name: np.array([value, value]) for name, value in numbers.items()}
    assert interrupted_time(**arrays) == pytest.approx([plain, plain])
    pair = {name: numbers[name] for name in ("checkpoint_s", "mean_uptime_s")}
    told = daly_interval(**{name: symbols[name] for name in pair}).subs(at).doit()
    assert float(told) == pytest.approx(float(daly_interval(**pair)))
    hours = sympy.Symbol("h", positive=True)
    billed = sustained_use_hours(used_hours=hours, **RULE)
    for used in (10, 400, 1000):
        expected = float(sustained_use_hours(used_hours=used, **RULE))
        assert float(billed.subs(hours, used).doit()) == pytest.approx(expected)
    assert sustained_use_hours(used_hours=np.array([730.0, 365.0]), **RULE) == pytest.approx([511.0, 328.5])


def write_price(folder, name, **changes):
    stated = {
        "schema_version": 1,
        "name": '"A machine"',
        "kind": '"instance"',
        "provider": '"own"',
        "region": '"here"',
        "instance": '"big-1"',
        "valid_from": "2026-01-01",
        "usd_per_hour": 1.5,
    } | changes
    lines = [f"{key} = {value}" for key, value in stated.items() if value is not None]
    numbers = [key for key in stated if key.startswith(("usd", "spot_usd"))]
    source = f'[[source]]\nfields = {json.dumps(numbers)}\ntitle = "estimate"\nnote = "made up"\nverified = false\n'
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines) + "\n" + source)
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"valid_from": None}, "valid_from: required key is missing"),
        ({"valid_from": 2017}, "valid_from.*must be a date"),
        ({"valid_from": '"soon"'}, "valid_from"),
        ({"usd_per_hour": -1}, "usd_per_hour"),
        ({"usd_per_hour": 1e6}, "another unit"),
        ({"spot_usd_per_hour": 0.5}, "spot_valid_from.*needs its date"),
        ({"system": '"dgx_a10"'}, "system.*Did you mean 'dgx_a100'"),
        ({"kind": '"instanse"'}, "nearest: instance"),
    ],
)
def test_a_faulty_price_is_one_clear_error(tmp_path, changes, said):
    with pytest.raises(SpecError, match=said):
        pm.load_price(write_price(tmp_path, "mine", **changes))


def test_a_correction_must_quote_the_row(tmp_path):
    text = (spec_files.shipped_folder() / "prices" / "gce_n1_standard_8_2016.toml").read_text()
    path = tmp_path / "copy.toml"
    path.write_text(text.replace("printed = 12244.24", "printed = 12244.2"))
    with pytest.raises(SpecError, match=r"must be 12244\.2.*as \[published\] has it"):
        pm.load_price(path)
    path.write_text(text.replace('field = "usd_per_year"', 'field = "usd_per_yeer"'))
    with pytest.raises(SpecError, match="nearest: usd_per_year"):
        pm.load_price(path)


def test_an_instance_stands_for_its_newest_price_or_that_of_a_day():
    assert pm.load_price("p5.48xlarge").stem == "aws_p5_48xlarge_2025"
    assert pm.load_price("p5.48xlarge", on="2024-12-31").usd_per_hour == 98.32  # on demand, not the capacity block
    assert pm.load_price("p5.48xlarge", on=date(2025, 6, 1)).usd_per_hour == 55.04
    with pytest.raises(ArgumentError, match="aws_p5_48xlarge_2023 since 2023-07-26"):
        pm.load_price("p5.48xlarge", on="2020-01-01")
    with pytest.raises(ArgumentError, match="a date such as"):
        pm.load_price("p5.48xlarge", on="last year")
    with pytest.raises(ArgumentError, match="has a date"):
        pm.load_price("aws_p5_48xlarge_2023", on="2024-01-01")
    with pytest.raises(UnknownNameError, match=r"Did you mean 'p3\.2xlarge'"):
        pm.load_price("p3.2xlage")


def test_own_prices_are_listed_shown_and_checked(tmp_path, monkeypatch, capsys):
    path = write_price(tmp_path / "prices", "lab_machine")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    assert pm.load_price("lab_machine").usd_per_hour == pm.load_price("big-1").usd_per_hour == 1.5
    assert "lab_machine" in pm.catalogue().names("price")
    assert run(["specs", "list", "price"]) == run(["specs", "show", "lab_machine"]) == run(["specs", "check"]) == 0
    assert "own big-1, 1.5 USD/h on demand, here, since 2026-01-01" in capsys.readouterr().out
    path.write_text(path.read_text().replace("valid_from", "# valid_from"))
    assert run(["specs", "check", str(path)]) == 2
    assert "valid_from: required key is missing" in capsys.readouterr().out


@pytest.fixture(scope="module")
def alexnet():
    return pm.zoo.alexnet()


def test_a_step_and_an_epoch_cost_what_their_instances_charge(alexnet):
    p = pm.predict(alexnet, batch_size=64, device="v100_sxm2")
    assert p.cost_usd("p3.2xlarge") == pytest.approx(3.06 * p.step_s / 3600)
    assert p.cost_usd("p3.2xlarge", spot=True) == pytest.approx(1.1711 * p.step_s / 3600)
    epoch = p.cost_usd("p3.2xlarge", dataset_size=1000)
    assert epoch == pytest.approx(16 * p.cost_usd("p3.2xlarge"))  # 15.6 steps are 16
    assert p.cost_usd(2) == pytest.approx(2 * p.step_s / 3600)
    some = pm.predict(alexnet, batch_size=64, system="p2_16xlarge", workers=3)
    assert some.cost_usd("p2.16xlarge") == pytest.approx(14.4 * some.step_s / 3600)  # 13 idle dies are paid too
    assert some.cost_usd(0.9) == pytest.approx(3 * 0.9 * some.step_s / 3600)
    cluster = pm.predict(alexnet, batch_size=64, system="dgx_a100_x4", workers=9)
    assert cluster.cost_usd("aws_p4d_24xlarge_2020") == pytest.approx(2 * 32.7726 * cluster.step_s / 3600)


GIB_OF_A_DEVICE = {"p2": 12, "p3": 16, "p3dn": 32, "p4d": 40, "p4de": 80, "p5": 80, "a2-highgpu": 40,
                   "a2-ultragpu": 80, "a3-highgpu": 80, "g2-standard": 24}  # fmt: skip
GIB_OF_A_RENTED_DEVICE = {"BM.GPU.H100.8": 80, "BM.GPU.MI300X.8": 192, "gpu_8x_h100_sxm5": 80,
                          "gpu-h100-sxm_1gpu-16vcpu-200gb": 80, "gpu-h200-sxm_1gpu-16vcpu-200gb": 141,
                          "1A100.40S.22V": 40}  # fmt: skip
GIB_OF_WHAT_IS_ATTACHED = {"K80": 12, "P100": 16, "V100": 16, "T4": 16}


@pytest.mark.parametrize("name", spec_files.names("prices"))
def test_the_devices_of_an_instance_have_the_memory_that_it_sells(name):
    price = pm.load_price(name)
    if getattr(price, "accelerators", None) is None:
        return
    _, _, attached = price.instance.partition(" + ")
    if attached:
        gib = GIB_OF_WHAT_IS_ATTACHED[attached.split()[1]]
    elif price.instance in GIB_OF_A_RENTED_DEVICE:
        gib = GIB_OF_A_RENTED_DEVICE[price.instance]
    else:
        gib = GIB_OF_A_DEVICE[re.split(r"\.|-\d", price.instance)[0]]
    assert pm.load_device(price.accelerators.device).memory.capacity_gib == gib
    row = price.corrected
    assert row is None or row.vram_gb / row.gpu_count == gib


def test_an_instance_has_no_more_processors_than_its_system_and_devices_as_many():
    """Of the systems below a guest gets a part of the cores; each other one is the instance, core for core."""
    shared = {"p2_16xlarge", "aws_p3_8xlarge", "aws_p3_16xlarge", "gce_n1_standard_32_k80_x8"}
    prices = [price for price in map(pm.load_price, spec_files.names("prices")) if hasattr(price, "usd_per_hour")]
    for price in prices:
        if price.accelerators is None:
            continue
        assert price.processor_count is not None, price.stem
        if price.system is None:
            continue
        system = pm.load_system(price.system)
        assert price.device_count <= len(system.devices)
        assert price.processor_count <= system.thread_count
        assert price.processor_count == system.thread_count or system.file.stem in shared, price.stem


def test_a_p3dn_holds_what_a_p3_does_not():
    job = {"batch_size": 256, "dataset_size": 10**6, "epochs": 10}
    one_of_eight = {"price": "p3dn.24xlarge", "workers": 1}
    p3, p3dn = pm.plan(pm.zoo.resnet50(), candidates=["p3.2xlarge", one_of_eight], **job).rows
    assert (p3.limited_by, p3dn.limited_by) == ("memory", None)
    assert p3dn.step_s == pytest.approx(p3.step_s, rel=1e-3)  # another host issues the kernels


def test_each_list_price_has_a_source_that_was_read_or_says_that_none_was():
    """Two prices are known at second hand alone; a third in that list is a record that lost its source."""
    prices = [price for price in map(pm.load_price, spec_files.names("prices")) if hasattr(price, "usd_per_hour")]
    unread = {
        price.stem
        for price in prices
        for source in price.source
        if {"usd_per_hour", "spot_usd_per_hour"} & set(source.fields) and not source.is_verified
    }
    assert unread == {"gce_a3_highgpu_8g_2024", "gce_g2_standard_4_2023"}
    for price in prices:
        for source in price.source:
            assert source.kind == "calculation" or source.url or source.read_on or not source.is_verified


def test_energy_is_power_times_time(alexnet):
    p = pm.predict(alexnet, batch_size=64, system="p2_16xlarge", workers=3)
    assert p.energy_j(utilisation=1) == pytest.approx(3 * 150 * p.step_s)
    assert 0.2 * 3 * 150 * p.step_s < p.energy_j() < 3 * 150 * p.step_s  # by what works
    assert p.energy_j(utilisation=0.5, idle_w=30) == pytest.approx(3 * 90 * p.step_s)
    assert p.energy_j(utilisation=0.5, idle_w=0) == pytest.approx(3 * 75 * p.step_s)
    for wrong in (-1, float("nan"), "0", 151):
        with pytest.raises(ArgumentError, match="idle_w must"):
            p.energy_j(utilisation=0.5, idle_w=wrong)
    assert p.energy_j(dataset_size=192 * 5, power_usage_effectiveness=1.2) == pytest.approx(1.2 * 5 * p.energy_j())
    sockets = pm.predict(alexnet, batch_size=4, system="server_2x_xeon_e5_2630_v3")
    assert sockets.energy_j() == pytest.approx(2 * 85 * sockets.step_s)


def test_costs_that_cannot_be_are_refused(alexnet):
    p = pm.predict(alexnet, batch_size=64, device="v100_sxm2")
    for given, said in (
        (("p2.xlarge",), "with v100_sxm2; p2.xlarge has tesla_k80_gk210"),
        (("n1-standard-8",), "n1-standard-8 has no device"),
        (("gce_local_ssd_2015",), "price of an instance"),
        ((-1.0,), "above 0"),
    ):
        with pytest.raises(ArgumentError, match=said):
            p.cost_usd(*given)
    with pytest.raises(ArgumentError, match="no spot price of n1-standard-4 \\+ 1 V100"):
        p.cost_usd("gce_n1_standard_4_v100_2018", spot=True)
    with pytest.raises(ArgumentError, match="idle_w"):  # the file of a CPU states none
        pm.predict(alexnet, batch_size=4, device="xeon_e5_2630_v3").energy_j(utilisation=0.5)
    with pytest.raises(ArgumentError, match="power_usage_effectiveness"):
        p.energy_j(power_usage_effectiveness=0.5)
    many = pm.predict(alexnet, batch_size=64, system="p2_16xlarge", workers=9)
    with pytest.raises(ArgumentError, match="at least 9 devices"):
        many.cost_usd("p2.8xlarge")
    socket = pm.predict(alexnet, batch_size=4, device="xeon_e5_2630_v3")
    with pytest.raises(ArgumentError, match="without GPUs"):
        socket.cost_usd("p2.xlarge")


def test_the_command_prints_the_bill(capsys):
    words = ["predict", "alexnet", "--batch-size", "64", "--measured", "none"]
    assert run([*words, "--device", "v100_sxm2", "--price", "p3.2xlarge"]) == 0
    said = capsys.readouterr().out
    assert "3.06 USD/h on demand" in said
    assert "J a step" in said
    on_system = ["--system", "aws_p4d_24xlarge", "--workers", "8", "--dataset", "imagenet_jpeg"]
    assert run([*words, *on_system, "--price", "aws_p4d_24xlarge_2020", "--json"]) == 0
    bill = json.loads(capsys.readouterr().out)["bill"]
    p = pm.predict(pm.zoo.alexnet(), batch_size=64, system="aws_p4d_24xlarge", workers=8, dataset="imagenet_jpeg")
    assert bill["usd_per_step"] == pytest.approx(32.7726 * p.step_s / 3600)
    assert bill["usd_per_epoch"] == pytest.approx(32.7726 * p.epoch_s(dataset_size=1_281_167) / 3600)
    assert bill["usd_per_million_samples"] == pytest.approx(1e6 * bill["usd_per_step"] / 512)
    assert run([*words, "--device", "gtx_1080", "--price", "0.4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bill"]["usd_per_epoch"] is None
    on_cores = ["--system", "gce_n1_standard_4_x4", "--workers", "3", "--sync", "downpour"]
    assert run([*words, *on_cores, "--price", "0.2"]) == 0
    assert "0.2 USD/h for each machine; 4 machines are paid for" in capsys.readouterr().out
    assert run([*words, "--device", "gtx_1080", "--price", "p3.2xlarge"]) == 2
    assert "gtx_1080" in capsys.readouterr().err
