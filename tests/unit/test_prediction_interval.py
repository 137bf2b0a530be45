"""The interval of a prediction: lazily made, wider for what is new, narrower for what was fitted."""

import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.framework.kernel_table import UPDATE_KIND
from perfmodel.framework.lowering import LOWERING
from perfmodel.hardware.fit_file import Factor, FitFile, FittedConstant, FittedOn, Unknown
from perfmodel.hardware.interval_scale import KINDS_OF_OPERATION, Seen, SeenRow, load_interval_scale
from perfmodel.hardware.spec_files import names, shipped_folder
from perfmodel.prediction.certainty import prediction_interval as uncertainty
from perfmodel.prediction.certainty.prediction_interval import (
    extended_covariance,
    interval_of,
    mix_of,
    prior_covariance,
)

PLACE = {"batch_size": 16, "device": "gtx_1080", "framework": "torch_423cfba"}


@pytest.fixture(scope="module")
def alexnet():
    return pm.zoo.alexnet()


def calibration(**changes):
    """A calibration of three AlexNet cells on a GTX 1080 with Torch."""
    mixes = Seen.of([SeenRow("a", "b", "c", "fp32", _mix(pm.predict(pm.zoo.alexnet(), **PLACE)))]).mixes
    board = pm.load_device("gtx_1080")
    seen = {
        "devices": [board.identity], "architectures": [board.architecture], "frameworks": ["torch_423cfba"],
        "dtypes": ["fp32"], "mixes": mixes,
    }  # fmt: skip
    content = {
        "schema_version": 1,
        "name": "three cells",
        "kind": "fit",
        "fitted_on": {
            "table": "mine", "subset": "gpu", "row_count": 63, "parameter_count": 1, "mape_percent": 7.0,
            "typical_factor_percent": 7.5, "fitted_at": "2026-11-21", "code_version": "0", "content": "0", "seen": seen,
        },
        "factor": [
            {
                "name": "dispatch", "scales": ["frameworks/*/gpu.dispatch_us"], "value": 1.5, "low": 1.4, "high": 1.6,
                "prior_spread": 0.4,
            }
        ],
        "source": [{"fields": ["fitted_on", "factor"], "title": "a fit"}],
    }  # fmt: skip
    return FitFile.model_validate(content | changes)


def _mix(p):
    return mix_of(p.basis.prepared, p.basis.timed)


def test_it_holds_the_prediction_and_is_symmetric_as_a_ratio(alexnet):
    p = pm.predict(alexnet, **PLACE)
    low, high = p.interval_s
    assert 0 < low < p.step_s < high
    assert low * high == pytest.approx(p.step_s**2)
    assert sum(p.interval.shares.values()) == pytest.approx(1)
    assert p.interval.level == 0.8


def test_a_prediction_does_not_wait_for_it(alexnet, monkeypatch):
    asked = []
    original = uncertainty.uncertainty_of

    def counting(*arguments, **options):
        asked.append(1)
        return original(*arguments, **options)

    monkeypatch.setattr("perfmodel.prediction.certainty.prediction_interval.uncertainty_of", counting)
    p = pm.predict(alexnet, **PLACE)
    assert (p.step_s, p.memory.fits, asked) == (p.step_s, True, [])
    first = p.interval_s
    assert p.interval_s == first
    assert asked == [1]


def ratio(graph, **changes):
    return pm.predict(graph, **(PLACE | changes)).interval.ratio


def test_it_is_wider_for_a_device_that_nobody_measured(alexnet, tmp_path):
    """The same board with twice the memory, which no residual knows: only that is new. Its name does not matter."""
    text = (shipped_folder() / "devices" / "gtx_1080.toml").read_text()
    copy = tmp_path / "gtx_1080.toml"
    copy.write_text(text.replace("capacity_gib = 8", "capacity_gib = 16"))
    known, new = (pm.predict(alexnet, **(PLACE | {"device": device})) for device in ("gtx_1080", copy))
    assert new.step_s == known.step_s
    assert new.interval.ratio > known.interval.ratio
    assert "device" in new.interval.shares
    assert "device" not in known.interval.shares
    assert "a device without measured rows" in " ".join(new.explain().split())


