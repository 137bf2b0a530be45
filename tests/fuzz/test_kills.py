"""Kills and full disks leave the old file or the new one, and lose no measured point.

``PERFMODEL_KILLS=200 pytest -s tests/fuzz/test_kills.py`` kills that many processes in all and prints the table of
docs/architecture.md; ``PERFMODEL_FUZZ_SEED`` takes another seed.
"""

import os
from random import Random

import pytest

from tests.fuzz import kills

if not hasattr(os, "fork"):
    pytest.skip("processes are forked", allow_module_level=True)

KILLS = int(os.environ.get("PERFMODEL_KILLS", "0"))
SEED = int(os.environ.get("PERFMODEL_FUZZ_SEED", "26"))
SHARES = {"calibration": 0.2, "command": 0.1}
"""Shares of all kills; the writers of one file share the rest. [1]"""


def judged(kind, tally, capsys):
    if KILLS:
        with capsys.disabled():
            print(f"\n| {kind} | {tally.tried} | {tally.while_writing} | {len(tally.faults)} |", end="")  # noqa: T201
    assert not tally.faults, "\n".join(tally.faults)


@pytest.mark.parametrize("name", kills.WRITERS)
def test_a_killed_writer_leaves_the_old_file_or_the_new(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PERFMODEL_CACHE", "")
    count = round(KILLS * (1 - sum(SHARES.values())) / len(kills.WRITERS)) or 1
    judged(
        f"{name}, killed",
        kills.kill_writers(name, count=count, random=Random(f"{SEED} {name}"), folder=tmp_path),
        capsys,
    )


@pytest.mark.parametrize("name", kills.WRITERS)
def test_a_full_disk_leaves_the_old_file(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PERFMODEL_CACHE", "")
    tally = kills.fill_disks(name, count=KILLS // 8 or 2, random=Random(f"{SEED} {name}"), folder=tmp_path)
    judged(f"{name}, disk full", tally, capsys)


def test_a_killed_calibration_is_resumed_with_every_point(tmp_path, capsys):
    count = round(KILLS * SHARES["calibration"])
    how = {"random": Random(SEED), "folder": tmp_path}
    tally = (
        kills.kill_calibrations(count=count, **how) if count else kills.kill_calibrations(count=1, longest_s=0.3, **how)
    )
    judged("calibration, killed and resumed", tally, capsys)


@pytest.mark.skipif(not KILLS, reason="each takes seconds")
def test_a_killed_command_leaves_the_old_file_or_the_new(tmp_path, capsys):
    count = round(KILLS * SHARES["command"])
    judged("command, killed", kills.kill_commands(count=count, random=Random(SEED), folder=tmp_path), capsys)
