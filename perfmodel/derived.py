"""Values derived once from an immutable object, such as a loaded spec file."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar, dataclass_transform

Result = TypeVar("Result")
Record = TypeVar("Record", bound=type)


if TYPE_CHECKING:
    from functools import cached_property  # noqa: TID251

    derived_property = cached_property
else:

    class derived_property:  # noqa: N801 - a decorator, as property is
        """A property of a record, computed on first access and kept in the record's ``__dict__``.

        Like ``functools.cached_property``, without its lock in Python 3.11, which costs as much as a
        formula does.
        """

        def __init__(self, derive: Callable[[Any], Any]) -> None:
            self.derive, self.__doc__ = derive, derive.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, of: Any, owner: type) -> Any:
            if of is None:
                return self
            value = of.__dict__[self.name] = self.derive(of)
            return value


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
def record(kind: Record) -> Record:
    """Make a dataclass of named fields that is frozen to the type checker.

    A prediction makes ten such objects: frozen at run time too, they would take twice as long to make.

    >>> @record
    ... class Pair:
    ...     first: int
    ...     second: int = 2
    >>> Pair(first=1)
    Pair(first=1, second=2)
    """
    made: Any = dataclass(eq=False, kw_only=True)(kind)
    return made  # type: ignore[no-any-return]


def uncollected(make: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function during which the garbage collector waits.

    It scans all objects each time their number has grown by a quarter. That took half the time of wiring many machines,
    whose hundreds of thousands of links all stay, and a sixth of a sweep over layouts. Changing its thresholds instead
    would affect the whole process, and outlast the call.
    """

    @wraps(make)
    def made(*arguments: Any, **named: Any) -> Result:
        collected = gc.isenabled()
        gc.disable()
        try:
            return make(*arguments, **named)
        finally:
            if collected and gc.get_freeze_count() == 0:
                gc.freeze()  # new objects join the old generation without being scanned now
                gc.unfreeze()
            if collected:
                gc.enable()

    return made


MOST_DERIVED: Final = 8192
"""Results that one function holds for one object; the oldest is dropped first. [1]"""

_HELD: dict[str, dict[int, tuple[weakref.ref[Any], dict[Any, Any]]]] = {}
_CACHES: dict[str, dict[Any, Any]] = {}


def held() -> dict[str, int]:
    """Count the held results by the function that derived them, the entries of named caches and of weighed ones."""
    derived_from = {name: sum(len(results) for _, results in list(of.values())) for name, of in _HELD.items()}
    named = {name: len(made) for name, made in _CACHES.items()}
    weighed = {f"{__name__}.Weighed": sum(key in (of() or ()) for of, key, _ in list(_NEWEST))}
    return dict(sorted((derived_from | named | weighed).items()))


def cache(name: str) -> dict[Any, Any]:
    """Return an empty cache, to be filled by ``kept``, that ``held`` lists by its name."""
    return _CACHES.setdefault(name, {})


def derived(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function or method that caches its results for each object while that object lives.

    The object, its first argument, is immutable and known by identity: an equal copy is another one. Neither the
    results, which callers do not change, nor the other arguments refer to it, or it would stay for ever.

    >>> class Pair(list): ...
    >>> made = []
    >>> once = derived(lambda pair, factor: made.append(factor) or factor * sum(pair))
    >>> pair = Pair((1, 2))
    >>> once(pair, 2), once(pair, 2), once(Pair((3, 4)), 2), made
    (6, 6, 14, [2, 2])
    """
    kept: dict[int, tuple[weakref.ref[Any], dict[Any, Result]]] = {}
    _HELD[f"{function.__module__}.{function.__qualname__}"] = kept

    @wraps(function)
    def remembered(of: Any, *arguments: Any, **named: Any) -> Result:
        entry = kept.get(id(of))
        if entry is None or entry[0]() is not of:
            identity = id(of)
            entry = kept[identity] = (weakref.ref(of, lambda _: kept.pop(identity, None) and None), {})
        key = (*arguments, *named.items()) if named else arguments
        results = entry[1]
        try:
            return results[key]  # one look: keys may be slow to hash
        except KeyError:
            pass
        result = results[key] = function(of, *arguments, **named)
        if len(results) > MOST_DERIVED:
            drop_oldest(results, most=MOST_DERIVED)
        return result

    return remembered


MOST_WEIGHT: Final = 200_000
"""Weight of the newest entries of all weighed caches together; a layer of a network weighs 1, some 1 kB. [1]"""

LEAST_WEIGHT: Final = 32
"""Weight of an entry without any layer. [1]"""


class Weighed(dict[Any, Any]):
    """A cache whose entries weigh as much as the network that they were made from."""

    __slots__ = ("__weakref__", "weight")

    def __init__(self, weight: int) -> None:
        self.weight = LEAST_WEIGHT + weight


class _Newest(deque[tuple[weakref.ref[Weighed], Any, int]]):
    """Weighed entries of all caches, oldest first, and their total weight, as summing it anew took 2 % of a sweep."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.lock = 0, RLock()


_NEWEST = _Newest()


def kept(made: dict[Any, Any], key: Any, make: Callable[[], Any], *, most: int, weighed: bool = False) -> Any:
    """Look up a key, or compute its value; beyond ``most`` entries the oldest is dropped.

    A ``weighed`` value is also dropped once the newer weighed values of all networks together weigh too much.
    """
    try:
        return made[key]  # one look: keys may be slow to hash
    except KeyError:
        pass
    value = make()
    drop_oldest(made, most=most - 1)
    made[key] = value
    if weighed and isinstance(made, Weighed):
        _weigh(made, key)
    return value


def _weigh(made: Weighed, key: Any) -> None:
    """Note an entry, and drop the oldest until all together weigh at most ``MOST_WEIGHT``; the newest always stays."""
    newest = _NEWEST
    with newest.lock:
        newest.append((weakref.ref(made), key, made.weight))
        newest.weight += made.weight
        while newest.weight > MOST_WEIGHT and len(newest) > 1:
            cache_of, oldest, weight = newest.popleft()
            newest.weight -= weight
            if (cache_there := cache_of()) is not None:
                cache_there.pop(oldest, None)


def drop_oldest(made: dict[Any, Any], *, most: int) -> None:
    """Drop the oldest entries beyond ``most``, while other threads may add and drop too."""
    while len(made) > most:
        try:
            made.pop(next(iter(made)), None)
        except (RuntimeError, StopIteration):  # another thread changed it between the two calls
            continue
