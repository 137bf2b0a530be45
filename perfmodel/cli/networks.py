"""Networks as people name them on the command line: of the zoo, in a graph file, in an ONNX file, in a Python file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from perfmodel.cli.arguments import Command
from perfmodel.cli.output import key_values, number_as_typed

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph

NETWORK_HELP = (
    "A network of the zoo; the path of a graph's JSON file, an ONNX file or a config.json of a transformer; or "
    "file.py:function that returns (module, example_inputs) of torch."
)
NetworkArgument: TypeAlias = Annotated[str, typer.Argument(help=NETWORK_HELP)]
OptionOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Option of the builder, config or function, or free size of an ONNX file; repeatable.",
    ),
]


def load_graph(name_or_path: str, *, options: list[str]) -> LayerGraph:
    """Return the graph a user named: of the zoo, in a graph's file, an ONNX file, a configuration, or a Python file.

    Parameters
    ----------
    name_or_path : str
        What was typed; it is a path if it ends in .json or .onnx or names a folder; ``file.py:function`` names a
        function that returns (module, example_inputs). [-]
    options : list of str
        ``key=value`` texts: options of the zoo's builder, of a configuration's import or of the function, free sizes
        of an ONNX file. [-]

    Returns
    -------
    LayerGraph
        The network. [-]

    Raises
    ------
    UnknownNameError
        If the zoo has no such network, or there is no such option.
    SpecError
        If the file is none of these, or wrong.
    ArgumentError
        If options are given for a graph's file.
    """
    from perfmodel.errors import FreeSizeError
    from perfmodel.importers.load import load_network

    if is_factory(name_or_path):
        from perfmodel.importers.torch.module import from_torch

        return from_torch(*call_factory(name_or_path, options=options))
    try:
        return load_network(name_or_path, options=key_values(options, argument="--option"))
    except FreeSizeError as error:  # which names the argument of a function that nobody called here
        raise FreeSizeError(error.file, error.places, how="--option {name}=...") from error


def is_factory(target: str) -> bool:
    """Tell whether a text names a function in a Python file.

    Parameters
    ----------
    target : str
        What was typed, e.g. ``nets.py:unet``. [-]

    Returns
    -------
    bool
        Whether it is ``file.py:function``. [-]

    Examples
    --------
    >>> is_factory("nets.py:unet"), is_factory("resnet50"), is_factory("net.json")
    (True, False, False)
    """
    return target.rpartition(":")[0].endswith(".py")


def call_factory(target: str, *, options: list[str]) -> tuple[Any, Any]:
    """Run a function of the user's own and return the module and example inputs it makes.

    Parameters
    ----------
    target : str
        ``file.py:function``. [-]
    options : list of str
        ``key=value`` texts for the function. [-]

    Returns
    -------
    tuple
        The module and its example inputs. [-]

    Raises
    ------
    ArgumentError
        If there is no such file or function, it fails, or returns something else.
    """
    from perfmodel.errors import ArgumentError, nearest_match

    file, _, name = target.rpartition(":")
    members = vars(_executed(Path(file), target))
    factory = members.get(name)
    if not callable(factory):
        close = nearest_match(name, [each for each, member in members.items() if callable(member)])
        hint = f"; did you mean {close!r}?" if close else ""
        raise ArgumentError("target", target, f"a function of {file}, which has no {name!r}{hint}")
    values: Mapping[str, Any] = key_values(options, argument="--option")
    try:
        made = factory(**values)
    except Exception as error:  # whatever the user's function raises is his to read
        raise ArgumentError(
            "target", target, f"a function that runs; it fails: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, tuple) or len(made) != 2:
        raise ArgumentError("target", target, "a function that returns (module, example_inputs)")
    return made


def _executed(file: Path, target: str) -> ModuleType:
    """Return a Python file as a module, run as its author would run it."""
    from perfmodel.errors import ArgumentError

    if not file.is_file():
        raise ArgumentError("target", target, f"an existing Python file, and {file} is none")
    found = spec_from_file_location(file.stem, file)
    if found is None or found.loader is None:
        raise ArgumentError("target", target, f"a Python file, and {file} is none")
    module = module_from_spec(found)
    sys.path.insert(0, str(file.parent.resolve()))  # what lies beside it is found as when it is run
    try:
        found.loader.exec_module(module)
    except Exception as error:
        raise ArgumentError("target", target, f"a Python file that runs; it fails: {error}") from error
    finally:
        sys.path.pop(0)
    return module


@Command
def audit_command(
    target: Annotated[
        str,
        typer.Argument(
            help="A network of the zoo; path of a graph's JSON file, a config.json (or its folder) or an .onnx file; "
            "or file.py:function that returns (module, example_inputs)."
        ),
    ],
    batch_size: Annotated[
        str | None, typer.Option(metavar="N", help="Samples; of a module those of its example inputs.")
    ] = None,
    phase: Annotated[str, typer.Option(metavar="PHASE", help="forward_backward or forward.")] = "forward_backward",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of the builder, config or function, or free size of an ONNX file; repeatable.",
        ),
    ] = None,
) -> Any:
    """Count the matrix products of a network, compare them with torch's, and name what is not known."""
    from perfmodel.importers.audit import audit

    samples, options = number_as_typed(batch_size), option or []
    if is_factory(target):
        module, example_inputs = call_factory(target, options=options)
        return audit(module, example_inputs, phase=phase, batch_size=samples)
    return audit(load_graph(target, options=options), phase=phase, batch_size=samples)
