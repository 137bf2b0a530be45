"""What has no closed form, and why: one table, of which each entry is also the error that it raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.prediction.gradients import MERGED
from perfmodel.prediction.prepared import Prepared
from perfmodel.sync.asynchronous import SCHEMES

if TYPE_CHECKING:
    Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoClosedForm:
    """Something that a formula cannot have.

    Parameters
    ----------
    argument : str
        Argument of ``predict`` that asks for it. [-]
    what : str
        What it is. [-]
    why : str
        Why there is no closed form. [-]
    instead : str
        What is allowed. [-]
    applies : callable
        Tells from free names and arguments whether it is asked for. [-]
    """

    argument: str
    what: str
    why: str
    instead: str
    applies: Callable[[set[str], Arguments], bool]


def _has(argument: str, *values: object) -> Callable[[set[str], Arguments], bool]:
    return lambda free, given: given.get(argument) in values


def _of_a_system(free: set[str], given: Arguments) -> bool:
    return "workers" in free or (bool(LINKS & free) and given.get("system") is not None)


LINKS: Final = frozenset({"link_bandwidth_bytes_per_s", "link_latency_s"})
"""Numbers of the links of a worker's device."""

NO_CLOSED_FORM: Final = (
    NoClosedForm(
        argument="sync",
        what="sync_s, exposed_sync_s, straggler_s and step_s of asynchronous workers whose number or links are free",
        why="their waits for the server are a recursion over the workers of a closed queueing network, and who waits "
        "with whom follows from the busiest link",
        instead="a synchronous strategy, or a fixed number of workers over links as they are",
        applies=lambda free, given: given.get("sync") in SCHEMES and _of_a_system(free, given),
    ),
    NoClosedForm(
        argument="straggler",
        what="stragglers among workers whose number is free",
        why="the expected slowest of n is an order statistic, an integral for each n",
        instead="None with workers free; at a fixed number it is one factor",
        applies=lambda free, given: "workers" in free and given.get("straggler") is not None,
    ),
    NoClosedForm(
        argument="global_batch_size",
        what="a batch shared among workers whose number is free",
        why="every worker's kernels would change with the number of them, and only some numbers divide it",
        instead="batch_size, per worker, with workers free",
        applies=lambda free, given: "workers" in free and given.get("global_batch_size") is not None,
    ),
    NoClosedForm(
        argument="bucket_bytes",
        what="messages merged for the shortest step",
        why="which gradients share a message is searched for, and changes with every number",
        instead="a size in bytes, 0 or infinity",
        applies=_has("bucket_bytes", MERGED),
    ),
    NoClosedForm(
        argument="input_variation",
        what="a time of preparing mini-batches that varies",
        why="the mean of the longest of several random times is an order statistic",
        instead="0 in a formula",
        applies=lambda free, given: bool(given.get("input_variation")),
    ),
    NoClosedForm(
        argument="dataset",
        what="reading and decoding for workers, or over links of a system, that are free",
        why="storage, links and cores are shared host by host, which no single expression tells",
        instead="None with workers or a system's links free",
        applies=lambda free, given: given.get("dataset") is not None and _of_a_system(free, given),
    ),
)
"""Everything that has no closed form."""

MEASURED: Final = "a device of the catalogue; kernels of a measured machine are interpolated in its tables"


def refuse_open_ended(free: Iterable[Any], arguments: Arguments, *, prepared: Prepared | None = None) -> None:
    """Raise if something is asked for that has no closed form.

    Parameters
    ----------
    free : iterable of str or sympy.Symbol
        What is free. [-]
    arguments : mapping of str to object
        Arguments of ``predict``. [-]
    prepared : Prepared or None
        The step, once it is. [-]

    Raises
    ------
    ArgumentError
        Naming the argument, what has no closed form, why, and what is allowed.
    """
    names = {str(each) for each in free}
    for limit in NO_CLOSED_FORM:
        if limit.applies(names, arguments):
            allowed = f"{limit.instead}. There is no closed form of {limit.what}: {limit.why}"
            raise ArgumentError(limit.argument, arguments.get(limit.argument), allowed)
    if prepared is not None and prepared.target.lowered_for != prepared.target.processor:
        raise ArgumentError("device", prepared.target.name, MEASURED)
