"""Tables of steps on systems: rows of one device become measured rows, rows of several are counted."""

from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.errors import TableError
from perfmodel.validation.reports.speedup import framework_of_text, read_system_table, run_of_same_page

HEAD = "framework,framework_version,network,device,n_devices,batch_size,phase,seconds,data,variable_update\n"
ROW = "tensorflow,git ~0.9.1,resnet50,Tesla K80 (one GK210; GCE),{devices},32,step,0.65,{data},on the CPU\n"


def written(tmp_path, *rows):
    path = tmp_path / "docs.csv"
    path.write_text(HEAD + "".join(rows))
    return path


def test_rows_of_one_device_are_scored_and_others_counted(tmp_path):
    rows = [ROW.format(devices=devices, data="synthetic") for devices in (1, 2, 8)]
    table = read_system_table(written(tmp_path, *rows, ROW.format(devices=1, data="real (ImageNet)")))
    assert [each.worker_count for each in table.several] == [2, 8]
    on_device, read = table.measurements.rows
    assert (on_device.device, on_device.framework) == ("tesla_k80_gk210", "tensorflow_0_9")
    assert read.network != on_device.network  # two runs: one is fed
    runs = [table.measurements.run_of(row) for row in (on_device, read)]
    assert runs[0].feed_bytes == 0
    assert runs[1].feed_bytes == 32 * 224 * 224 * 3 * 4
    report = pm.validate(table.measurements, protocol="nothing_fitted")
    assert [cell.predicted_s > 0 for cell in report.cells] == [True, True]


def test_another_format_is_no_table_of_steps(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("op,bytes,seconds\nall_reduce,8,1e-5\n")
    assert read_system_table(path) is None


@pytest.mark.parametrize(
    ("wrong", "right", "error", "told"),
    [
        ("-1", "0.65", TableError, r"row 2, column seconds: must.*\(got '-1'"),
        ("many", "32", TableError, r"row 2, column batch_size: must.*\(got 'many'"),
        (",0,32", ",1,32", TableError, r"row 2, column n_devices: must.*\(got '0'"),
        ("resnet51", "resnet50", TableError, "row 2, column network: .*resnet50"),
        ("Tesla K81", "Tesla K80", TableError, "row 2, column device: .*Did you mean 'tesla_k80_gk210'"),
        ("tensorflaw", "tensorflow", TableError, "row 2, column framework: .*Did you mean 'tensorflow_"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, wrong, right, error, told):
    row = ROW.format(devices=1, data="synthetic").replace(right, wrong, 1)
    with pytest.raises(error, match=told):
        read_system_table(written(tmp_path, row))


def test_a_framework_is_the_newest_that_is_not_newer_than_stated():
    assert framework_of_text("TensorFlow", "git 0.8") == "tensorflow_0_9"  # older than any: the oldest


def test_scripts_of_the_same_page_are_described_once():
    table = pm.measurements.load("shi2016")
    page = replace(table, source={"url": "https://www.example.org/benchmarks/"})
    found = run_of_same_page("example.org/benchmarks, May 2017", "alexnet", [table, page])
    assert found is not None
    assert found.network == "alexnet"
    assert run_of_same_page("example.org/others", "alexnet", [table, page]) is None
    assert run_of_same_page("example.org/benchmarks", "vgg16", [table, page]) is None
