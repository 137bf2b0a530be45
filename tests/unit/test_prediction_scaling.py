"""Factors on constants: which constants a step asks for, and what a factor on each does."""

import re

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.framework.profile import load_framework
from perfmodel.hardware.source import Constant
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.prediction.device.factors import NO_FACTORS, AskedNames, scaled
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.job.prepare import prepare
from perfmodel.prediction.job.subject import subject_of_run

SHARE = Constant(unit="1", meaning="a share", valid_min=0.1, valid_max=1.0)


def prepared(framework="caffe_1_0_rc3", network="alexnet", threads=None, **place):
    table = pm.measurements.load("shi2016")
    run = table.run(framework, network, batch_size=None if network != "alexnet" else 16)
    target = resolve_target(device=place.get("device"), system=place.get("system"), threads=threads)
    return prepare(subject_of_run(run), target=target, profile=load_framework(framework), batch_size=run.batch_size)


def seconds(step, factors=NO_FACTORS):
    return step.step(factors).parts.step_s


def test_products_stay_in_the_range_of_the_constant():
    constants = {"gemm": 0.5, "other": 7.0}

    def of(factor):
        return scaled(constants, place="a/b/c", factors={"a/b/c.gemm": factor}, described={"gemm": SHARE})

    assert of(1.5) == {"gemm": 0.75, "other": 7.0}
    assert of(3.0) == {"gemm": 1.0, "other": 7.0}
    assert of(0.01) == {"gemm": 0.1, "other": 7.0}
    assert of(np.array([0.01, 1.5, 3.0]))["gemm"].tolist() == [0.1, 0.75, 1.0]
    assert constants == {"gemm": 0.5, "other": 7.0}


def test_a_list_is_scaled_entry_by_entry():
    changed = scaled(
        {"tile": (0.25, 0.5, 0.75)}, place="p", factors={"p.tile": 2.0, "q.tile": 5.0}, described={"tile": SHARE}
    )
    assert np.asarray(changed["tile"]).tolist() == [0.5, 1.0, 1.0]
    assert scaled({"tile": (0.25,)}, place="p", factors={"q.tile": 2.0}) == {"tile": (0.25,)}


def test_asking_is_remembered_in_order_and_changes_nothing():
    asked = AskedNames()
    assert scaled({"b": 1.0, "a": (2.0,)}, place="p", factors=asked) == {"b": 1.0, "a": (2.0,)}
    assert list(asked.names) == ["p.b", "p.a"]
    assert (len(asked), list(asked)) == (0, [])
    with pytest.raises(KeyError):
        asked["p.a"]


GPU = {"framework": "caffe_1_0_rc3", "device": "gtx_1080"}
CPU = {"framework": "tensorflow_0_9", "system": "desktop_i7_3820", "threads": 2}


@pytest.mark.parametrize("place", [GPU, CPU], ids=["gpu", "cpu"])
def test_every_constant_that_a_step_takes_is_asked_for(place):
    """Halving all that is asked for must leave nothing of the files' constants that could still be hidden."""
    step = prepared(**place)
    names = step.constant_names
    assert len(set(names)) == len(names)
    kinds = {name.split("/")[0] for name in names}
    assert kinds - {"links"} == {"libraries", "frameworks", "devices"}
    plain = seconds(step)
    moving = []
    for name in names:
        assert seconds(step, {name: 1.0}) == plain
        if name.rpartition(".")[2] in ("tile_rows", "tile_columns", "split_k", "tile_efficiency"):
            continue
        if seconds(step, {name: 0.8}) != plain or seconds(step, {name: 1.25}) != plain:
            moving.append(name)
    assert len(moving) >= 8
    # another architecture, another processor, another framework: no factor of theirs may count
    strange = {
        "libraries/cublas_7_5/kepler.gemm": 0.5,
        "libraries/cublas_8_0/maxwell.gemm": 0.5,
        "libraries/openblas_0_2_18/haswell.gemm_efficiency": 0.5,
        "frameworks/torch_423cfba/gpu.dispatch_us": 9.0,
        f"frameworks/{place['framework']}/{'cpu' if 'device' in place else 'gpu'}.dispatch_us": 9.0,
        "devices/gtx_980/launch.latency_us": 9.0,
    }
    assert not set(strange) & set(names)
    assert seconds(step, strange) == plain


def test_the_constants_of_a_file_are_those_a_factor_scales(tmp_path, monkeypatch):
    """Changing a value in a copy of the framework's file does to the time what a factor on it does, name by name."""
    plain_step = prepared(**GPU)
    text = (shipped_folder() / "frameworks" / "caffe_1_0_rc3.toml").read_text()
    start = text.index("[gpu.constants]")
    end = text.index("\n[", start + 1)
    names = re.findall(r"^(\w+) = ([\d.]+)", text[start:end], flags=re.MULTILINE)
    assert len(names) >= 6
    plain, asked, moved = seconds(plain_step), set(plain_step.constant_names), 0
    for name, value in names:
        full_name = f"frameworks/caffe_1_0_rc3/gpu.{name}"
        folder = tmp_path / name / "frameworks"
        folder.mkdir(parents=True)
        changed = re.sub(rf"^{name} = [\d.]+", f"{name} = {0.9 * float(value)!r}", text[start:end], flags=re.MULTILINE)
        (folder / "caffe_1_0_rc3.toml").write_text(text[:start] + changed + text[end:])
        monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path / name))
        by_file = seconds(prepared(**GPU))
        monkeypatch.delenv("PERFMODEL_SPECS")
        if float(value) == 0:
            continue
        assert by_file == pytest.approx(seconds(plain_step, {full_name: 0.9}), rel=1e-12), name
        moved += by_file != plain
        if full_name not in asked:
            assert by_file == plain, name
    assert moved >= 4


@pytest.mark.parametrize(
    ("name", "factor"), [("frameworks/caffe_1_0_rc3/gpu.dispatch_us", 3.0), ("libraries/cudnn_4/pascal.conv_3x3", 0.5)]
)
def test_many_configurations_at_once_are_each_by_itself(name, factor):
    step = prepared(**GPU)
    many = seconds(step, {name: np.array([1.0, factor, 1.5])})
    alone = [seconds(step, {name: each}) for each in (1.0, factor, 1.5)]
    assert many == pytest.approx(alone, rel=1e-12)
    assert alone[1] > alone[0]
