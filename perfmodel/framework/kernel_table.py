"""A graph lowered by a framework, as arrays: every unique kernel once, exact for any batch size.

All counts of a lowered graph are affine in the batch size, c0 + c1 N. The graph is therefore lowered at three batch
sizes once; two give the coefficients, the third checks them. Afterwards a prediction at any batch size,
array of batch sizes or symbol is one multiply-add per column, and identical layers are costed once.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from perfmodel.derived import cache, derived, derived_property, kept
from perfmodel.errors import GraphError
from perfmodel.framework.lowering import lower
from perfmodel.kernels import Matmul, Stream
from perfmodel.records import Operation, Phase, Role
from perfmodel.symbolic import exact, is_symbolic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.framework.rules import LoweringRules

PROBE_BATCH_SIZES = (1, 2, 3)
MATMUL_COLUMNS = ("m", "n", "k", "count", "read_bytes", "written_bytes", "launches", "library_launches")
GEMM = "gemm"
"""Beginning of the efficiency names of a BLAS's products."""
UPDATE_KIND = "update"
"""Kind under which all operations of the optimizer are counted."""
SERIAL_STEPS = "serial_steps"
STREAM_COLUMNS = ("read_bytes", "written_bytes", "flop_count", SERIAL_STEPS, "launches", "library_launches")


class Occurrence(NamedTuple):
    """One operation of the graph: which layer and phase it belongs to, and which group of the table costs it."""

    layer: str
    phase: Phase
    role: Role
    group: int


class Names(tuple[str, ...]):
    """Names of rows, by which every prediction looks up what follows from them; they are hashed once."""

    @derived_property
    def _hashed(self) -> int:
        return tuple.__hash__(self)

    def __hash__(self) -> int:
        return self._hashed

    def __getstate__(self) -> None:
        """Pickle the names alone: text has another hash in another process."""


@dataclass(frozen=True, slots=True, eq=False)
class AffineColumns:
    """Columns of one kernel class, each row affine in the batch size."""

    names: tuple[str, ...]
    constant: NDArray[np.float64]
    slope: NDArray[np.float64]

    @property
    def row_count(self) -> int:
        """Number of rows. [1]"""
        return int(self.constant.shape[1])

    def at(self, batch_size: Any) -> dict[str, Any]:
        """Evaluate at a batch size: a number, an array of shape (configurations,), or a symbol.

        Returns arrays of shape (rows,), or (rows, configurations) for an array of batch sizes; object arrays of
        exact expressions for a symbol.
        """
        return dict(zip(self.names, _evaluated(self.constant, self.slope, batch_size), strict=True))


def _evaluated(constant: NDArray[np.float64], slope: NDArray[np.float64], batch_size: Any) -> Any:
    if type(batch_size) is int:
        return constant + slope * float(batch_size)  # numpy takes longer for an int
    if is_symbolic(batch_size):
        return exact(constant) + exact(slope) * batch_size
    if isinstance(batch_size, np.ndarray):
        constant, slope = constant[..., None], slope[..., None]
    return constant + slope * batch_size


