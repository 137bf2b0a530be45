"""The command line: its commands, its version, and its exit codes."""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from perfmodel.cli import measured, planning, predict, specs
from perfmodel.cli.output import Command
from perfmodel.errors import PerfmodelError, PerfmodelWarning
from perfmodel.exit_codes import BAD_INPUT, INTERRUPTED
from perfmodel.plain_text import escaped

RARELY = 300_000
"""Allocations between garbage collections: imports and graphs make many objects, none of them garbage. [1]"""

# Newer typer has its own copy of click, older typer imports click; in both, this class derives from BadParameter.
_UsageError: Any = typer.BadParameter.__base__


class _TwoWordCommands(TyperGroup):
    """Commands whose names may have two words: ``validate live`` has its own options."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command named by the first two words, else that of the first."""
        two_words = " ".join(args[:2])
        if two_words in self.commands:
            args = [two_words, *args[2:]]
        return super().resolve_command(ctx, args)


SETTINGS: Any = {
    "name": "perfmodel",
    "cls": _TwoWordCommands,
    "help": "How long a neural network takes to train or run on given hardware, why, and what would change.",
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(**SETTINGS)
app.command("predict")(predict.predict_command)
app.command("compare")(planning.compare_command)
app.command("advise")(planning.advise_command)
app.command("scaling")(planning.scaling_command)
app.command("plan")(planning.plan_command)
app.command("stragglers")(planning.stragglers_command)
app.command("sweep")(planning.sweep_command)
app.command("search")(planning.search_command)
app.command("validate", cls=measured.ValidateCommand)(measured.validate_command)
app.command(measured.COMMAND)(measured.validate_live_command)
app.command("fit")(measured.fit_command)
app.command("calibrate")(measured.calibrate_command)
app.command("audit")(specs.audit_command)
app.command("transfer")(predict.transfer_command)
app.add_typer(measured.calibration_app, name="calibration")
app.add_typer(specs.specs_app, name="specs")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"perfmodel {version('perfmodel')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _perfmodel(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(BAD_INPUT)


def _app_for(words: Sequence[str]) -> typer.Typer:
    """Return the command line with only the requested command, to save time; with all commands if it is unknown."""
    commands = {info.name: info for info in app.registered_commands}
    command = next((commands[name] for name in (" ".join(words[:2]), *words[:1]) if name in commands), None)
    Command.only_listed = command is None
    if command is None:
        return app
    alone = typer.Typer(**SETTINGS)
    alone.registered_callback, alone.registered_commands = app.registered_callback, [command]
    return alone


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; every user error becomes one line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter must not end the program
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        outcome = _app_for(words)(args=words, prog_name="perfmodel", standalone_mode=False)
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        outcome = INTERRUPTED
    except SystemExit as left:  # raised after its reason was printed
        return left.code if isinstance(left.code, int) else 1
    except Exception as error:
        if not _CtrlC.pressed:  # an import may turn an interrupt into another error
            return _code_of(error)
        outcome = INTERRUPTED
    finally:
        Command.only_listed = False
    if outcome == INTERRUPTED:  # newer typer returns the code itself
        _say("interrupted")
    return outcome if isinstance(outcome, int) else 0


def _code_of(error: Exception) -> int:
    """Print the message of an error that a user can fix, and return its exit code; raise any other error."""
    if isinstance(error, PerfmodelError):
        return _refused(str(error))
    if isinstance(error, _UsageError):
        path = error.ctx.command_path if error.ctx else "perfmodel"
        return _refused(f"{error.format_message()} (see: {path} --help)")
    if not isinstance(error, OSError):
        raise error
    _flush_elsewhere()
    if isinstance(error, BrokenPipeError):
        return 1
    # e.g. a full disk below the output, or a name that no disk takes
    return _refused(f"{error.filename or 'the output'}: {error.strerror or error}")


class _CtrlC:
    """Whether Ctrl-C was pressed."""

    pressed = False

    @classmethod
    def interrupt(cls, *_: object) -> NoReturn:
        cls.pressed = True
        raise KeyboardInterrupt


def _flush_elsewhere() -> None:
    """Replace standard output by the null device, so that the flush at exit cannot fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refused(message: str) -> int:
    _say(f"error: {' '.join(message.split())}")
    return BAD_INPUT


def _say(line: str) -> None:
    """Write a line to the error stream, if it takes one."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"perfmodel: {escaped(line)}\n")
        sys.stderr.flush()


def _shown(message: Warning | str, category: type[Warning], *_where: object, **_more: object) -> None:
    """Print a warning as one line, without Python's source line."""
    kind = "" if issubclass(category, PerfmodelWarning) else f"{category.__name__}: "
    _say(f"warning: {kind}{' '.join(str(message).split())}")


class _Closed(io.TextIOBase):
    """Standard output that the caller closed: every write raises OSError."""

    def write(self, _text: str) -> NoReturn:
        raise OSError(errno.EBADF, "standard output is closed", "the output")


def _interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that Python lost, e.g. in a callback of a weak reference."""
    if unraisable.exc_type is KeyboardInterrupt:
        # A signal and no flag, so that a wait ends too.
        threading.Timer(SOON_S, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(unraisable)


SOON_S = 0.01
"""Delay after which a lost interrupt is raised again, outside of the code that lost it. [s]"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the ``perfmodel`` command and end the process with its exit code."""
    warnings.showwarning = _shown
    gc.set_threshold(RARELY)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else pydantic searches all installed packages
    sys.stdout = sys.stdout or _Closed()
    sys.stderr = sys.stderr or io.StringIO()  # the caller closed it
    if hasattr(signal, "pthread_kill"):
        sys.unraisablehook = _interrupt_again
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _CtrlC.interrupt)
    code = run(arguments)
    if code == INTERRUPTED:  # threads and late finalisers would continue or print
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the output is complete, and the process ends at once
    sys.exit(code)