def test_it_is_wider_for_a_framework_that_nobody_measured(alexnet, tmp_path):
    copy = tmp_path / "lab_framework.toml"
    copy.write_text((shipped_folder() / "frameworks" / "torch_423cfba.toml").read_text())
    assert ratio(alexnet, framework=copy) > ratio(alexnet)


def test_a_data_type_or_architecture_without_rows_widens_it(alexnet):
    scale = load_interval_scale("gpu_80")
    p = pm.predict(alexnet, **PLACE)
    known = p.interval.exposure
    for way in ("dtype", "architecture"):
        assert getattr(scale.unseen, way) > 0
        assert getattr(replace(known, **{way: 1.0}), way) == 1.0


@pytest.mark.parametrize("calibration", [None, "shi2016_gpu"])
@pytest.mark.parametrize("framework", ["torch_423cfba", "caffe_1_0_rc3", "tensorflow_0_9"])
@pytest.mark.parametrize("network", ["alexnet", "resnet50", "fcn5", "lstm32"])
def test_no_board_that_nobody_measured_is_surer_than_one_somebody_did(network, framework, calibration):
    graph = getattr(pm.zoo, network)()
    ratio = {
        device: pm.predict(
            graph, batch_size=64, device=device, framework=framework, calibration=calibration
        ).interval.ratio
        for device in ("gtx_980", "gtx_1080", "b200", "mi300x")
    }
    # within 1 %: constants of other kinds of kernel fill the step of each board
    assert min(ratio["b200"], ratio["mi300x"]) > 0.99 * max(ratio["gtx_980"], ratio["gtx_1080"])
    assert min(ratio["b200"], ratio["mi300x"]) > 1.5


def test_a_fit_narrows_it_and_what_the_fit_has_not_seen_widens_it_again(alexnet):
    fitted = calibration()
    known = ratio(alexnet, calibration=fitted)
    assert known < ratio(alexnet)
    assert known < ratio(alexnet, calibration=fitted, device="gtx_980")
    assert known < ratio(alexnet, calibration=fitted, framework="caffe_1_0_rc3")
    assert known < pm.predict(pm.zoo.lstm32(), **PLACE, calibration=fitted).interval.ratio
    worse = calibration(fitted_on=fitted.fitted_on.model_dump(mode="json") | {"typical_factor_percent": 40.0})
    assert known < ratio(alexnet, calibration=worse)
    silent = calibration(fitted_on=fitted.fitted_on.model_dump(mode="json") | {"seen": None})
    assert known < ratio(alexnet, calibration=silent)


def test_a_constant_that_is_less_certain_widens_it(alexnet):
    fitted = calibration()
    loose = fitted.model_dump(mode="json")
    loose["factor"][0] |= {"low": 0.3, "high": 7.5}
    lstm = pm.zoo.lstm32()
    tight, wide = (
        pm.predict(lstm, **PLACE, calibration=FitFile.model_validate(each))
        for each in (fitted.model_dump(mode="json"), loose)
    )
    assert wide.step_s == tight.step_s
    assert wide.interval.exposure.constants_variance > tight.interval.exposure.constants_variance
    assert wide.interval.ratio > tight.interval.ratio


@pytest.mark.parametrize("calibrated", [False, True])
def test_what_a_scale_has_seen_is_collected_once(alexnet, monkeypatch, calibrated):
    p = pm.predict(alexnet, **PLACE, calibration=calibration() if calibrated else None)
    collected, together = [], Seen.together
    monkeypatch.setattr(Seen, "together", lambda parts: collected.append(1) or together(parts))
    assert p.interval.exposure.architecture == 0
    assert len(collected) == 1


