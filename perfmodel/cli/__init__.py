"""The ``perfmodel`` command: thin, one module per command.

- ``app``: the command line itself, and how errors end it.
- ``predict``, ``validate``, ``validate_live``, ``specs``: the commands.
- ``executed``: the measured run that a prediction can be held against.
- ``output``: text or JSON, to the terminal or a file; progress.

Commands import what they need when they run, so that ``perfmodel --help`` is instant.
"""

from perfmodel.cli.app import app, main

__all__ = ["app", "main"]
