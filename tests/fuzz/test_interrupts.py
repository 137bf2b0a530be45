"""Ctrl-C ends every verb at any moment: code 130, one line, no traceback.

``PERFMODEL_INTERRUPTS=10 pytest -s tests/fuzz/test_interrupts.py`` presses it that many times in each verb, in the
command alone and in all its processes, and prints the longest time to the end.
"""

import os
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import interrupts

COUNT = int(os.environ.get("PERFMODEL_INTERRUPTS", "0"))

if not hasattr(os, "killpg"):
    pytest.skip("processes have groups", allow_module_level=True)
if not COUNT and not Path("/proc/self/stat").exists():
    pytest.skip("a machine that does other work too is told from a slow end by CPU time", allow_module_level=True)

SEED = int(os.environ.get("PERFMODEL_FUZZ_SEED", "26"))
IN_A_USUAL_RUN = ("fit",)
FITTING_S = 1.5
"""CPU time after which the command has begun to fit and has not ended, on a machine twice as fast too. [s]"""


@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("verb", interrupts.VERBS if COUNT else IN_A_USUAL_RUN)
def test_ctrl_c_ends_a_verb(verb, tmp_path, capsys):
    tally = interrupts.interrupt(
        verb,
        count=COUNT or 1,
        random=Random(f"{SEED} {verb}"),
        folder=tmp_path,
        longest_s=4.0 if COUNT else FITTING_S,
        most_s=interrupts.MOST_SECONDS,
        clock=interrupts.wall_s if COUNT else interrupts.cpu_s,
    )
    if COUNT:
        with capsys.disabled():
            shown = f"| {verb} | {tally.tried} | {tally.running} | {tally.longest_s:.2f} | {len(tally.faults)} |"
            print(f"\n{shown}", end="")  # noqa: T201
    assert COUNT or tally.running == 1
    assert not tally.faults, "\n".join(tally.faults)
