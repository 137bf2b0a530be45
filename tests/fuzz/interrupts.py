"""Ctrl-C at any moment of any verb: the command ends within a second, with code 130 and one line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

GPU = "--device gtx_1080 --framework caffe_1_0_rc3"

VERBS = {
    "predict": f"predict resnet50 --batch-size 16 {GPU}",
    "timeline": f"predict resnet50 --batch-size 4 {GPU} --trace step.json --plot step.png",
    "compare": f"compare resnet50 --batch-size 16 {GPU} --with batch_size=32",
    "advise": f"advise resnet50 --batch-size 16 {GPU}",
    "scaling": "scaling resnet50 --system survey_fig5 --batch-size 16 --workers 1,2,4",
    "plan": "plan vgg16 --candidate p3.2xlarge --candidate p3.8xlarge --dataset-size 1281167 --epochs 9 --batch-size 8",
    "stragglers": "stragglers --workers 1000,2000 --cv 0.1,0.2",
    "sweep": f"sweep resnet50 --batch-size {','.join(map(str, range(1, 400)))} {GPU} --dtype fp32,fp16",
    "sweep in processes": f"sweep resnet50 --batch-size {','.join(map(str, range(1, 400)))} {GPU} --processes 2",
    "search": "search gpt2 --system dgx_a100_80 --devices 64 --global-batch-size 512",
    "validate": "validate shi2016 --progress",
    "fit": "fit shi2016 --only cpu --progress",
    "calibrate": "calibrate cpu --backend numpy --budget 30 --out mine.toml --progress",
    "audit": "audit resnet50 --batch-size 4",
    "transfer": "transfer survey_fig5 host:gpu* --bytes 1000000",
    "specs": "specs check",
}
"""Verb -> a command line of it."""

LEAST_S = 0.3
"""Time in which Python itself starts, with handlers of its own. [s]"""

MOST_SECONDS = 1.0
"""Longest time from Ctrl-C to the end. [s]"""

LOOK_S = 0.02
"""Time between two looks at a command. [s]"""

HANGS_S = 300.0
"""Time after which a command hangs, on the busiest machine too. [s]"""


def wall_s(_pid: int) -> float:
    """Time on the wall. [s]"""
    return time.monotonic()


def cpu_s(pid: int) -> float:
    """CPU time of a process and of those it waited for: the same on a machine that does other work too. [s]"""
    after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, after_name[11:15])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Tally:
    """What became of the interrupts of a verb."""

    tried: int = 0
    running: int = 0
    longest_s: float = 0.0
    faults: list[str] = field(default_factory=list)


def _watched(
    process: subprocess.Popen[str], for_s: float, clock: Callable[[int], float]
) -> tuple[tuple[str, str] | None, float]:
    """Return what a process said if it ended in a time by a clock, else None, and the most it took."""
    begin_s, hangs_s = clock(process.pid), time.monotonic() + HANGS_S
    while (took_s := clock(process.pid) - begin_s) < for_s and time.monotonic() < hangs_s:
        try:
            return process.communicate(timeout=LOOK_S), took_s + LOOK_S
        except subprocess.TimeoutExpired:
            continue
    return None, took_s


def interrupt(
    verb: str,
    *,
    count: int,
    random: Random,
    folder: Path,
    longest_s: float,
    most_s: float,
    clock: Callable[[int], float],
) -> Tally:
    """Start a verb and press Ctrl-C after a random time by a clock, over and over."""
    tally = Tally()
    environment = os.environ | {"PERFMODEL_CACHE": "", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for number in range(count):
        tally.tried += 1
        process = subprocess.Popen(
            [sys.executable, "-m", "perfmodel", *VERBS[verb].split()],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        delay_s = random.uniform(LEAST_S, longest_s)
        said, _ = _watched(process, delay_s, clock)
        if said is None:
            # as a terminal does, to every process of the command; then as another program does, to this one
            (os.killpg, os.kill)[number % 2](process.pid, signal.SIGINT)
            said, took_s = _watched(process, 30.0, clock)
            if said is None:
                os.killpg(process.pid, signal.SIGKILL)
                said = process.communicate()
        else:
            if process.returncode:
                tally.faults.append(f"{verb} is refused: {said[1][-600:]}")
            continue  # it was done
        tally.running += 1
        tally.longest_s = max(tally.longest_s, took_s)
        fault = _fault(process.returncode, *said, took_s=took_s, most_s=most_s)
        if fault:
            tally.faults.append(f"{verb} after {delay_s:.2f} s: {fault}")
    return tally


LINE = re.compile(r"perfmodel: interrupted(: .* points are kept in .*)?")
BAR = re.compile(r"\S.* [━╸╺ ]+ .*")
"""A progress bar, as it is shown where the error stream is no terminal."""


def _fault(code: int, out: str, err: str, *, took_s: float, most_s: float) -> str:
    lines = [line for line in err.splitlines() if line.strip() and not BAR.fullmatch(line)]
    if code == 0 and not lines:
        return ""  # it ended by itself as the key was pressed
    if code != 130:
        return f"code {code}: {err[-600:]}"
    told = [line for line in lines if not line.startswith("perfmodel: warning")]
    if len(told) != 1 or not LINE.fullmatch(told[0]):
        return f"said {err[-1500:]!r}"
    return "" if took_s <= most_s else f"took {took_s:.2f} s"
