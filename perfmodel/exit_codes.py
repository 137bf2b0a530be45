"""Exit codes of the command line; imports nothing, so that Ctrl-C is caught before anything else is imported."""

BAD_INPUT = 2
"""Exit code of every error that a user can fix."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells: 128 + SIGINT."""
