"""Find, read and load spec files; cache them while they are unchanged; word their faults.

A spec file is one TOML in one kind folder (``devices/``, ``links/`` ...) of a spec folder. The shipped spec
folder comes last; the folders that the environment variable ``PERFMODEL_SPECS`` lists come first, so a user's
file of the same name wins. This module imports no pydantic: only ``load`` needs it, and imports it then.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import date
from functools import lru_cache, partial, reduce, wraps
from inspect import isclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, get_args

from perfmodel.derived import drop_oldest
from perfmodel.errors import (
    ArgumentError,
    SpecError,
    UnknownNameError,
    check_known,
    nearest_hint,
    nearest_match,
    short_repr,
)
from perfmodel.files import file_toml, is_file, is_folder, user_path
from perfmodel.units import FACTOR_BY_SUFFIX

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from perfmodel.hardware.source import SpecFile

    Spec = TypeVar("Spec", bound=SpecFile)

_LONGEST_VALUE: Final = 60
_PYDANTIC_WORDS: Final = (
    ("Value error, ", ""),
    ("Input should be a valid dictionary", "must be a table"),
    ("Input should be a valid tuple", "must be a list"),
    ("Input should ", "must "),
    ("String should ", "must "),
    ("Tuple should ", "must "),
)


def faults_of(error: ValidationError, model_class: type[BaseModel]) -> list[str]:
    """Turn a validation error into one line per fault."""
    items = error.errors(include_url=False, include_context=False)
    missing = {item["loc"] for item in items if item["type"] == "missing"}
    tables = {item["loc"][:depth] for item in items for depth in range(len(item["loc"]))}
    explained: set[tuple[int | str, ...]] = set()
    lines: dict[tuple[int | str, ...], list[str]] = {}
    for item in items:
        location = item["loc"]
        if item["type"] == "too_short" and location in tables:
            continue  # entries with faults of their own are what it lacks
        if item["type"] == "extra_forbidden":
            *parent, key = location
            allowed = _keys_of(model_class, parent)
            meant, advice = _meant_key(str(key), allowed, [str(loc[-1]) for loc in missing if [*loc[:-1]] == parent])
            if meant is not None:
                explained.add((*parent, meant))
            lines.setdefault(location, []).append(_line(location, item["input"], advice))
        elif item["type"] != "missing":
            lines.setdefault(location, []).append(_line(location, item["input"], _readable(item["msg"])))
    for location in sorted(missing - explained, key=str):
        lines.setdefault(location, []).append(f"{dotted(location)}: required key is missing")
    return [line for of_location in lines.values() for line in of_location]


def dotted(location: Iterable[int | str]) -> str:
    """Write the location of a fault as the owner of a spec file would.

    >>> dotted(("source", 0, "title"))
    'source[0].title'
    """
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".") or "file"


def _line(location: Sequence[int | str], value: Any, allowed: str) -> str:
    if not location:
        return allowed  # a fault of several fields, which names them
    if value and isinstance(value, dict):
        return f"{dotted(location)}: {allowed}"
    text = short_repr(value)
    if len(text) > _LONGEST_VALUE:
        text = f"{text[:_LONGEST_VALUE]}..."
    return f"{dotted(location)}: value {text}: {allowed}"


def _readable(message: str) -> str:
    for prefix, replacement in _PYDANTIC_WORDS:
        message = re.sub(f"^{prefix}", replacement, message)
    return message.replace(" after validation", "")


def _meant_key(key: str, allowed: list[str], missing: list[str]) -> tuple[str | None, str]:
    """Return the key that was probably meant, preferring missing ones, and the advice to give."""
    for candidates in (missing, allowed):
        same_stem = [other for other in candidates if _stem(other) == _stem(key) and _stem(other) != other]
        if same_stem:
            return same_stem[0], f"unknown key; the key carries its unit: {same_stem[0]}"
    nearest = nearest_match(key, missing) or nearest_match(key, allowed)
    if nearest is not None:
        return nearest, f"unknown key; nearest key: {nearest}"
    return None, f"unknown key; allowed: {', '.join(allowed)}"


def _stem(key: str) -> str:
    """Strip the unit suffix from a key."""
    suffixes = [suffix for suffix in FACTOR_BY_SUFFIX if key.endswith(suffix)]
    return key.removesuffix(max(suffixes, key=len)) if suffixes else key


def _keys_of(model_class: type[BaseModel], location: Iterable[int | str]) -> list[str]:
    """Return the keys that the table at a location may have."""
    table = model_class
    for step in location:
        field = table.model_fields.get(str(step))
        nested = _table_class(field.annotation) if field is not None else None
        table = nested or table  # a list index or a free key stays within the same table class
    return list(table.model_fields)


def _table_class(annotation: Any) -> type[BaseModel] | None:
    from pydantic import BaseModel

    if isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next((table for part in get_args(annotation) if (table := _table_class(part))), None)


Name: TypeAlias = Any
Loader = TypeVar("Loader", bound=Callable[[Name], Any])
MISSING: Final = -1
"""State of a file that does not exist or cannot be inspected; no hash is -1. [1]"""
_MOST_KEPT: Final = 256
"""Objects that one loader caches; each is small."""
_looked_for: ContextVar[dict[str, int] | None] = ContextVar("_looked_for", default=None)
"""Files that the current load has looked for, with their states; None outside a load."""


def state_of(path: Path) -> int:
    """Return a number that changes whenever a file does, and record that the file was looked for. [1]"""
    state = _state_now(path)
    if (files := _looked_for.get()) is not None:
        files[str(path.absolute())] = state
    return state


def _state_now(path: str | Path) -> int:
    try:
        now = os.stat(path)  # noqa: PTH116 - called for each file in each prediction; twice as fast
    except (OSError, ValueError):
        return MISSING  # the code that reads the file reports what is wrong
    return _state_in(now)


def _state_in(now: os.stat_result) -> int:
    # A copied file may keep its time of modification, so the time alone does not show a change.
    return hash((now.st_mtime_ns, now.st_size, now.st_ino, now.st_ctime_ns))


def kept_while_unchanged(
    depends_on: Callable[[], Hashable], *, names: tuple[type, ...] = (str, Path)
) -> Callable[[Loader], Loader]:
    """Return a decorator that makes a loader return the same object until a file it looked for changes."""

    def keeping(load: Loader) -> Loader:
        kept: dict[Hashable, _Loaded] = {}

        @wraps(load)
        def kept_or_loaded(name_or_path: Name, **options: Any) -> Any:
            if not isinstance(name_or_path, names):
                return load(name_or_path, **options)  # which raises an error that says what it takes
            folders = depends_on()
            here = _here() if folders or _may_be_relative(name_or_path) else None
            # True equals 1
            asked = [(name, type(value), value) for name, value in options.items()] if options else ()
            key = (name_or_path, *asked, here, folders)
            loaded = kept.get(key)
            if loaded is None or not loaded.is_current():
                loaded = kept[key] = _Loaded(*_loaded(partial(load, **options), name_or_path))
                drop_oldest(kept, most=_MOST_KEPT)
            if (around := _looked_for.get()) is not None:
                around.update(loaded.files)
            return loaded.made

        return cast("Loader", kept_or_loaded)

    return keeping


SHIPPED_LOOK_S: Final = 0.05
"""Time after which shipped files are looked at again; a user's own are looked at each time they are asked for. [s]"""


