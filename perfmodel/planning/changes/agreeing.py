"""Changes of how workers agree: strategy, overlap, messages, servers, whom they wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from perfmodel.planning.changes.situation import Change, NotApplicableError, Situation
from perfmodel.prediction.agreement_options import TAKEN_BY, WITH_SERVER, sync_names
from perfmodel.prediction.arguments.checks import NO_SYNC
from perfmodel.prediction.arguments.table import ARGUMENTS, DEFAULTS


def _group_size(now: Situation) -> int:
    """Return as many workers as a host has, where that divides all."""
    assert now.machine is not None
    of_host = max(host.worker_count for host in now.machine.hosts)
    return of_host if not now.base.worker_count % of_host else now.base.worker_count


NEEDED: Final[dict[str, Callable[[Situation], dict[str, Any]]]] = {
    "hierarchical": lambda now: {"group_size": _group_size(now)},
    "mixed": lambda now: {"group_size": _group_size(now)},
    "bounded_staleness": lambda now: {"staleness_bound": 1},
}
"""Strategy -> options that it wants beyond their defaults: groups are the workers of a host."""

PRESUMES: Final = {"in_network": "presumes switches that add up"}
"""Strategy -> what a prediction does not check of it."""


def sync(now: Situation) -> Iterator[Change]:
    """Yield every other way to agree, with those options of the present one that it takes."""
    now.needs_training_together()
    for name in sync_names():
        if name in (NO_SYNC, now["sync"]):
            continue
        unused = {
            option: DEFAULTS[option]
            for option, takers in TAKEN_BY.items()
            if name not in takers and now[option] != DEFAULTS[option]
        }
        wanted = NEEDED[name](now) if name in NEEDED else {}
        options = ", ".join(f"{option} {value}" for option, value in wanted.items())
        what = f"sync {name}{', ' if options else ''}{options}"
        yield Change(what=what, changes={"sync": name} | unused | wanted, presumes=PRESUMES.get(name, ""))


def of_one_argument(name: str) -> Callable[[Situation], Iterator[Change]]:
    """Return what yields the other values of an argument that its row of the table says are worth trying."""
    row = ARGUMENTS[name]
    tries, takers = row.tries, TAKEN_BY[name]
    assert tries is not None

    def changes(now: Situation) -> Iterator[Change]:
        _needs_one_of(now, takers)
        found = tries(now, now[name])
        if isinstance(found, str):
            raise NotApplicableError(found)
        for value, what in found.items():
            yield Change(what=what, changes={name: value})

    return changes


def _needs_one_of(now: Situation, syncs: tuple[str, ...]) -> None:
    now.needs_training()
    if now["sync"] not in WITH_SERVER:  # which one worker alone visits too
        now.needs_training_together()
    now.needs(now["sync"] in syncs, f"sync {now['sync']} does not take it")


def periods(now: Situation) -> Iterator[Change]:
    """Yield half as many visits of the server."""
    _needs_one_of(now, TAKEN_BY["push_period"])
    push, pull = 2 * now["push_period"], 2 * now["pull_period"]
    yield Change(what=f"a push every {push} steps", changes={"push_period": push})
    yield Change(what=f"a pull every {pull} steps", changes={"pull_period": pull})
    yield Change(what=f"push and pull every {push} and {pull}", changes={"push_period": push, "pull_period": pull})
