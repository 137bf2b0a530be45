"""Quantities, tables and figures: what a person reads must say the number that was computed."""

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.presentation import figures, quantities
from perfmodel.presentation.tables import ROWS_SHOWN, Table, facts_text, row_table


@dataclass(frozen=True)
class Row:
    layer: str
    seconds: float | None
    bytes: float = 0.0


ROWS = (Row("conv1", 0.0105, 3.2e9), Row("fc6", 4.0e-7, 1.0e6), Row("relu", 0.0021, 0.0))


class TestQuantities:
    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (0.0, "0 s"),
            (1.0, "1.000 s"),
            (0.9999, "999.9 ms"),
            (0.181, "181.0 ms"),
            (123.4, "123.4 s"),
            (4321.0, "4,321 s"),
            (2.5e-6, "2.500 µs"),
            (1e-12, "1e-06 µs"),
            (-0.002, "-2.000 ms"),
            (float("inf"), "unlimited"),
            (float("nan"), "not a number"),
        ],
    )
    def test_seconds(self, seconds: float, text: str) -> None:
        assert quantities.seconds_text(seconds) == text

    def test_bytes_are_decimal_so_gib_and_gb_differ(self) -> None:
        assert quantities.bytes_text(8 * 2**30) == "8.590 GB"  # a card of "8 GB" holds 8 GiB = 8.59e9 B
        assert quantities.bytes_text(8e9) == "8.000 GB"
        assert quantities.bytes_text(1) == "1.000 B"

    def test_rates_carry_per_second(self) -> None:
        assert quantities.flop_rate_text(8.873e12) == "8.873 TFLOP/s"
        assert quantities.byte_rate_text(320e9) == "320.0 GB/s"
        assert quantities.flop_text(0) == "0 FLOP"

    def test_a_small_share_does_not_look_like_none(self) -> None:
        assert [quantities.percent_text(share) for share in (0.0, 0.0004, 0.0006, 1.0)] == [
            "0.0 %", "< 0.1 %", "0.1 %", "100.0 %",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("name", "symbol"),
        [
            ("achieved_flop_per_s", "TFLOP/s"),  # not seconds, though it ends in _s
            ("bandwidth_bytes_per_s", "TB/s"),
            ("samples_per_s", "samples/s"),
            ("step_s", "s"),
            ("moved_bytes", "TB"),
            ("flop_count", "TFLOP"),
        ],
    )
    def test_the_longest_ending_of_a_name_decides(self, name: str, symbol: str) -> None:
        scale = quantities.scale_of(name)
        assert scale is not None
        assert scale.units[0][1] == symbol

    def test_names_without_a_unit_have_no_scale(self) -> None:
        assert quantities.scale_of("launches") is None
        assert quantities.column_texts("launches", [3.0, 12345.0, 1.5]) == ("", ["3", "12,345", "1.5"])

    def test_a_column_shares_one_unit_and_hides_nothing_as_zero(self) -> None:
        unit, texts = quantities.column_texts("seconds", [0.0105, 4.0e-7, -4.0e-7, 0.0, None, float("inf")])
        assert unit == "ms"
        assert texts == ["10.500", "<0.001", ">-0.001", "0.000", "-", "inf"]

    def test_numpy_numbers_are_numbers(self) -> None:
        assert quantities.column_texts("seconds", [np.float64(2.0), np.float64(0.5)]) == (
            "s",
            ["2.000", "0.500"],
        )
        assert quantities.cell_text(np.int64(25_557_032)) == "25,557,032"


