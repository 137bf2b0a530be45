"""What every command shares: text or JSON, to the terminal or to a file; numbers as typed; progress."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from perfmodel.atomic_write import replacement_of
from perfmodel.errors import ArgumentError

JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
OutOption: TypeAlias = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write to FILE instead of the terminal.")
]


def number_as_typed(text: str | None) -> Any:
    """Return the number a text spells, or the text itself for the library to refuse by name.

    Parameters
    ----------
    text : str or None
        What was typed. [-]

    Returns
    -------
    int, float, str or None
        The number where there is one. [-]

    Examples
    --------
    >>> number_as_typed("16"), number_as_typed("1.5"), number_as_typed("many")
    (16, 1.5, 'many')
    """
    for kind in (int, float):
        try:
            return None if text is None else kind(text)
        except ValueError:
            continue
    return text


def key_values(pairs: list[str], *, argument: str) -> dict[str, Any]:
    """Return ``key=value`` texts as a dictionary of numbers, tuples of numbers, truth values and texts.

    Parameters
    ----------
    pairs : list of str
        What was typed. [-]
    argument : str
        The option they were typed for, to name in an error. [-]

    Returns
    -------
    dict
        Value by key. [-]

    Raises
    ------
    ArgumentError
        If one of them has no ``=`` or no key, or a key is there twice.

    Examples
    --------
    >>> key_values(["variant=grouped", "classes=10", "bias=false"], argument="--option")
    {'variant': 'grouped', 'classes': 10, 'bias': False}
    >>> key_values(["hidden=100,50", "widths=64,"], argument="--option")
    {'hidden': (100, 50), 'widths': (64,)}
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ArgumentError(argument=argument, given=pair, allowed="key=value")
        if key in values:
            raise ArgumentError(argument, pair, f"given once: {key} is {values[key]} already")
        values[key] = {"true": True, "false": False}.get(text.lower(), _numbers_as_typed(text))
    return values


def _numbers_as_typed(text: str) -> Any:
    """Return a number, numbers between commas as a tuple (one with a comma behind it), or the text itself."""
    numbers = tuple(number_as_typed(part) for part in text.removesuffix(",").split(","))
    if any(isinstance(number, str) for number in numbers):
        return text
    return numbers if "," in text else numbers[0]


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it: a number that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def check_writable(path: Path | None, *, argument: str) -> None:
    """Refuse a path that cannot be written, before any work is done.

    Parameters
    ----------
    path : Path or None
        Where a file shall be written; None for nowhere. [-]
    argument : str
        The option it was given for. [-]

    Raises
    ------
    ArgumentError
        If its folder does not exist or is not writable, or it is a folder, a device or a pipe itself.
    """
    if path is None:
        return
    path = path.expanduser()
    if path.is_dir():
        raise ArgumentError(argument=argument, given=str(path), allowed="a file, not a folder")
    if path.exists() and not path.is_file():
        raise ArgumentError(argument=argument, given=str(path), allowed="a regular file, not a device or pipe")
    if not path.parent.is_dir():
        raise ArgumentError(argument=argument, given=str(path), allowed="a file in an existing folder")
    if not os.access(path.parent, os.W_OK):
        raise ArgumentError(argument=argument, given=str(path), allowed="a file in a folder you may write")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command says, where it is not what its report prints and holds by itself.

    Parameters
    ----------
    text, content : callable
        Make the answer for a person, and for JSON; only one is called. [-]
    plot : callable or None
        Draws it to a file; None where there is nothing to draw. [-]
    """

    text: Callable[[], str]
    content: Callable[[], Any]
    plot: Callable[[Path], Any] | None = None

    def __str__(self) -> str:
        return self.text()

    def to_dict(self) -> Any:
        """Return it for JSON."""
        return self.content()


def check_plot(path: Path | None) -> None:
    """Refuse a ``--plot`` that cannot be written or has an unknown ending, before any work is done.

    Parameters
    ----------
    path : Path or None
        Where the figure shall be written; None for nowhere. [-]

    Raises
    ------
    ArgumentError
        If it cannot be written there.
    """
    from perfmodel.presentation.figures import check_format

    check_writable(path, argument="--plot")
    if path is not None:
        check_format(path)


def emit(text: Callable[[], str], content: Callable[[], Any], *, as_json: bool, out: Path | None) -> None:
    """Print a command's answer, or write it to a file.

    Parameters
    ----------
    text, content : callable
        Make the answer for a person, and for JSON; only one is called. [-]
    as_json : bool
        Which one. [-]
    out : Path or None
        The file; None for the terminal. [-]

    Raises
    ------
    ArgumentError
        If the file cannot be written.
    """
    answer = json.dumps(_plain(content()), indent=2, ensure_ascii=False) if as_json else text()
    if out is None:
        sys.stdout.write(f"{answer}\n")
        return
    with replacement_of(out) as temporary:
        temporary.write_text(f"{answer}\n", encoding="utf-8", newline="\n")
    sys.stderr.write(f"perfmodel: wrote {out}\n")


@contextmanager
def progress_bar(description: str, *, shown: bool | None) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on the error stream while the block runs.

    Parameters
    ----------
    description : str
        What is going on. [-]
    shown : bool or None
        Whether to show it; None where the error stream is a terminal. [-]

    Yields
    ------
    callable or None
        To be called with what is done and the total; None where nothing is shown. [-]
    """
    if not (sys.stderr.isatty() if shown is None else shown):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
