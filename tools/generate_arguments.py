"""Write docs/arguments.md and perfmodel/prediction/arguments/typed.pyi from the table of arguments.

Run:  python tools/generate_arguments.py

tests/test_argument_table.py holds both files to this script, so that help, completion, types and page cannot disagree
with what predict checks.
"""

from __future__ import annotations

from pathlib import Path

from markdown_text import TEXTS
from perfmodel.prediction.arguments.table import ARGUMENTS, GROUPS, Argument

PAGE = Path(__file__).parent.parent / "docs" / "arguments.md"
TYPED = Path(__file__).parent.parent / "perfmodel" / "prediction" / "arguments" / "typed.pyi"

IMPORTS = {
    "Any": "typing",
    "Mapping": "collections.abc",
    "Path": "pathlib",
    "FrameworkProfile": "perfmodel.framework.profile",
    "Dataset": "perfmodel.hardware.dataset",
    "Runnable": "perfmodel.hardware.device",
    "FitFile": "perfmodel.hardware.fit_file",
    "LibraryProfile": "perfmodel.hardware.library",
    "Storage": "perfmodel.hardware.storage",
    "Wired": "perfmodel.hardware.wiring",
    "Optimizer": "perfmodel.layers.optimizers",
    "Straggler": "perfmodel.prediction.job.straggler",
}
"""Name in an annotation -> where it is imported from."""

TYPED_HEAD = '''"""Arguments of predict for type checkers and completion. Written by tools/generate_arguments.py."""

'''


def typed() -> str:
    """Return the text of the stub of types."""
    names_of: dict[str, list[str]] = {"typing": ["TypedDict"]}
    used = {word for row in ARGUMENTS.values() for word in row.type.replace("[", " ").replace("]", " ").split()}
    for name, module in IMPORTS.items():
        if name in used:
            names_of.setdefault(module, []).append(name)
    lines = [f"from {module} import {', '.join(sorted(names))}\n" for module, names in sorted(names_of.items())]
    standard = "".join(line for line in lines if "perfmodel" not in line)
    ours = "".join(line for line in lines if "perfmodel" in line)
    keys = "".join(f"    {row.name}: {row.type}\n" for row in ARGUMENTS.values())
    fields = "".join(
        f"    {row.name}: {_attribute_type(row)} = {_literal(row.default)}\n" for row in ARGUMENTS.values()
    )
    return (
        f"{TYPED_HEAD}{standard}\n{ours}\n"
        'class JobArguments(TypedDict, total=False):\n    """Arguments by name, as callers give them."""\n\n'
        f'{keys}\nclass JobAttributes:\n    """Arguments as a Job has them, with their defaults."""\n\n{fields}'
    )


def _attribute_type(row: Argument) -> str:
    """Return the type that a value has once it is checked: a mapping has become the record that it describes."""
    return " | ".join(part for part in row.type.split(" | ") if not part.startswith("Mapping"))


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _conditions(row: Argument) -> str:
    """Say in words which arguments an argument needs, and where it applies."""
    conditions = [f"needs `{need.argument}`" + _among(need.values) for need in row.needs]
    if row.takers and not any(need.argument == "sync" for need in row.needs):
        conditions.append(f"with `sync` {' or '.join(row.takers)}")
    return "; ".join(conditions)


def _among(values: tuple[object, ...]) -> str:
    return f" {' or '.join(f'`{value}`' for value in values)}" if values else ""


def page() -> str:
    """Return the text of the page."""
    lines = [TEXTS["arguments"]["introduction"]]
    for group, meaning in GROUPS.items():
        rows = [row for row in ARGUMENTS.values() if row.group == group]
        lines += [f"## {meaning[0].upper()}{meaning[1:]}", ""]
        lines += ["| argument | type | unit | default | needs | |", "|---|---|---|---|---|---|"]
        for row in rows:
            kind = row.type.replace("|", "\\|")
            cells = (f"`{row.name}`", kind, row.unit, f"`{row.default!r}`", _conditions(row), row.help)
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    TYPED.write_text(typed(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
