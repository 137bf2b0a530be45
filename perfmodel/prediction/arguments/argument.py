"""The record of one argument of predict: what it is, what is allowed of it, and what it needs of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from perfmodel.prediction.job import Job

Check: TypeAlias = Callable[[str, Any], Any]
"""Takes an argument's name and a value; returns the value as the library uses it, or raises."""

GROUPS: Final[Mapping[str, str]] = {
    "batch": "how many samples",
    "place": "on what",
    "step": "what is computed, with what",
    "workers": "how many workers",
    "exchange": "how workers agree, and whom they wait for",
    "spread": "how the network is spread over devices and micro-batches",
    "input": "how mini-batches come",
    "constants": "whose constants",
}
"""Group of arguments -> what it says."""


@dataclass(frozen=True, slots=True)
class Need:
    """What another argument must be for this one to be heard.

    Parameters
    ----------
    argument : str
        The other one. [-]
    values : tuple
        What it may be; empty for anything but its default. [-]
    allowed : str
        What this one must be otherwise, and the way out. [-]
    harmless : tuple
        Values of this one that need nothing. [-]
    """

    argument: str
    allowed: str
    values: tuple[Any, ...] = ()
    harmless: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of ``predict``: a row of the table from which all that lists arguments is made.

    Parameters
    ----------
    name : str
        As callers write it. [-]
    type : str
        Annotation. [-]
    unit : str
        Unit. [-]
    group : str
        A key of ``GROUPS``. [-]
    help : str
        One line. [-]
    default : object
        Where nobody gives it. [unit]
    check : callable or None
        What is allowed of a value by itself; None where only what it names can say. [-]
    loads : callable or None
        What makes of a name or path what it stands for; None where it stands for itself. [-]
    needs : tuple of Need
        What others must be. [-]
    excludes : mapping of str to str
        Arguments that cannot be given beside it, with what is allowed instead. [-]
    takers : tuple of str
        Strategies of agreement, or families of them, to which it says something; empty for all. [-]
    ran : str
        Name of the fact of a Run that takes its place; empty for none. [-]
    means : callable or None
        What it comes to in a job, so that two that come to the same differ in nothing; None for its value. [-]
    metavar : str
        What the command line calls a value, or the option for False; empty for a name, or ``--no-`` its own. [-]
    tries : callable or None
        Of all arguments and its own value: other values that are worth trying, each with a few words, or why there are
        none; None where a change is more than one value. [-]
    """

    name: str
    type: str
    unit: str
    group: str
    help: str
    default: Any = None
    check: Check | None = None
    loads: Check | None = None
    needs: tuple[Need, ...] = ()
    excludes: Mapping[str, str] = field(default_factory=dict)
    takers: tuple[str, ...] = ()
    ran: str = ""
    means: Callable[[Job], Any] | None = None
    metavar: str = ""
    tries: Callable[[Any, Any], Mapping[Any, str] | str] | None = None
