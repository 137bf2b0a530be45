"""What to hire: rows against predictions and formulas, the choice against brute force, changes by planning again."""

import json
import math
import random
import re
import shlex
import sys
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.cli.planning import candidate_as_typed
from perfmodel.cost.money import daly_interval, interrupted_time
from perfmodel.errors import ArgumentError, SpecError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.presentation.quantities import usd_text

IMAGES = 1_281_167
JOB = {"batch_size": 32, "dataset_size": IMAGES, "epochs": 10}
ON_SPOT = {"interruptions_per_hour": 0.2, "checkpoint_to": "gce_pd_ssd_1700_gb", "restart_s": 240}
SEVERAL = [
    "p2.xlarge",
    "p3.2xlarge",
    {"price": "p2.16xlarge", "workers": [2, 8, 16]},
    {"price": "aws_p4d_24xlarge_2020", "workers": (1, 4, 8)},
    "gce_n1_standard_4_p100_2017",
]


@pytest.fixture(scope="module")
def resnet():
    return pm.zoo.resnet50()


@pytest.fixture(scope="module")
def many(resnet):
    both = {"sync": ("ring_all_reduce", "downpour"), "purchase": ("on_demand", "spot")}
    return pm.plan(resnet, candidates=SEVERAL, **JOB, **both, **ON_SPOT)


@pytest.fixture
def of_unknown_processor(tmp_path):
    """A price file of eight virtual processors that names no system."""
    text = (spec_files.shipped_folder() / "prices" / "gce_n1_standard_8_2016.toml").read_text()
    path = tmp_path / "eight_threads.toml"
    path.write_text(text.replace('system = "gce_n1_standard_8"\n', "").replace("n1-standard-8", "eight-threads"))
    return path


def find(report, candidate, purchase="on_demand", workers=1, sync=None):
    (row,) = (
        row
        for row in report.rows
        if (row.candidate, row.purchase, row.workers) == (candidate, purchase, workers) and sync in (None, row.sync)
    )
    return row


def job_s(p):
    return 10 * math.ceil(IMAGES / (p.counted_workers * 32)) * p.step_s


def test_rows_on_demand_are_predictions_times_prices(resnet, many):
    p = pm.predict(resnet, batch_size=32, device="v100_sxm2")
    row = find(many, "aws_p3_2xlarge_2017")
    assert (row.step_s, row.sync, row.instances) == (p.step_s, "none", 1)
    assert row.hours == pytest.approx(job_s(p) / 3600)
    assert row.usd == pytest.approx(3.06 * row.hours)
    assert row.energy_kwh == pytest.approx(p.energy_j() / p.step_s / 1000 * row.hours)
    assert 0.04 * row.hours < row.energy_kwh < 0.3 * row.hours
    for workers in (2, 16):
        p = pm.predict(resnet, batch_size=32, system="p2_16xlarge", workers=workers)
        row = find(many, "aws_p2_16xlarge_2016", workers=workers, sync="ring_all_reduce")
        assert row.step_s == p.step_s
        assert row.hours == pytest.approx(job_s(p) / 3600)
        assert row.usd == pytest.approx(14.4 * row.hours)  # the whole instance, however many of its dies work
        assert row.energy_kwh == pytest.approx(p.energy_j() / p.step_s / 1000 * row.hours)
        assert row.energy_kwh < workers * 0.15 * row.hours


def test_what_does_not_wait_is_priced_beside_what_does(resnet, many):
    p = pm.predict(resnet, batch_size=32, system="p2_16xlarge", workers=16, sync="downpour")
    row = find(many, "aws_p2_16xlarge_2016", workers=16, sync="downpour")
    assert (row.step_s, row.mean_staleness) == (p.step_s, p.mean_staleness)
    assert row.mean_staleness == pytest.approx(15)
    candidates = [{"price": "p2.16xlarge", "workers": 16}]
    told = pm.plan(resnet, candidates=candidates, sync=["ring_all_reduce", "downpour"], staleness_penalty=0.02, **JOB)
    waits, runs_on = told.rows
    assert runs_on.hours == pytest.approx(1.3 * row.hours)  # 15 updates of staleness, 2 % more for each
    assert waits.hours == find(many, "aws_p2_16xlarge_2016", workers=16, sync="ring_all_reduce").hours
    assert told.best is waits
    assert any("0.02 of the updates more" in note for note in told.notes)


def test_sustained_use_lowers_the_price_of_a_long_job(resnet):
    def hired(epochs):
        (row,) = pm.plan(resnet, candidates=["gce_n1_standard_4_p100_2017"], **JOB | {"epochs": epochs}).rows
        return row

    short, long = hired(1), hired(1000)
    assert short.hours < 182.5
    assert short.usd == pytest.approx(1.65 * short.hours)
    assert long.hours > 1460
    months, rest = divmod(long.hours, 730)
    tiers = (1.0, 0.8, 0.6, 0.4)
    billed = 511 * months + sum(tiers[k] * max(0.0, min(rest - 182.5 * k, 182.5)) for k in range(4))
    assert long.usd == pytest.approx(1.65 * billed)


def test_rows_on_spot_pay_for_checkpoints_and_lost_work(resnet, many):
    disk = pm.load_storage("gce_pd_ssd_1700_gb")
    checkpoint_s = 4 * resnet.parameter_count / disk.write_bandwidth_bytes_per_s
    calm, row = find(many, "aws_p3_2xlarge_2017"), find(many, "aws_p3_2xlarge_2017", "spot")
    rates = {"checkpoint_s": checkpoint_s, "mean_uptime_s": 3600 / 0.2}
    interval_s = float(daly_interval(**rates))
    restart_s = 240 + 4 * resnet.parameter_count / disk.read_bandwidth_bytes_per_s
    took_s = interrupted_time(work_s=3600 * calm.hours, interval_s=interval_s, restart_s=restart_s, **rates)
    assert row.hours == pytest.approx(float(took_s) / 3600, rel=1e-9)
    assert row.hours > 1.01 * calm.hours
    assert row.usd == pytest.approx(1.1711 * row.hours)
    assert row.checkpoint_interval_s == pytest.approx(interval_s)
    assert row.lost_share == pytest.approx(1 - calm.hours / row.hours)
    momentum = pm.plan(resnet, candidates=["p3.2xlarge"], purchase="spot", optimizer="adam", **JOB, **ON_SPOT).rows[0]
    assert momentum.checkpoint_interval_s > 1.6 * row.checkpoint_interval_s  # three times the state: sqrt(3)
    (unknown,) = pm.plan(resnet, candidates=["gce_n1_standard_4_v100_2018"], purchase="spot", **JOB, **ON_SPOT).rows
    assert (unknown.hours, unknown.limited_by, unknown.reason) == (None, "price", "no spot price is known")