class TestTable:
    def test_is_a_sequence(self) -> None:
        table = Table(ROWS, title="layers")
        assert len(table) == 3
        assert list(table) == list(ROWS)
        assert table[0] is ROWS[0]
        assert isinstance(table[1:], Table)
        assert list(table[1:]) == list(ROWS[1:])
        assert ROWS[2] in table

    def test_columns_and_dicts_are_in_base_units(self) -> None:
        table = Table(ROWS)
        assert table.columns == ("layer", "seconds", "bytes")
        assert table.to_dicts()[0] == {"layer": "conv1", "seconds": 0.0105, "bytes": 3.2e9}
        assert table.column("seconds") == (0.0105, 4.0e-7, 0.0021)

    def test_sorting_puts_absent_values_last_either_way(self) -> None:
        table = Table((Row("a", None), *ROWS))
        assert [row.layer for row in table.sorted_by("seconds")] == ["conv1", "relu", "fc6", "a"]
        assert [row.layer for row in table.sorted_by("seconds", descending=False)] == [
            "fc6",
            "relu",
            "conv1",
            "a",
        ]

    def test_an_unknown_column_names_the_nearest(self) -> None:
        with pytest.raises(UnknownNameError, match="Did you mean 'seconds'"):
            Table(ROWS).sorted_by("second")

    def test_head(self) -> None:
        assert list(Table(ROWS).head(1)) == [ROWS[0]]
        assert len(Table(ROWS).head(99)) == 3
        with pytest.raises(ArgumentError, match=r"count must.*\(got -1"):
            Table(ROWS).head(-1)

    def test_text_is_aligned_with_units_in_the_heading(self) -> None:
        assert str(Table(ROWS, title="layers", headings={"seconds": "time"})) == "\n".join(
            [
                "layers",
                "layer  time [ms]  bytes [GB]",
                "-----  ---------  ----------",
                "conv1     10.500       3.200",
                "fc6       <0.001       0.001",
                "relu       2.100       0.000",
            ]
        )

    def test_a_long_table_says_what_it_leaves_out(self) -> None:
        table = Table([Row(f"layer{index}", 1.0) for index in range(ROWS_SHOWN + 7)])
        assert str(table).endswith("... and 7 more rows: .head(n) and .to_frame() reach them")
        assert "7 more rows" in table._repr_html_()
        assert "more rows" not in table.to_text()

    def test_an_empty_table_prints_and_knows_its_columns(self) -> None:
        empty = Table([], title="layers", row_type=Row)
        assert str(empty) == "layers\n(no rows)"
        assert empty.columns == Table(ROWS).columns
        assert list(empty.to_frame().columns) == list(empty.columns)
        assert str(Table(())) == "(no rows)"

    def test_html_is_escaped_and_self_contained(self) -> None:
        page = Table([Row("<script>alert(1)</script>", 1.0)], title="a & b")._repr_html_()
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert "a &amp; b" in page
        assert "http" not in page

    def test_frame(self) -> None:
        frame = Table(ROWS).to_frame()
        assert list(frame.columns) == ["layer", "seconds", "bytes"]
        assert frame["seconds"].sum() == pytest.approx(0.0126004)

    def test_a_frame_without_pandas_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match=r"pip install 'perfmodel\[frames\]'"):
            Table(ROWS).to_frame()

    def test_rows_must_be_dataclasses_of_one_class(self) -> None:
        with pytest.raises(ArgumentError, match="rows of a dataclass or named tuple"):
            Table([1, 2])
        with pytest.raises(ArgumentError, match="every row must be a Row"):
            Table([ROWS[0], 5])  # type: ignore[list-item]

    def test_facts(self) -> None:
        assert facts_text({"a": 1, "long name": True}) == "a          1\nlong name  yes"
        assert facts_text({"a": "one two three"}, width=10) == "a  one two\n   three"
        assert facts_text({}) == ""