class _Loaded:
    """What a loader made, and the files that it looked for."""

    __slots__ = ("are_shipped", "files", "looked_s", "made")

    def __init__(self, made: Any, files: dict[str, int]) -> None:
        self.made, self.files = made, files
        shipped = f"{shipped_folder()}{os.sep}"
        self.are_shipped = all(path.startswith(shipped) for path in files)
        self.looked_s = monotonic()

    def is_current(self) -> bool:
        """Tell whether all files are unchanged; every prediction asks, and looking takes a twentieth of its time."""
        if self.are_shipped:
            now_s = monotonic()
            if now_s - self.looked_s < SHIPPED_LOOK_S:
                return True
            self.looked_s = now_s
        return _unchanged(self.files)


def _unchanged(files: dict[str, int]) -> bool:
    try:
        for path, old_state in files.items():
            # for a file that was missing, os.access is faster than a failing os.stat
            if os.access(path, os.F_OK) if old_state == MISSING else _state_in(os.stat(path)) != old_state:  # noqa: PTH116
                return False
    except (OSError, ValueError):  # it is gone
        return False
    return True


@lru_cache(maxsize=1024)
def _may_be_relative(name: Any) -> bool:
    """Tell whether a name, or one of several, is a path, so that it may be relative to the working folder."""
    return any(map(_may_be_relative, name)) if isinstance(name, tuple) else is_path(name)


