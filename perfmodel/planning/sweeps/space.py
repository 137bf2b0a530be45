"""The configurations of a sweep: axes of values, and their product, a list, or a random draw from the product."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from numbers import Number, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, PerfmodelError, check_known, short_repr
from perfmodel.hardware.catalogue import load_link
from perfmodel.hardware.cluster import system_with
from perfmodel.hardware.link import Link
from perfmodel.prediction.arguments import table
from perfmodel.prediction.arguments.checks import MOST_ENTRIES, entries_of, has, is_huge, whole_number
from perfmodel.prediction.arguments.table import Check
from perfmodel.prediction.predict import predict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.prediction.prediction import Prediction

LINK: Final = "link"
"""An axis that is not an argument of predict: a link in place of a system's own."""

MACHINES: Final = "machines"
"""Argument that counts a system's machines. [-]"""
DEVICES: Final = "devices"
"""An axis that is not an argument of predict: a number of devices to fill with workers."""

DEFAULTS: Final = {**table.DEFAULTS, LINK: None, DEVICES: None}
"""Axis -> its default value."""

PLACED_BY: Final = (*table.names_of("place"), LINK)
"""Axes that decide where a worker runs."""

OF_WORKER: Final = (
    *PLACED_BY, *table.names_of("step", "constants"), "pinned", *reversed(table.names_of("batch")),
)  # fmt: skip
"""Axes that decide the step of one worker alone; the batch size last, so that it varies fastest."""

FED_BY: Final = tuple(name for name in table.names_of("input") if name not in OF_WORKER)
"""Axes that decide how mini-batches arrive; they do not change the exchange of gradients."""

OF_JOB: Final = (*(name for name in DEFAULTS if name not in (*OF_WORKER, *FED_BY)), *FED_BY)
"""Axes that decide the common work of several workers."""


def _link(name: str, value: Any) -> Any:
    """Load a link by name or path; reject one that was changed in Python, because a system's file can only name it."""
    is_named = isinstance(value, str | Path | Number | Collection) or value is None
    link = load_link(value) if is_named else value
    if not is_named and not _has_file(link):
        allowed = "a name or the path of a .toml file; save a link changed in Python to one"
        raise ArgumentError(name, label(value), allowed)
    return link


def _has_file(link: Any) -> bool:
    try:
        return isinstance(link, Link) and link == load_link(link.name)
    except PerfmodelError:  # loaded from a path outside the spec folders
        return False


LOADED_BY: Final[Mapping[str, Check | None]] = {
    **{name: row.loads or row.check for name, row in table.ARGUMENTS.items()},
    LINK: _link,
    DEVICES: whole_number,
}
"""Axis -> the check that converts one of its values as predict would; None if only predict can check it."""


def label(value: Any) -> Any:
    """Return a value as a table shows it: a number, Boolean or text; an object by its name."""
    if _is_simple(value):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={entry}" for key, entry in value.items())
    named = getattr(value, "stem", None) or getattr(value, "name", None)
    return str(value) if named is None or isinstance(value, Path) else str(named)


@dataclass(frozen=True, eq=False)
class Axis:
    """The values of one argument."""

    name: str
    values: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.values)

    @derived_property
    def labels(self) -> NDArray[Any]:
        """Values as a table shows them: a numeric array if all are numbers, else objects."""
        shown = [label(value) for value in self.values]
        if all(isinstance(number, int | float) and not isinstance(number, bool) for number in shown):
            return np.array(shown)
        labels = np.empty(len(shown), dtype=object)
        labels[:] = shown
        return labels

    def loaded(self) -> tuple[Any, ...]:
        """Return the values in the form to which predict converts them."""
        check = LOADED_BY[self.name]
        if check is None:
            return self.values
        default = DEFAULTS[self.name]
        return tuple(value if value is None and default is None else check(self.name, value) for value in self.values)


def axis_of(name: str, requested: Any) -> Axis:
    """Return the axis of an argument: the members of a collection or iterator, or the single value."""
    check_known("argument of a sweep", name, DEFAULTS)
    return Axis(name, listed_values(name, requested))


def listed_values(name: str, requested: Any) -> tuple[Any, ...]:
    """Return the members of a collection or iterator, or the single value; refuse a list that is endless or huge."""
    if has(requested, "tolist") and np.ndim(requested):  # an array, or a column of pandas
        requested = np.ravel(requested).tolist()
    if isinstance(requested, set | frozenset):  # sets are unordered, but the table needs an order
        requested = sorted(requested, key=_in_order)
    is_list = isinstance(requested, list | tuple | range | Iterator)
    values = (
        tuple(islice(entries_of(name, requested), MOST_ENTRIES + 1))
        if is_list and not is_huge(requested)
        else (requested,)
    )
    if is_huge(requested) or len(values) > MOST_ENTRIES:
        raise ArgumentError(name, requested, f"a list of at most {MOST_ENTRIES:,} entries")
    if not values:
        raise ArgumentError(name, requested, "must have at least one value")
    return values


