"""Public functions and classes document what they take, in which unit, and nothing they do not take."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import perfmodel

PACKAGE = Path(perfmodel.__file__).parent
MODULES = [
    ".".join(("perfmodel", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__main__.py"
]
UNIT = re.compile(r"\[[^\]]+\]")


def _section(docstring, title):
    match = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n-+$|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return match.group(1) if match else ""


def _documented(docstring):
    """Parameter name -> its description, of a numpydoc docstring; a line may name several."""
    described = {}
    for section in ("Parameters", "Attributes"):
        names = []
        for line in _section(docstring, section).splitlines():
            head = re.match(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) : ", line)
            if head:
                names = [name.strip("* ") for name in head.group(1).split(",")]
                described |= dict.fromkeys(names, "")
            elif line.strip():
                for name in names:
                    described[name] += " " + line.strip()
    return described


def _public(module_name):
    module = import_module(module_name)
    for name, member in vars(module).items():
        is_ours = getattr(member, "__module__", None) == module_name
        if not name.startswith("_") and is_ours and (inspect.isfunction(member) or inspect.isclass(member)):
            yield name, member


@pytest.mark.parametrize("module_name", MODULES)
def test_module_has_a_docstring(module_name):
    source = Path(import_module(module_name).__file__).read_text()
    assert ast.get_docstring(ast.parse(source)), f"{module_name} does not say what it is for"


@pytest.mark.parametrize("module_name", MODULES)
def test_documented_parameters_are_the_real_ones_with_units(module_name):
    for name, member in _public(module_name):
        docstring = inspect.getdoc(member) or ""
        assert docstring, f"{module_name}.{name} has no docstring"
        described = _documented(docstring)
        for parameter, text in described.items():
            assert UNIT.search(text), f"{module_name}.{name}: {parameter} states no unit in brackets"
        if (
            inspect.isfunction(member) and member.__wrapped__ is None
            if hasattr(member, "__wrapped__")
            else inspect.isfunction(member)
        ):
            real = {parameter for parameter in inspect.signature(member).parameters if parameter != "self"}
            assert set(described) <= real, f"{module_name}.{name} documents {set(described) - real}"
            if "Parameters\n-----" in docstring:
                assert real <= set(described), f"{module_name}.{name} does not document {real - set(described)}"
