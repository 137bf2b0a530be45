"""Reading tables: what a user's own files may say, and what is refused, with which words."""

from pathlib import Path

import pytest

from perfmodel import measurements, predict
from perfmodel.errors import ArgumentError, TableError, UnknownNameError
from perfmodel.measurements.reading import check_names

HEADER = "network,batch_size,framework,device,threads,step_s\n"
ROW = "alexnet,16,torch_423cfba,gtx_980,,0.036\n"
RUN = """
[[run]]
network = "alexnet"
framework = "torch_423cfba"
builder = "alexnet"
builder_options = { variant = "shi2016" }
optimizer = "nesterov"
optimizer_options = { momentum = 0.9 }
feed = [{ name = "images", elements_per_sample = 150528, element_bytes = 1 }]
[run.evidence]
builder = "a script's line"
"""


def write(folder: Path, rows: str, description: str | None = None) -> Path:
    path = folder / "mine.csv"
    path.write_text(rows, encoding="utf-8")
    if description is not None:
        path.with_suffix(".toml").write_text('schema_version = 1\ntitle = "Mine"\n' + description, encoding="utf-8")
    return path


def test_a_csv_alone_gives_a_plain_training_step_of_the_network_column(tmp_path):
    table = measurements.load(write(tmp_path, HEADER + ROW))
    run = table.run("torch_423cfba", "alexnet")
    assert (run.builder, run.phase, run.optimizer, run.batch_size) == ("alexnet", "step", "sgd", 16)
    assert run.feed == ()
    assert table.key == "mine"
    assert table.rows[0].step_s == 0.036
    assert table.rows[0].row_number == 2  # the header is line 1


def test_the_toml_beside_it_says_what_was_run(tmp_path):
    table = measurements.load(str(write(tmp_path, HEADER + ROW, RUN)))
    run = table.run_of(table.rows[0])
    assert run.builder_options == {"variant": "shi2016"}
    assert (run.optimizer, dict(run.optimizer_options)) == ("nesterov", {"momentum": 0.9})
    assert run.feed_bytes == 16 * 150528  # one byte for each element
    assert run.evidence == (("builder", "a script's line"),)


def test_one_toml_run_serves_every_batch_size_of_the_csv(tmp_path):
    rows = HEADER + ROW + "alexnet,32,torch_423cfba,gtx_980,,0.064\n"
    table = measurements.load(write(tmp_path, rows, RUN))
    assert [run.batch_size for run in table.runs] == [16, 32]
    assert table.run("torch_423cfba", "alexnet", batch_size=32).feed_bytes == 32 * 150528
    with pytest.raises(ArgumentError, match=r"one of 16, 32"):
        table.run("torch_423cfba", "alexnet")


def test_threads_column_spaces_blank_lines_and_byte_order_mark_are_optional(tmp_path):
    path = tmp_path / "gpu.csv"
    path.write_text(
        "\ufeffdevice, network,framework,batch_size,step_s\n\n gtx_980,alexnet, generic,16, 0.5\n",
        encoding="utf-8",
    )
    row = measurements.load(path).rows[0]
    assert (row.device, row.framework, row.threads, row.step_s) == ("gtx_980", "generic", None, 0.5)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (HEADER + ROW.replace("0.036", "-1"), ["row 2, column step_s", "'-1'", "above 0"]),
        (HEADER + ROW.replace("0.036", "nan"), ["row 2, column step_s", "'nan'"]),
        (HEADER + ROW.replace("0.036", "inf"), ["row 2, column step_s", "'inf'"]),
        (HEADER + ROW.replace("0.036", "36 ms"), ["row 2, column step_s", "'36 ms'"]),
        (HEADER + ROW.replace("0.036", "0"), ["row 2, column step_s", "'0'"]),
        (HEADER + ROW.replace(",16,", ",0,"), ["row 2, column batch_size", "'0'", "whole number above 0"]),
        (HEADER + ROW.replace(",16,", ",1.5,"), ["row 2, column batch_size", "'1.5'"]),
        (HEADER + ROW.replace(",16,", ",,"), ["row 2, column batch_size", "''"]),
        (HEADER + ROW.replace(",,0", ",-4,0"), ["row 2, column threads", "'-4'"]),
        (HEADER + ROW.replace("gtx_980", ""), ["row 2, column device", "empty"]),
        (HEADER + ROW.replace(",0.036", ""), ["row 2", "5 values", "6 columns"]),
        (HEADER.replace("step_s", "step_ms") + ROW, ["unknown column 'step_ms'", "nearest is step_s"]),
        (HEADER.replace(",step_s", "") + ROW, ["column step_s is missing"]),
        (HEADER.replace("threads", "device") + ROW, ["column device is there twice"]),
        (HEADER + ROW + ROW.replace("0.036", "0.04"), ["row 3", "0.04 contradicts row 2", "0.036"]),
        (HEADER + ROW + ROW, ["row 3", "repeats row 2"]),
        (HEADER, ["no rows"]),
        ("", ["column network is missing"]),
    ],
)
def test_a_wrong_csv_is_refused_with_file_row_column_value_and_remedy(tmp_path, rows, words):
    path = write(tmp_path, rows)
    with pytest.raises(TableError) as caught:
        measurements.load(path)
    for word in [str(path), *words]:
        assert word in str(caught.value)


