"""All training programs, and the command that starts a job with one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.errors import ArgumentError, check_known
from perfmodel.planning.search.programs.megatron import MEGATRON
from perfmodel.planning.search.programs.program import Program, layout_of
from perfmodel.planning.search.programs.torchtitan import TORCHTITAN

if TYPE_CHECKING:
    from perfmodel.prediction.job.job import Job

PROGRAMS: Final[Mapping[str, Program]] = {"megatron": MEGATRON, "torchtitan": TORCHTITAN}
"""Training program by name, the ``program`` of framework files."""


def launch_command(job: Job, program: str, *, devices_per_machine: int) -> str:
    """Return the command that trains with a job's layout, without the flags of network, data and learning rate."""
    check_known("training program", program, PROGRAMS)
    made = PROGRAMS[program]
    layout = layout_of(job)
    for rule in made.rules:
        if np.any(rule.refuses(layout)):
            raise ArgumentError(rule.argument, layout[rule.argument], rule.allowed)
    lines = [f"{flag}" if value is True else f"{flag} {value}" for flag, value in made.flags(job)]
    per_machine = min(devices_per_machine, job.device_count)
    if job.device_count % per_machine:
        allowed = f"a multiple of {per_machine}, as torchrun starts equally many processes in each machine"
        raise ArgumentError("devices", job.device_count, allowed)
    nodes = f"--nnodes {job.device_count // per_machine} --nproc-per-node {per_machine}"
    return " \\\n  ".join([f"{made.environment(job)}torchrun {nodes} {made.script}", *lines])
