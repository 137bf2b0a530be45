"""The house: imports point down, modules and functions stay small, names are not drawers for anything."""

import ast
from pathlib import Path

import pytest

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
    "atomic_write",
    "units",
    "errors",
    "on_demand",
    "derived",
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


def _part(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _imports(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            assert node.module is not None
            names |= (
                {f"perfmodel.{alias.name}" for alias in node.names} if node.module == "perfmodel" else {node.module}
            )
    return {name for name in names if name.split(".")[0] == "perfmodel" and name != "perfmodel.__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts == ("__init__",):
        return  # the top level names everything, lazily
    own = ORDER.index(parts[0])
    for name in _imports(ast.parse(path.read_text())):
        part = _part(name)
        assert part in ORDER, f"{path}: {name} has no place in the house"
        assert ORDER.index(part) >= own, f"{path.relative_to(PACKAGE)} imports {name}, which lies above it"
        above = ROOMS_ABOVE.get(path.parent.relative_to(PACKAGE).as_posix(), ())
        assert not name.startswith(above), f"{path.relative_to(PACKAGE)} imports {name}, a room above it"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_and_functions_are_small(path):
    text = path.read_text()
    assert path.stem not in BANNED_STEMS
    assert text.count("\n") <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in SIGNATURE_IS_A_CONTRACT:
            docstring = ast.get_docstring(node) or ""
            length = node.end_lineno - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)
            assert length <= MOST_CODE_LINES, f"{path.name}:{node.lineno} {node.name} has {length} lines"


def test_every_part_of_the_order_that_exists_is_listed():
    top = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert top - {"__init__", "__main__"} <= set(ORDER)