def test_all_faults_of_a_csv_come_in_one_message(tmp_path):
    path = write(tmp_path, HEADER + ROW.replace("0.036", "-1") + ROW.replace(",16,", ",x,"))
    with pytest.raises(TableError, match=r"2 faults: row 2.*; row 3"):
        measurements.load(path)


@pytest.mark.parametrize(
    ("description", "words"),
    [
        (RUN.replace("optimizer =", "optimiser ="), ["run[0].optimiser", "optimizer"]),
        (RUN.replace('"nesterov"', '"adamw"'), ["run[0].optimizer", "'adamw'", "must be one of adam"]),
        (RUN + 'phases = "it is a step"\n', ["run[0].evidence", "must be one of"]),
        (
            RUN.replace('"torch_423cfba"', '"caffe_1_0_rc3"'),
            ["run: row 2 needs one for torch_423cfba, alexnet"],
        ),
        (RUN + RUN.replace('"alexnet"', '"fcn5"', 1), ["torch_423cfba, fcn5 is in no row"]),
        (RUN + RUN, ["torch_423cfba, alexnet is there twice"]),
        (RUN + '[[cell]]\ndevice = "k80"\nstatus = "odd"\nreason = "?"\n', ["cell[0]", "selects no row"]),
        (RUN + '[[cell]]\nstatus = "missing"\nreason = "?"\n', ["cell[0]", "row 2", "0.036"]),
        (RUN + '[[cell]]\nstatus = "barred"\nreason = ""\n', ["cell[0].reason"]),
        (RUN + '[[hardware]]\ndevice = "k80"\nkind = "gpu"\n', ["hardware", "'k80'"]),
        ('key = "yours"\n' + RUN, ["'yours'", "'mine'"]),
        ('[runs_from]\ntable = "nowhere"\nreason = "?"\n', ["runs_from.table", "'nowhere'"]),
        ("no toml", ["cannot be read as TOML"]),
    ],
)
def test_a_wrong_toml_is_refused_with_file_field_value_and_remedy(tmp_path, description, words):
    path = write(tmp_path, HEADER + ROW, description)
    with pytest.raises(TableError) as caught:
        measurements.load(path)
    for word in ["mine.toml", *words]:
        assert word in str(caught.value)


def test_barred_cells_keep_their_time_and_are_not_scored(tmp_path):
    cell = '[[cell]]\ndevice = "gtx_980"\nstatus = "barred"\nreason = "faster than the peak"\n'
    table = measurements.load(write(tmp_path, HEADER + ROW, RUN + cell))
    assert (table.rows[0].status, table.rows[0].step_s) == ("barred", 0.036)
    assert table.rows[0].note == "faster than the peak"
    assert table.subset("gpu") == ()
    assert table.subset("gpu", set_aside=True) == table.rows


