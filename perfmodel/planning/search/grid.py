"""The layouts of a search: every combination of the values of its axes that divides devices and batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.errors import ArgumentError, check_known
from perfmodel.numeric import divisors
from perfmodel.planning.search.axes import AXES, FOLLOWING, SearchAxis, Setting
from perfmodel.planning.search.programs.registry import PROGRAMS
from perfmodel.planning.sweeps.space import listed_values
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.prediction.arguments.table import CHECKS, DEFAULTS, Check

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.planning.search.programs.program import Rule

    Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Grid:
    """Layouts as columns, the number left out by argument, and rules of programs that none of their layouts meets.

    Layouts that their training program cannot start are left out, except by a rule that would leave none.
    """

    columns: Columns
    left_out: Mapping[str, int] = field(default_factory=dict)
    unmet: tuple[Rule, ...] = ()

    def __len__(self) -> int:
        return len(self.columns["workers"])

    def arguments(self) -> dict[str, list[Any]]:
        """Return the arguments of ``predict`` that differ between layouts, as columns."""
        own = DEFAULTS.keys() - NO_ARGUMENTS
        return {name: column.tolist() for name, column in self.columns.items() if name in own}

    def crossed(self, name: str, values: Sequence[Any]) -> Grid:
        """Return every layout with every value of a further argument."""
        return Grid(columns=_crossed(self.columns, name, values))

    def started(self, frameworks: Sequence[tuple[FrameworkProfile, NDArray[np.intp]]], read: Mapping[str, Any]) -> Grid:
        """Leave out and count the layouts that a rule of their program refuses, unless it refuses all of that program.

        Each framework comes with its layouts; ``read``: the shared arguments and other values that rules use.
        """
        left_out: Counter[str] = Counter()
        unmet: dict[Rule, None] = {}
        rows = []
        for profile, own in frameworks:
            for rule in () if profile.program is None else PROGRAMS[profile.program].rules:
                layouts: dict[str, Any] = {**DEFAULTS, **_kept(self.columns, own), **read, "profile": profile}
                refused = np.broadcast_to(np.asarray(rule.refuses(layouts), dtype=bool), own.shape)
                if refused.all():
                    unmet[rule] = None
                elif refused.any():
                    left_out[rule.argument] += int(refused.sum())
                    own = own[~refused]
            rows.append(own)
        return Grid(columns=_kept(self.columns, np.sort(np.concatenate(rows))), left_out=left_out, unmet=tuple(unmet))


def values_of(setting: Setting, stated: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the values of every axis: those that the caller names, else the usual ones, up to the limits."""
    values = {}
    for axis in AXES:
        tried = _listed(axis.name, stated[axis.name]) if axis.name in stated else tuple(axis.usual(setting))
        if axis.name in limits:
            most = limits[axis.name]
            kept = tuple(value for value in tried if value <= most)
            if not kept:
                raise ArgumentError("limits", f"{axis.name}={most}", f"at least {axis.name}={min(tried)}")
            tried = kept
        values[axis.name] = tried
    return values


def checked_limits(limits: Any) -> dict[str, int]:
    """Return limits by axis, checked."""
    if limits is None:
        return {}
    if not isinstance(limits, Mapping):
        raise ArgumentError("limits", limits, "a mapping of arguments to the most that they may be")
    counted = ("devices", "tensor_size", "context_size", "stages", "shard_stage", "interleave", "micro_batch_size",
               "accumulation_steps", *FOLLOWING)  # fmt: skip
    for name in limits:
        check_known("limit of a search", name, counted)
    return {name: whole_number(f"limits[{name!r}]", most, minimum=0) for name, most in limits.items()}


def _listed(name: str, stated: Any) -> tuple[Any, ...]:
    """Return the values that a caller names for an axis, each checked as predict checks it."""
    values = listed_values(name, stated)
    check: Check | None = CHECKS.get(name, whole_number)
    default = DEFAULTS.get(name)
    checked = [value if check is None or (value is None and default is None) else check(name, value)
               for value in values]  # fmt: skip
    return tuple(dict.fromkeys(checked))


def grid_of(setting: Setting, stated: Mapping[str, Any], limits: Mapping[str, int]) -> Grid:
    """Return all layouts that divide devices and batch; if none does, raise ArgumentError with values that would."""
    values = values_of(setting, stated, limits)
    columns: Columns = {
        "block_count": np.array([setting.block_count]),
        "sums_once": np.array([setting.sums_once and "no_sync" not in stated]),
        "group": np.ones(1, dtype=np.int64),
    }
    for axis in AXES:
        tried = _with_axis(axis, columns, values[axis.name])
        if not len(tried["group"]):
            raise _refusal(axis, columns, values[axis.name], setting)
        columns = tried
        if axis.name == _LAST_DIVIDING:
            columns = _sharing_the_batch(columns, setting.global_batch_size, stated, limits)
    columns = _in_parts(columns, keeps_passes="accumulation_steps" in stated or "micro_batches" in stated)
    for name in FOLLOWING:
        columns = _limited(columns, name, stated, limits)
    return Grid(columns=columns)


