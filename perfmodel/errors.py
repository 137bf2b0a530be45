"""Errors a user can meet: each holds its fields, builds its message, and is also the built-in it resembles."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from perfmodel.plain_text import escaped, escaped_name, plain


class PerfmodelError(Exception):
    """Base of every error that perfmodel raises on bad input; its message is plain text, whatever it quotes."""

    def __init__(self, *message: object) -> None:
        super().__init__(*(escaped(part) if isinstance(part, str) else part for part in message))


MOST_SHOWN = 200
"""Characters of a value that a message shows. [1]"""
SHOWN_OF_LONG = 30
"""Characters that a message shows of the beginning and of the end of a longer file name. [1]"""


def short_repr(value: object) -> str:
    """Return a value as a message shows it: a loaded object by the name of its file, a long text cut short.

    >>> short_repr("gtx_1080"), len(short_repr("x" * 1000))
    ("'gtx_1080'", 200)
    """
    try:
        for name in ("stem", "name"):
            if not isinstance(value, Path) and isinstance(text := getattr(value, name, None), str):
                return repr(text)
        shown = repr(value)
    except Exception:
        shown = f"a value of type {type(value).__name__}"
    shown = shown.encode(errors="backslashreplace").decode()
    return shown if len(shown) <= MOST_SHOWN else f"{shown[: MOST_SHOWN - 3]}..."


SHORTEST_BEGINNING = 3
"""Fewest characters of a beginning that suggest a name. [1]"""


MOST_COMPARED: Final = 8
"""Most names of close spelling that are compared by their numbers. [1]"""

LEAST_LIKE: Final = 0.6
"""Least similarity of a name that is proposed; 1 for the same letters in the same order. [1]"""

LEAST_LIKE_WITH_NUMBERS: Final = 0.5
"""Least similarity of a proposed name that has the same numbers, as fp32 and float32. [1]"""

MOST_NEAREST: Final = 3
"""Names that a message proposes. [1]"""


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that contain ``name`` at the end of a part, else the closest in spelling.

    Parts are what stands between ``_``. Case, and whether parts are joined by ``_``, ``-``, ``.`` or a space, make no
    difference. Names that begin with ``name`` come first, then the shortest. If there are none, names with the model
    number of a driver's name are taken, then the closest spelling with the same numbers, and at last names whose first
    part is close, or the shortest name with this beginning.

    >>> nearest_names("A100", ["a10", "a100_40_sxm", "a100_80_pcie"]), nearest_names("k80", ["tesla_k80_gk210"])
    (['a100_40_sxm', 'a100_80_pcie'], ['tesla_k80_gk210'])
    >>> nearest_names("hgx_h100", ["hgx_h800", "dgx_h100"]), nearest_names("adma", ["adamax", "adam"])
    (['dgx_h100'], ['adam'])
    >>> nearest_names("torch", ["torch_423cfba", "pytorch_2"]), nearest_names("lion", ["none"])
    (['torch_423cfba', 'pytorch_2'], [])
    >>> nearest_names("NVIDIA A100-SXM4-80GB", ["v100_sxm2_32gb", "a100_40_sxm", "a100_80_sxm"])
    ['a100_80_sxm', 'a100_40_sxm']
    """
    if len(name) > MOST_SHOWN:  # too long for a misspelt name, and slow to compare
        return []
    by_fold = {_folded(known_name): known_name for known_name in known}
    folded = _folded(name)
    if folded in by_fold:
        return [by_fold[folded]]
    is_long = len(folded) >= SHORTEST_BEGINNING
    variants = [known_fold for known_fold in by_fold if is_long and f"{folded}_" in f"{known_fold}_"]
    variants.sort(key=lambda variant: (not variant.startswith(folded), len(variant)))
    matches = variants or _same_model(folded, by_fold) or _closest(folded, by_fold) or _same_start(folded, by_fold)
    if not matches and is_long:
        matches = sorted((known_fold for known_fold in by_fold if known_fold.startswith(folded)), key=len)[:1]
    return [by_fold[match] for match in matches[:MOST_NEAREST]]