def _here() -> str | None:
    """Return the working folder, at which relative paths start; None if it no longer exists."""
    try:
        return os.getcwd()  # noqa: PTH109 - only a cache key
    except OSError:
        return None


def _loaded(load: Callable[[Name], Any], name_or_path: Name) -> tuple[Any, dict[str, int]]:
    """Run a loader; return its object and the files that it looked for."""
    files: dict[str, int] = {}
    token = _looked_for.set(files)
    try:
        return load(name_or_path), files
    finally:
        _looked_for.reset(token)


ENVIRONMENT_VARIABLE: Final = "PERFMODEL_SPECS"
"""Names the user's own spec folders, separated as in ``PATH``."""
NOUN_BY_FOLDER: Final[dict[str, str]] = {
    "devices": "device",
    "defaults": "default",
    "links": "link",
    "storage": "storage",
    "datasets": "data set",
    "systems": "system",
    "libraries": "library",
    "collectives": "library of collectives",
    "frameworks": "framework",
    "prices": "price",
    "calibrations": "calibration",
    "fit_plans": "fit plan",
    "intervals": "interval scale",
}
"""Kind folder -> name of the thing that one of its files describes."""
OF_PERFMODEL: Final = ("defaults", "fit_plans", "intervals")
"""Kind folders with files that no argument of a job names."""
_PACKAGE_ROOT = Path(__file__).resolve().parent.parent


@lru_cache(maxsize=1)
def shipped_folder() -> Path:
    """Return the spec folder that comes with perfmodel, in a wheel or in a checkout."""
    installed, checkout = (folder / "hardware_specs" for folder in (_PACKAGE_ROOT, _PACKAGE_ROOT.parent))
    return installed if installed.is_dir() else checkout


def folders_asked_for() -> str:
    """Return the spec folders that the environment names, as one text. [-]"""
    return os.environ.get(ENVIRONMENT_VARIABLE, "")


def spec_folders() -> tuple[Path, ...]:
    """Return every spec folder in the order of precedence: the user's own first, the shipped one last."""
    entries = [entry for entry in folders_asked_for().split(os.pathsep) if entry]
    if not entries:
        return _shipped_alone()
    folders = tuple(user_path(entry, refusal=_of_variable) for entry in entries)
    kinds = ", ".join(f"{folder}/" for folder in NOUN_BY_FOLDER)
    for folder in folders:
        if not is_folder(folder) or not os.access(folder, os.R_OK | os.X_OK):
            raise _of_variable(folder, ["must be an existing folder that you may read"])
        if misnamed := _misnamed_folders(folder):
            raise _of_variable(folder, misnamed)
        if not any(is_folder(folder / kind) for kind in NOUN_BY_FOLDER):
            raise _of_variable(folder, [f"must hold one of {kinds}"])
    return (*folders, shipped_folder())


def _of_variable(folder: Path, faults: list[str]) -> SpecError:
    return SpecError(ENVIRONMENT_VARIABLE, [f"value {short_repr(str(folder))}: {fault}" for fault in faults])


@lru_cache(maxsize=1)
def _shipped_alone() -> tuple[Path, ...]:
    return (shipped_folder(),)


def _misnamed_folders(folder: Path) -> list[str]:
    """Return a line for each folder of TOML files whose name is close to that of a kind folder."""
    faults = []
    for inner in sorted(folder.iterdir()):
        nearest = None if inner.name in NOUN_BY_FOLDER else nearest_match(inner.name, NOUN_BY_FOLDER)
        if nearest is not None and inner.is_dir() and any(inner.glob("*.toml")):
            faults.append(f"its folder {inner.name}/ is not a kind folder (nearest: {nearest}/)")
    return faults