def _with_axis(axis: SearchAxis, columns: Columns, values: Sequence[Any]) -> Columns:
    """Combine every layout with every value of an axis that it allows."""
    columns = _crossed(columns, axis.name, values)
    if axis.divides_devices:
        columns["group"] = columns["group"] * columns[axis.name]
    if axis.divides_devices or axis.name == "devices":
        columns = _kept(columns, columns["devices"] % columns["group"] == 0)
        columns["workers"] = columns["devices"] // columns["group"]
    return columns if axis.allows is None else _kept(columns, axis.allows(columns))


def _refusal(axis: SearchAxis, columns: Columns, values: Sequence[Any], setting: Setting) -> ArgumentError:
    """Return the error for values that fit no layout; it names values that do."""
    tried = dict.fromkeys(axis.usual(setting))
    if all(type(value) is int for value in values):
        tried |= dict.fromkeys(divisors(setting.devices, most=setting.devices))
        tried |= dict.fromkeys(divisors(setting.global_batch_size, most=setting.global_batch_size))
    could_be = dict.fromkeys(_with_axis(axis, columns, list(tried))[axis.name].tolist())
    what = f"divisors of the {setting.devices} devices" if axis.divides_devices else "what some layout can have"
    return ArgumentError(axis.name, list(values), f"{what}: {_some_of(list(could_be), values)}")


def _some_of(could_be: Sequence[Any], values: Sequence[Any]) -> str:
    """Name the values that work and are nearest to the given ones, in order.

    >>> _some_of([1, 2, 4, 8], [3])
    '1, 2, 4, 8'
    """
    is_number = all(isinstance(value, int) for value in (*could_be, *values))
    shown = could_be[:SHOWN]
    if is_number:
        shown = sorted(sorted(could_be, key=lambda value: min(abs(value - wrong) for wrong in values))[:SHOWN])
    return ", ".join(map(repr, shown)) + (", ..." if len(could_be) > SHOWN else "")


NO_ARGUMENTS: Final = ("block_count", "positions", "sums_once", "group", "batch_size")
"""Columns that only say which layouts there are."""

SHOWN: Final = 6
"""Most values that an error names. [1]"""

_LAST_DIVIDING: Final = [axis.name for axis in AXES if axis.divides_devices][-1]
"""The last axis that decides how many workers there are."""


def _crossed(columns: Columns, name: str, values: Sequence[Any]) -> Columns:
    """Return every layout with every value of a further axis."""
    count = len(next(iter(columns.values())))
    crossed = {other: np.repeat(column, len(values)) for other, column in columns.items()}
    is_number = all(type(value) is int for value in values)
    column: NDArray[Any] = np.empty(len(values), dtype=np.int64 if is_number else object)
    for place, value in enumerate(values):
        column[place] = value
    return crossed | {name: np.tile(column, count)}


def _kept(columns: Columns, kept: NDArray[np.bool_] | NDArray[np.intp]) -> Columns:
    return {name: column[kept] for name, column in columns.items()}


def _sharing_the_batch(columns: Columns, batch: int, stated: Mapping[str, Any], limits: Mapping[str, int]) -> Columns:
    """Keep the layouts whose workers share the batch evenly; if there are none, name the nearest batch that would."""
    columns = _limited(columns, "workers", stated, limits)
    kept = _kept(columns, batch % columns["workers"] == 0)
    if not len(kept["workers"]):
        counts = np.unique(columns["workers"]).tolist()
        near = {max(count, round(batch / count) * count) for count in counts}
        nearest = min(near, key=lambda size: (abs(size - batch), size))
        some = " or ".join(map(str, counts[:SHOWN]))
        allowed = f"a multiple of {some}, the workers of a layout; the nearest is {nearest}"
        raise ArgumentError("global_batch_size", batch, allowed)
    kept["batch_size"] = batch // kept["workers"]
    return kept


def _in_parts(columns: Columns, *, keeps_passes: bool) -> Columns:
    """Return layouts with their micro-batches; those of one stage follow one another as passes."""
    parts = columns["batch_size"] // columns["micro_batch_size"]
    micro, passes = parts // columns["accumulation_steps"], columns["accumulation_steps"]
    if not keeps_passes:
        is_one = columns["stages"] == 1
        micro, passes = np.where(is_one, 1, micro), np.where(is_one, parts, passes)
    return columns | {"micro_batches": micro, "accumulation_steps": passes}


def _limited(columns: Columns, name: str, stated: Mapping[str, Any], limits: Mapping[str, int]) -> Columns:
    """Keep the layouts in which an argument that follows from the axes has the caller's value."""
    could_be = np.unique(columns[name]).tolist()
    if name in stated:
        values = _listed(name, stated[name])
        columns = _kept(columns, np.isin(columns[name], values))
        if not len(columns[name]):
            raise ArgumentError(name, stated[name], f"what some layout can have: {_some_of(could_be, values)}")
    if name in limits:
        columns = _kept(columns, columns[name] <= limits[name])
        if not len(columns[name]):
            raise ArgumentError("limits", f"{name}={limits[name]}", f"at least {name}={could_be[0]}")
    return columns