def test_unknown_tables_name_the_known_ones(tmp_path):
    with pytest.raises(UnknownNameError, match=r"Did you mean 'shi2016'"):
        measurements.load("shi2017")
    with pytest.raises(UnknownNameError, match="measurement table"):
        measurements.load(tmp_path / "nothing.csv")
    text = tmp_path / "table.txt"
    text.write_text(HEADER + ROW)
    with pytest.raises(TableError, match=r"must be \.csv"):
        measurements.load(text)


def test_where_keeps_the_rows_that_have_every_given_value():
    table = measurements.load("shi2016")
    rows = table.where(framework="caffe_1_0_rc3", device="desktop_i7_3820", threads=[1, 2, 4])
    assert len(rows) == 4 * 3  # networks x thread counts
    assert {row.framework for row in rows} == {"caffe_1_0_rc3"}
    assert len(table.where(status="missing")) == 16
    with pytest.raises(UnknownNameError, match="gtx_1080"):
        table.where(device="gtx1080")


def test_cores_of_a_table_that_does_not_state_them_can_be_given(tmp_path):
    rows = HEADER + "alexnet,16,generic,my_cpu,4,1.0\nalexnet,16,generic,my_cpu,8,1.1\n"
    table = measurements.load(write(tmp_path, rows))
    assert len(table.subset("cpu")) == 2  # nobody knows the cores
    assert [row.threads for row in table.subset("cpu_oversubscribed", physical_cores={"my_cpu": 4})] == [8]
    with pytest.raises(ArgumentError, match="cpu_oversubscribed"):
        table.subset("tpu")


def test_to_frame_has_a_row_for_each_cell():
    pytest.importorskip("pandas")
    frame = measurements.load("wuensche2018").to_frame()
    assert list(frame["threads"][:4]) == [1, 2, 4, 8]
    assert frame["step_s"].isna().sum() == 1


def test_runs_are_hashable_and_hold_no_shared_state():
    table = measurements.load("shi2016")
    assert len(set(table.runs)) == len(table.runs)
    assert table.runs == measurements.load("shi2016").runs


def test_unknown_names_and_threads_are_told_for_all_rows_at_once(tmp_path):
    rows = "alexnet,16,torch,gtx_1081,,0.1\nalexnet,32,torch,gtx_1081,,0.2\nalexnot,16,torhc,i7,64,0.3\n"
    table = measurements.load(write(tmp_path, HEADER + rows))
    with pytest.raises(TableError) as error:
        check_names(table, thread_counts={"gtx_1080": None, "i7": 8}, frameworks=["torch"], builders=["alexnet"])
    text = str(error.value)
    assert text.startswith(f"{tmp_path / 'mine.csv'}: 4 faults: rows 2, 3, column device: 'gtx_1081' is not known")
    for fault in (
        "nearest is gtx_1080",
        "row 4, column framework: 'torhc' is not known, nearest is torch",
        "row 4, column network: 'alexnot' is not known, nearest is alexnet",
        "row 4, column threads: must be at most the 8 hardware threads of i7",
    ):
        assert fault in text


def test_torch_ran_in_double_precision_on_cpus_where_its_script_leaves_the_default_type():
    runs = {run.network: run for run in measurements.load("shi2016").runs if run.framework == "torch_423cfba"}
    doubles = {network for network, run in runs.items() if run.dtype_on("cpu") == "fp64"}
    assert doubles == {"alexnet", "lstm32", "lstm64"}
    assert {run.dtype_on("gpu") for run in runs.values()} == {"fp32"}


def test_predict_computes_in_the_type_that_the_run_executed():
    (run,) = (
        run for run in measurements.load("shi2016").runs if (run.framework, run.network) == ("torch_423cfba", "alexnet")
    )
    assert predict(run, system="desktop_i7_3820").dtype == "fp64"
    assert predict(run, device="gtx_980").dtype == "fp32"
    with pytest.raises(ArgumentError, match="dtype"):
        predict(run, device="gtx_980", dtype="fp64")
