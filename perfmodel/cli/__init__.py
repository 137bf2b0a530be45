"""The ``perfmodel`` command: thin, one module per command.

- ``app``: the command line itself, and how it exits on errors.
- ``predict``, ``planning``, ``calibrate``, ``validate``, ``specs``: the commands.
- ``output``: text or JSON, to the terminal or a file; progress.

Commands import what they need when they run, so that ``perfmodel --help`` is instant.
"""

from perfmodel.cli.app import app, main

__all__ = ["app", "main"]
