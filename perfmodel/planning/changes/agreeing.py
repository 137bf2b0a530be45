"""Changes of how workers agree: strategy, overlap, messages, servers, whom they wait for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from perfmodel.planning.changes.situation import Change, Situation
from perfmodel.prediction.agreement_options import TAKEN_BY, WAITING, WITH_SERVER, sync_names
from perfmodel.prediction.arguments import NO_SYNC
from perfmodel.prediction.arguments.table import DEFAULTS
from perfmodel.prediction.messages import MERGED
from perfmodel.presentation.quantities import bytes_text
from perfmodel.units import MIB

BUCKETS: Final = (0.0, 25.0 * MIB, math.inf, MERGED)
"""Sizes of messages: each layer by itself, PyTorch's, one for all, and those that make the step shortest. [B]"""

BUCKET_NAMES: Final[dict[Any, str]] = {
    0.0: "each layer's gradient by itself",
    math.inf: "all gradients in one message",
    MERGED: "gradients merged so that the step is shortest",
}
"""Size of a message -> what a person calls it, where that is no number."""


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


def _needs_one_of(now: Situation, syncs: tuple[str, ...]) -> None:
    now.needs_training_together()
    now.needs(now["sync"] in syncs, f"sync {now['sync']} does not take it")


def overlap(now: Situation) -> Iterator[Change]:
    """Yield gradients exchanged while back-propagation still runs."""
    _needs_one_of(now, WAITING)
    now.needs(not now["overlap"], "the exchange overlaps already")
    yield Change(what="exchange while back-propagation runs", changes={"overlap": True})


def bucket_bytes(now: Situation) -> Iterator[Change]:
    """Yield other sizes of messages."""
    _needs_one_of(now, WAITING)
    now.needs(now["overlap"], "without overlap all gradients are there when the exchange begins")
    for size in BUCKETS:
        what = BUCKET_NAMES.get(size) or f"messages of {bytes_text(float(size))}"
        yield Change(what=what, changes={"bucket_bytes": size})


def server_count(now: Situation) -> Iterator[Change]:
    """Yield twice and half as many shards of the parameter server."""
    now.needs(now["sync"] in WITH_SERVER, "there is no parameter server")
    for count in (2 * now["server_count"], now["server_count"] // 2):
        if count:
            yield Change(what=f"{count} shard{'s' if count > 1 else ''} of the server", changes={"server_count": count})


def periods(now: Situation) -> Iterator[Change]:
    """Yield half as many visits of the server."""
    _needs_one_of(now, TAKEN_BY["push_period"])
    push, pull = 2 * now["push_period"], 2 * now["pull_period"]
    yield Change(what=f"a push every {push} steps", changes={"push_period": push})
    yield Change(what=f"a pull every {pull} steps", changes={"pull_period": pull})
    yield Change(what=f"push and pull every {push} and {pull}", changes={"push_period": push, "pull_period": pull})


def group_size(now: Situation) -> Iterator[Change]:
    """Yield groups of half or twice as many workers."""
    _needs_one_of(now, TAKEN_BY["group_size"])
    size = now["group_size"] or now.base.worker_count
    for count in (2 * size, size // 2):
        if count and count <= now.base.worker_count and not now.base.worker_count % count:
            yield Change(what=f"groups of {count}", changes={"group_size": count})


def staleness_bound(now: Situation) -> Iterator[Change]:
    """Yield a looser and a tighter bound."""
    _needs_one_of(now, TAKEN_BY["staleness_bound"])
    bound = now["staleness_bound"]
    for other in (2 * bound or 1, bound // 2):
        yield Change(what=f"staleness bound {other}", changes={"staleness_bound": other})


def backup_workers(now: Situation) -> Iterator[Change]:
    """Yield one more worker that is not waited for."""
    _needs_one_of(now, WAITING)
    now.needs(now["straggler"] is not None, "workers take equally long: straggler= says how their times vary")
    count = now["backup_workers"] + 1
    yield Change(what=f"{count} backup worker{'s' if count > 1 else ''}", changes={"backup_workers": count})