def _in_order(value: Any) -> tuple[str, Any]:
    """Key by which the members of a set are sorted, whatever they are."""
    return str(type(value)), value if isinstance(value, Real | str) else short_repr(value)


MOST_CONFIGURATIONS: Final = 50_000_000
"""Most configurations without ``limit``: a larger product is a typing error. [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Space:
    """All configurations of a sweep, stored as axes and row numbers."""

    graph: Any
    axes: tuple[Axis, ...]
    size: int
    numbers: NDArray[np.int64] | None = None
    listed: Mapping[str, NDArray[np.int32]] | None = None
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("graph", "axes", "size", "numbers", "listed")} | {"_kept": {}}

    @derived_property
    def by_name(self) -> dict[str, Axis]:
        """Axes by argument."""
        return {axis.name: axis for axis in self.axes}

    @derived_property
    def strides(self) -> dict[str, int]:
        """Rows of the product until each axis changes."""
        strides, stride = {}, 1
        for axis in reversed(self.axes):
            strides[axis.name] = stride
            stride *= len(axis)
        return strides

    @property
    def is_product(self) -> bool:
        """Whether the space contains every combination of values, in order."""
        return self.numbers is None and self.listed is None

    def codes(self, name: str, rows: Any) -> NDArray[np.int64]:
        """Return the index of each row's value in the axis of an argument."""
        if self.listed is not None:
            return np.asarray(self.listed[name][rows], dtype=np.int64)
        numbers = rows if self.numbers is None else self.numbers[rows]
        place, count = numbers // self.strides[name], len(self.by_name[name])
        return np.asarray(place - place // count * count, dtype=np.int64)  # numpy divides twice as fast as it takes %

    def value(self, name: str, code: int, *, loaded: bool = True) -> Any:
        """Return the value at an index of an axis; the default if the argument has no axis."""
        axis = self.by_name.get(name)
        if axis is None:
            return DEFAULTS[name]
        if not loaded:
            return axis.values[code]
        if name not in self._kept:
            self._kept[name] = axis.loaded()
        return self._kept[name][code]

    def check(self) -> None:
        """Reject values that no configuration may have, before any is evaluated."""
        for axis in self.axes:
            self.value(axis.name, 0)

    def arguments(self, row: int) -> dict[str, Any]:
        """Return the arguments of predict for a configuration; for an impossible one, as the caller gave them."""
        codes = self._codes_of(row)
        try:
            return self.resolved(codes)
        except PerfmodelError:
            return {name: self.value(name, code) for name, code in codes.items()}

    def _codes_of(self, row: int) -> dict[str, int]:
        return {axis.name: int(self.codes(axis.name, np.array([row]))[0]) for axis in self.axes}

    def resolved(self, codes: Mapping[str, int]) -> dict[str, Any]:
        """Return the arguments of predict for indices of values on their axes."""
        arguments = {name: self.value(name, code) for name, code in codes.items()}
        devices = arguments.pop(DEVICES, None)
        if devices is not None:
            arguments["workers"] = _workers_on(devices, arguments)
        place = tuple((name, codes[name]) for name in ("system", "device", MACHINES, LINK) if name in codes)
        link, machines = arguments.pop(LINK, None), arguments.pop(MACHINES, None)
        if link is machines is None and (arguments.get("system") is None or arguments.get("device") is None):
            return arguments
        if place not in self._kept:
            raw = {name: self.value(name, code, loaded=False) for name, code in place}
            self._kept[place] = _placed(**raw)
        device = arguments.get("device")
        if device is None or device.card is device:  # it is in the slots; only a measured machine is passed on too
            arguments.pop("device", None)
        return arguments | {"system": self._kept[place]}

    def predicted(self, row: int) -> Prediction:
        """Return the full prediction of a configuration."""
        return predict(self.graph, **self.resolved(self._codes_of(row)))


def _workers_on(devices: int, arguments: Mapping[str, Any]) -> int:
    """Return the number of workers that fit on some devices; devices left over stay idle."""
    sizes = {name: arguments.get(name, 1) for name in ("stages", "tensor_size", "context_size")}
    if sizes["context_size"] == 1:
        del sizes["context_size"]
    of_worker = math.prod(sizes.values())
    if of_worker > devices:
        named = f"{' x '.join(sizes)} = {' x '.join(map(str, sizes.values()))}"
        raise ArgumentError(DEVICES, devices, f"at least the {of_worker} devices of one worker, {named}")
    return int(devices // of_worker)


def _placed(*, system: Any = None, device: Any = None, machines: Any = None, link: Any = None) -> Any:
    """Return a system with the devices of the ``device`` axis, the ``machines`` and the link of the ``link`` axis."""
    if system is None:
        raise ArgumentError("link", link, "must not be given without system=, in which it replaces links")
    return system_with(system, device=device, link=link.name if isinstance(link, Link) else link, machines=machines)


def space_of(
    graph: Any, axes: Mapping[str, Any], *, configurations: Iterable[Mapping[str, Any]] | None, limit: int | None
) -> Space:
    """Return the requested configurations, with every value checked separately."""
    made = tuple(axis_of(name, requested) for name, requested in axes.items())
    most = MOST_CONFIGURATIONS if limit is None else whole_number("limit", limit)
    return _checked(
        _product(graph, made, most, limit) if configurations is None else _list(graph, made, configurations, most)
    )


def _checked(space: Space) -> Space:
    workers = space.by_name.get("workers")
    if DEVICES in space.by_name and workers is not None:
        raise ArgumentError(
            "workers", list(workers.values), "must not be given with devices=, which sets the number of workers"
        )
    places = [value for axis in space.axes if axis.name in ("device", "system") for value in axis.values]
    if all(value is None for value in places):
        raise ArgumentError("device", None, "set; or pass system=, or both")
    space.check()
    return space


def _product(graph: Any, axes: tuple[Axis, ...], most: int, limit: int | None) -> Space:
    size = math.prod(len(axis) for axis in axes)
    if size <= most:
        return Space(graph=graph, axes=axes, size=size)
    if limit is None:
        sizes = " x ".join(f"{len(axis)} {axis.name}" for axis in axes if len(axis) > 1)
        allowed = f"set for more than {most:,} configurations, as the number to draw: {sizes} are {size:,}"
        raise ArgumentError("limit", limit, allowed)
    if size >= np.iinfo(np.int64).max:
        raise ArgumentError("limit", limit, f"used with fewer than 2**63 configurations: this product has {size:,}")
    numbers = _drawn(size, most)
    return Space(graph=graph, axes=axes, size=most, numbers=numbers)


def _drawn(size: int, count: int) -> NDArray[np.int64]:
    """Draw distinct configurations of a product, in order; always the same ones."""
    generator = np.random.default_rng(0)
    numbers = np.empty(0, dtype=np.int64)
    while len(numbers) < count:
        more = generator.integers(size, size=count - len(numbers) + 8, dtype=np.int64)
        numbers = np.unique(np.concatenate([numbers, more]))
    drawn: NDArray[np.int64] = np.sort(generator.permutation(numbers)[:count])
    return drawn


def _list(graph: Any, axes: tuple[Axis, ...], configurations: Iterable[Mapping[str, Any]], most: int) -> Space:
    rows: Sequence[Mapping[str, Any]] = list(configurations)
    if not rows:
        raise ArgumentError("configurations", rows, "must have at least one mapping")
    for row in rows:
        if not isinstance(row, Mapping):
            raise ArgumentError("configurations", row, "a list of mappings of argument to value")
    if len(rows) > most:
        raise ArgumentError("limit", most, f"at least {len(rows):,}, the number of listed configurations")
    fixed = _single(axes)
    names = dict.fromkeys([*fixed, *(name for row in rows for name in row)])
    columns = {name: [row.get(name, fixed.get(name, DEFAULTS.get(name))) for row in rows] for name in names}
    return _in_columns(graph, columns)


def space_in_columns(graph: Any, axes: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]) -> Space:
    """Return the configurations that columns list, each with the values of the axes; values are checked separately."""
    count = len(next(iter(columns.values())))
    same = _single([axis_of(name, value) for name, value in axes.items()])
    varied = _in_columns(graph, columns)
    alike = tuple([Axis(name, (value,)) for name, value in same.items()])
    listed = {axis.name: np.zeros(count, dtype=np.int32) for axis in alike} | dict(varied.listed or {})
    return _checked(Space(graph=graph, axes=(*alike, *varied.axes), size=count, listed=listed))


def _single(axes: Sequence[Axis]) -> dict[str, Any]:
    """Return the only value of each axis; reject axes with several."""
    several = next((axis for axis in axes if len(axis) > 1), None)
    if several is not None:
        allowed = "one value with configurations=, which list the varying arguments"
        raise ArgumentError(several.name, list(several.values), allowed)
    return {axis.name: axis.values[0] for axis in axes}


def _in_columns(graph: Any, columns: Mapping[str, Sequence[Any]]) -> Space:
    made, listed = [], {}
    for name, column in columns.items():
        axis_of(name, None)  # rejects an unknown name
        keys = [(type(value), value) if _is_simple(value) else id(value) for value in column]
        values = dict(zip(reversed(keys), reversed(column), strict=True))  # equal values share one code
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        made.append(Axis(name, tuple([values[key] for key in places])))
        listed[name] = np.array([places[key] for key in keys], dtype=np.int32)
    return Space(graph=graph, axes=tuple(made), size=len(listed[name]), listed=listed)


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
