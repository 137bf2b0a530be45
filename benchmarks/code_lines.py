"""Count code lines: lines with a token on them that is neither a comment nor part of a docstring.

    python benchmarks/code_lines.py                   # by package of perfmodel and tools, and their total
    python benchmarks/code_lines.py --modules         # by module
    python benchmarks/code_lines.py perfmodel/zoo     # of one folder

Blank lines, comments and docstrings, of modules, classes, functions, attributes and constants, do not count; every
other line does.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
COUNTED = ("perfmodel", "tools")
"""Folders of the repository whose code is counted unless others are asked for; one that is not there counts nothing."""

NOT_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of all lines of docstrings, those below attributes and constants among them."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.update(range(node.lineno, node.end_lineno + 1))
    return lines


def code_lines(text: str) -> int:
    """Return how many lines of a module hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(text)))


def lines_by_part(folder: Path, *, modules: bool = False) -> Counter[str]:
    """Return the code lines of each package of a folder (its own modules under its own name), or of each module."""
    counted: Counter[str] = Counter()
    for path in sorted((*folder.rglob("*.py"), *folder.rglob("*.pyi"))):
        inside = path.relative_to(folder).parts
        part = inside if modules else inside[:1] if len(inside) > 1 else ()
        counted["/".join([folder.name, *part])] += code_lines(path.read_text(encoding="utf-8"))
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders to count; perfmodel and tools unless given")
    parser.add_argument("--modules", action="store_true", help="a line for each module")
    asked = parser.parse_args()
    counted: Counter[str] = Counter()
    for folder in asked.folders or [REPOSITORY / name for name in COUNTED]:
        counted += lines_by_part(folder.resolve(), modules=asked.modules)
    for part, lines in sorted(counted.items()):
        print(f"{lines:7,d}  {part}")
    print(f"{counted.total():7,d}  total")


if __name__ == "__main__":
    main()