def test_more_instances_are_interrupted_more_often(resnet):
    candidate = {"price": "aws_p4d_24xlarge_2020", "system": "dgx_a100_x4", "workers": (8, 32)}
    both = pm.plan(resnet, candidates=candidate, purchase=("on_demand", "spot"), **JOB, **ON_SPOT).rows
    one, one_spot, four, four_spot = both
    assert [row.instances for row in both] == [1, 1, 4, 4]
    assert four.usd == pytest.approx(4 * 32.7726 * four.hours)
    assert four_spot.lost_share > 2.5 * one_spot.lost_share > 0
    assert one.lost_share == four.lost_share == 0


@pytest.mark.parametrize(
    "hopeless",
    [
        {"interruptions_per_hour": 3600, "checkpoint_to": "hdd_7200_rpm", "restart_s": 10_000},
        {"interruptions_per_hour": 3600},
        {"interruptions_per_hour": 3600, "restart_s": 300},
        {"interruptions_per_hour": 1, "restart_s": 1e6},
    ],
)
def test_a_job_that_never_ends_says_so_and_has_no_bill(resnet, hopeless):
    storage = {"storage_price": "gce_local_ssd_2015", "storage_gb": 375}
    both = {"purchase": ("on_demand", "spot"), "budget_usd": 1e-3}
    report = pm.plan(resnet, candidates=["p3.2xlarge"], **both, **storage, **JOB, **ON_SPOT | hopeless)
    calm, row = report.rows
    assert row.limited_by == "interruptions"
    assert "never ends" in row.reason
    assert row.hours is row.usd is row.storage_usd is None
    assert not row.is_on_front
    assert {change.candidate for change in report.changes} == {calm.candidate}
    assert max(change.needed for change in report.changes) < 1e9
    assert not {"nan", "inf"}.intersection(str(report).split())
    assert all(len(word) < 60 for line in report.to_dict()["changes"] for word in line["text"].split())


def test_more_memory_is_not_advised_for_a_job_that_never_ends(resnet):
    hopeless = ON_SPOT | {"interruptions_per_hour": 3600, "restart_s": 300}
    report = pm.plan(resnet, candidates=["p3.2xlarge"], purchase="spot", **JOB | {"batch_size": 512}, **hopeless)
    assert (report.rows[0].limited_by, report.binding, report.changes) == ("interruptions", ("interruptions",), ())
    assert "never ends" in str(report)


def test_a_job_that_is_often_interrupted_ends_up_to_a_thousand_tries(resnet):
    restart_s = 30.0
    disk = pm.load_storage("gce_pd_ssd_1700_gb")
    write_s, read_s = (4 * resnet.parameter_count / rate for rate in
                       (disk.write_bandwidth_bytes_per_s, disk.read_bandwidth_bytes_per_s))  # fmt: skip
    seen = set()
    for per_hour in (60, 300, 600, 700, 800, 1200):
        rates = {"checkpoint_s": write_s, "mean_uptime_s": 3600 / per_hour}
        once_s = restart_s + read_s + write_s + float(daly_interval(**rates))
        often = ON_SPOT | {"interruptions_per_hour": per_hour, "restart_s": restart_s}
        row = pm.plan(resnet, candidates=["p3.2xlarge"], purchase="spot", **JOB, **often).rows[0]
        ends = math.exp(once_s * per_hour / 3600) <= 1000
        assert (row.limited_by is None) == ends == (row.hours is not None)
        seen.add(ends)
    assert seen == {True, False}


def test_the_front_is_what_nothing_beats(many):
    running = [row for row in many.rows if row.hours is not None]
    assert len(running) > 15
    for row in running:
        beaten = any(
            other.hours <= row.hours and other.usd <= row.usd and (other.hours, other.usd) != (row.hours, row.usd)
            for other in running
        )
        assert row.is_on_front != beaten
    assert [row.hours for row in many.pareto] == sorted(row.hours for row in many.pareto)
    assert [row.usd for row in many.pareto] == sorted((row.usd for row in many.pareto), reverse=True)
    assert len(many.pareto) >= 2


def test_what_is_said_would_change_it_is_enough_as_it_is_printed(resnet):
    """Rounded to the nearest, half of them would fall short by a hair."""
    rng = random.Random(5)
    for _ in range(12):
        candidates = [rng.choice(SEVERAL[:2]), "g2-standard-4"]
        job = {"batch_size": 32, "samples": rng.randrange(10**6, 10**8)}
        late = pm.plan(resnet, candidates=candidates, deadline_hours=0.01, **job)
        (hours,) = re.findall(r"a deadline of ([\d.,e+]+) h,", " ".join(str(late).split()))
        assert pm.plan(resnet, candidates=candidates, deadline_hours=float(hours.replace(",", "")), **job).is_feasible
        dear = pm.plan(resnet, candidates=candidates, budget_usd=0.01, **job)
        (usd,) = re.findall(r"a budget of ([\d.,]+) USD,", " ".join(str(dear).split()))
        paid = float(usd.replace(",", ""))
        assert pm.plan(resnet, candidates=candidates, budget_usd=paid, **job).is_feasible
        assert paid - 0.01 < min(row.usd for row in dear.rows)  # and not a cent more