def names(kind_folder: str) -> tuple[str, ...]:
    """Return the names of all spec files of a kind, sorted."""
    check_known("kind folder", kind_folder, NOUN_BY_FOLDER)
    return tuple(sorted({path.stem for path in files(kind_folder)}))


def files(kind_folder: str) -> tuple[Path, ...]:
    """Return the spec files of a kind in every spec folder, shadowed ones too."""
    return tuple(path for folder in spec_folders() for path in sorted((folder / kind_folder).glob("*.toml")))


def is_path(name_or_path: object) -> bool:
    """Tell a path to a spec file from the name of one: a ``Path``, a ``.toml`` ending, or a folder in it.

    >>> is_path("my_gpu.toml"), is_path("gtx_1080")
    (True, False)
    """
    if isinstance(name_or_path, Path):
        return True
    return isinstance(name_or_path, str) and (name_or_path.endswith(".toml") or os.sep in name_or_path)


def from_folder(folder: Path, name_or_path: str) -> str | Path:
    """Resolve a name or path stated by a file in a folder; a path starts at that folder."""
    return folder / name_or_path if is_path(name_or_path) else name_or_path


OR_A_PATH: Final = {"calibrations": "Or pass the path of a file that pm.fit or perfmodel calibrate wrote."}
"""Kind folder -> advice on the path that serves instead of a name."""


def find(kind_folder: str, name_or_path: str | Path) -> Path:
    """Return the path of a spec file given by name or by path."""
    if is_path(name_or_path):
        path = user_path(name_or_path)
        if path.suffix != ".toml":
            raise SpecError(path, ["a path must lead to a .toml file"])
        if not is_file(path):
            beside = [other.name for other in path.parent.glob("*.toml") if "schema_version" in readable_tables(other)]
            reason = "not a file" if os.path.exists(path) else "no such file"  # noqa: PTH110 - likewise
            raise SpecError(path, [reason + nearest_hint(path.name, beside, what="nearest in its folder")])
        return path
    noun = NOUN_BY_FOLDER.get(kind_folder, kind_folder)
    if not isinstance(name_or_path, str):
        raise ArgumentError(noun, name_or_path, "a name, or a path to a .toml file")
    named = lookup(kind_folder, name_or_path)
    if named is None:
        if other := _kind_that_has(name_or_path):
            raise ArgumentError(noun, name_or_path, f"the name of a {noun}; this one is a {other}")
        raise UnknownNameError(noun, name_or_path, names(kind_folder), remedy=OR_A_PATH.get(kind_folder, ""))
    return named


def _kind_that_has(name: str) -> str | None:
    """Return the kind that a name belongs to; a link's name may end in its lanes."""
    family = re.sub(r"_x\d+$", "", name)
    nouns = (noun for folder, noun in NOUN_BY_FOLDER.items() if folder not in OF_PERFMODEL and lookup(folder, name))
    return next(nouns, "link" if lookup("links", family) else None)


def lookup(kind_folder: str, name: str) -> Path | None:
    """Return the path of a name's spec file, or None."""
    candidates = (folder / kind_folder / (name + ".toml") for folder in spec_folders())
    return next((path for path in candidates if state_of(path) != MISSING and is_file(path)), None)