class TestFigures:
    def test_parity_plot_has_a_point_per_cell_and_a_legend_entry_per_group(self) -> None:
        figure = figures.parity_plot(
            np.array([0.1, 0.2, 3.0]),
            np.array([0.1, 0.25, 2.0]),
            groups=["caffe", "torch", "caffe"],
            title="t",
        )
        axes = figure.axes[0]
        assert axes.get_xscale() == axes.get_yscale() == "log"
        assert axes.get_xlim() == axes.get_ylim()
        points = {line.get_label(): line.get_offsets() for line in axes.collections}
        assert list(points) == ["caffe (2)", "torch (1)"]
        assert points["torch (1)"].tolist() == [[0.25, 0.2]]  # measured to the right, predicted upwards

    @pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
    def test_parity_plot_refuses_what_has_no_logarithm(self, wrong: float) -> None:
        with pytest.raises(ArgumentError, match="above zero"):
            figures.parity_plot([wrong], [1.0], groups=["a"], title="")

    def test_parity_plot_refuses_nothing_and_unequal_lengths(self) -> None:
        with pytest.raises(ArgumentError, match="at least one"):
            figures.parity_plot([], [], groups=[], title="")
        with pytest.raises(ArgumentError, match="as many points as groups"):
            figures.parity_plot([1.0], [1.0, 2.0], groups=["a"], title="")

    def test_breakdown_bar_leaves_out_what_takes_no_time(self) -> None:
        axes = figures.breakdown_bar({"compute": 0.12, "sync": 0.0, "overhead": 0.03}).axes[0]
        assert [bar.get_width() for bar in axes.patches] == pytest.approx([30.0, 120.0])
        assert [text.get_text() for text in axes.texts] == ["30.00 ms  (20.0 %)", "120.0 ms  (80.0 %)"]
        with pytest.raises(ArgumentError, match="at least one part"):
            figures.breakdown_bar({"compute": 0.0})

    def test_saving_leaves_one_whole_file_and_needs_no_pyplot(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it would now fail
        figure = figures.breakdown_bar({"compute": 0.12})
        for name in ("a.png", "a.svg", "a.pdf"):
            assert figures.save(figure, tmp_path / name) == tmp_path / name
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pdf", "a.png", "a.svg"]
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize("name", ["missing/a.png", "a.jpeg", "a"])
    def test_a_path_that_cannot_be_written_is_refused_and_leaves_nothing(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ArgumentError, match="path must"):
            figures.save(figures.breakdown_bar({"compute": 0.12}), tmp_path / name)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("target_name", ["target.png", "target", "target.pdf"])
    def test_a_link_is_kept_and_the_file_it_names_is_replaced(self, tmp_path: Path, target_name: str) -> None:
        target, link = tmp_path / target_name, tmp_path / "link.png"
        target.write_bytes(b"old")
        link.symlink_to(target)
        assert figures.save(figures.breakdown_bar({"compute": 0.12}), link) == link
        assert link.is_symlink()
        assert target.read_bytes().startswith(b"\x89PNG")  # the ending that was asked for, whatever the target's
        assert sorted(tmp_path.iterdir()) == sorted([link, target])

    def test_a_pipe_and_a_folder_are_refused_and_kept(self, tmp_path: Path) -> None:
        pipe, folder = tmp_path / "pipe.png", tmp_path / "folder.png"
        os.mkfifo(pipe)
        folder.mkdir()
        for path in (pipe, folder):
            with pytest.raises(ArgumentError, match=r"path must be a regular file"):
                figures.save(figures.breakdown_bar({"compute": 0.12}), path)
        assert pipe.is_fifo()
        assert sorted(tmp_path.iterdir()) == [folder, pipe]
        assert list(folder.iterdir()) == []


def test_points_that_are_not_scored_are_hollow() -> None:
    figure = figures.parity_plot([1.0, 2.0], [1.0, 2.1], groups=["a", "a"], title="t", hollow=[False, True])
    filled, hollow = figure.axes[0].collections
    assert (len(filled.get_facecolor()), len(hollow.get_facecolor())) == (1, 0)
    assert "a, not scored (1)" in [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    with pytest.raises(ArgumentError, match=r"hollow must.*\(got '1 entries'"):
        figures.parity_plot([1.0, 2.0], [1.0, 2.1], groups=["a", "a"], title="t", hollow=[True])


@pytest.mark.parametrize("records", [[{"cells": 63, "error": 0.18}, {"cells": 4, "error": None}], []])
def test_a_table_of_records_comes_back_from_a_pickle(records):
    table = row_table(records, title="scores", headings={"error": "mean error"})
    copied = pickle.loads(pickle.dumps(table))
    assert copied == table
    assert type(copied) is Table
    assert str(copied) == str(table)
    assert copied.columns == table.columns
    assert copied.to_dicts() == records


def test_a_process_that_has_not_made_the_rows_reads_them(tmp_path):
    (tmp_path / "table").write_bytes(pickle.dumps(row_table([{"cells": 63, "error": 0.18}], title="scores")))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).to_dicts())"
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "table"], capture_output=True, text=True, check=True)
    assert run.stdout == "[{'cells': 63, 'error': 0.18}]\n"
