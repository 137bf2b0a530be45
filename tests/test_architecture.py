"""The house: imports point down, modules and functions stay small, names are not drawers for anything."""

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import perfmodel

PACKAGE = Path(perfmodel.__file__).parent
ORDER = (
    "__main__",
    "cli",
    "planning",
    "validation",
    "calibration",
    "fitting",
    "prediction",
    "simulation",
    "parallelism",
    "sync",
    "cost",
    "framework",
    "importers",
    "zoo",
    "graph",
    "layers",
    "measurements",
    "hardware",
    "presentation",
    "kernels",
    "records",
    "numeric",
    "symbolic",
    "private_folders",
    "worker_processes",
    "atomic_write",
    "files",
    "units",
    "calls",
    "errors",
    "plain_text",
    "on_demand",
    "derived",
    "exit_codes",
)
"""From the top of the house to its foundation: a module may import only from the same or a later entry."""

ROOMS_ABOVE = {
    "prediction/device": tuple(f"perfmodel.prediction.{room}" for room in ("job", "memory", "certainty", "words")),
    "prediction/arguments": tuple(f"perfmodel.prediction.{room}" for room in ("memory", "certainty", "words")),
}
"""Room -> rooms of the same part that it must not import, not even for types: a device knows no job."""

BANNED_STEMS = {"utils", "common", "helpers", "misc", "core", "manager"}
MOST_LINES = 600
MOST_CODE_LINES = 60
SIGNATURE_IS_A_CONTRACT = {"predict", "predict_command"}
"""Functions whose documented signature alone is longer than the limit."""

MODULES = sorted(PACKAGE.rglob("*.py"))


@cache
def _tree(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of every import of our own; a relative one is written with its dots."""
    for node in ast.walk(_tree(path)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            names = ["." * node.level + (node.module or "")]
        elif isinstance(node, ast.ImportFrom):
            from_top = node.module == "perfmodel"
            names = [f"perfmodel.{alias.name}" for alias in node.names] if from_top else [node.module]
        yield from ((node.lineno, name) for name in names if name.split(".")[0] in ("perfmodel", ""))


def _import_faults(path: Path) -> Iterator[str]:
    shown = path.relative_to(PACKAGE)
    parts = shown.with_suffix("").parts
    if parts == ("__init__",):
        return  # the top level names everything, lazily
    for line, name in _imports(path):
        part = (*name.split("."), "")[1]
        if name.startswith("."):
            yield f"{shown}:{line} imports {name}: relative"
        elif name == "perfmodel.__version__":
            continue
        elif part not in ORDER:
            yield f"{shown}:{line} imports {name}, which has no place in the house"
        elif ORDER.index(part) < ORDER.index(parts[0]):
            yield f"{shown}:{line} imports {name}, which lies above it"
        elif name.startswith(ROOMS_ABOVE.get(path.parent.relative_to(PACKAGE).as_posix(), ())):
            yield f"{shown}:{line} imports {name}, a room above it"


def _size_faults(path: Path) -> Iterator[str]:
    shown = path.relative_to(PACKAGE)
    if path.stem in BANNED_STEMS:
        yield f"{shown}: a file of this name is a drawer for anything"
    if (lines := path.read_text(encoding="utf-8").count("\n")) > MOST_LINES:
        yield f"{shown}:{lines} is beyond line {MOST_LINES}"
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in SIGNATURE_IS_A_CONTRACT:
            docstring = ast.get_docstring(node) or ""
            length = node.end_lineno - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)
            if length > MOST_CODE_LINES:
                yield f"{shown}:{node.lineno} {node.name} has {length} lines, more than {MOST_CODE_LINES}"


def test_imports_point_down():
    faults = [fault for path in MODULES for fault in _import_faults(path)]
    assert not faults, "\n".join(faults)


def test_modules_and_functions_are_small():
    faults = [fault for path in MODULES for fault in _size_faults(path)]
    assert not faults, "\n".join(faults)


def test_every_part_of_the_order_that_exists_is_listed():
    top = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert top - {"__init__", "__main__"} <= set(ORDER)


def test_no_text_reaches_sympify():
    """It runs the text; so does ``subs``. Only ``symbolic`` calls them, and refuses text."""
    callers = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in MODULES
        if path != PACKAGE / "symbolic.py"
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Attribute | ast.Name | ast.alias)
        and {getattr(node, field, None) for field in ("attr", "id", "name")} & {"sympify", "subs", "parse_expr", "S"}
        and not (isinstance(node, ast.Name) and node.id == "S")
    ]
    assert callers == []


OPENING = {
    "open",
    "fdopen",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "mkdir",
    "makedirs",
    "mkdtemp",
    "mkstemp",
    "NamedTemporaryFile",
    "TemporaryFile",
    "TemporaryDirectory",
}
"""Calls that open, read or make a file or folder."""

OPEN_FILES = {"files.py", "atomic_write.py", "private_folders.py"}

OTHER_OPENINGS = {
    "on_demand.py": {"open"},  # the stub beside a package, on import
    "importers/archives.py": {"open"},  # a member of an open archive
    "planning/sweeps/answer.py": {"open"},  # what replacement_of yields
    "calibration/surroundings.py": {"open", "NamedTemporaryFile"},  # the file by which a disk is timed
    "calibration/backends/torch_overheads.py": {"TemporaryDirectory"},  # where processes find each other
    "validation/live/check.py": {"TemporaryFile"},  # what a child process says
    "validation/live/worker.py": {"fdopen"},  # its standard output
    "cli/app.py": {"open"},  # /dev/null, for what is printed after the end
}
"""Module -> calls that open what no user named."""


def test_paths_are_opened_in_one_place():
    """``files`` refuses what is no regular file of its size, ``atomic_write`` replaces whole files."""
    found = {}
    for path in MODULES:
        shown = path.relative_to(PACKAGE).as_posix()
        calls = [node.func for node in ast.walk(_tree(path)) if isinstance(node, ast.Call)]
        names = {getattr(call, "attr", None) or getattr(call, "id", None) for call in calls} & OPENING
        if names and shown not in OPEN_FILES:
            found[shown] = names
    assert found == OTHER_OPENINGS


def test_what_stands_beside_the_package_imports_what_there_is():
    # mypy reads no benchmarks, and no test runs them
    lacking = []
    for file in (Path(__file__).parent.parent / "benchmarks").glob("*.py"):
        for statement in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("perfmodel"):
                module = importlib.import_module(statement.module)
                lacking += [
                    f"{file.name}: {statement.module}.{name.name}"
                    for name in statement.names
                    if not hasattr(module, name.name)
                    and not (
                        hasattr(module, "__path__") and importlib.util.find_spec(f"{statement.module}.{name.name}")
                    )
                ]
    assert lacking == []