def _same_model(folded: str, known: Iterable[str]) -> list[str]:
    """Return the names with the same model number, such as ``a100``; those that share most parts come first."""
    parts = folded.split("_")
    # x16 is a number of lanes or machines, not a model
    models = {part for part in parts if not part.removeprefix("x").isdigit() and any(map(str.isdigit, part))}

    def order(name: str) -> tuple[int, int]:
        shared = [part for part in name.split("_") if any(stated.startswith(part) for stated in parts)]
        return -len(shared), len(name)

    return sorted((name for name in known if not models.isdisjoint(name.split("_"))), key=order)


def _closest(folded: str, known: Iterable[str]) -> list[str]:
    """Return the closest name in spelling, with the same numbers if possible: an H100 is no H800.

    Of equal numbers, a name of the same letters is a slip of the fingers, and the first letter is rarely wrong.
    """
    stated, numbers = {part for part in folded.split("_") if _numbers(part)}, _numbers(folded)
    close = difflib.get_close_matches(folded, known, n=MOST_COMPARED, cutoff=LEAST_LIKE_WITH_NUMBERS)
    near = difflib.get_close_matches(folded, close, n=MOST_COMPARED, cutoff=LEAST_LIKE)
    near = [name for name in close if name in near or (numbers and numbers == _numbers(name))]

    def order(name: str) -> tuple[bool, bool, bool]:
        return not stated.issubset(name.split("_")), sorted(name) != sorted(folded), name[0] != folded[0]

    return sorted(near, key=order)[:1]


def _same_start(folded: str, known: Iterable[str]) -> list[str]:
    """Return the names whose first part is this one misspelt, such as ``caffe`` of ``caffe_cudnn5``."""
    by_start: dict[str, list[str]] = {}
    for name in sorted(known, key=len):
        by_start.setdefault(name.split("_")[0], []).append(name)
    return [name for start in difflib.get_close_matches(folded, by_start, n=1, cutoff=0.8) for name in by_start[start]]


def _numbers(name: str) -> set[str]:
    return set(re.findall(r"\d+", name))


def _folded(name: str) -> str:
    return re.sub(r"[-. ]", "_", name.casefold())


def nearest_match(name: str, known: Iterable[str]) -> str | None:
    """Return the first of ``nearest_names``; None if no name is close.

    >>> nearest_match("gtx1080", ["gtx_980", "gtx_1080"])
    'gtx_1080'
    >>> nearest_match("ring", ["in_network", "ring_all_reduce"])
    'ring_all_reduce'
    >>> nearest_match("a100", ["a10", "a100_40_sxm"])
    'a100_40_sxm'
    """
    return next(iter(nearest_names(name, known)), None)


def nearest_hint(name: str, known: Iterable[str], *, what: str = "nearest") -> str:
    """Return the nearest known name in brackets, to append to a message; empty if none is close."""
    nearest = nearest_match(name, known)
    return f" ({what}: {nearest})" if nearest else ""


def meant(name: str, known: Iterable[str]) -> str:
    """Ask for the nearest known name, to append to a message; empty if none is close."""
    nearest = nearest_match(name, known)
    return f"; did you mean {nearest!r}?" if nearest else ""


MOST_FAULTS_SHOWN: Final = 20
"""Faults of a file that its message shows. [1]"""
MOST_FAULT_LETTERS: Final = 500
"""Longest fault that a message shows in full. [1]"""


def shown_faults(faults: Sequence[str]) -> list[str]:
    """Return the first faults as a message shows them, with the number of the others.

    >>> shown_faults(["a", "b"]), shown_faults(["x"] * 25)[-1]
    (['a', 'b'], 'and 5 more')
    """
    shown = [
        fault
        if len(fault) <= MOST_FAULT_LETTERS
        else f"{fault[: MOST_FAULT_LETTERS - SHOWN_OF_LONG]}...{fault[-SHOWN_OF_LONG:]}"
        for fault in faults[:MOST_FAULTS_SHOWN]
    ]
    rest = len(faults) - len(shown)
    return [*shown, f"and {rest:,} more"] if rest else shown


def shown_file(file: str) -> str:
    """Return a file's name as a message shows it; a name too long for a path is a text passed by mistake.

    >>> shown_file("net.json"), len(shown_file("x" * 5000))
    ('net.json', 63)
    """
    file = escaped_name(file)
    return file if len(file) <= MOST_SHOWN else f"{file[:SHOWN_OF_LONG]}...{file[-SHOWN_OF_LONG:]}"


