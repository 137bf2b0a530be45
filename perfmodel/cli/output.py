"""Parts shared by all commands: typed values, text or JSON output, files, progress."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias, get_args, get_origin

import typer

from perfmodel.atomic_write import save_text
from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, check_known
from perfmodel.plain_text import escaped

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph

OTHERS = "others"
"""Parameter of a command that takes arguments by name."""
OTHERS_OPTION = typer.Option(
    "--set",
    "--sync-option",
    "--parallel-option",
    metavar="KEY=VALUE",
    help="Set any of these arguments by name; KEY= sets its default; repeatable.",
)
AXES_BESIDES = {
    "link": (
        "NAME",
        "Links that replace the system's links of the same kind. With a system, device= replaces its GPUs, or its CPUs "
        "if it has no GPU.",
    ),
    "devices": (
        "N",
        "Devices of the system to fill with workers, instead of workers: as many as fit with stages x tensor_size "
        "x context_size devices each.",
    ),
}
"""Axis of a sweep that is not an argument of predict -> what its option is called, and its help."""
REPLACES = {
    "device": "system",
    "system": "device",
    "batch_size": "global_batch_size",
    "global_batch_size": "batch_size",
}
"""Argument -> the argument that it replaces."""
IN_SLOTS = frozenset({"device", "system"})
"""Arguments that a job may have together, so that neither replaces the other: a device in a system's slots."""


