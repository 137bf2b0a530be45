"""Public functions and classes document what they take, in which unit, and nothing they do not take."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

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
    docstring = inspect.cleandoc(docstring)
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


def _real_parameters(member):
    """Names a function takes, or fields of a record or spec table; None where a class has neither."""
    if inspect.isfunction(member):
        return {name for name in inspect.signature(member).parameters if name not in ("self", "cls")}
    if is_dataclass(member):
        return {field.name for field in fields(member) if not field.name.startswith("_")}
    model_fields = getattr(member, "model_fields", None)
    return None if model_fields is None else set(model_fields)


def _documented_members(module_name):
    """Public functions, classes and the classes' own public methods that say what they take."""
    for name, member in _public(module_name):
        yield name, member
        if inspect.isclass(member):
            for method_name, method in vars(member).items():
                if not method_name.startswith("_") and inspect.isfunction(getattr(method, "__func__", method)):
                    yield f"{name}.{method_name}", getattr(method, "__func__", method)


def _where(member) -> str:
    """File and line of a function or class, as editors read them."""
    code = inspect.unwrap(member)
    return f"{Path(inspect.getsourcefile(code)).relative_to(PACKAGE)}:{inspect.getsourcelines(code)[1]}"


def _missing(module_name) -> Iterator[str]:
    path = Path(import_module(module_name).__file__)
    if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))):
        yield f"{path.relative_to(PACKAGE)}:1 {module_name} does not say what it is for"
    for name, member in _documented_members(module_name):
        if not inspect.getdoc(member):
            yield f"{_where(member)} {name} has no docstring"


def _wrong(name, member) -> Iterator[str]:
    """What a docstring says of its parameters that is not so, or leaves out."""
    described = _documented(member.__doc__ or "")
    for parameter, text in described.items():
        if not UNIT.search(text):
            yield f"{name}: {parameter} states no unit in brackets"
    real = _real_parameters(inspect.unwrap(member))
    if real is None or not described:
        return
    if beyond := set(described) - real:
        yield f"{name} documents {sorted(beyond)}, which it does not take"
    if absent := real - _inherited(member) - set(described):
        yield f"{name} does not document {sorted(absent)}"


def test_every_module_and_everything_public_has_a_docstring():
    faults = [fault for module_name in MODULES for fault in _missing(module_name)]
    assert not faults, "\n".join(faults)


def test_documented_parameters_are_the_real_ones_with_units():
    faults = [
        f"{_where(member)} {fault}"
        for module_name in MODULES
        for name, member in _documented_members(module_name)
        for fault in _wrong(name, member)
    ]
    assert not faults, "\n".join(faults)


def _inherited(member):
    """Fields that a base class documents already."""
    if not inspect.isclass(member):
        return set()
    return set().union(*(_real_parameters(base) or set() for base in member.__mro__[1:] if base is not object))


FORMULAS = ("perfmodel.cost.", "perfmodel.sync.")


def _says_what_it_takes(member):
    several = inspect.isfunction(member) and len(inspect.signature(member).parameters) >= 3
    return not several or "Parameters\n" in inspect.getdoc(member)


def test_what_users_call_and_formulas_say_what_they_take():
    """Inner functions need a sentence only; a command documents its options in its signature."""
    called = [(f"pm.{name}", getattr(perfmodel, name)) for name in perfmodel.__all__]
    formulas = [each for name in MODULES if name.startswith(FORMULAS) for each in _public(name)]
    faults = [f"{_where(member)} {name}" for name, member in called + formulas if not _says_what_it_takes(member)]
    assert not faults, "these do not say what they take:\n" + "\n".join(faults)


def test_a_wrong_docstring_would_be_noticed():
    def half(first, second):
        """Return half.

        Parameters
        ----------
        first : float
            One. [m]
        other : float
            Not there.
        """

    assert list(_wrong("half", half)) == [
        "half: other states no unit in brackets",
        "half documents ['other'], which it does not take",
        "half does not document ['second']",
    ]
