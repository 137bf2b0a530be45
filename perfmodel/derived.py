"""Values derived once from an immutable object, such as a loaded spec file."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

Result = TypeVar("Result")


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
            self.derive, self.name, self.__doc__ = derive, derive.__name__, derive.__doc__

        def __get__(self, of: Any, owner: type) -> Any:
            if of is None:
                return self
            value = of.__dict__[self.name] = self.derive(of)
            return value


_HELD: dict[str, dict[int, tuple[weakref.ref[Any], dict[Any, Any]]]] = {}


def held() -> dict[str, int]:
    """Count the results held for live objects, by the function that derived them."""
    return {name: sum(len(results) for _, results in list(of.values())) for name, of in sorted(_HELD.items())}


def derived(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function or method that caches its results for each object while that object lives.

    Parameters
    ----------
    function : callable
        Takes an immutable object first, then further arguments that can be hashed; its results are not changed by
        whoever gets them. [-]

    Returns
    -------
    callable
        The same, by the object's identity: an equal copy, or one with a field changed, is another object. [-]

    Examples
    --------
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
        found = kept.get(id(of))
        if found is None or found[0]() is not of:
            identity = id(of)
            found = kept[identity] = (weakref.ref(of, lambda _: kept.pop(identity, None) and None), {})
        key = (*arguments, *named.items()) if named else arguments
        if key not in found[1]:
            found[1][key] = function(of, *arguments, **named)
        return found[1][key]

    return remembered


def kept(made: dict[Any, Any], key: Any, make: Callable[[], Any], *, most: int) -> Any:
    """Look up a key, or compute its value; beyond ``most`` entries the oldest is dropped."""
    if key not in made:
        while len(made) >= most:
            del made[next(iter(made))]
        made[key] = make()
    return made[key]