def takes_arguments(*besides: str, **how: Any) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator for a command whose parameter ``arguments`` receives the typed arguments of ``predict``."""
    return lambda function: Command(function, besides=besides, **how)


@dataclass(eq=False)
class Command:
    """A command that prints, writes and draws its answer, with options for arguments of ``predict`` if it takes any.

    Options are created when its signature is read. Of the function's own parameters, positional ones are arguments and
    the others options; the function's docstring has their help, behind the colon the word for their value. Two names
    mean more: ``arguments`` receives those of ``predict``, ``network`` the network that the user names.

    Parameters
    ----------
    function : callable
        Returns the answer: an object that prints, has ``to_dict`` and, with ``plot``, draws itself. [-]
    besides : tuple of str
        Options of ``several`` that are no arguments of ``predict``. [-]
    verb : str
        ``module:function`` of the library: its keywords that are texts or numbers are options too, with the help of
        its docstring. [-]
    takes_job : bool
        Whether arguments of ``predict`` are options. [-]
    not_options : tuple of str
        Arguments of ``predict`` that the command or its verb takes in another form, or not at all. [-]
    only : tuple of str
        The only arguments of ``predict`` that are options; empty for all. [-]
    several : bool
        Whether an option takes several values. [-]
    single : tuple of str
        Options of ``several`` that take one value. [-]
    plot : str or None
        Help of ``--plot``; None for an answer that has no picture. [-]
    """

    only_listed: ClassVar[bool] = False
    """Whether commands are only listed, so that they need no options."""

    function: Callable[..., Any]
    besides: tuple[str, ...] = ()
    verb: str = ""
    takes_job: bool = True
    not_options: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    several: bool = False
    single: tuple[str, ...] = ()
    plot: str | None = None

    def __post_init__(self) -> None:
        function = self.function
        self.takes_arguments = "arguments" in function.__annotations__
        self.takes_network = function.__annotations__.get("network") == "Network"
        self.__name__, self.__module__ = function.__name__, function.__module__
        self.__doc__ = (function.__doc__ or "").partition("\n")[0]
        self.__annotations__: dict[str, Any] = {}

    @derived_property
    def _own(self) -> list[Parameter]:
        """The function's own parameters as options and arguments."""
        helps = described(self.function)
        own = [it for it in _declared(self.function) if it.name != "arguments" and it.annotation is not Network]
        return [_documented(parameter, *helps.get(parameter.name, ("", "", ""))[:2]) for parameter in own]

    @property
    def _common(self) -> list[Parameter]:
        """What commands have in common, unless the function has an option of that name."""
        common = [_optional("as_json", JsonOption).replace(default=False), _optional("out", OutOption)]
        if self.plot is not None:
            shown = Annotated[Path | None, typer.Option(metavar="FILE", help=self.plot)]
            common.insert(0, _optional("plot", shown))
        own = {parameter.name for parameter in self._own}
        return [parameter for parameter in common if parameter.name not in own]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments that are options."""
        from perfmodel.prediction.arguments.table import ARGUMENTS

        if self.only or not self.takes_job:
            return self.only
        return tuple(name for name in (*ARGUMENTS, *self.besides) if name not in self.not_options)

    @property
    def keywords(self) -> dict[str, Parameter]:
        """Keywords of the verb that are options."""
        if not self.verb:
            return {}
        from perfmodel.prediction.arguments.table import ARGUMENTS

        parameters = signature(_loaded(self.verb)).parameters.values()
        keywords = [parameter for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY]
        left_out = {name for word in signature(self.function).parameters for name in (word, f"{word}s")}
        if self.names:
            left_out |= set(ARGUMENTS) - set(self.not_options)
        is_typed = re.compile(r"\b(str|int|float)\b")
        return {
            keyword.name: keyword
            for keyword in keywords
            if keyword.name not in left_out and (keyword.annotation == "bool" or is_typed.search(keyword.annotation))
        }

    @property
    def __signature__(self) -> Signature:
        if Command.only_listed and self.takes_arguments:
            return Signature([])
        made: list[Parameter] = []
        if self.takes_network:
            helps = described(Network)
            made += [_documented(parameter, *helps[parameter.name][:2]) for parameter in _declared(Network)]
        if self.takes_arguments:
            made += self._of_arguments()
        made += [*self._own, *self._common]
        if self.takes_arguments and self.names and not (self.several or self.only):
            made.append(_optional(OTHERS, Annotated[list[str] | None, OTHERS_OPTION]))
        return Signature([parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in made])

    def _of_arguments(self) -> list[Parameter]:
        """Return the options of arguments of ``predict``, and those of the verb's own keywords."""
        from perfmodel.prediction.arguments.table import ARGUMENTS

        made = [self._option(name) for name in self.names]
        helps = described(_loaded(self.verb)) if self.verb else {}
        for name, keyword in self.keywords.items():
            text, _, unit = helps.get(name, ("", "", "-"))
            metavar = ARGUMENTS[name].metavar if name in ARGUMENTS else METAVARS.get(unit, unit)
            made.append(option_of(keyword, text, metavar))
        return made

    def _option(self, name: str) -> Parameter:
        """Return the option of an argument of ``predict``."""
        from perfmodel.prediction.arguments.table import ARGUMENTS

        if name not in ARGUMENTS:
            metavar, text = AXES_BESIDES[name]
            axis = Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation="str | None")
            return option_of(axis, text, metavar, several=self.several)
        row = ARGUMENTS[name]
        keyword = Parameter(name, Parameter.KEYWORD_ONLY, default=row.default, annotation=row.type)
        return option_of(keyword, row.help, row.metavar, several=self.several and name not in self.single)

    def __call__(self, **typed: Any) -> None:
        """Run the command with the typed options, and print or write its answer."""
        common = {parameter.name: typed.pop(parameter.name) for parameter in self._common}
        as_json, out, plot = (common.get(name) for name in ("as_json", "out", "plot"))
        check_writable(out, argument="--out")
        check_plot(plot)
        if self.takes_arguments:
            typed["arguments"] = self._arguments(typed)
        if self.takes_network:
            typed["network"] = Network(**{name: typed.pop(name) for name in signature(Network).parameters})
        answer = self.function(**typed)
        if plot is not None:
            answer.plot(plot)
        emit(lambda: str(answer), lambda: answer.to_dict(), as_json=bool(as_json), out=out)
        if isinstance(answer, Answer) and answer.after is not None:
            answer.after()

    def _arguments(self, typed: dict[str, Any]) -> dict[str, Any]:
        """Take the arguments of ``predict`` out of the typed options."""
        values = {name: value_as_typed(name, value) for name in self.names if (value := typed.pop(name)) is not None}
        keywords = {
            name: keyword_as_typed(keyword, value)
            for name, keyword in self.keywords.items()
            if (value := typed.pop(name)) is not None
        }
        if not self.several:
            more = named_arguments(typed.pop(OTHERS, None) or [], argument="--set")
            for name in values.keys() & more.keys():
                allowed = f"must not be given with --{name.replace('_', '-')} {values[name]}"
                raise ArgumentError("--set", f"{name}={more[name]}", allowed)
            for name in more.keys() & set(self.not_options):
                raise ArgumentError(
                    "--set", f"{name}={more[name]}", "must not name an argument that has its own option"
                )
            values |= more
        return values | keywords


