"""What a prediction says: the numbers in text, HTML and JSON are those of the prediction."""

import json
import re
from functools import cache
from typing import Any

import pytest

import perfmodel as pm
from perfmodel.hardware.catalogue import load_device
from perfmodel.prediction.certainty.basis import Basis
from perfmodel.prediction.device.step_time import PARTS, TOTALS, StepTime
from perfmodel.prediction.memory.footprint import MemoryFootprint
from perfmodel.prediction.prediction import Prediction
from perfmodel.prediction.rows import LayerRow
from perfmodel.prediction.words.prediction_text import (
    as_dict,
    explain,
    layer_totals,
    memory_table,
    part_table,
    report,
    report_html,
)
from perfmodel.presentation.tables import Table


class StatedPrediction(Prediction):
    """A prediction whose operations are stated instead of computed."""

    bottleneck = "compute"  # type: ignore[assignment]

    @property
    def layers(self) -> Table[LayerRow]:  # type: ignore[override]
        return Table(
            [
                LayerRow("conv1", "forward", "output", "implicit_gemm", 1.0, 6e9, 2e8, 0.002, "compute"),
                LayerRow("conv1", "backward", "weight_gradient", "gemm", 2.0, 6e9, 2e8, 0.004, "compute"),
                LayerRow("conv1", "backward", "output", "bias", 1.0, 0.0, 1e8, 0.001, "memory_bandwidth"),
                LayerRow("relu1", "forward", "output", "relu", 1.0, 0.0, 5e8, 0.002, "memory_bandwidth"),
            ]
        )


@cache
def basis() -> Basis:
    """A step of a device by itself, of which nothing but how it was prepared is told."""
    return pm.predict(pm.zoo.alexnet(), batch_size=16, device="gtx_1080", framework="caffe_1_0_rc3").basis


def stated(**changes: Any) -> StatedPrediction:
    read: dict[str, Any] = {
        "subject": "toynet",
        "target": "NVIDIA GeForce GTX 1080",
        "framework": "Caffe",
        "batch_size": 16,
        "phase": "step",
        "dtype": "fp32",
        "threads": None,
        # 6 + 2.5 + 1 (0.4 launch gaps, 0.6 exposed dispatch) + 0.5 = 10 ms
        "parts": StepTime(
            compute_s=0.006,
            memory_bound_s=0.0025,
            overhead_s=0.001,
            update_s=0.0005,
            transfer_s=0.003,
            dispatch_s=0.002,
            launch_s=0.0004,
        ),
        "table": None,
        "groups": None,
        "launch_gap_s": 0.0,
        "step_overhead_s": 0.0,
        "peak_flop_per_s": 8e12,
        "memory_bandwidth_bytes_per_s": 320e9,
        "memory": MemoryFootprint(1e9, 1e9, 0.0, 3e9, 5e8, 1e6, 2e8, 8e9),
        "remarks": ("the library has no native kernels for <pascal>",),
        "sources": (load_device("gtx_1080"),),
    }
    stated = StatedPrediction(basis=changes.pop("basis", basis()))
    vars(stated).update(read | changes)
    return stated


def words(text: str) -> str:
    return " ".join(text.split())


class TestReport:
    def test_header_says_what_on_what_with_what(self) -> None:
        lines = report(stated()).splitlines()
        assert lines[0] == "toynet on NVIDIA GeForce GTX 1080 with Caffe"
        assert lines[1] == "batch size 16, forward, backward and update, fp32"

    def test_time_and_throughput(self) -> None:
        text = words(report(stated()))
        assert "step time 10.00 ms" in text
        assert "throughput 1,600 samples/s" in text  # 16 samples / 10 ms
        assert "bottleneck compute" in text

    def test_parts_add_up_and_those_of_zero_are_left_out(self) -> None:
        table = part_table(stated())
        *parts, whole = table
        assert sum(row.seconds for row in parts) == pytest.approx(whole.seconds) == pytest.approx(0.01)
        assert sum(row.share for row in parts) == pytest.approx(1.0)
        assert len(parts) == 4
        assert "pipeline" not in str(table)

    def test_layers_are_summed_over_phases_and_bound_by_the_larger_share(self) -> None:
        first, second = layer_totals(stated())
        assert (first.layer, first.bound_by) == ("conv1", "compute")
        assert first.seconds == pytest.approx(0.007)  # 2 + 4 + 1 ms
        assert first.share == pytest.approx(0.7)
        assert (second.layer, second.bound_by) == ("relu1", "memory_bandwidth")

    def test_layers_shown_can_be_chosen(self) -> None:
        assert "relu1" not in report(stated(), layers_shown=1)
        assert "conv1" not in report(stated(), layers_shown=0)

    def test_memory_that_fits(self) -> None:
        rows = {row.holds: row.bytes for row in memory_table(stated())}
        assert rows["total"] == pytest.approx(5.701e9)
        assert rows["capacity"] == 8e9
        assert "optimizer" not in rows
        assert "It fits: 2.299 GB are left." in report(stated())

    def test_memory_that_does_not_fit(self) -> None:
        text = report(stated(memory=MemoryFootprint(1e9, 1e9, 0.0, 7e9, 0.0, 0.0, 0.0, 8e9)))
        assert "It does not fit: 1.000 GB are missing." in text

    def test_memory_of_unknown_capacity(self) -> None:
        text = report(stated(memory=MemoryFootprint(1e9, 1e9, 0.0, 7e9, 0.0, 0.0, 0.0, float("inf"))))
        assert "not stated" in text

    def test_threads_are_named_on_a_cpu(self) -> None:
        assert "fp32, 4 threads" in report(stated(threads=4))
        assert "fp32, 1 thread\n" in report(stated(threads=1))

    def test_print_is_the_report(self) -> None:
        assert str(stated()) == report(stated())

    def test_html_is_escaped(self) -> None:
        page = report_html(stated(subject="<b>x</b>"))
        assert "<b>x</b>" not in page
        assert "&lt;b&gt;x&lt;/b&gt;" in page
        assert "&lt;pascal&gt;" in page
        assert page.count("<table>") == page.count("</table>") == 3


