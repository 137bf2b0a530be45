"""Every library profile loads, and is served to every processor it names."""

import pytest

import perfmodel as pm
from perfmodel.framework.convolution import ALGORITHMS
from perfmodel.framework.recurrence import FUSED, PERSISTENT
from perfmodel.hardware import spec_files
from perfmodel.hardware.spec_files import shipped_folder

FILES = sorted((shipped_folder() / "libraries").glob("*.toml"))
GRAPH = pm.zoo.alexnet()


def test_the_files_of_the_issue_are_there():
    names = {path.stem for path in FILES}
    assert names >= {"cudnn_4", "cublas_7_5", "cublas_8_0", "openblas_0_2_18", "eigen_3_2_8"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_loads_with_a_source_for_everything(path):
    library = pm.load_library(path)
    assert library == pm.load_library(path.stem)
    assert library.source
    assert f"{library.processor}_{library.kind}" in ("gpu_blas", "gpu_dnn", "gpu_attention", "cpu_blas")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_serves_every_device_of_its_kind(path):
    library = pm.load_library(path)
    served = 0
    for name in spec_files.names("devices"):
        device = pm.load_device(name)
        if device.kind != library.processor:
            continue
        p = pm.predict(GRAPH, batch_size=16, device=name, library=path.stem)
        assert p.step_s > 0
        assert library in p.sources
        served += 1
        if library.kind == "dnn":
            algorithms = library.algorithms_for(device.architecture)
            assert algorithms
            assert set(algorithms) <= {*ALGORITHMS, FUSED, PERSISTENT}
    assert served >= 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_efficiencies_are_shares(path):
    library = pm.load_library(path)
    for name in spec_files.names("devices"):
        device = pm.load_device(name)
        if device.kind == library.processor:
            for constant, value in library.constants_for(device.architecture).items():
                if constant.endswith(("_efficiency", "_fraction")) or constant.startswith("conv_"):
                    values = value if isinstance(value, list | tuple) else [value]
                    assert all(0 < each <= 1 for each in values), constant


def test_a_board_that_throttles_keeps_it_to_itself():
    # the T4 holds half its boost clock at 70 W; a Titan RTX of 280 W is of the same architecture
    graph = pm.zoo.fcn5()
    asked = {"batch_size": 4096, "library": "cublas_10_1", "phase": "forward"}
    for dtype in ("fp32", "fp16"):
        boards = [pm.load_device(name) for name in ("t4", "titan_rtx")]
        t4, other = (
            pm.predict(graph, device=board, dtype=dtype, **asked).compute_s * board.peak_flop_per_s(dtype)
            for board in boards
        )
        assert t4 > 1.1 * other


def test_tensor_cores_serve_the_types_that_the_device_has():
    for name in ("v100_sxm2", "t4", "a100_80_sxm", "h100_sxm"):
        device = pm.load_device(name)
        library = pm.load_library("cublas_12_0")
        assert library.on_tensor_cores(device.architecture, dtype="fp16")
        assert not library.on_tensor_cores(device.architecture, dtype="fp32")
    assert not pm.load_library("cublas_8_0").on_tensor_cores("pascal_gp100", dtype="fp16")