@dataclass(frozen=True)
class Network:
    """The network that a user names, loaded when it is first asked for.

    Parameters
    ----------
    graph : str
        A network of the zoo; the path of a graph's JSON file, an ONNX file, a config.json of a transformer, a Keras
        model (.keras, .h5, .json) or a deeplearning4j network (.json, .zip); or file.py:function that returns (module,
        example_inputs) of torch or a Keras model, and whose code is run. [-]
    option : KEY=VALUE
        Option of the builder, config, import or function, or a symbolic size of an ONNX file; repeatable. [-]
    prune : DENSITY[:PATTERN]
        Prune weights and keep this share: unstructured (unless given), 2:4 or structured (output channels). [-]
    """

    graph: str
    _: KW_ONLY
    option: list[str] | None = None
    prune: str | None = None

    @derived_property
    def loaded(self) -> LayerGraph:
        """The network as a graph."""
        from perfmodel.cli.specs import load_graph

        return load_graph(self.graph, options=self.option or [], prune=self.prune)


def _optional(name: str, annotation: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _loaded(verb: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` names."""
    module, _, name = verb.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def _declared(function: Callable[..., Any]) -> list[Parameter]:
    return list(signature(function, eval_str=True).parameters.values())


def _documented(parameter: Parameter, text: str, metavar: str) -> Parameter:
    """Return a parameter as an argument if it is positional, else as an option, with the help of a docstring."""
    if parameter.annotation is typer.Context:
        return parameter
    kind, *stated = (
        get_args(parameter.annotation) if get_origin(parameter.annotation) is Annotated else (parameter.annotation,)
    )
    make = typer.Option if parameter.kind is Parameter.KEYWORD_ONLY else typer.Argument
    flags = (f"--{parameter.name.replace('_', '-')}",) if kind is bool else SPELT.get(parameter.name, ())
    shown: Any = copy(stated[0]) if stated else make(*flags)
    shown.help = text or shown.help
    shown.metavar = shown.metavar if metavar.islower() else metavar or shown.metavar
    return parameter.replace(annotation=Annotated[kind, shown])


def described(function: Callable[..., Any]) -> dict[str, tuple[str, str, str]]:
    """Return the help, the type or word for the value, and the unit of each parameter, from a function's docstring.

    >>> from perfmodel.planning.scaling import scaling
    >>> text, _, unit = described(scaling)["usd_per_hour"]
    >>> text.split(";")[0], unit
    ('Price of one worker for an hour', 'USD/h')
    """
    docstring = f"{inspect.getdoc(function)}\n"
    texts: dict[str, tuple[str, str, str]] = {}
    for names, word, text in re.findall(r"^([\w, ]+) : (.*)\n((?:    .*\n)+)", docstring, re.MULTILINE):
        plain = re.sub(r":\w+:`[\w.]*?(\w+)`", r"\1", " ".join(text.split())).replace("``", "")
        words, _, unit = plain.removesuffix("]").rpartition(" [")
        texts |= dict.fromkeys(names.split(", "), (words, word, unit))
    return texts


METAVARS = {"1": "N", "samples": "N", "h": "HOURS", "s": "SECONDS", "-": "NAME"}
"""Unit of a keyword -> name of its value in help; other units are used as they are."""


SPELT: dict[str, tuple[str, ...]] = {"size_bytes": ("--size-bytes", "--bytes"), "changes": ("--with",)}
"""Keyword -> the spellings of its option, if there are several or it is another word."""


def _takes_several(keyword: Parameter) -> bool:
    return "Iterable[" in str(keyword.annotation)


def option_of(keyword: Parameter, text: str, metavar: str, *, several: bool = False) -> Parameter:
    """Return the option of a keyword: a flag for a Boolean, else a text that is converted later."""
    shown: dict[str, Any] = {"help": text}
    flags = SPELT.get(keyword.name, ())
    if isinstance(keyword.default, str | int | float) and not several:
        shown["show_default"] = str(keyword.default)
    kind: Any = list[str] if several else str
    if keyword.annotation == "bool" and not several:
        option = keyword.name.replace("_", "-")
        kind, flags = bool, (f"--{option}/{metavar if metavar.startswith('--') else f'--no-{option}'}",)
    elif several and keyword.annotation == "bool":
        shown["metavar"] = "true,false"
    elif several and takes_mapping(keyword.name):
        shown |= {"metavar": metavar, "help": f"{text} Repeatable."}
    else:
        metavar = metavar or "NAME"
        shown["metavar"] = f"{metavar},{metavar}..." if several or _takes_several(keyword) else metavar
    if keyword.default is Parameter.empty:
        return keyword.replace(annotation=Annotated[kind, typer.Option(*flags, **shown)])
    return _optional(keyword.name, Annotated[kind | None, typer.Option(*flags, **shown)])


def keyword_as_typed(keyword: Parameter, typed: Any) -> Any:
    """Convert the text typed for a keyword of a verb: numbers if it takes numbers, a list if it takes several."""
    if isinstance(typed, bool):
        return typed
    is_number = re.search(r"\b(int|float)\b", str(keyword.annotation))
    convert = converter(keyword.name) if is_number else str.strip
    if _takes_several(keyword):
        return [convert(word) for word in typed.split(",")]
    return convert(typed) if is_number else typed


def takes_mapping(name: str) -> bool:
    """Return whether an argument of ``predict`` is a mapping, typed as ``KIND=X``."""
    from perfmodel.prediction.arguments.table import ARGUMENTS

    return name in ARGUMENTS and "Straggler" in ARGUMENTS[name].type.split(" | ")


def value_as_typed(name: str, typed: Any) -> Any:
    """Convert a typed text to the argument's value: a number, Boolean, text or mapping.

    >>> value_as_typed("workers", "4"), value_as_typed("device", "980"), value_as_typed("prefetch", "0")
    (4, '980', 0)
    >>> value_as_typed("straggler", "unequal=1,1,2")
    {'distribution': 'unequal', 'times': (1, 1, 2)}
    """
    from perfmodel.prediction.arguments.table import ARGUMENTS

    if not isinstance(typed, str):
        return typed
    if takes_mapping(name):
        from perfmodel.prediction.job.straggler import parameter_of

        if "=" not in typed:
            raise ArgumentError("--straggler", typed, "KIND=X, e.g. normal=0.1")
        ((distribution, value),) = key_values([typed], argument="--straggler").items()
        return {"distribution": distribution, parameter_of(distribution): value}
    return converter(name)(typed) if {"int", "float"} & set(ARGUMENTS[name].type.split(" | ")) else typed


def named_arguments(pairs: list[str], *, argument: str, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return arguments of ``predict`` typed as ``key=value``.

    >>> named_arguments(["batch-size=32", "sync=downpour", "pinned=false"], argument="--set")
    {'batch_size': 32, 'sync': 'downpour', 'pinned': False}
    >>> named_arguments(["recompute=", "straggler=normal=0.1"], argument="--set")
    {'recompute': None, 'straggler': {'distribution': 'normal', 'cv': 0.1}}
    """
    if not pairs:
        return {}
    from perfmodel.prediction.arguments.table import ARGUMENTS

    known = (*ARGUMENTS, *besides)
    typed = [pair.partition("=") for pair in pairs]
    spelt = [f"{key.replace('-', '_')}={text}" if equals else key for key, equals, text in typed]
    values = key_values(spelt, argument=argument, as_typed=number_as_typed)
    kind = f"key of {argument}"
    for name, value in values.items():
        check_known(kind, name, known)
        if value == "" and name in besides:
            raise ArgumentError(argument, f"{name}=", f"{name}=NAME, because it has no default")
        if value == "":
            values[name] = ARGUMENTS[name].default
        elif name not in besides:
            values[name] = value_as_typed(name, value)
    return values


def changed_arguments(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with some of them changed; an argument that replaces another drops it.

    >>> changed_arguments({"device": "gtx_1080", "batch_size": 8}, {"system": "dgx_a100", "workers": 2})
    {'batch_size': 8, 'system': 'dgx_a100', 'workers': 2}
    >>> changed_arguments({"device": "h100_sxm", "system": "dgx_a100"}, {"device": "h200_sxm"})
    {'device': 'h200_sxm', 'system': 'dgx_a100'}
    """
    stays = IN_SLOTS if base.keys() >= IN_SLOTS else frozenset()  # another device in the same slots, or another system
    dropped = {REPLACES[name] for name in changes if name in REPLACES} - changes.keys() - stays
    return {name: value for name, value in base.items() if name not in dropped} | changes


JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ProgressOption: TypeAlias = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="Show a progress bar; by default only on a terminal.")
]
OutOption: TypeAlias = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write to FILE instead of the terminal.")
]


def number_as_typed(text: str | None) -> Any:
    """Convert a text to a number if it spells one; leave other texts for the library to reject.

    >>> number_as_typed("16"), number_as_typed("1.5"), number_as_typed("8%"), number_as_typed("many")
    (16, 1.5, '8%', 'many')
    """
    return _as_first_of((int, float), text)


def share_as_typed(text: str | None) -> Any:
    """Convert a text to a number as ``number_as_typed`` does, or from a percentage.

    >>> share_as_typed("0.08"), share_as_typed("8%"), share_as_typed("400%")
    (0.08, 0.08, '400%')
    """
    return _as_first_of((int, float, _share), text)


SHARES: Final = frozenset({"cv", "input_variation", "reserve", "staleness_penalty"})
"""Options that are shares of something, and so may be typed as percentages; 8 % of a second or a dollar is neither."""


def converter(name: str) -> Callable[[str | None], Any]:
    """Return what converts the text typed for a number."""
    return share_as_typed if name in SHARES else number_as_typed


def _as_first_of(kinds: Iterable[Callable[[str], float]], text: str | None) -> Any:
    for kind in kinds:
        try:
            return None if text is None else kind(text)
        except ValueError:
            continue
    return text


def _share(text: str) -> float:
    """Convert a percentage from 0 to 100 to a share; larger ones are not accepted."""
    share = float(text.removesuffix("%")) / 100
    if not 0 <= share <= 1:
        raise ValueError(text)
    return share


def key_values(pairs: list[str], *, argument: str, as_typed: Callable[[str], Any] = share_as_typed) -> dict[str, Any]:
    """Convert ``key=value`` texts to a dictionary of numbers, tuples of numbers, Booleans and texts.

    >>> key_values(["variant=grouped", "classes=10", "bias=false"], argument="--option")
    {'variant': 'grouped', 'classes': 10, 'bias': False}
    >>> key_values(["hidden=100,50", "widths=64,"], argument="--option")
    {'hidden': (100, 50), 'widths': (64,)}
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier():
            raise ArgumentError(argument=argument, given=pair, allowed="key=value")
        if key in values:
            raise ArgumentError(argument, pair, f"must not repeat a key; {key} is already {values[key]}")
        values[key] = {"true": True, "false": False}.get(text.lower(), _numbers_as_typed(text, as_typed))
    return values


def _numbers_as_typed(text: str, as_typed: Callable[[str], Any]) -> Any:
    """Convert a text to a number, or with commas (even a trailing one) to a tuple of numbers; else leave it."""
    numbers = tuple(as_typed(part) for part in text.removesuffix(",").split(","))
    if any(isinstance(number, str) for number in numbers):
        return text
    return numbers if "," in text else numbers[0]


def check_writable(path: Path | None, *, argument: str) -> None:
    """Reject a path that cannot be written, before any work is done."""
    if path is None:
        return
    path = path.expanduser()
    faults = {
        "a file, not a folder": path.is_dir(),
        "a regular file, not a device or pipe": path.exists() and not path.is_file(),
        "a file in an existing folder": not path.parent.is_dir(),
        "a file in a folder that you may write to": not os.access(path.parent, os.W_OK),
    }
    for allowed in (allowed for allowed, is_wrong in faults.items() if is_wrong):
        raise ArgumentError(argument=argument, given=str(path), allowed=allowed)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer of a command without a report that prints itself; ``after`` is called after it is printed."""

    text: Callable[[], str]
    content: Callable[[], Any]
    plot: Callable[[Path], Any] | None = None
    after: Callable[[], None] | None = None

    def __str__(self) -> str:
        return self.text()

    def to_dict(self) -> Any:
        """Return the answer for JSON."""
        return self.content()


def check_plot(path: Path | None) -> None:
    """Reject a ``--plot`` that cannot be written or has an unknown ending, before any work is done."""
    from perfmodel.presentation.figures import check_format

    check_writable(path, argument="--plot")
    if path is not None:
        check_format(path)


def emit(text: Callable[[], str], content: Callable[[], Any], *, as_json: bool, out: Path | None) -> None:
    """Print a command's answer, or write it to a file."""
    if as_json:
        from perfmodel.presentation.results import json_text

        answer = json_text(content())
    else:
        answer = escaped(text())
    if out is None:
        sys.stdout.write(f"{answer}\n")
        return
    save_text(out, f"{answer}\n")
    sys.stderr.write(escaped(f"perfmodel: wrote {out}\n"))