class TestExplain:
    def test_share_of_peak_and_arithmetic_intensity(self) -> None:
        text = words(explain(stated()))
        # 12 GFLOP in 10 ms = 1.2 TFLOP/s of 8; 12 GFLOP / 1 GB = 12 FLOP/B; ridge 8e12 / 320e9 = 25
        assert "12.00 GFLOP: 1.200 TFLOP/s over the step, 15.0 % of the fp32 peak of 8.000 TFLOP/s" in text
        assert "arithmetic intensity is 12 FLOP/B" in text
        assert "is 25 FLOP/B. As one kernel at full efficiency, the same" in text
        assert "would be bound by memory bandwidth" in text

    def test_right_of_the_ridge_point(self) -> None:
        assert "would be bound by arithmetic" in words(explain(stated(memory_bandwidth_bytes_per_s=1e12)))

    def test_without_a_known_bandwidth_there_is_no_ridge_point(self) -> None:
        assert "ridge" not in explain(stated(memory_bandwidth_bytes_per_s=None))

    def test_what_is_hidden_and_what_is_exposed(self) -> None:
        text = words(explain(stated()))
        # dispatch 2 ms in all, exposed 1.0 - 0.4 = 0.6 ms
        assert "The host needs 2.000 ms to issue 5 kernels: 1.400 ms of it are hidden" in text
        assert "600.0 µs are exposed. Gaps between kernels cost 400.0 µs" in text
        assert "takes 3.000 ms: 3.000 ms of it are hidden behind computing, 0 s are exposed" in text

    def test_without_copies(self) -> None:
        assert "No copy" in explain(stated(parts=StepTime(0.01, 0.0, 0.0, 0.0)))

    def test_remarks_and_the_files_of_the_constants(self) -> None:
        text = words(explain(stated()))
        assert "note: the library has no native kernels" in text
        assert "Constants come from the files of" in text
        assert "NVIDIA GeForce GTX 1080" in text.partition("Constants come from")[2]

    def test_lines_are_short_enough_to_read(self) -> None:
        text = explain(stated())
        assert max(map(len, text.splitlines())) <= 100
        assert not re.search(r"\d\n(s|ms|µs|[kMGT]?B|%|[kMGT]?FLOP)\b", text)  # a number keeps its unit


class TestDict:
    def test_survives_json_and_adds_up(self) -> None:
        content = json.loads(json.dumps(as_dict(stated()), allow_nan=False))
        assert content["step_s"] == pytest.approx(sum(content["parts"].values()))
        assert tuple(content["parts"]) == PARTS
        assert tuple(content["totals"]) == TOTALS
        assert content["samples_per_s"] == pytest.approx(1600)
        assert content["memory"]["fits"] is True
        assert content["memory"]["total_bytes"] == pytest.approx(5.701e9)
        assert content["threads"] is None

    def test_an_unlimited_capacity_is_null(self) -> None:
        memory = MemoryFootprint(1e9, 1e9, 0.0, 7e9, 0.0, 0.0, 0.0, float("inf"))
        content = as_dict(stated(memory=memory))
        assert content["memory"]["capacity_bytes"] is None
        assert content["memory"]["fits"] is None