def test_an_architecture_is_new_unless_the_calibration_or_the_scale_tells_of_it(alexnet):
    """Steps on Pascal are among the scale's rows, steps on Hopper are not."""
    place = PLACE | {"device": "h100_sxm"}
    hopper = pm.load_device("h100_sxm").architecture
    assert hopper not in load_interval_scale("gpu_80").measured.architectures
    assert pm.predict(alexnet, **place).interval.exposure.architecture == 1
    assert pm.predict(alexnet, **place, calibration=calibration()).interval.exposure.architecture == 1
    fitted_on = calibration().fitted_on.model_dump(mode="json")
    fitted_on["seen"]["architectures"] = [hopper]
    told = pm.predict(alexnet, **place, calibration=calibration(fitted_on=fitted_on))
    assert told.interval.exposure.architecture == 0


def in_a_fresh_process(own=None):
    """Return the interval and explanation of a job on an A100, made by a process that has loaded nothing yet."""
    code = (
        "import perfmodel as pm\n"
        "p = pm.predict(pm.zoo.alexnet(), batch_size=8, device='a100_40_sxm', framework='pytorch_2')\n"
        "print(p.interval_s)\nprint(p.explain())"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PERFMODEL_SPECS"}
    environment |= {} if own is None else {"PERFMODEL_SPECS": str(own)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_faulty_files_of_other_devices_change_nothing(tmp_path):
    """What a scale has seen it names by content: no file of a device is read but the one that is asked for."""
    folder = tmp_path / "devices"
    folder.mkdir()
    for name in names("devices"):
        if name != "a100_40_sxm":
            (folder / f"{name}.toml").write_text("schema_version = 1\nfp32 = 5.0\n", encoding="utf-8")
    assert in_a_fresh_process(tmp_path) == in_a_fresh_process()


def test_a_scale_names_each_measured_device_by_its_content():
    known = {pm.load_device(name).identity for name in names("devices")}
    for processor in ("gpu", "cpu"):
        for seen in load_interval_scale(f"{processor}_80").seen.values():
            assert set(seen.devices) <= known
            assert set(seen.architectures) == {device.partition(",")[0] for device in seen.devices}


def test_arrays_are_refused(alexnet):
    p = pm.predict(alexnet, **PLACE)
    prepared = p.basis.prepared
    many = {"frameworks/torch_423cfba/gpu.dispatch_us": np.array([1.0, 2.0])}
    with pytest.raises(ArgumentError, match="one number"):
        interval_of(replace(p.basis, factors=many, timed=prepared.step(many)))


@pytest.mark.parametrize("framework", names("frameworks"))
def test_every_framework_has_one_on_gpus_and_cpus(alexnet, framework):
    for place in ({"device": "gtx_1080"}, {"device": "i7_3820", "threads": 2}):
        low, high = pm.predict(alexnet, batch_size=4, framework=framework, **place).interval_s
        assert 1.05 < high / low < 30


@pytest.mark.parametrize("device", names("devices"))
def test_every_device_has_one(alexnet, device):
    low, high = pm.predict(alexnet, batch_size=4, device=device).interval_s
    assert 1.05 < high / low < 30


def test_sensitivities_are_those_of_the_step(alexnet):
    p = pm.predict(alexnet, **PLACE)
    found = p.interval.uncertainty
    prepared = p.basis.prepared
    for place in np.argsort(-np.abs(found.sensitivity))[:3]:
        name, spread = found.constants[place].name, found.spread[place]
        step = max(spread, uncertainty.LEAST_STEP)
        lowered = prepared.step({name: math.exp(-step)}).parts.step_s
        assert found.sensitivity[place] == pytest.approx(math.log(p.step_s / lowered) / step, rel=1e-9)
    assert found.variance == pytest.approx(found.contribution.sum())


def test_an_unknown_the_fit_has_not_met_follows_its_group():
    def unknown(name):
        return Unknown(name=name, scales=("frameworks/*",), group="g", spread=0.2, shared_spread=0.3)

    fitted, further = (unknown("a"), unknown("b")), (unknown("c"),)
    prior = prior_covariance(fitted)
    assert extended_covariance(fitted, prior, further=further) == pytest.approx(prior_covariance((*fitted, *further)))
    told = extended_covariance(fitted, 1e-6 * np.eye(2), further=further)
    alone = prior_covariance(further)[0, 0]
    assert 0.2**2 < told[2, 2] < alone  # its own part stays, the shared one is known better
    assert extended_covariance(fitted, prior, further=()) is prior


def test_covariance_of_a_calibration():
    plain = calibration()
    assert plain.covariance == pytest.approx(np.array([[(math.log(1.6 / 1.4) / 2 / 1.2816) ** 2]]))
    both = Factor(
        name="b", scales=("frameworks/*",), value=1.0, low=0.9, high=1.1, prior_spread=0.2, covariance=(0.01, 0.04)
    )
    first = Factor(
        name="a", scales=("frameworks/*",), value=1.0, low=0.9, high=1.1, prior_spread=0.2, covariance=(0.09,)
    )
    pair = plain.model_copy(update={"factor": (first, both)})
    assert pair.covariance == pytest.approx(np.array([[0.09, 0.01], [0.01, 0.04]]))
    with pytest.raises(ValueError, match="one number more"):
        calibration(factor=[both.model_dump(mode="json")])


def test_a_constant_at_the_end_of_its_range_is_told():
    limited = FittedConstant(name="libraries/a/b.gemm", unit="1", shipped=0.9, fitted=1.0, at_limit=True)
    found = calibration(
        constant=[limited.model_dump()], source=[{"fields": ["fitted_on", "factor", "constant"], "title": "t"}]
    )
    assert found.constants_at_limit == ("libraries/a/b.gemm",)
    assert "at the end of their range: libraries/a/b.gemm" in found.describe()
    assert "end of" not in calibration().describe()


def test_a_fit_tells_what_it_has_seen(tmp_path):
    on = calibration().fitted_on
    assert isinstance(on, FittedOn)
    assert on.seen.distance_to(_mix(pm.predict(pm.zoo.alexnet(), **PLACE))) == 0
    assert on.seen.distance_to(_mix(pm.predict(pm.zoo.lstm32(), **PLACE))) > 0.5
    path = tmp_path / "mine.toml"
    calibration().save(path)
    assert pm.load_calibration(path) == calibration()


def test_mixes_are_of_the_kinds_that_are_lowered():
    assert set(KINDS_OF_OPERATION) == {*LOWERING, UPDATE_KIND}
    mix = _mix(pm.predict(pm.zoo.lstm32(), **PLACE))
    assert sum(mix.values()) == pytest.approx(1)
    assert max(mix, key=mix.__getitem__) == "recurrence"


SYNC_JOB = {"batch_size": 128, "system": "dgx_a100", "workers": 8, "framework": "pytorch_2"}


def exchange_variance_of(**job):
    return pm.predict(pm.zoo.alexnet(), **SYNC_JOB | job).interval.exposure.exchange_variance


def test_only_training_that_devices_share_has_the_quantile_of_language_models():
    """As measured: 16 bit, attention, gradients exchanged, Ampere or Hopper. Of q sigma^gamma only q differs."""
    gpt = pm.zoo.gpt(layers=2, width=512, heads=8, sequence_length=512, vocabulary=1000)
    measured = {"dtype": "bf16", "batch_size": 8, "workers": 8, "system": "dgx_a100_80", "framework": "megatron_core"}
    interval = pm.predict(gpt, **measured).interval
    q = interval.scale.quantile
    wider = replace(interval.exposure, shared_attention=0.0)
    assert uncertainty.regime_of(wider) == "unfitted"
    spread = uncertainty.log_spread(wider, parameters=uncertainty.parameters_of(interval.scale))
    assert math.log(interval.ratio) == pytest.approx(2 * q.shared_attention * spread**interval.scale.damping)
    for network, other in (
        (gpt, {"dtype": "fp32"}),
        (gpt, {"phase": "forward", "workers": 1}),
        (gpt, {"workers": 1}),
        (gpt, {"system": "mi300x_x8"}),
        (pm.zoo.alexnet(), {}),
    ):
        assert not pm.predict(network, **measured | other).interval.exposure.shared_attention
    assert (
        load_interval_scale("cpu_80").quantile.of("shared_attention") == load_interval_scale("cpu_80").quantile.unfitted
    )


def test_an_exchange_that_is_all_exposed_is_as_uncertain_as_collectives_are():
    """Without overlap d ln(step) = share of the exchange times d ln(exchange), here by a difference of two steps."""
    spreads = load_interval_scale("gpu_80").exchange
    for sync, spread in (("all_reduce", spreads.library), ("halving_doubling", spreads.algorithm)):
        p = pm.predict(pm.zoo.alexnet(), sync=sync, overlap=False, **SYNC_JOB)
        copied_s = p.basis.timed.composed.stages[0].copied_s  # into buckets and back: passes, as sure as others
        messages_s = p.exposed_sync_s - copied_s
        ends = [math.log(p.step_s - messages_s + messages_s * math.exp(sign * spread)) for sign in (-1, 1)]
        assert p.interval.exposure.exchange_variance == pytest.approx(((ends[1] - ends[0]) / 2) ** 2, rel=1e-6)
        assert p.exposed_sync_s / p.step_s > 0.1
        assert "exchange" in p.interval.shares


def test_a_hidden_exchange_makes_a_step_no_less_certain_and_a_bare_one_does():
    hidden, bare = (exchange_variance_of(sync="ring_all_reduce", overlap=overlap) for overlap in (True, False))
    assert 0 < hidden < bare
    assert exchange_variance_of(sync="none") == 0
    servers = [exchange_variance_of(sync=sync) for sync in ("parameter_server", "downpour")]
    assert min(servers) > hidden
    told = pm.predict(pm.zoo.alexnet(), sync="ring_all_reduce", overlap=False, **SYNC_JOB)
    none = pm.predict(pm.zoo.alexnet(), sync="none", **SYNC_JOB)
    assert told.interval.ratio > none.interval.ratio
    assert "how long workers exchange" in " ".join(told.explain().split())


SYSTEM = {"system": "survey_fig6", "workers": 4}
JOBS = [
    *({"device": name} for name in ("gtx_1080", "tesla_k80_gk210", "v100_sxm2", "i7_3820")),
    {"device": "a100_80_sxm", "dtype": "fp16"},
    *({**SYSTEM, "sync": sync} for sync in ("ring_all_reduce", "parameter_server", "downpour")),
    {**SYSTEM, "straggler": {"distribution": "normal", "cv": 0.1}, "dataset": "imagenet_jpeg"},
]


@pytest.mark.parametrize("job", JOBS, ids=str)
@pytest.mark.parametrize("network", ["alexnet", "bert", "lstm32"])
def test_a_step_with_each_constant_lowered_is_timed_at_once(network, job):
    """Arrays of all constants, as explain() and validate() have it: one by one takes twenty times as long."""
    if network != "alexnet":
        job = {name: value for name, value in job.items() if name != "dataset"}
    p = pm.predict(getattr(pm.zoo, network)(), batch_size=8, **job)
    prepared, names = p.basis.prepared, [constant.name for constant in p.interval.uncertainty.constants]
    lowered = {name: np.where(np.arange(len(names) + 1) == place, 0.8, 1.0) for place, name in enumerate(names)}
    together = np.broadcast_to(prepared.step(lowered).parts.step_s, len(names) + 1)
    one_by_one = [
        prepared.step({name: factor[place] for name, factor in lowered.items()}).parts.step_s
        for place in range(len(names) + 1)
    ]
    np.testing.assert_allclose(together, one_by_one, rtol=1e-12)
    assert max(one_by_one) > (1 + 1e-5) * min(one_by_one)  # more than rounding