def test_notes_tell_days_unread_prices_and_sustained_use(resnet):
    def notes(*candidates, epochs=1, **more):
        return " / ".join(pm.plan(resnet, candidates=list(candidates), **JOB | {"epochs": epochs}, **more).notes)

    alone = notes("p3.2xlarge")
    assert "prices hold since 2017-10-25" in alone
    assert "from memory" not in alone
    both = {"purchase": ("on_demand", "spot"), **ON_SPOT}
    assert "the oldest holds since 2017-10-25, the newest since 2022-06-01" in notes("p3.2xlarge", **both)
    assert "prices hold since 2022-06-01" in notes("p3.2xlarge", purchase="spot", **ON_SPOT)
    assert "not read from a source: gce_g2_standard_4_2023" in notes("p3.2xlarge", "g2-standard-4")
    long = "use is sustained, as of jobs that begin on the first of a month: gce_n1_standard_4_p100_2017"
    assert long not in notes("gce_n1_standard_4_p100_2017")
    assert long in notes("gce_n1_standard_4_p100_2017", "p3.2xlarge", epochs=1000)
    assert long not in notes("gce_n1_standard_4_p100_2017", epochs=1000, purchase="spot", **ON_SPOT)


def test_the_same_question_has_the_same_answer(resnet):
    both = {"purchase": ("on_demand", "spot"), "sync": ("ring_all_reduce", "downpour"), **ON_SPOT}
    first, again = (json.dumps(pm.plan(resnet, candidates=SEVERAL, **both, **JOB).to_dict()) for _ in range(2))
    assert first == again
    rows = [pm.plan(resnet, candidates=order, **both, **JOB).rows for order in (SEVERAL, SEVERAL[::-1])]
    by_name = [sorted(map(repr, table)) for table in rows]
    assert by_name[0] == by_name[1]  # nor does the order of candidates matter


def test_choice_and_binding_limit_by_brute_force(resnet, many):
    rows = [(row.hours, row.usd) for row in many.rows if row.purchase != "spot" and row.hours is not None]
    rng = random.Random(3)
    seen = set()
    for _ in range(12):
        hours = rng.choice([None, 10 ** rng.uniform(-0.5, 2)])
        usd = rng.choice([None, 10 ** rng.uniform(0.8, 2.6)])
        report = pm.plan(resnet, candidates=SEVERAL, sync=("ring_all_reduce", "downpour"), deadline_hours=hours,
                         budget_usd=usd, **JOB)  # fmt: skip
        fastest = hours is None and usd is not None

        def best(hours, usd, fastest=fastest):
            kept = [row for row in rows if row[0] <= (hours or math.inf) and row[1] <= (usd or math.inf)]
            return min(kept, key=lambda row: row if fastest else row[::-1], default=None)

        chosen = best(hours, usd)
        assert (chosen is None) == (report.best is None)
        if chosen is not None:
            assert (report.best.hours, report.best.usd) == pytest.approx(chosen)
        binding = [
            name
            for name, limit, lifted in (("deadline", hours, best(None, usd)), ("budget", usd, best(hours, None)))
            if limit is not None and lifted is not None and lifted != chosen
        ]
        if chosen is None and not binding:
            binding = ["deadline", "budget"]
        assert list(report.binding) == binding
        for row in report.rows:
            late = hours is not None and row.hours > hours
            dear = usd is not None and row.usd > usd
            assert row.limited_by == (", ".join(["deadline"] * late + ["budget"] * dear) or None)
        seen.add((chosen is None, *binding))
    assert len(seen) >= 4  # several outcomes were met


def test_what_would_have_to_change_does_when_it_is_changed(resnet):
    asked = {"candidates": SEVERAL, "deadline_hours": 1.0, "budget_usd": 50.0}
    missed = pm.plan(resnet, **asked, **JOB)
    assert missed.best is None
    assert not missed.is_feasible
    changes = {change.what: change for change in missed.changes}
    assert set(changes) == {"deadline_hours", "speed", "epochs"}  # at any price nothing is done in an hour
    assert missed.binding == ("deadline",)
    later = changes["deadline_hours"].needed
    assert pm.plan(resnet, **asked | {"deadline_hours": later}, **JOB).best.candidate == "aws_p4d_24xlarge_2020"
    assert pm.plan(resnet, **asked | {"deadline_hours": 0.999 * later}, **JOB).best is None
    epochs = changes["epochs"].needed
    assert pm.plan(resnet, **asked, **JOB | {"epochs": int(epochs)}).best is not None
    assert pm.plan(resnet, **asked, **JOB | {"epochs": int(epochs) + 1}).best is None
    assert changes["speed"].needed == pytest.approx(missed.nearest_miss.hours / 1.0)
    assert "nearest miss: aws_p4d_24xlarge_2020" in str(missed)


def test_more_money_and_a_faster_step_on_spot(resnet):
    asked = {"candidates": ["p3.2xlarge", "p2.xlarge"], "purchase": "spot", "budget_usd": 5.0, **ON_SPOT}
    job = {"batch_size": 32, "samples": 10_000_000}
    missed = pm.plan(resnet, **asked, **job)
    changes = {change.what: change.needed for change in missed.changes}
    assert missed.binding == ("budget",)
    assert pm.plan(resnet, **asked | {"budget_usd": changes["budget_usd"] * (1 + 1e-12)}, **job).best is not None
    assert pm.plan(resnet, **asked | {"budget_usd": changes["budget_usd"] * 0.999}, **job).best is None
    fewer = int(changes["samples"])
    assert pm.plan(resnet, **asked, **job | {"samples": fewer}).best is not None
    assert fewer % 32 == 0
    assert pm.plan(resnet, **asked, **job | {"samples": fewer + 1}).best is None  # of one more step
    assert changes["speed"] == pytest.approx(10_000_000 / fewer, rel=1e-5)


def test_memory_binds_and_a_smaller_mini_batch_would_do(resnet):
    job = JOB | {"batch_size": 200}
    report = pm.plan(resnet, candidates=["p2.xlarge", "p3.2xlarge"], deadline_hours=1000, **job)
    assert report.best is None
    assert report.binding == ("memory",)
    (change,) = report.changes
    assert (change.what, change.needed) == ("batch_size", pm.max_batch_size(resnet, device="v100_sxm2"))
    assert pm.plan(resnet, candidates=["p3.2xlarge"], **job | {"batch_size": int(change.needed)}).best is not None
    beside = pm.plan(resnet, candidates=["p3.2xlarge", "gce_a2_highgpu_1g_2021"], **job)
    assert beside.best.candidate == "gce_a2_highgpu_1g_2021"
    assert beside.rows[0].limited_by == "memory"
    assert "does not fit" in beside.rows[0].reason
    assert (beside.binding == ("memory",)) == (beside.rows[0].usd < beside.best.usd)


