"""A spec object prints in one line: what it is, its file, its name and its key figures."""

import pytest

import perfmodel as pm
from perfmodel.hardware.catalogue import LOADER_BY_FOLDER, load_default
from perfmodel.hardware.fit_file import load_fit_plan
from perfmodel.hardware.interval_scale import load_interval_scale
from perfmodel.hardware.library import load_collective_library
from perfmodel.hardware.spec_files import names

LOADERS = {folder: load for folder, load in LOADER_BY_FOLDER.items() if folder != "links"} | {
    "frameworks": pm.load_framework,
    "collectives": load_collective_library,
    "intervals": load_interval_scale,
    "defaults": load_default,
    "calibrations": pm.load_calibration,
    "fit_plans": load_fit_plan,
}
SCREEN = 3 * 80


@pytest.mark.parametrize("folder", sorted(LOADERS))
def test_every_shipped_spec_object_prints_in_one_line_that_names_it(folder):
    for name in names(folder):
        loaded = LOADERS[folder](name)
        printed = repr(loaded)
        assert str(loaded) == printed
        assert len(printed) <= SCREEN
        assert "\n" not in printed
        assert printed.startswith(f"<{type(loaded).__name__} {name}, {loaded.name[:40]}")


def test_a_system_of_many_machines_and_the_way_of_its_data_print_in_a_screen():
    system = pm.load_system("gb200_nvl72", machines=8)
    assert len(repr(system)) <= SCREEN
    assert "576 x NVIDIA GB200" in repr(system)
    p = pm.predict(pm.zoo.resnet18(), batch_size=16, system="dgx_a100", workers=8)
    assert len(repr(p.data_path)) <= 2 * SCREEN
    assert "dgx_a100" in repr(p.data_path)


def test_figures_are_in_the_line():
    assert "8.873 TFLOP/s fp32, 8 GiB at 320 GB/s" in repr(pm.load_device("gtx_1080"))
    assert "12.45 typical" in repr(pm.load_link("pcie_3_x16"))
