"""All-reduce between processes: measured with a right sum, told where it fails, kept in the file and shown."""

import json

import pytest

from perfmodel.calibration.backends.base import Backend
from perfmodel.calibration.calibration_tables import report_text, surroundings
from perfmodel.calibration.journal import Journal
from perfmodel.calibration.session import Session
from perfmodel.calibration.surroundings import PROCESSES_BUDGET_S
from perfmodel.errors import CalibrationError
from perfmodel.hardware.fit_file import load_calibration
from perfmodel.hardware.measured_machine import MeasuredMachine, measured_text
from tests.fake_machine import FakeBackend
from tests.measured_machines import FILE

TOLD = {"library": "gloo", "process_count": 2, "latency_s": 2e-4, "bytes_per_s": 1.5e9}


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch):
    monkeypatch.setattr("perfmodel.calibration.surroundings.measure_storage", list)


class Reducing(FakeBackend):
    """A backend whose processes meet, or do not."""

    def __init__(self, fails=False):
        super().__init__()
        self.fails, self.asked = fails, 0

    def all_reduces(self):
        self.asked += 1
        if self.fails:
            raise CalibrationError("processes did not meet")
        return [TOLD]


def _session(backend, budget_s):
    session = Session(
        backend, dtypes=["fp32"], budget_s=budget_s, journal=Journal(None, {}), now=lambda: backend.elapsed_s
    )
    session.run()
    return session


def test_two_processes_sum_a_tensor(monkeypatch):
    pytest.importorskip("torch")
    from perfmodel.calibration.backends import torch_overheads

    monkeypatch.setattr(torch_overheads, "LONGEST_S", 600.0)  # importing torch takes long where others compute
    (told,) = torch_overheads.all_reduces(library="gloo", process_count=2, threads=1)
    assert (told["library"], told["process_count"]) == ("gloo", 2)
    assert told["latency_s"] > 0
    assert told["bytes_per_s"] > 0


@pytest.mark.gpu
def test_the_gpus_of_a_box_sum_a_tensor():
    import torch

    from perfmodel.calibration.backends.torch_backend import TorchBackend

    found = TorchBackend("cuda:0").all_reduces()
    assert [each["process_count"] for each in found] == [torch.cuda.device_count()] * (torch.cuda.device_count() > 1)


def test_a_process_that_fails_is_quoted_and_none_is_left_behind(monkeypatch):
    pytest.importorskip("torch")
    from perfmodel.calibration.backends import torch_overheads

    monkeypatch.setattr(torch_overheads, "LONGEST_S", 600.0)  # it fails once it has imported torch
    with pytest.raises(CalibrationError, match="ended with code"):
        torch_overheads.all_reduces(library="absent", process_count=1, threads=1)


def test_processes_that_do_not_meet_are_ended_in_time(monkeypatch):
    import subprocess
    import sys

    from perfmodel.calibration.backends import torch_overheads

    started = []

    def waits(plan, threads):
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(600)"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    monkeypatch.setattr(torch_overheads, "_started", waits)
    monkeypatch.setattr(torch_overheads, "LONGEST_S", 0.5)
    with pytest.raises(CalibrationError, match="did not meet"):
        torch_overheads.all_reduces(library="gloo", process_count=2, threads=1)
    assert len(started) == 2
    assert all(process.poll() < 0 for process in started)  # by a signal, not by themselves


def test_it_is_measured_where_the_budget_is_long_enough_to_start_processes():
    long, short = Reducing(), Reducing()
    assert _session(long, PROCESSES_BUDGET_S).journal.surroundings["all_reduce"] == [TOLD]
    assert "all_reduce" not in _session(short, PROCESSES_BUDGET_S - 1).journal.surroundings
    assert (long.asked, short.asked) == (1, 0)


def test_processes_that_fail_are_a_note_and_no_end():
    session = _session(Reducing(fails=True), PROCESSES_BUDGET_S)
    assert session.journal.surroundings["all_reduce"] == []
    assert session.notes == ["no all-reduce: processes did not meet"]
    assert session.journal.points


def test_a_backend_has_none_unless_it_says_so():
    assert Backend.all_reduces(FakeBackend()) == []


def test_a_file_keeps_and_shows_what_was_measured_around_the_kernels(tmp_path):
    content = json.loads(load_calibration(FILE).model_dump_json())
    copies = [
        {"direction": direction, "pinned": pinned, "latency_s": 1e-5, "bytes_per_s": 2e10}
        for direction in ("to_device", "to_host")
        for pinned in (True, False)
    ]
    content |= {"all_reduce": [TOLD], "host_copy": copies}
    content["overheads"]["page_fault_s"] = 3e-7
    content["source"][0]["fields"] = sorted({*content["source"][0]["fields"], "all_reduce", "host_copy", "overheads"})
    machine = MeasuredMachine.model_validate_json(json.dumps(content))
    path = tmp_path / "mine.toml"
    path.write_text(measured_text(machine))
    again = load_calibration(path)
    assert again == machine
    assert again.all_reduce[0].bytes_per_s == 1.5e9
    told = surroundings(again)
    assert told["all-reduce"] == "1.500 GB/s over 2 processes by gloo (the smallest 200.0 µs)"
    assert told["fresh memory"] == "0.3000 µs for the first touch of a page; in no prediction"
    assert "20.00 GB/s to device, pinned (the smallest 10.00 µs)" in told["host copies"]
    assert "20.00 GB/s to host, pageable" in told["host copies"]
    assert "for recording an operation" in told["calls"]
    for name in told:
        assert name in report_text(again)


def test_nothing_is_said_of_what_was_not_measured():
    bare = load_calibration(FILE).model_copy(update={"storage": (), "host_copy": (), "all_reduce": ()})
    assert not {"all-reduce", "host copies", "disk"} & surroundings(bare).keys()


def test_a_process_that_dies_ends_the_others_at_once(monkeypatch):
    import subprocess
    import sys

    from perfmodel.calibration.backends import torch_overheads

    scripts = ["import time; time.sleep(600)", "import sys; sys.exit('no such device')"]
    processes = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for script in scripts
    ]
    started = iter(processes)
    monkeypatch.setattr(torch_overheads, "_started", lambda plan, threads: next(started))
    monkeypatch.setattr(torch_overheads, "LONGEST_S", 60.0)  # the time of a processor that others use
    with pytest.raises(CalibrationError, match="ended with code 1: no such device"):
        torch_overheads.all_reduces(library="gloo", process_count=2, threads=1)
    assert processes[0].poll() < 0