def test_fewer_samples_are_those_of_whole_steps(resnet):
    step_h = pm.predict(resnet, batch_size=32, device="v100_sxm2").step_s / 3600
    asked = {"candidates": ["p3.2xlarge"], "batch_size": 32, "deadline_hours": 30.9 * step_h}
    missed = pm.plan(resnet, samples=1000, **asked)
    assert {change.what: change.needed for change in missed.changes}["samples"] == 30 * 32
    assert pm.plan(resnet, samples=30 * 32, **asked).best is not None
    assert pm.plan(resnet, samples=30 * 32 + 1, **asked).best is None
    none = pm.plan(resnet, samples=1000, **asked | {"deadline_hours": 0.9 * step_h})
    assert "samples" not in {change.what for change in none.changes}  # not even a step fits


def test_a_mini_batch_is_advised_only_where_planning_again_with_it_succeeds(resnet):
    asked = {"candidates": ["p3.2xlarge"], "dataset_size": IMAGES, "epochs": 10}
    late = pm.plan(resnet, batch_size=512, deadline_hours=10, **asked)
    (change,) = late.changes
    held = pm.max_batch_size(resnet, device="v100_sxm2")
    assert change.what == "memory_bytes"
    assert f"{held} samples per worker that it holds it takes 10." in change.text
    assert pm.plan(resnet, batch_size=held, deadline_hours=10, **asked).best is None
    (change,) = pm.plan(resnet, batch_size=512, deadline_hours=11, **asked).changes
    assert (change.what, change.needed) == ("batch_size", held)
    assert pm.plan(resnet, batch_size=held, deadline_hours=11, **asked).best is not None
    assert pm.plan(resnet, batch_size=512, deadline_hours=1, **asked).changes == ()  # nor would memory alone do


def test_the_mini_batch_that_changes_is_the_one_that_was_given(resnet):
    asked = {"candidates": [{"price": 0.4, "system": "survey_fig5", "workers": 4}], "dataset_size": IMAGES, "epochs": 1}
    (change,) = pm.plan(resnet, global_batch_size=4096, **asked).changes
    held = pm.max_batch_size(resnet, system="survey_fig5", workers=4)
    assert (change.what, change.needed) == ("global_batch_size", 4 * held)
    assert pm.plan(resnet, global_batch_size=4 * held, **asked).best is not None


def test_rows_that_cannot_be_stay_with_their_reason(resnet):
    report = pm.plan(resnet, candidates=[{"price": "p2.8xlarge", "workers": (8, 9, 17)}, "aws_p3_8xlarge_2017"], **JOB)
    eight, nine, too_many, one = report.rows
    assert eight.reason is None
    assert "at least 9 devices" in nine.reason
    assert "from 1 to 16" in too_many.reason
    assert one.usd == pytest.approx(
        12.24 * one.hours
    )  # four devices are paid, one works: no system says how more would
    assert nine.hours is too_many.hours is None
    assert "impossible: aws_p2_8xlarge_2016 (on demand) with 9 workers" in " ".join(str(report).split())