def origin_of(kind_folder: str, name: str) -> str:
    """Say whether a name denotes a shipped file or the user's own."""
    shipped = shipped_folder() / kind_folder / f"{name}.toml"
    if lookup(kind_folder, name) == shipped:
        return "shipped"
    return "yours, shadows shipped" if shipped.is_file() else "yours"


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file."""
    return file_toml(path)


def load(path: str | Path, model_class: type[Spec], *, heirs_of: str = "") -> Spec:
    """Read and validate a spec file; it may inherit tables from another file of the kind folder ``heirs_of``."""
    return cast("Spec", _load_once(_lineage(Path(path).absolute(), heirs_of), model_class))


def _lineage(path: Path, kind_folder: str) -> tuple[tuple[Path, int], ...]:
    """Return a file and those that it inherits from, each with its state."""
    lineage: dict[Path, int] = {}
    while path not in lineage:
        lineage[path] = state_of(path)
        parent = _tables(path, lineage[path]).get("inherits") if kind_folder else None
        if parent is None:
            return tuple(lineage.items())
        if not isinstance(parent, str):
            allowed = f"must be the name of a {NOUN_BY_FOLDER[kind_folder]}"
            raise SpecError(path, [_line(("inherits",), parent, allowed)])
        try:
            heir, path = path, find(kind_folder, from_folder(path.parent, parent)).absolute()
        except UnknownNameError as error:
            raise SpecError(path, [_line(("inherits",), parent, str(error))]) from error
    raise SpecError(heir, [_line(("inherits",), parent, "must not close a circle")])


def load_by_kind(path: str | Path, class_by_kind: Mapping[str, type[Spec]]) -> Spec:
    """Read and validate a spec file whose ``kind`` decides its class."""
    kind = kind_of(path)
    if kind in class_by_kind:
        return load(path, class_by_kind[kind])
    stated = "required key is missing" if kind == "" else f"value {kind!r}"
    allowed = f"must be one of {', '.join(class_by_kind)}{nearest_hint(kind, class_by_kind)}"
    raise SpecError(path, [f"kind: {stated}: {allowed}"])


def kind_of(path: str | Path) -> str:
    """Return the ``kind`` that a spec file states; empty if it states none."""
    path = Path(path).absolute()
    return str(_tables(path, state_of(path)).get("kind", ""))


@lru_cache(maxsize=256)  # a file's kind is asked for before it is loaded
def _tables(path: Path, state: int) -> dict[str, Any]:
    return read_toml(path)


def readable_tables(path: Path) -> dict[str, Any]:
    """Return a file's tables; none if it cannot be read, which is an error where it is loaded."""
    try:
        return _tables(path.absolute(), _state_now(path))
    except SpecError:
        return {}


def tables_of(path: str | Path, *, heirs_of: str = "") -> dict[str, Any]:
    """Return the tables of a spec file and what they inherit from other files of the kind folder ``heirs_of``."""
    return _tables_of(_lineage(Path(path).absolute(), heirs_of))


def _tables_of(lineage: tuple[tuple[Path, int], ...]) -> dict[str, Any]:
    tables = reduce(_inherited, (_tables(*file) for file in lineage))
    return {key: value for key, value in tables.items() if len(lineage) == 1 or key != "inherits"}


@lru_cache(maxsize=1024)
def _load_once(lineage: tuple[tuple[Path, int], ...], model_class: type[SpecFile]) -> SpecFile:
    from pydantic import ValidationError

    path = lineage[0][0]
    try:
        loaded = model_class.model_validate(_tables_of(lineage))
    except ValidationError as error:
        raise SpecError(path, faults_of(error, model_class)) from None
    if missing := [*loaded.missing()]:
        raise SpecError(path, missing)
    return loaded.loaded_from(path.stem, path.parent)


def _inherited(heir: Mapping[str, Any], parent: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's tables with what it does not state taken from its parent; its own sources come last and win."""
    merged = {**parent, **heir}
    for key in heir.keys() & parent.keys():
        if isinstance(heir[key], dict) and isinstance(parent[key], dict):
            merged[key] = _inherited(heir[key], parent[key])
    sources = [tables["source"] for tables in (parent, heir) if "source" in tables]
    if len(sources) > 1 and all(isinstance(listed, list) for listed in sources):
        merged["source"] = [source for listed in sources for source in listed]
    return merged


def toml_entries(table: dict[str, Any]) -> list[str]:
    """Return the lines of a table of a TOML file."""
    return [
        f"{key} = {toml_value(value)}"
        for key, value in table.items()
        if value is not None and value is not False and value != ()
    ]


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{ {', '.join(toml_entries(value))} }}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(entry) for entry in value)}]"
    return value.isoformat() if isinstance(value, date) else repr(value)


def toml_document(content: dict[str, Any], *, tables: Iterable[str], lists: Iterable[str]) -> str:
    """Return a spec file as text: version, name and kind, then tables, then lists of tables."""
    lines = [f"{key} = {toml_value(content[key])}" for key in ("schema_version", "name", "kind")]
    entries = [(f"[{table}]", content[table]) for table in tables]
    entries += [(f"[[{table}]]", entry) for table in lists for entry in content[table]]
    for heading, entry in entries:
        lines += ["", heading, *toml_entries(entry)]
    return "\n".join(lines) + "\n"
