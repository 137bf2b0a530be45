"""One input and what becomes of it: an answer in finite numbers, or a refusal in words, within five seconds.

Those are seconds of the processor, but caches that others fill and memory that others read cost them too: an input that
takes longer is tried once more, when what it imports is there, and is at fault if it takes four times as long.
"""

from __future__ import annotations

import math
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perfmodel.errors import PerfmodelError
from tests.fuzz.values import EXECUTED

SECONDS = 5
"""Longest time of the processor for an input. [s]"""

SECONDS_AGAIN = 4 * SECONDS
"""The same when it is tried again: on the busiest machine an answer in half a second takes no longer. [s]"""

WAITING_SECONDS = 300
"""Longest time by the clock, however busy the machine is: only what waits takes this long. [s]"""

MOST_WORDS = 12_000
"""Longest refusal; the longest list of known names has some 4,000 characters. [1]"""


@dataclass(frozen=True, slots=True)
class Trial:
    """One input: how it is shown in a failure, and what tries it; that returns times, which are checked."""

    shown: str
    run: Callable[[], Iterable[float] | None]


class TooLongError(BaseException):
    """An input takes too long."""


@contextmanager
def bounded(processor_s: float) -> Iterator[None]:
    """Raise TooLongError in a block that computes or waits for too long."""

    def stop(*_: object) -> None:
        raise TooLongError

    alarms = ((signal.ITIMER_PROF, signal.SIGPROF, processor_s), (signal.ITIMER_REAL, signal.SIGALRM, WAITING_SECONDS))
    before = [signal.signal(number, stop) for _, number, _ in alarms]
    for timer, _, seconds in alarms:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(alarms, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def fault_of(trial: Trial) -> str | None:
    """Try an input; return what is wrong with the outcome, or None."""
    try:
        return _fault_within(SECONDS, trial)
    except TooLongError:
        pass
    try:
        return _fault_within(SECONDS_AGAIN, trial)
    except TooLongError as error:
        return f"more than {SECONDS_AGAIN} s: {_place(error)}"


def _fault_within(processor_s: float, trial: Trial) -> str | None:
    try:
        with bounded(processor_s), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            times = trial.run()
    except PerfmodelError as error:
        return None if 0 < len(str(error)) <= MOST_WORDS else f"a refusal of {len(str(error)):,} characters"
    except Exception as error:
        return f"{type(error).__name__}: {_place(error)}: {_said(error)}"
    finally:
        if Path(EXECUTED).exists():
            Path(EXECUTED).rmdir()
            pytest.fail(f"a text was run as code: {trial.shown}")
    wrong = [time for time in ([] if times is None else times) if not 0 <= time < math.inf]
    return f"an answer of {wrong[0]}" if wrong else None


def _place(error: BaseException) -> str:
    """Name the innermost place of ours where an exception passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}perfmodel{os.sep}" in frame.filename] or [*frames]
    frame = ours[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _said(error: BaseException) -> str:
    try:
        return repr(error)[:200]
    except Exception:
        return "?"


Kind = Callable[[Random, Path], Trial]
"""Makes an input at random; may write files into a folder of its own. [-]"""


def faults_of(kind: Kind, *, count: int, seed: int, folder: Path, first: int = 0) -> dict[str, list[tuple[int, str]]]:
    """Try many inputs of a kind; return fault -> the number of each input that has it, and the input."""
    faults: dict[str, list[tuple[int, str]]] = {}
    for number in range(first, first + count):
        trial = kind(Random(f"{seed} {number}"), folder)
        fault = fault_of(trial)
        if fault is not None:
            faults.setdefault(fault, []).append((number, trial.shown))
    return faults


def shown(value: Any) -> str:
    """Return a value in a few letters, whatever it is."""
    try:
        text = repr(value)
    except Exception:
        text = type(value).__name__
    return text if len(text) < 120 else f"{text[:100]}...({len(text):,} letters)"