def test_a_note_says_where_one_device_of_several_works(resnet, tmp_path):
    text = (spec_files.shipped_folder() / "prices" / "aws_p3_16xlarge_2017.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(r"^system = .*\n", "", text, flags=re.MULTILINE))
    report = pm.plan(resnet, candidates=[path], **JOB)
    assert report.rows[0].workers == 1
    (note,) = (note for note in report.notes if "is used although all are paid" in note)
    assert note.startswith("only one of mine's 8 devices is used")
    report = pm.plan(resnet, candidates=["p3.2xlarge", "aws_p4d_24xlarge_2020"], **JOB)
    assert not any("is used although all are paid" in note for note in report.notes)


@pytest.mark.parametrize("name", [name for name in spec_files.names("prices") if "ssd" not in name])
def test_all_devices_of_an_instance_work_unless_told(resnet, name):
    price = pm.load_price(name)
    if price.device_count < 2:
        return
    (row,) = pm.plan(resnet, candidates=[name], **JOB).rows
    assert (row.workers, row.instances, row.limited_by) == (price.device_count, 1, None)
    p = pm.predict(resnet, batch_size=32, system=price.system, workers=price.device_count)
    assert row.step_s == p.step_s
    assert row.usd == pytest.approx(price.usd_per_hour * job_s(p) / 3600)
    # against the same machine, whose processor may issue kernels faster than the unnamed host of a lone device
    silent = pm.predict(resnet, batch_size=32, system=price.system, workers=price.device_count, sync="none")
    assert p.step_s > silent.step_s  # they do agree, and it takes time
    assert pm.load_device(price.accelerators.device).stem in {
        device.stem for _, device in pm.load_system(price.system).devices
    }


def test_a_precision_that_one_candidate_lacks_rules_out_that_one_alone(resnet):
    report = pm.plan(resnet, candidates=["p2.xlarge", "p3.2xlarge"], dtype="fp16", **JOB)
    lacks, has = report.rows
    assert (lacks.limited_by, lacks.hours, report.best) == ("dtype", None, has)
    assert "K80" in lacks.reason
    assert has.step_s == pm.predict(resnet, batch_size=32, device="v100_sxm2", dtype="fp16").step_s
    for candidates, dtype in ((["p2.xlarge"], "fp16"), (["p2.xlarge", "p3.2xlarge"], "fp61")):
        with pytest.raises(UnknownNameError, match=f"unknown dtype.*'{dtype}'.*Known: .*fp32"):
            pm.plan(resnet, candidates=candidates, dtype=dtype, **JOB)
    with pytest.raises(UnknownNameError, match="gtx_1080"):  # any other name is a slip of the pen
        pm.plan(resnet, candidates=["p3.2xlarge", {"price": 0.5, "device": "gtx_1O80"}], **JOB)


def test_a_machine_of_ones_own_pays_for_electricity_and_storage_is_paid_by_the_month(resnet):
    candidates = [{"price": 0.4, "system": "survey_fig5", "workers": (1, 4)}, "p3.2xlarge"]
    extra = {"usd_per_kwh": 0.3, "storage_price": "gce_local_ssd_2015", "storage_gb": 375}
    one, four, cloud = pm.plan(resnet, candidates=candidates, power_usage_effectiveness=1.5, **extra, **JOB).rows
    assert (one.candidate, one.purchase, four.instances) == ("survey_fig5", "own", 4)
    assert 1.5 * 4 * 0.01 * four.hours < four.energy_kwh < 1.5 * 4 * 0.18 * four.hours
    assert four.energy_usd == pytest.approx(0.3 * four.energy_kwh)
    assert four.usd == pytest.approx(4 * 0.4 * four.hours + four.energy_usd + four.storage_usd)
    assert four.storage_usd == pytest.approx(81.75 * four.hours / 730)  # its four devices are in one machine
    assert cloud.energy_usd == 0
    assert cloud.storage_usd == pytest.approx(81.75 * cloud.hours / 730)


def test_each_machine_of_a_cluster_of_ones_own_has_storage(resnet):
    (row,) = pm.plan(resnet, candidates=[{"price": 0.4, "system": "survey_fig6", "workers": 8}],
                     storage_price="gce_local_ssd_2015", storage_gb=375, **JOB).rows  # fmt: skip
    hosts = len({name.split("/")[0] for name, _ in pm.load_system("survey_fig6").devices[:8]})
    assert hosts == 2
    assert row.storage_usd == pytest.approx(hosts * 81.75 * row.hours / 730)


def test_the_hours_of_the_best_are_as_sure_as_its_step(resnet):
    p = pm.predict(resnet, batch_size=32, device="v100_sxm2")
    sure = pm.plan(resnet, candidates=["p3.2xlarge"], deadline_hours=1000, **JOB)
    steps = job_s(p) / p.step_s
    assert sure.best_hours == pytest.approx([steps * end / 3600 for end in p.interval_s])
    assert sure.best_hours[0] < sure.best.hours < sure.best_hours[1]
    assert "leave a margin" not in " ".join(str(sure).split())
    tight = pm.plan(resnet, candidates=["p3.2xlarge"], deadline_hours=1.01 * sure.best.hours, **JOB)
    assert "the deadline lies inside this interval: leave a margin" in " ".join(str(tight).split())
    # nor is its money surer than its hours
    assert sure.best_usd == pytest.approx([3.06 * hours for hours in sure.best_hours])
    assert f"{sure.best_usd[0]:,.2f} to {sure.best_usd[1]:,.2f} USD" in " ".join(str(sure).split())
    dear = pm.plan(resnet, candidates=["p3.2xlarge"], budget_usd=1.01 * sure.best.usd, **JOB)
    assert "the budget lies inside this interval: leave" in " ".join(str(dear).split())
    both = {"deadline_hours": 1.01 * sure.best.hours, "budget_usd": 1.01 * sure.best.usd}
    both = pm.plan(resnet, candidates=["p3.2xlarge"], **both, **JOB)
    assert "the deadline and the budget lie inside this interval: leave" in " ".join(str(both).split())
    assert both.to_dict()["best_usd"] == list(both.best_usd)


def test_every_row_of_the_front_is_as_sure_as_its_own_step(resnet):
    candidates = [*SEVERAL, {"price": 0.02, "device": "rtx_4090"}]
    report = pm.plan(resnet, candidates=candidates, purchase=("on_demand", "spot"), **JOB, **ON_SPOT)
    hardware = {
        "aws_p4d_24xlarge_2020": {"system": "aws_p4d_24xlarge", "workers": 8},
        "rtx_4090": {"device": "rtx_4090"},
    }
    assert {row.candidate for row in report.pareto} == set(hardware)
    for row in report.pareto:
        p = pm.predict(resnet, batch_size=32, **hardware[row.candidate])
        assert row.least_hours < row.hours < row.most_hours
        assert row.least_usd < row.usd < row.most_usd
        for end_s, hours, usd in zip(p.interval_s, *row.ends(), strict=True):
            slack = 0.01 if row.purchase == "spot" else 1e-9  # of checkpoints the last is not in proportion
            assert hours / row.hours == pytest.approx(end_s / p.step_s, rel=slack)
            assert usd / row.usd == pytest.approx(end_s / p.step_s, rel=slack)
    assert max(row.most_hours / row.hours for row in report.pareto) > 1.01 * min(
        row.most_hours / row.hours for row in report.pareto
    )  # not one factor for all
    for row in report.rows:
        assert (row.ends() is None) != row.is_on_front
    said = " ".join(str(report).split())
    for row in report.pareto:
        assert (
            f"{row.least_hours:,.4g} to {row.most_hours:,.4g} h, {usd_text(row.least_usd)} to {usd_text(row.most_usd)}"
            in said
        )
    assert report.best_hours == (report.best.least_hours, report.best.most_hours)


FILES = {"batch_size": 32, "dataset": "imagenet_jpeg", "epochs": 1}


def test_a_device_alone_reads_from_what_is_named_and_half_of_its_virtual_processors_decode(resnet):
    candidates = [{"price": "p2.xlarge", "input_from": "object_store"}, "aws_p4d_24xlarge_2020"]
    report = pm.plan(resnet, candidates=candidates, **FILES)
    one, eight = report.rows
    fed = {"dataset": "imagenet_jpeg", "batch_size": 32}
    p = pm.predict(resnet, device="tesla_k80_gk210", input_from="object_store", decode_cores=2, **fed)
    assert one.step_s == p.step_s
    assert eight.step_s == pm.predict(resnet, system="aws_p4d_24xlarge", workers=8, **fed).step_s  # its own drives
    assert "2 cores of aws_p2_xlarge_2016 decode: half of the virtual processors" in " ".join(report.notes)
    few, many_cores = pm.plan(
        pm.zoo.alexnet(),
        candidates=[{"price": "p3.2xlarge", "decode_cores": cores} for cores in (1, 4)],
        input_from="object_store",
        **FILES,
    ).rows
    assert few.step_s > 1.5 * many_cores.step_s  # prices of one machine share a prediction only if they are fed alike


VIRTUAL_PROCESSORS = {
    "p2.8xlarge": 32, "p2.16xlarge": 64, "p3.8xlarge": 32, "p3.16xlarge": 64, "p3dn.24xlarge": 96, "p4d.24xlarge": 96,
    "p4de.24xlarge": 96, "p5.48xlarge": 192, "a2-highgpu-8g": 96, "a2-ultragpu-8g": 96, "a3-highgpu-8g": 208,
    "n1-standard-8 + 4 K80 dies": 8, "n1-highmem-16 + 8 K80 dies": 16, "BM.GPU.H100.8": 224, "BM.GPU.MI300X.8": 224,
    "gpu_8x_h100_sxm5": 208,
}  # fmt: skip
"""Instances of several devices, as their clouds list them, not as the system that stands for one has it."""


def test_the_host_that_decodes_has_the_cores_of_the_instance_that_is_paid():
    """Two systems have more cores than the guest gets, and one stands for smaller instances too."""
    fed = {"batch_size": 256, "dataset": "imagenet_jpeg", "input_from": "object_store"}
    names = [name for name in spec_files.names("prices") if getattr(pm.load_price(name), "system", None) is not None]
    prices = [pm.load_price(name) for name in names]
    prices = [price for price in prices if price.accelerators is not None]
    assert {price.instance for price in prices} == set(VIRTUAL_PROCESSORS)
    for price, row in zip(prices, pm.plan(pm.zoo.alexnet(), candidates=prices, epochs=1, **fed).rows, strict=True):
        how = fed | {"system": price.system, "workers": price.device_count, "sync": "ring_all_reduce"}
        cores = VIRTUAL_PROCESSORS[price.instance] // 2
        all_of_them = pm.predict(pm.zoo.alexnet(), decode_cores=cores, **how)
        assert row.step_s == all_of_them.step_s
        if all_of_them.bottleneck == "decode":
            assert row.step_s < pm.predict(pm.zoo.alexnet(), decode_cores=cores - 1, **how).step_s


def test_forty_gigabytes_less_do_not_make_a_host_of_the_same_cloud_faster(resnet):
    """Both have 96 virtual processors, and decoding is what their steps wait for."""
    candidates = ["a2-highgpu-8g", "a2-ultragpu-8g"]
    how = {"batch_size": 64, "dataset": "imagenet_jpeg", "epochs": 90, "dtype": "fp16"}
    small, large = pm.plan(resnet, candidates=candidates, **how).rows
    assert small.hours == pytest.approx(large.hours, rel=0.02)
    assert small.usd == pytest.approx(29.38708 * small.hours)


def test_a_device_without_a_host_is_told_what_to_do(resnet):
    for candidate, said in (
        ("p3.2xlarge", "input_from"),
        ({"price": 0.4, "device": "gtx_1080"}, "decode_cores"),
    ):
        with pytest.raises(
            ArgumentError, match=r"'input_from': 'object_store', 'decode_cores': 8.*a system"
        ) as refused:
            pm.plan(resnet, candidates=[candidate], **FILES)
        assert (refused.value.argument, refused.value.given) == (said, None)
    own = {"price": 0.4, "device": "gtx_1080", "input_from": "object_store", "decode_cores": 8}
    (row,) = pm.plan(resnet, candidates=[own], **FILES).rows
    assert row.limited_by is None
    beside = pm.plan(resnet, candidates=["p3.2xlarge", "aws_p4d_24xlarge_2020"], **FILES)
    assert [row.limited_by for row in beside.rows] == ["input_from", None]
    with pytest.raises(ArgumentError, match=r"decode_cores must.*\(got 0"):
        pm.plan(resnet, candidates=[own | {"decode_cores": 0}], **FILES)
    with pytest.raises(UnknownNameError, match="Did you mean 'object_store'"):
        pm.plan(resnet, candidates=[own | {"input_from": "object_stor"}], **FILES)
    with pytest.raises(ArgumentError, match="None without a dataset"):
        pm.plan(resnet, candidates=[own], **JOB)


def test_a_machine_of_ones_own_is_not_taken_away(resnet):
    own = [{"price": 0.4, "device": "gtx_1080"}]
    (row,) = pm.plan(resnet, candidates=own, purchase=("on_demand", "spot"), **JOB, **ON_SPOT).rows
    assert (row.purchase, row.lost_share) == ("own", 0)
    (row,) = pm.plan(resnet, candidates=own, purchase="spot", **JOB, **ON_SPOT).rows
    assert row.reason == "no spot price is known"


def test_a_run_a_pipeline_and_shards(resnet):
    measured = pm.measurements.load("shi2016").run("caffe_1_0_rc3", "resnet50")
    (row,) = pm.plan(measured, candidates=["p2.xlarge"], samples=10_000, batch_size=8).rows
    assert row.step_s == pm.predict(measured, batch_size=8, device="tesla_k80_gk210").step_s
    spread = {"parallelism": "pipeline", "stages": 4, "micro_batches": 4}
    (row,) = pm.plan(resnet, candidates=["aws_p4d_24xlarge_2020"], **spread, **JOB).rows
    p = pm.predict(resnet, batch_size=32, system="aws_p4d_24xlarge", workers=2, **spread)
    assert (row.workers, row.step_s) == (2, p.step_s)  # eight devices, four for each worker
    assert row.hours == pytest.approx(job_s(p) / 3600)
    assert row.energy_kwh == pytest.approx(p.energy_j() / p.step_s / 1000 * row.hours)


def test_a_socket_and_a_measured_machine_are_hired_too(resnet, of_unknown_processor):
    job = {"batch_size": 4, "samples": 400}
    socket = {"price": of_unknown_processor, "device": "i7_3820"}
    measured = {"price": "n1-highmem-16", "device": "xeon_2_cores_torch_2_13"}
    one, two = pm.plan(resnet, candidates=[socket, measured], deadline_hours=100, **job).rows
    assert one.limited_by is two.limited_by is None  # nobody says how much memory a socket has
    p = pm.predict(resnet, batch_size=4, device="xeon_2_cores_torch_2_13")
    assert two.usd == pytest.approx(0.9472 * 100 * p.step_s / 3600)
    assert two.energy_kwh is None


@pytest.mark.parametrize(
    ("price", "hardware", "said"),
    [
        ("n1-standard-1", {"device": "epyc_9654"}, "at least 192 virtual processors.*n1-standard-1 has 1"),
        ("n1-standard-1", {"device": "xeon_2_cores_torch_2_13"}, "at least 2 virtual processors.*has 1"),
        ("n1-standard-8", {"system": "server_2x_xeon_e5_2630_v3"}, "at least 32 virtual processors.*has 8"),
        ("n1-standard-4", {"device": "i7_3820"}, "at least 8 virtual processors.*n1-standard-4 has 4"),
    ],
)
def test_an_instance_that_has_other_processors_is_refused(resnet, price, hardware, said):
    with pytest.raises(ArgumentError, match=said):
        pm.plan(resnet, candidates=[{"price": price, **hardware}], batch_size=4, samples=400)
    with pytest.raises(ArgumentError, match=said):
        pm.predict(resnet, batch_size=4, **hardware).cost_usd(price)


def test_another_processor_than_that_of_the_instance_s_system_is_refused(resnet, tmp_path):
    other = tmp_path / "other_cores.toml"
    other.write_text((spec_files.shipped_folder() / "devices" / "n1_standard_4_skylake.toml").read_text())
    with pytest.raises(ArgumentError, match=r"with other_cores; the system of n1-standard-4 has n1_standard_4_skylake"):
        pm.plan(resnet, candidates=[{"price": "n1-standard-4", "device": other}], batch_size=4, samples=400)


def test_a_note_says_that_nobody_knows_which_processor_an_instance_has(resnet, of_unknown_processor):
    job = {"batch_size": 4, "samples": 400}
    report = pm.plan(resnet, candidates=[{"price": of_unknown_processor, "device": "i7_3820"}], **job)
    assert any("no file says which processor eight_threads has" in note for note in report.notes)
    with pytest.raises(ArgumentError, match="candidates must be mappings that name device= or system="):
        pm.plan(resnet, candidates=[of_unknown_processor], **job)
    report = pm.plan(resnet, candidates=["n1-standard-4"], **job)
    assert not any("no file says" in note for note in report.notes)


def test_a_broken_file_of_ones_own_hides_no_price(tmp_path, monkeypatch):
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "broken.toml").write_text("instance = ")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    assert pm.load_price("p3.2xlarge").stem == "aws_p3_2xlarge_2017"


