"""Arguments of predict as types; ``tools/generate_arguments.py`` writes ``typed.pyi``, which type checkers read."""

from __future__ import annotations

from typing import TypedDict

from perfmodel.prediction.arguments.table import ARGUMENTS, DEFAULTS

TYPES = {row.name: row.type for row in ARGUMENTS.values()}
JobArguments = TypedDict("JobArguments", TYPES, total=False)  # arguments by name, as callers give them


class JobAttributes:
    """Arguments as a Job has them, with their defaults."""

    __annotations__ = TYPES


for name, default in DEFAULTS.items():
    setattr(JobAttributes, name, default)
