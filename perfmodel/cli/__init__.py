"""The ``perfmodel`` command; a command is thin.

- ``app``: the command line itself, and how it exits on errors.
- ``predict``, ``planning``, ``measured``, ``specs``: the commands.
- ``output``: options from the table of arguments and from signatures; text or JSON, printed or written; progress.

Commands import what they need when they run, so that ``perfmodel --help`` is instant.
"""

from perfmodel.cli.app import app, main

__all__ = ["app", "main"]