class SpecError(PerfmodelError, ValueError):
    """A spec file (or an object built like one) is wrong; lists every fault found in it.

    Parameters
    ----------
    file : str or Path
        The file at fault, or a description of where the values came from. [-]
    faults : sequence of str
        One line per fault: field, value, what is allowed. [-]
    """

    def __init__(self, file: str | Path, faults: Sequence[str]) -> None:
        self.file = str(file)
        self.faults = tuple(dict.fromkeys(faults))
        count = len(self.faults)
        lines = "; ".join(shown_faults(self.faults))
        super().__init__(f"{shown_file(self.file)}: {count} fault{'s' if count != 1 else ''}: {lines}")


class FreeSizeError(SpecError):
    """A file has free sizes that the caller must set; says where they occur and how to set them.

    Parameters
    ----------
    file : str or Path
        The file. [-]
    places : mapping of str to str
        Place of each, e.g. an input's axis, to its name. [-]
    how : str
        Argument or option that sets a size, with ``{name}`` for its name. [-]
    """

    def __init__(self, file: str | Path, places: Mapping[str, str], *, how: str) -> None:
        self.places = dict(places)
        faults = [
            f"{place} is the free size {name!r}: give it by {how.format(name=name)}" for place, name in places.items()
        ]
        super().__init__(file, faults)


class UnknownNameError(PerfmodelError, KeyError):
    """A name is not known; says which names are and which one is nearest.

    Parameters
    ----------
    kind : str
        What the name should denote, e.g. ``device``. [-]
    name : str
        The name given, or another value in its place. [-]
    known : iterable of str
        The names that exist. [-]
    remedy : str
        Another way out, as a sentence. [-]
    is_spelt : bool
        Whether the name exists elsewhere, so that no other spelling is proposed. [-]
    """

    def __init__(
        self, kind: str, name: object, known: Iterable[str], *, remedy: str = "", is_spelt: bool = False
    ) -> None:
        self.name = str(plain(name)) if isinstance(name, str | Path) else short_repr(name)
        self.kind, self.known = kind, tuple(sorted(known))
        nearest = [] if is_spelt else nearest_names(self.name, self.known)
        self.nearest = nearest[0] if nearest else None
        *others, last = [repr(close) for close in nearest] or [""]
        shown = short_repr(self.name) if isinstance(name, str | Path) else self.name
        hint = f" Did you mean {' or '.join([*([', '.join(others)] if others else []), last])}?" if nearest else ""
        self.message = f"unknown {kind} {shown}.{hint} Known: {', '.join(self.known) or 'none'}. {remedy}".rstrip()
        super().__init__(self.message)

    def __str__(self) -> str:
        return escaped(self.message)  # KeyError would print the repr of the message


def whole_numbers_text(least: int, most: int) -> str:
    """Return the whole numbers allowed, as a text for a message.

    >>> whole_numbers_text(1, 4096), whole_numbers_text(1, 1)
    ('a whole number from 1 to 4,096', '1')
    """
    return f"{least:,}" if least == most else f"a whole number from {least:,} to {most:,}"


def check_known(kind: str, name: Any, known: Collection[Any], *, remedy: str = "") -> None:
    """Raise UnknownNameError unless a name is known."""
    if not is_one_of(name, known):
        raise UnknownNameError(kind, name, known, remedy=remedy)


def is_one_of(value: object, known: Collection[Any]) -> bool:
    """Tell whether a value is among names, even if it cannot be hashed, or compares element by element.

    >>> is_one_of("ring", ("ring", "tree")), is_one_of([1, 2], {"ring": 1})
    (True, False)
    """
    try:
        return bool(value in known)
    except Exception:
        return False


class ShapeError(PerfmodelError, ValueError):
    """Shapes do not fit; names the layer and the shapes.

    Parameters
    ----------
    layer : str
        Name of the layer. [-]
    problem : str
        What does not fit, with the shapes and what is allowed. [-]
    """

    def __init__(self, layer: str, problem: str) -> None:
        self.layer, self.problem = layer, problem
        super().__init__(f"layer {layer!r}: {problem}")


