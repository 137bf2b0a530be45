"""``perfmodel`` and ``python -m perfmodel``: the command line, which Ctrl-C ends in one line from the first moment."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from perfmodel.exit_codes import INTERRUPTED


def _leave(*_: object) -> NoReturn:
    """End at once: modules are still being imported, and an exception would be lost or shown as theirs."""
    os.write(2, b"perfmodel: interrupted\n")
    os._exit(INTERRUPTED)


def main() -> NoReturn:
    """Run the ``perfmodel`` command and end the process with its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where Ctrl-C is ignored, as by nohup
        signal.signal(signal.SIGINT, _leave)
    from perfmodel.cli.app import main as run

    run(sys.argv[1:])


if __name__ == "__main__":
    main()