@dataclass(frozen=True, eq=False)
class KernelTable:
    """Struct of arrays over the unique kernels of a lowered graph.

    Kernel rows are numbered matmuls first, then streams. An alternative is a run of rows; a group (a unique
    operation) chooses among its alternatives; an occurrence is one use of a group in the graph.
    """

    matmul: AffineColumns
    stream: AffineColumns
    matmul_efficiency: tuple[str, ...]
    stream_efficiency: tuple[str, ...]
    row_order: NDArray[np.intp]
    alternative_starts: NDArray[np.intp]
    alternative_names: tuple[str, ...]
    workspace: AffineColumns
    choices: NDArray[np.intp]
    multiplicity: NDArray[np.float64]
    is_update: NDArray[np.bool_]
    operation_kinds: tuple[str, ...]
    occurrences: tuple[Occurrence, ...]
    rows_of: KernelTable | None = None
    lowered: tuple[list[_Lowered], ...] = ()
    """Alternatives of each group as they were lowered, which tables of equal operations share. [-]"""

    @property
    def rows(self) -> KernelTable:
        """The first table with the same rows, alternatives and groups; it may use them at other places."""
        return self if self.rows_of is None else self.rows_of

    @derived_property
    def weights(self) -> GroupWeights:
        """Weight of each group. [1]"""
        return _group_weights(self)

    @derived_property
    def choices_of_group(self) -> NDArray[np.intp]:
        """The choices, of one group after the other."""
        return np.ascontiguousarray(self.choices.T)

    @derived_property
    def parts(self) -> tuple[NDArray[np.float64], ...]:
        """Occurrences of each group in each part of the step that a host issues. [1]"""
        return parts_of(self.part_of_group, self.multiplicity)

    @property
    def part_of_group(self) -> NDArray[np.intp]:
        """The part that issues each group."""
        return self.rows.weights.part_of_group

    @derived_property
    def alternative_of_row(self) -> NDArray[np.intp]:
        """Alternative that each entry of ``row_order`` belongs to."""
        lengths = np.diff(self.alternative_starts, append=len(self.row_order))
        return np.repeat(np.arange(len(lengths)), lengths)

    @derived_property
    def place_of_row(self) -> NDArray[np.intp]:
        """Place of that alternative among those of its group; -1 if no group can choose it."""
        place_of_alternative = np.full(len(self.alternative_names), -1)
        for place, alternatives in reversed([*enumerate(self.choices)]):  # a group with fewer repeats its first
            place_of_alternative[alternatives] = place
        return place_of_alternative[self.alternative_of_row]

    @derived_property
    def summands(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Alternatives that have a first row, a second, and so on, with these rows: few sums, as runs are short."""
        starts = self.alternative_starts
        lengths = np.diff(starts, append=len(self.row_order))
        longer = [np.flatnonzero(lengths > place) for place in range(lengths.max(initial=0))]
        return [(listed, self.row_order[starts[listed] + place]) for place, listed in enumerate(longer)]

    @derived_property
    def group_of_row(self) -> NDArray[np.intp]:
        """Group that chooses among the alternative of each entry of ``row_order``."""
        group_of_alternative = np.zeros(len(self.alternative_names), dtype=np.intp)
        group_of_alternative[self.choices] = np.arange(self.choices.shape[1])
        return group_of_alternative[self.alternative_of_row]

    @derived_property
    def layout(self) -> Layout:
        """All columns side by side, to be evaluated at once."""
        return _layout(self)

    @derived_property
    def issuer_of_row(self) -> tuple[bool, NDArray[np.intp] | None]:
        """Whether the library launches any row, and who launches each: 0 framework, 1 library; None if any has both."""
        launched, inside = (
            np.concatenate(
                [
                    [part[columns.names.index(name)] for part in (columns.constant, columns.slope)]
                    for columns in (self.matmul, self.stream)
                ],
                axis=1,
            )
            for name in ("launches", "library_launches")
        )
        by_library, by_framework = (inside == launched).all(axis=0), (inside == 0).all(axis=0)
        is_one = (by_library | by_framework).all()
        return not by_framework.all(), (~by_framework).astype(np.intp) if is_one else None

    def phase_weights(self, phase: Phase) -> GroupWeights:
        """Count each group in a single phase. [1]"""
        weights: GroupWeights = _phase_weights(self, phase)
        return weights

    def with_occurrences(self, occurrences: Sequence[Occurrence]) -> KernelTable:
        """Return the table of a graph that uses the same operations at other places."""
        groups = [occurrence.group for occurrence in occurrences]
        counts = np.bincount(groups, minlength=len(self.multiplicity)).astype(np.float64)
        return replace(self, occurrences=tuple(occurrences), multiplicity=counts, rows_of=self.rows)

    def without_alternatives(self, names: Collection[str]) -> KernelTable:
        """Return the table without these algorithms, except in groups that have no other."""
        left_out = np.array([name in names for name in self.alternative_names])[self.choices]
        first_kept = np.argmin(left_out, axis=0)
        other = np.take_along_axis(self.choices, first_kept[None], axis=0)
        return replace(self, choices=np.where(left_out, other, self.choices), rows_of=None)


class GroupWeights(NamedTuple):
    """Weight of each group of a table in each sum, and of each row if its alternative is chosen."""

    sums: NDArray[np.float64]
    of_row: NDArray[np.float64]
    has_library_launches: bool
    issuer_of_row: NDArray[np.intp] | None
    every_group: NDArray[np.intp]
    issuer_of_group: NDArray[np.intp]
    part_of_group: NDArray[np.intp]
    records: bool

    @property
    def forward_backward(self) -> NDArray[np.float64]:
        """Occurrences outside the update. [1]"""
        return self.sums[:, 0]

    @property
    def update(self) -> NDArray[np.float64]:
        """Occurrences in the update. [1]"""
        return self.sums[:, 1]

    @property
    def every(self) -> NDArray[np.float64]:
        """All occurrences. [1]"""
        return self.sums[:, 2]


def _group_weights(table: KernelTable) -> GroupWeights:
    sums = summed_weights(table.multiplicity, table.is_update)
    of_row = sums[table.rows.group_of_row]
    if table.rows_of is not None:  # the same operations, which are issued alike
        return table.rows.weights._replace(sums=sums, of_row=of_row)
    has_library_launches, issuer_of_row = table.issuer_of_row
    issuers = _issuers(table)
    _, part_of_group = np.unique(issuers, return_inverse=True)
    return GroupWeights(
        sums=sums,
        of_row=of_row,
        has_library_launches=has_library_launches,
        issuer_of_row=issuer_of_row,
        every_group=np.arange(len(table.multiplicity)),
        issuer_of_group=issuers,
        part_of_group=part_of_group,
        records=bool((issuers == ISSUERS.index("backward")).any()),
    )


ISSUERS = ("forward", "backward", "update")
"""Parts of a step that a host issues at different paces, in the order in which they run."""


def _issuers(table: KernelTable) -> NDArray[np.intp]:
    """Return the part of the step that issues each group: a recomputed output is issued like any output."""
    issuers = np.zeros(len(table.multiplicity), dtype=np.intp)
    roles = {group: role for _, _, role, group in table.occurrences}  # equal operations have the same role
    for group, role in roles.items():
        if role is not Role.OUTPUT:
            issuers[group] = ISSUERS.index("update" if role is Role.UPDATE else "backward")
    return issuers


@derived
def _phase_weights(table: KernelTable, phase: Phase) -> GroupWeights:
    sums = summed_weights(counts_in(table, phase), table.is_update)
    return table.weights._replace(sums=sums, of_row=sums[table.rows.group_of_row])


def counts_in(table: KernelTable, phase: Phase) -> NDArray[np.float64]:
    """Occurrences of each group in a phase. [1]"""
    groups = [group for _, of_phase, _, group in table.occurrences if of_phase is phase]
    return np.bincount(groups, minlength=len(table.multiplicity)).astype(float)


def parts_of(part_of_group: NDArray[np.intp], multiplicity: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Occurrences of each group in each part of the step. [1]"""
    return tuple(np.where(part_of_group == part, multiplicity, 0.0) for part in range(part_of_group.max() + 1))


def summed_weights(every: NDArray[np.float64], is_update: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Occurrences of each group outside the update, in it, and in all, in columns. [1]"""
    return np.stack([every * ~is_update, every * is_update, every], axis=1)


class LayerOperation(NamedTuple):
    """An operation of a graph at one batch size, its layer and phase; ``element_bytes`` is None for the job's type."""

    layer: str
    phase: Phase
    operation: Operation
    element_bytes: int | None = None


class LayerProbes(NamedTuple):
    """A ``LayerOperation`` at every probe batch size."""

    layer: str
    phase: Phase
    operations: tuple[Operation, ...]
    element_bytes: int | None = None

    def at(self, place: int) -> LayerOperation:
        """Return the operation at one probe batch size, by its place among them."""
        return LayerOperation(self.layer, self.phase, self.operations[place], self.element_bytes)


def probes_of(versions: Iterable[Sequence[LayerOperation]]) -> list[LayerProbes]:
    """Join the operations of each probe batch size, which are listed in the same order."""
    return [
        LayerProbes(
            first.layer, first.phase, tuple([version.operation for version in (first, *others)]), first.element_bytes
        )
        for first, *others in zip(*versions, strict=True)
    ]


class _Row(NamedTuple):
    """A kernel: its class, its values at the probe batch sizes, and the name of its efficiency."""

    kernel_class: str
    probes: bytes  # of float64: a fifth of the memory of tuples, and their hash is computed once
    efficiency: str

    @classmethod
    def of(cls, kernels: Sequence[Matmul | Stream]) -> _Row:
        kernel_class = kernels[0].kernel_class
        # of the largest probe: a product counted once for one sample is part of a batched product at any other size
        values = chain.from_iterable(map(_VALUES_OF[kernel_class], kernels))
        return cls(kernel_class, array("d", values).tobytes(), kernels[-1].efficiency)


_VALUES_OF = {Matmul.kernel_class: attrgetter(*MATMUL_COLUMNS), Stream.kernel_class: attrgetter(*STREAM_COLUMNS)}


class _Lowered(NamedTuple):
    """An alternative of an operation."""

    name: str
    rows: tuple[_Row, ...]
    workspace_bytes: bytes


MOST_LOWERED: Final = 16384
"""Operations whose lowering is cached, under all sets of rules together. [1]"""

_LOWERED: dict[Hashable, tuple[LoweringRules, list[_Lowered]]] = cache(f"{__name__}.lowered")
"""Lowered operations, by the rules' identity; parts of a network share most of them."""


def _lowered(
    rules: LoweringRules, operations: tuple[Operation, ...], element_bytes: int, processor: str
) -> tuple[LoweringRules, list[_Lowered]]:
    """Lower an operation at every probe batch size; return the rules too, so that no others get their identity."""
    at_sizes = [
        lower(operation, rules=rules, element_bytes=element_bytes, processor=processor) for operation in operations
    ]
    return rules, [
        _Lowered(
            name=versions[0].name,
            rows=tuple(map(_Row.of, zip(*(version.kernels for version in versions), strict=True))),
            workspace_bytes=array("d", [version.workspace_bytes for version in versions]).tobytes(),
        )
        for versions in zip(*at_sizes, strict=True)
    ]


class _Rows:
    """Unique rows of one kernel class: values at the probe batch sizes, and the efficiency name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.values: list[bytes] = []
        self.efficiency: list[str] = []
        self._index: dict[_Row, int] = {}

    def add(self, row: _Row) -> int:
        if row not in self._index:
            self._index[row] = len(self.values)
            self.values.append(row.probes)
            self.efficiency.append(row.efficiency)
        return self._index[row]

    def sorted(self) -> tuple[AffineColumns, tuple[str, ...], list[int]]:
        """Sort the rows by name, a BLAS's own first, and return the new place of each row."""
        names = self.efficiency
        first = {name: row for row, name in reversed(list(enumerate(names)))}
        order = sorted(range(len(names)), key=lambda row: (not names[row].startswith(GEMM), first[names[row]]))
        place = {row: position for position, row in enumerate(order)}
        columns = _affine(self.names, [self.values[row] for row in order])
        return columns, Names(names[row] for row in order), [place[row] for row in range(len(order))]


def _affine(names: tuple[str, ...], rows: Sequence[bytes]) -> AffineColumns:
    """Turn values at batch sizes 1, 2, 3 into coefficients; raise unless they are affine."""
    if not rows:
        empty = np.zeros((len(names), 0))
        return AffineColumns(names, empty, empty)
    shape = (len(rows), len(PROBE_BATCH_SIZES), len(names))
    first, second, third = np.frombuffer(b"".join(rows)).reshape(shape).transpose(1, 2, 0)
    slope = second - first
    constant = first - slope
    wrong = np.abs(constant + 3 * slope - third) > 1e-9 * np.abs(third)
    if wrong.any():
        column, row = np.argwhere(wrong)[0]
        msg = (
            f"a lowered operation's {names[column]} is not affine in the batch size: "
            f"{first[column, row]:g}, {second[column, row]:g}, {third[column, row]:g} at 1, 2, 3"
        )
        raise GraphError(msg)
    return AffineColumns(names, constant, slope)


class _TableBuilder:
    def __init__(self) -> None:
        self.rows = {Matmul.kernel_class: _Rows(MATMUL_COLUMNS), Stream.kernel_class: _Rows(STREAM_COLUMNS)}
        self.alternatives: list[_Lowered] = []
        self.entries: list[list[tuple[str, int]]] = []
        """Rows of each alternative, by kernel class and place in it."""
        self.group_choices: list[range] = []
        self.operations: list[Operation] = []

    def add_group(self, operation: Operation, alternatives: Sequence[_Lowered]) -> None:
        first = len(self.alternatives)
        self.alternatives += alternatives
        for alternative in alternatives:
            self.entries.append([(row.kernel_class, self.rows[row.kernel_class].add(row)) for row in alternative.rows])
        self.group_choices.append(range(first, len(self.alternatives)))
        self.operations.append(operation)

    def finish(self, occurrences: Sequence[Occurrence], lowered: Sequence[list[_Lowered]]) -> KernelTable:
        matmul_rows, stream_rows = self.rows[Matmul.kernel_class], self.rows[Stream.kernel_class]
        matmul, matmul_efficiency, matmul_places = matmul_rows.sorted()
        stream, stream_efficiency, stream_places = stream_rows.sorted()
        row_of = {
            Matmul.kernel_class: matmul_places,
            Stream.kernel_class: [len(matmul_places) + place for place in stream_places],
        }
        lengths = [len(entries) for entries in self.entries]
        is_update = [operation.role is Role.UPDATE for operation in self.operations]
        kinds = zip(self.operations, is_update, strict=True)
        widest = max((len(choices) for choices in self.group_choices), default=1)
        padded = [[*choices] + [choices[0]] * (widest - len(choices)) for choices in self.group_choices]
        groups = np.array([occurrence.group for occurrence in occurrences], dtype=np.intp)
        return KernelTable(
            matmul=matmul,
            stream=stream,
            matmul_efficiency=matmul_efficiency,
            stream_efficiency=stream_efficiency,
            row_order=np.array(
                [row_of[kernel_class][row] for entries in self.entries for kernel_class, row in entries],
                dtype=np.intp,
            ),
            alternative_starts=np.cumsum([0, *lengths[:-1]]).astype(np.intp),
            alternative_names=tuple(lowered.name for lowered in self.alternatives),
            workspace=_affine(("workspace_bytes",), [lowered.workspace_bytes for lowered in self.alternatives]),
            choices=np.array(padded, dtype=np.intp).T.reshape(widest, len(padded)),
            multiplicity=np.bincount(groups, minlength=len(self.group_choices)).astype(np.float64),
            is_update=np.array(is_update, dtype=bool),
            operation_kinds=tuple(UPDATE_KIND if updates else operation.kind for operation, updates in kinds),
            occurrences=tuple(occurrences),
            lowered=tuple(lowered),
        )


_SAME_ROWS: WeakValueDictionary[tuple[int, ...], KernelTable] = WeakValueDictionary()
"""Tables by the identities of their groups' alternatives, which a table keeps alive as long as it is listed."""


def build_kernel_table(
    probes: Iterable[Sequence[LayerOperation]], *, rules: LoweringRules, element_bytes: int, processor: str
) -> KernelTable:
    """Lower a graph's operations, given at the probe batch sizes, into one table."""
    return probed_table(probes_of(probes), rules=rules, element_bytes=element_bytes, processor=processor)


def probed_table(
    probes: Sequence[LayerProbes], *, rules: LoweringRules, element_bytes: int, processor: str
) -> KernelTable:
    """Lower a graph's operations into one table."""
    group_of: dict[int, int] = {}
    group_of_same: dict[Hashable, int] = {}  # equal layers share their operations, whose content is slow to hash
    occurrences: list[Occurrence] = []
    first: list[Operation] = []
    lowered: list[list[_Lowered]] = []
    for layer, phase, operations, stated_bytes in probes:
        own_bytes = element_bytes if stated_bytes is None else stated_bytes
        same = (*map(id, operations), own_bytes)
        group = group_of_same.get(same)
        if group is None:
            key = (id(rules), operations, own_bytes, processor)
            make = partial(_lowered, rules, operations, own_bytes, processor)
            of_group = kept(_LOWERED, key, make, most=MOST_LOWERED)[1]
            group = group_of_same[same] = group_of.setdefault(id(of_group), len(lowered))
            if group == len(lowered):
                first.append(operations[0])
                lowered.append(of_group)
        occurrences.append(Occurrence(layer, phase, operations[0].role, group))
    if not occurrences:
        msg = "the graph has no operations in this phase"
        raise GraphError(msg)
    same_rows = tuple(map(id, lowered))
    table = _SAME_ROWS.get(same_rows)
    if table is not None:
        return table.with_occurrences(occurrences)
    builder = _TableBuilder()
    for operation, alternatives in zip(first, lowered, strict=True):
        builder.add_group(operation, alternatives)
    table = _SAME_ROWS[same_rows] = builder.finish(occurrences, lowered)
    return table


LAUNCH_COLUMNS = ("launches", "library_launches")
"""Columns of both matmul and stream rows that are summed over both."""


class ColumnsAt(NamedTuple):
    """Every column of a kernel table at a batch size; launches of matmuls and streams are one column."""

    matmul: Mapping[str, Any]
    stream: Mapping[str, Any]
    launches: Any
    library_launches: Any
    workspace_bytes: Any


class Layout(NamedTuple):
    """Every column of a kernel table, one after the other, and the place of each."""

    constant: NDArray[np.float64]
    slope: NDArray[np.float64]
    matmul: Mapping[str, slice]
    stream: Mapping[str, slice]
    launches: slice
    library_launches: slice
    workspace: slice


def _layout(table: KernelTable) -> Layout:
    """Concatenate the columns: streams after matmuls, as if they were one column; most tables have no serial steps."""
    classes = {"matmul": table.matmul, "stream": table.stream}
    steps = [part[table.stream.names.index(SERIAL_STEPS)] for part in (table.stream.constant, table.stream.slope)]
    separate = {*LAUNCH_COLUMNS} if np.any(steps) else {*LAUNCH_COLUMNS, SERIAL_STEPS}
    order = [(kind, name) for name in LAUNCH_COLUMNS for kind in classes]
    order += [(kind, name) for kind, columns in classes.items() for name in columns.names if name not in separate]
    places: dict[tuple[str, str], slice] = {}
    end = 0
    for kind, name in order:
        places[kind, name] = slice(end, end := end + classes[kind].row_count)
    constant, slope = (
        np.concatenate(
            [getattr(classes[kind], part)[classes[kind].names.index(name)] for kind, name in order]
            + [getattr(table.workspace, part)[0]]
        )
        for part in ("constant", "slope")
    )
    matmul, stream = (
        {name: places[kind, name] for name in columns.names if name not in separate}
        for kind, columns in classes.items()
    )
    launches, library_launches = (
        slice(places["matmul", name].start, places["stream", name].stop) for name in LAUNCH_COLUMNS
    )
    return Layout(constant, slope, matmul, stream, launches, library_launches, slice(end, None))


def columns_at(table: KernelTable, batch_size: Any) -> ColumnsAt:
    """Evaluate all columns of a table at a batch size."""
    layout = table.layout
    values = _evaluated(layout.constant, layout.slope, batch_size)
    at = values.__getitem__
    return ColumnsAt(
        dict(zip(layout.matmul, map(at, layout.matmul.values()), strict=True)),
        dict(zip(layout.stream, map(at, layout.stream.values()), strict=True)),
        values[layout.launches],
        values[layout.library_launches],
        values[layout.workspace],
    )