class GraphError(PerfmodelError, ValueError):
    """A layer graph is malformed: a cycle, a missing input, a duplicate name.

    Parameters
    ----------
    problem : str
        What is wrong, and where. [-]
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)


class ArgumentError(PerfmodelError, ValueError):
    """An argument has a value that is not allowed.

    Parameters
    ----------
    argument : str
        Name of the argument. [-]
    given : object
        The value that was given. [-]
    allowed : str
        What it must be, and the remedy: follows "must be", unless it begins with "must" itself. [-]
    """

    def __init__(self, argument: str, given: object, allowed: str) -> None:
        self.argument, self.given, self.allowed = argument, given, allowed
        must = allowed if allowed.startswith("must ") else f"must be {allowed}"
        super().__init__(f"{argument} {must} (got {short_repr(given)})")


class CallError(PerfmodelError, TypeError):
    """A call has too few arguments or too many; says which, and how to call.

    Parameters
    ----------
    function : str
        What is called. [-]
    problem : str
        What is wrong, and how to call instead: follows its name. [-]
    """

    def __init__(self, function: str, problem: str) -> None:
        self.function, self.problem = function, problem
        super().__init__(f"{function} {problem}")


class TaskError(PerfmodelError, ValueError):
    """A task cannot be simulated; names the task and its fault.

    Parameters
    ----------
    task : str
        Name of the task. [-]
    problem : str
        What is wrong, and what is allowed. [-]
    """

    def __init__(self, task: str, problem: str) -> None:
        self.task, self.problem = task, problem
        super().__init__(f"task {short_repr(task)}: {problem}")


class CalibrationError(PerfmodelError, ValueError):
    """A fit or a calibration is impossible with its data; says which rows are at fault and why."""


class WorkerError(PerfmodelError, RuntimeError):
    """A process that worked for this one died, for instance because memory ran out."""


class TableError(PerfmodelError, ValueError):
    """A measurement table is wrong; names file, row, column, value and what is allowed."""


class NotYetAvailableError(PerfmodelError, NotImplementedError):
    """An argument of the public signature that this version does not support yet.

    Parameters
    ----------
    argument : str
        Name of the argument. [-]
    given : object
        The value that was given. [-]
    available : str
        What this version supports. [-]
    """

    def __init__(self, argument: str, given: object, available: str) -> None:
        self.argument, self.given, self.available = argument, given, available
        super().__init__(f"{argument}={given!r} is not available in this version, which serves {available}")


class TraceError(PerfmodelError, RuntimeError):
    """A module of another program cannot be run on tensors without content.

    Parameters
    ----------
    path : str
        Path of the submodule at fault; empty for the whole. [-]
    problem : str
        What happened there, and what helps. [-]
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(problem)


class MissingPackageError(PerfmodelError, ImportError):
    """Something needs an optional package that is not installed.

    Parameters
    ----------
    package : str
        The package. [-]
    needed_by : str
        What needs it. [-]
    extra : str
        The extra of perfmodel that brings it. [-]
    """

    def __init__(self, package: str, needed_by: str, extra: str) -> None:
        self.package, self.needed_by, self.extra = package, needed_by, extra
        super().__init__(f"{needed_by} needs {package}: pip install 'perfmodel[{extra}]'")


def package_for(package: str, needed_by: str, extra: str) -> Any:
    """Import an optional package; raise MissingPackageError if it is not installed."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingPackageError(package, needed_by, extra) from error


class PerfmodelWarning(UserWarning):
    """Base of every warning of perfmodel: something is counted otherwise than expected."""


class OpaqueLayerWarning(PerfmodelWarning):
    """A network calls an operator without a layer; it is counted by its bytes and a bound on its arithmetic."""


class FixedBatchWarning(PerfmodelWarning):
    """An imported network holds for one batch size only."""


class ParameterWarning(PerfmodelWarning):
    """Parameters of an imported network are not counted as they are stored."""


class BackwardWarning(PerfmodelWarning):
    """The backward phase of an imported network is a guess, or exceeds the count."""


class PrecisionWarning(PerfmodelWarning):
    """An imported network computes in half precision, which its graph does not say."""