def test_a_capacity_block_and_an_instance_of_cpus(resnet):
    block, cpu = pm.plan(
        resnet, candidates=["aws_p4d_24xlarge_capacity_block_2024", "n1-standard-4"], **JOB | {"batch_size": 8}
    ).rows
    assert (block.purchase, block.workers) == ("capacity_block", 8)  # all of them unless told
    p = pm.predict(resnet, batch_size=8, system="gce_n1_standard_4")
    assert (cpu.step_s, cpu.workers) == (p.step_s, 1)
    assert cpu.usd < 0.19 * cpu.hours  # longer than a quarter of a month


def test_a_data_set_is_read_and_decoded(resnet):
    (row,) = pm.plan(resnet, candidates=[{"price": "aws_p4d_24xlarge_2020", "workers": 8}], batch_size=32, epochs=3,
                     dataset="imagenet_jpeg", decode_cores=2).rows  # fmt: skip
    p = pm.predict(resnet, batch_size=32, system="aws_p4d_24xlarge", workers=8, dataset="imagenet_jpeg", decode_cores=2)
    assert row.hours == pytest.approx(3 * p.epoch_s(dataset_size=IMAGES) / 3600)
    assert p.bottleneck == "decode"


def test_prices_of_one_machine_share_its_prediction(resnet, monkeypatch):
    asked = []

    def counted(*args, **given):
        asked.append(given)
        return pm.predict(*args, **given)

    monkeypatch.setattr(sys.modules["perfmodel.planning.plans.candidates"], "predict", counted, raising=True)
    pm.plan(resnet, candidates=["aws_p5_48xlarge_2023", "aws_p5_48xlarge_2025"], purchase=("on_demand", "spot"),
            **JOB, **ON_SPOT)  # fmt: skip
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"deadline_hours": 0}, ArgumentError, "deadline_hours must be a finite number above 0"),
        ({"budget_usd": -5}, ArgumentError, r"budget_usd must.*\(got -5"),
        ({"candidates": []}, ArgumentError, r"candidates must.*at least one"),
        ({"candidates": 5}, ArgumentError, "candidates"),
        ({"candidates": ["p3.2xlage"]}, UnknownNameError, r"Did you mean 'p3\.2xlarge'"),
        ({"candidates": [{"price": "p3.2xlarge", "worker": 2}]}, UnknownNameError, "Did you mean 'workers'"),
        ({"candidates": [{"price": "p3.2xlarge", "workers": 0}]}, ArgumentError, r"workers must.*\(got 0"),
        ({"candidates": [{"price": "p3.2xlarge", "workers": []}]}, ArgumentError, "workers"),
        ({"candidates": [{"system": "survey_fig5"}]}, ArgumentError, "candidates must be"),
        ({"candidates": [{"price": 0.5}]}, ArgumentError, "device= or system="),
        ({"candidates": [{"price": 0.5, "device": "t4", "machines": 2}]}, ArgumentError, r"machines must.*add system="),
        (
            {"candidates": [{"price": 0.5, "system": "gce_n1_standard_4_x4", "device": "t4"}]},
            ArgumentError,
            "device must be a CPU",
        ),
        ({"candidates": [{"price": "p3.2xlarge", "device": "gtx_1080"}]}, ArgumentError, "has v100_sxm2.*gtx_1080"),
        ({"candidates": ["gce_local_ssd_2015"]}, ArgumentError, "price of an instance"),
        ({"purchase": "spot"}, ArgumentError, r"interruptions_per_hour must.*\(got None"),
        ({"purchase": "spot", "interruptions_per_hour": 1}, ArgumentError, r"checkpoint_to must.*\(got None"),
        ({"purchase": "spott"}, UnknownNameError, "Did you mean 'spot'"),
        ({"interruptions_per_hour": 1}, ArgumentError, "must not be given without purchase='spot'"),
        ({"restart_s": math.nan}, ArgumentError, r"restart_s must.*\(got nan"),
        ({"restart_s": "x"}, ArgumentError, r"restart_s must.*\(got 'x'"),
        ({"restart_s": -1}, ArgumentError, r"restart_s must.*\(got -1"),
        ({"restart_s": 240}, ArgumentError, r"restart_s must.*0 without purchase='spot'.*\(got 240"),
        ({"sync": "ring"}, UnknownNameError, "ring_all_reduce"),
        ({"sync": []}, ArgumentError, "sync"),
        ({"storage_gb": 10}, ArgumentError, r"storage_price must.*\(got None"),
        ({"usd_per_kwh": 0.1}, ArgumentError, "usd_per_kwh"),
        ({"samples": 5}, ArgumentError, "epochs must be"),
        ({"power_usage_effectiveness": math.nan}, ArgumentError, "a number from 1 to 10"),
        ({"storage_price": 0.2, "storage_gb": 9}, ArgumentError, r"storage_price must.*price of storage.*\(got 0.2"),
        (
            {"purchase": "spot", "interruptions_per_hour": 1, "checkpoint_to": "gce_pd_ssd"},
            ArgumentError,
            r"checkpoint_to must.*of_size.*\(got 'gce_pd_ssd'",
        ),
        ({"epochs": None}, ArgumentError, "epochs must be"),
        ({"dataset_size": None}, ArgumentError, "dataset_size"),
        ({"batch_size": 0}, ArgumentError, r"batch_size must.*\(got 0"),
        ({"staleness_penalty": -1}, ArgumentError, "staleness_penalty"),
        ({"frame_work": "generic"}, UnknownNameError, "Did you mean 'framework'"),
        ({"device": "gtx_1080"}, UnknownNameError, "option of plan"),
        ({"global_batch_size": 33}, ArgumentError, r"global_batch_size must.*\(got 33"),
    ],
)
def test_bad_input_is_refused_before_any_work(resnet, given, error, said):
    with pytest.raises(error, match=said):
        pm.plan(resnet, **{"candidates": ["p3.2xlarge"]} | JOB | given)


