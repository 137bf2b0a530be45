"""Progress of an import: on a terminal only, and only once patience is over."""

import io
from types import SimpleNamespace

import pytest

from perfmodel.importers.recording import PATIENCE_S, import_progress
from perfmodel.presentation import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is told."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.mark.parametrize(
    ("stream", "shown", "passed_s", "is_shown"),
    [
        (Terminal, None, 0.9 * PATIENCE_S, False),  # a short import shows nothing
        (Terminal, None, 1.1 * PATIENCE_S, True),
        (io.StringIO, None, 1.1 * PATIENCE_S, False),  # a file wants no bar
        (io.StringIO, True, 0.0, True),  # asked for: at once, wherever it goes
        (Terminal, False, 1.1 * PATIENCE_S, False),
    ],
)
def test_when_it_is_shown(monkeypatch, clock, stream, shown, passed_s, is_shown):
    errors = stream()
    monkeypatch.setattr("sys.stderr", errors)
    with import_progress("importing net", 3, shown=shown) as advance:
        advance()
        clock.now = passed_s
        advance()
    assert ("importing net" in errors.getvalue()) == is_shown
