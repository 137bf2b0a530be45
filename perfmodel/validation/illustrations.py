"""Tables that are scored in a way of their own, by name: what is asked of them is not one time per row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from perfmodel.validation import mullapudi


class Shown(Protocol):
    """What such a table comes to: prints as a report, and becomes plain data."""

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""


ILLUSTRATIONS: Final[dict[str, Callable[[], Shown]]] = {mullapudi.KEY: mullapudi.illustrate}
"""Name of the table to what shows it."""