def test_a_price_without_a_date_is_refused(resnet, tmp_path):
    text = (spec_files.shipped_folder() / "prices" / "aws_p3_2xlarge_2017.toml").read_text()
    path = tmp_path / "undated.toml"
    path.write_text("\n".join(line for line in text.splitlines() if not line.startswith("valid_from")))
    with pytest.raises(SpecError, match="valid_from: required key is missing"):
        pm.plan(resnet, candidates=[path], **JOB)


def test_the_report_prints_renders_draws_and_becomes_a_frame(many, tmp_path):
    said = " ".join(str(many).split())
    assert "best: " in said
    assert "binding: none" in said
    assert "times an hour, as given" in said
    assert "<table>" in many._repr_html_()
    assert list(many.to_frame()["usd"].dropna()) == [row.usd for row in many.rows if row.usd is not None]
    content = json.loads(json.dumps(many.to_dict()))
    assert "prices are not of one day: the oldest holds since 2016-09-29, the newest since 2022-06-01" in said
    assert content["best"]["candidate"] == many.best.candidate
    many.plot(tmp_path / "plan.png")
    axes = many.plot().axes[0]
    drawn = sum(len(each.get_offsets()) for each in axes.collections)
    assert drawn == sum(row.hours is not None for row in many.rows)
    assert len(axes.get_lines()[0].get_xdata()) == len(many.pareto)


