"""Framework files as a new user would write them: what a rule needs beside itself."""

import pytest

import perfmodel as pm
from perfmodel.errors import SpecError
from perfmodel.hardware.library import LibrarySupport
from perfmodel.hardware.spec_files import shipped_folder

ROWS = 'serial_rows = ["argmax"]'
CYCLES = "serial_row_cycles = 235.0\n"


@pytest.fixture
def load_edited(tmp_path):
    """Load the shipped profile of TensorFlow after replacing some of its text."""

    def load(*replacements):
        text = (shipped_folder() / "frameworks" / "tensorflow_0_9.toml").read_text(encoding="utf-8")
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new, 1)
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return pm.load_framework(path)

    return load


SOURCE = '[[source]]\nfields = ["gpu.constants.serial_row_cycles"]\n'
WITHOUT_CYCLES = ((CYCLES, ""), (SOURCE, '[[source]]\nfields = ["gpu.constants.dispatch_us"]\n'))


def test_serial_rows_reach_the_rules(load_edited):
    profile = load_edited()
    assert profile.gpu.lowering.rules(LibrarySupport()).serial_rows == ("argmax",)
    assert profile.gpu.lowering.rules(LibrarySupport()).pointwise_products
    assert profile.gpu.in_base_units_by_name["serial_row_cycles"] == 235
    on_cpu = profile.cpu.lowering.rules(LibrarySupport())
    assert (on_cpu.serial_rows, on_cpu.pointwise_products) == ((), False)


def test_serial_rows_need_the_cycles_of_one_element(load_edited):
    # without the constant every row would be read in no time
    with pytest.raises(SpecError) as caught:
        load_edited(*WITHOUT_CYCLES)
    assert "gpu.lowering.serial_rows: value ['argmax']: needs the constant gpu.constants.serial_row_cycles" in str(
        caught.value
    )
    assert len(caught.value.faults) == 1, caught.value.faults


def test_no_serial_rows_need_no_cycles(load_edited):
    profile = load_edited(*WITHOUT_CYCLES, (ROWS, "serial_rows = []"))
    assert profile.gpu.lowering.serial_rows == ()
    assert pm.predict(pm.zoo.fcn5(accuracy=True), batch_size=2, device="gtx_1080", framework=profile).step_s > 0


def test_serial_rows_are_of_gpus(load_edited):
    with pytest.raises(SpecError, match=r"cpu.lowering.serial_rows: value \['argmax'\]: must be empty"):
        load_edited(("[cpu.lowering]\n", f"[cpu.lowering]\n{ROWS}\n"))


@pytest.mark.parametrize("exponent", ["0.9", "101.0"])
def test_an_overlap_is_between_a_sum_and_a_sharp_maximum(load_edited, exponent):
    with pytest.raises(SpecError) as caught:
        load_edited(("overlap_exponent = 1.5", f"overlap_exponent = {exponent}"))
    assert caught.value.faults == (f"gpu.constants.overlap_exponent: value {exponent}: must be from 1 to 100",)


@pytest.mark.parametrize("device", ["gtx_1080", "tesla_p100_sxm2", "i7_3820"])
def test_deeplearning4j_0_8_differs_from_0_9_in_memory_alone_as_its_page_says(device):
    for graph in (pm.zoo.vgg16(), pm.zoo.lstm32()):
        old, new = (
            pm.predict(graph, batch_size=16, device=device, framework=f"deeplearning4j_{version}")
            for version in ("0_8", "0_9")
        )
        assert old.step_s == pytest.approx(new.step_s, rel=1e-12)
        assert 1.1 < old.memory.total_bytes / new.memory.total_bytes < 1.6
