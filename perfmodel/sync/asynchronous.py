"""Every asynchronous scheme by its name. The imports are the list.

>>> sorted(SCHEMES)
['bounded_staleness', 'delay_compensated', 'downpour', 'mixed']
"""

from __future__ import annotations

from typing import Final

from perfmodel.errors import UnknownNameError
from perfmodel.sync.asynchronous_scheme import AsynchronousScheme
from perfmodel.sync.bounded_staleness import BoundedStaleness
from perfmodel.sync.delay_compensated import DelayCompensated
from perfmodel.sync.downpour import Downpour
from perfmodel.sync.mixed import Mixed

SCHEMES: Final[dict[str, AsynchronousScheme]] = {
    each.name: each for each in (Downpour(), DelayCompensated(), BoundedStaleness(), Mixed())
}
"""Name to scheme."""


def scheme_of(name: str) -> AsynchronousScheme:
    """Return a scheme by name, or raise UnknownNameError."""
    if name not in SCHEMES:
        kind = "asynchronous scheme"
        raise UnknownNameError(kind, name, SCHEMES)
    return SCHEMES[name]