def test_the_command_says_what_the_function_says(resnet, capsys, tmp_path):
    words = ["plan", "resnet50", "--candidate", "p3.2xlarge", "--candidate", "p2.16xlarge:4,16", "--candidate",
             "price=0.4;system=survey_fig5;workers=4", "--batch-size", "32", "--dataset-size", str(IMAGES), "--epochs",
             "10", "--deadline-hours", "12", "--sync", "ring_all_reduce,downpour"]  # fmt: skip
    assert run([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    report = pm.plan(
        resnet,
        candidates=[
            "p3.2xlarge",
            {"price": "p2.16xlarge", "workers": (4, 16)},
            {"price": 0.4, "system": "survey_fig5", "workers": 4},
        ],
        deadline_hours=12,
        sync=("ring_all_reduce", "downpour"),
        **JOB,
    )
    assert content == json.loads(json.dumps(report.to_dict()))
    assert run([*words, "--plot", str(tmp_path / "plan.svg")]) == 0
    assert "best: " in capsys.readouterr().out
    assert (tmp_path / "plan.svg").stat().st_size > 1000
    fed = ["--candidate", "price=p3.2xlarge;input_from=object_store;decode_cores=1", "--batch-size", "32", "--json"]
    assert run(["plan", "alexnet", *fed, "--dataset", "imagenet_jpeg", "--epochs", "1"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    own = {"price": "p3.2xlarge", "input_from": "object_store", "decode_cores": 1}
    assert row["step_s"] == pm.plan(pm.zoo.alexnet(), candidates=[own], **FILES).rows[0].step_s
    for wrong in (
        ["--deadline-hours", "0"],
        ["--budget-usd", "-3"],
        ["--candidate", "p9.large"],
        ["--candidate", "a=;b"],
        ["--candidate", "price=0.2;device=t4;price=3"],
    ):
        assert run([*words, *wrong]) == 2
        assert "perfmodel: error:" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["price=0.2;device=t4;price=3", "price=0.2; price=0.2;device=t4"])
def test_a_key_is_typed_once(typed):
    with pytest.raises(ArgumentError, match="--candidate must not repeat price"):
        candidate_as_typed(typed)


def test_the_page_runs_and_prints_what_it_shows(capsys):
    """Words are those of the page, numbers within 1 %: they follow the predictions."""
    page = (Path(__file__).parents[2] / "docs" / "money.md").read_text(encoding="utf-8")
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "docs/money.md", "exec"), {})
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)[0]
    printed = capsys.readouterr().out
    number = re.compile(r"\d[\d,]*\.?\d*")
    words, figures = (
        [re.sub(r"[\s\d.,-]+", " ", text).split() for text in (printed, shown)],
        [[float(each.replace(",", "")) for each in number.findall(text)] for text in (printed, shown)],
    )
    assert words[0] == words[1]
    assert figures[0] == pytest.approx(figures[1], rel=0.01, abs=0.1)
    (command,) = re.findall(r"    perfmodel (plan .*?--json)", page, re.DOTALL)
    assert run(shlex.split(command.replace("\\\n", " "))) == 0
    assert json.loads(capsys.readouterr().out)["best"]["candidate"] == "aws_p4d_24xlarge_2020"
