"""``perfmodel specs``: list, show and check the files that describe hardware, libraries and frameworks."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from perfmodel.cli.output import Answer, Command, key_values, share_as_typed, takes_arguments
from perfmodel.errors import (
    ArgumentError,
    FreeSizeError,
    PerfmodelError,
    SpecError,
    UnknownNameError,
    check_known,
    nearest_match,
)
from perfmodel.files import MOST_SPEC_BYTES, file_text, is_file, user_path
from perfmodel.presentation.progress import progress_bar

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.catalogue import CatalogueEntry


FAULTY = 2
"""Exit code if a checked file has faults."""

specs_app = typer.Typer(help="List, show and check spec files.", no_args_is_help=False)


def _load_link_family(path: Path) -> Any:
    from perfmodel.hardware import spec_files
    from perfmodel.hardware.link import LinkFamily

    return spec_files.load(path, LinkFamily)


def _load_framework_with_libraries(path: Path) -> Any:
    from perfmodel.framework.profile import load_framework
    from perfmodel.hardware import spec_files

    profile = load_framework(path)
    for name in profile.library.named:
        spec_files.find("libraries", name)
    return profile


def _load_calibration_with_classes(path: Path) -> Any:
    """Load a calibration; for a measured machine, also check that its kernel classes are known."""
    from perfmodel.hardware.fit_file import load_calibration
    from perfmodel.hardware.measured_machine import MeasuredMachine
    from perfmodel.prediction.device.measured_target import MeasuredTarget

    calibration = load_calibration(path)
    if isinstance(calibration, MeasuredMachine):
        MeasuredTarget(calibration, threads=None)
    return calibration


def _loaders() -> dict[str, Callable[[Path], Any]]:
    """Return the validating loader of each kind folder."""
    from perfmodel.hardware.catalogue import LOADER_BY_FOLDER, load_default
    from perfmodel.hardware.fit_file import load_fit_plan
    from perfmodel.hardware.interval_scale import load_interval_scale
    from perfmodel.hardware.library import load_collective_library

    return {
        **LOADER_BY_FOLDER,
        "defaults": load_default,
        "links": _load_link_family,
        "frameworks": _load_framework_with_libraries,
        "collectives": load_collective_library,
        "calibrations": _load_calibration_with_classes,
        "fit_plans": load_fit_plan,
        "intervals": load_interval_scale,
    }


def _folder_of(kind: str) -> str:
    """Return the folder of a kind, named in the singular or plural."""
    from perfmodel.hardware.spec_files import NOUN_BY_FOLDER

    folders = {noun: folder for folder, noun in NOUN_BY_FOLDER.items()}
    if kind in NOUN_BY_FOLDER:
        return kind
    check_known("kind", kind, folders, remedy="GPUs and CPUs are of the kind device.")
    return folders[kind]


@specs_app.command("list")
@Command
def list_command(kind: str | None = None) -> Answer:
    """List everything that can be loaded by name.

    Parameters
    ----------
    kind : [KIND]
        Only this kind. [-]
    """
    from perfmodel.hardware.catalogue import CatalogueEntry, catalogue
    from perfmodel.hardware.spec_files import NOUN_BY_FOLDER
    from perfmodel.presentation.tables import Table

    noun = None if kind is None else NOUN_BY_FOLDER[_folder_of(kind)]
    entries = [entry for entry in catalogue().entries if noun in (None, entry.kind)]
    lines = Table([replace(entry, description=_described(entry)) for entry in entries], row_type=CatalogueEntry)
    faulty = [entry.name for entry in entries if entry.is_faulty]
    return Answer(
        text=lambda: lines.to_text(columns=["kind", "name", "description"]),
        content=Table(entries, row_type=CatalogueEntry).to_dicts,
        after=_refusal(f"spec files with faults: {', '.join(faulty)}") if faulty else None,
    )


def _refusal(message: str) -> Callable[[], None]:
    """Return the exception that ends a command with an error after its answer was printed."""

    def refuse() -> None:
        sys.stderr.write(f"perfmodel: error: {message}\n")
        raise typer.Exit(FAULTY)

    return refuse


def _described(entry: CatalogueEntry) -> str:
    return entry.description if entry.origin == "shipped" else f"({entry.origin}) {entry.description}"


def _folder_name(file: Path) -> str:
    """Return the name of the folder in which a file is; a link that leads to itself is in its own."""
    return Path(os.path.realpath(file)).parent.name


def _find(folder: str, name: str) -> Path:
    """Return the file of a name; a link's name may end in its lanes, because one file holds all widths."""
    from perfmodel.hardware import spec_files

    family = re.sub(r"_x\d+$", "", name)
    if folder == "links" and name not in spec_files.names(folder) and family in spec_files.names(folder):
        from perfmodel.hardware.catalogue import load_link

        load_link(name)  # rejects a width that the family does not have
        return spec_files.find(folder, family)
    return spec_files.find(folder, name)


def _kind_and_name(kind_or_name: str, name: str | None) -> tuple[str, str]:
    """Return kind folder and name; without a kind, find the one that has the name."""
    if name is not None:
        return _folder_of(kind_or_name), name
    from perfmodel.hardware import spec_files

    if spec_files.is_path(kind_or_name):
        folder = _folder_name(user_path(kind_or_name))
        return (folder if folder in spec_files.NOUN_BY_FOLDER else "devices"), kind_or_name
    listed = {folder: spec_files.names(folder) for folder in spec_files.NOUN_BY_FOLDER}
    sought = {kind_or_name, re.sub(r"_x\d+$", "", kind_or_name)}
    folders = [
        folder for folder, names in listed.items() if kind_or_name in names or (folder == "links" and sought & {*names})
    ]
    if len(folders) > 1:
        kinds = " or ".join(spec_files.NOUN_BY_FOLDER[folder] for folder in folders)
        raise ArgumentError(argument="name", given=kind_or_name, allowed=f"preceded by its kind: {kinds}")
    if not folders:
        every = {known for names in listed.values() for known in names}
        raise UnknownNameError(kind="name of a spec", name=kind_or_name, known=every)
    return folders[0], kind_or_name


@specs_app.command("show")
@Command
def show_command(kind_or_name: str, name: Annotated[str | None, typer.Argument(hidden=True)] = None) -> Answer:
    """Print one spec file with its numbers and sources; for a system, also its parts and link rates.

    Parameters
    ----------
    kind_or_name : [KIND] NAME
        Name or path; put the kind first if several kinds have the name. [-]
    """
    from perfmodel.hardware import spec_files
    from perfmodel.hardware.wiring import Part, Wired
    from perfmodel.presentation.tables import Table

    folder, sought = _kind_and_name(kind_or_name, name)
    path = _find(folder, sought)
    spec, faults = _load(path, folder=folder)
    if faults:
        raise SpecError(path, faults)
    text = f"# {path}\n{file_text(path, most_bytes=MOST_SPEC_BYTES).rstrip()}"
    heirs_of = folder if folder == "frameworks" else ""
    content = {"file": str(path), **spec_files.tables_of(path, heirs_of=heirs_of)}
    if isinstance(spec, Wired):
        parts = Table(spec.parts(), row_type=Part)
        heading = "# parts, links, and what large copies reach over them"
        text = "\n".join([text, "", heading, parts.to_text(), *spec.remarks])
        content |= {"parts": parts.to_dicts(), "remarks": list(spec.remarks)}
    return Answer(text=lambda: text, content=lambda: content)


def _folder_from_content(path: Path, *, otherwise: str) -> str:
    """Return the calibrations folder if a file declares itself a calibration, which may be in any folder."""
    from perfmodel.hardware.fit_file import CALIBRATION_KINDS
    from perfmodel.hardware.spec_files import kind_of

    try:
        return "calibrations" if kind_of(path) in CALIBRATION_KINDS else otherwise
    except SpecError:
        return otherwise


def _load(path: Path, *, folder: str) -> tuple[Any, list[str]]:
    """Load the object that a file describes; None with all faults if it has any."""
    from perfmodel.hardware.spec_files import NOUN_BY_FOLDER

    loaders = _loaders()
    folder = folder if folder in loaders else _folder_from_content(path, otherwise=folder)
    if folder not in loaders:
        known = ", ".join(f"{name}/" for name in loaders)
        reason = "this version cannot check it" if folder in NOUN_BY_FOLDER else "its folder is not a kind folder"
        return None, [f"{reason}: it must be in one of {known}, or its kind must be given by --kind"]
    try:
        return loaders[folder](path), []
    except SpecError as error:
        return None, list(error.faults)
    except PerfmodelError as error:
        return None, [str(error)]


def faults_of_file(path: Path, *, folder: str) -> list[str]:
    """Return every fault of a spec file; empty if there are none."""
    _, faults = _load(path, folder=folder)
    return faults


MOST_FILES: Final = 1000
"""Most files of a folder that are checked: enough for a project, not for a whole disk. [1]"""


def _files_under(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(islice(path.rglob("*.toml"), MOST_FILES + 1))
        if not 0 < len(files) <= MOST_FILES:
            allowed = f"a folder that holds .toml files, at most {MOST_FILES:,}"
            raise ArgumentError(argument="path", given=str(path), allowed=allowed)
        return files
    if not path.is_file():
        raise ArgumentError(argument="path", given=str(path), allowed="an existing file or folder")
    return [path]


@specs_app.command("check")
@Command
def check_command(paths: list[Path] | None = None, *, kind: str | None = None) -> Answer:
    """Check spec files and print every fault; exit with code 2 if there is one.

    Parameters
    ----------
    paths : [PATH]...
        Files or folders; by default all known specs. [-]
    kind : KIND
        Kind of files that are not in a kind folder. [-]
    """
    from perfmodel.hardware import spec_files

    files = [file for path in paths or spec_files.spec_folders() for file in _files_under(path.expanduser())]
    faults: dict[str, list[str]] = {}
    with progress_bar("checking", shown=None, patience_s=1.0, vanishes=True) as report_progress:
        for done, file in enumerate(files):
            folder = _folder_of(kind) if kind is not None else _folder_name(file)
            if file_faults := faults_of_file(file, folder=folder):
                faults[str(file)] = file_faults
            report_progress(done + 1, len(files))
    summary = f"{len(files)} {'file' if len(files) == 1 else 'files'} checked, {len(faults) or 'none'} with faults"
    lines = [f"{file}: {fault}" for file, file_faults in faults.items() for fault in file_faults]
    return Answer(
        text=lambda: "\n".join([*lines, summary]),
        content=lambda: {"checked": len(files), "faults": faults},
        after=_refusal(f"{len(faults)} of {len(files)} spec files have faults") if faults else None,
    )


def load_graph(name_or_path: str, *, options: list[str], prune: str | None = None) -> LayerGraph:
    """Load a graph: a network of the zoo, a graph file, an ONNX file, a configuration, or a Python file."""
    graph = _loaded(name_or_path, options=options)
    return graph if prune is None else _pruned(graph, prune)


def _pruned(graph: LayerGraph, typed: str) -> LayerGraph:
    """Prune as typed: ``0.3``, ``0.5:structured``, ``0.5:2:4``."""
    density, _, pattern = typed.partition(":")
    share = share_as_typed(density)
    if isinstance(share, str) or not 0 < share <= 1:
        allowed = "DENSITY or DENSITY:PATTERN with a number above 0 and at most 1, as in 0.5:structured"
        raise ArgumentError("--prune", typed, allowed)
    return graph.pruned(share, pattern=pattern or "unstructured")


def _loaded(name_or_path: str, *, options: list[str]) -> LayerGraph:
    from perfmodel.importers.loading import load_network

    if is_factory(name_or_path):
        return _graph_of(call_factory(name_or_path, options=options))
    if name_or_path.endswith(".py"):
        absent = "" if is_file(user_path(name_or_path)) else f"; there is no file {name_or_path}"
        raise ArgumentError("target", name_or_path, f"a function of a Python file, as in {name_or_path}:unet{absent}")
    try:
        return load_network(name_or_path, options=key_values(options, argument="--option"))
    except FreeSizeError as error:  # its message names a Python argument; name the option instead
        raise FreeSizeError(error.file, error.places, how="--option {name}=...") from error


def _graph_of(made: Any) -> LayerGraph:
    """Return the graph of a user's function's result: a torch module with its inputs, or a Keras model."""
    if isinstance(made, tuple):
        from perfmodel.importers.torch.module import from_torch

        return from_torch(*made)
    from perfmodel.importers.keras.model import from_keras

    return from_keras(made)


def is_factory(target: str) -> bool:
    """Tell whether a text names a function in a Python file."""
    return target.rpartition(":")[0].endswith(".py")


def call_factory(target: str, *, options: list[str]) -> Any:
    """Run a user's function and return the module and example inputs, or the Keras model, that it makes."""
    file, _, name = target.rpartition(":")
    members = vars(_executed(user_path(file), target))
    factory = members.get(name)
    if not callable(factory):
        close = nearest_match(name, [member_name for member_name, member in members.items() if callable(member)])
        hint = f"; did you mean {close!r}?" if close else ""
        raise ArgumentError("target", target, f"a function of {file}; there is no {name!r}{hint}")
    values: Mapping[str, Any] = key_values(options, argument="--option")
    try:
        made = factory(**values)
    except (Exception, SystemExit) as error:  # the user sees whatever error the function raises
        raise ArgumentError(
            "target", target, f"a function that runs; this one fails: {type(error).__name__}: {error}"
        ) from error
    is_keras_model = hasattr(made, "to_json") and hasattr(made, "layers")
    if not is_keras_model and not (isinstance(made, tuple) and len(made) == 2):
        raise ArgumentError("target", target, "a function that returns (module, example_inputs) or a Keras model")
    return made


def _executed(file: Path, target: str) -> ModuleType:
    """Import a Python file as a module, as its author would run it."""
    if not is_file(file):
        raise ArgumentError("target", target, f"a function of an existing Python file; there is no {file}")
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ArgumentError("target", target, f"a function of a Python file; {file} is not one")
    module = module_from_spec(spec)
    sys.path.insert(0, str(file.parent.resolve()))  # so that it can import files of its own folder
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ArgumentError(
            "target", target, f"a function of a Python file that runs; this one fails: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.pop(0)
    return module


@takes_arguments(verb="perfmodel.importers.audit:audit", takes_job=False)
def audit_command(target: str, arguments: dict[str, Any], *, option: list[str] | None = None) -> Any:
    """Count the matrix products of a network, compare them with torch's counts, and list unknown operators.

    Parameters
    ----------
    target : str
        A network of the zoo; path of a graph's JSON file, a config.json (or its folder), an .onnx file, a Keras model
        (.keras, .h5, .json) or a deeplearning4j network (.json, .zip); or file.py:function that returns (module,
        example_inputs) or a Keras model, and whose code is run. [-]
    option : KEY=VALUE
        Option of the builder, config, import or function, or a symbolic size of an ONNX file; repeatable. [-]
    """
    from perfmodel.importers.audit import audit

    options = option or []
    if is_factory(target):
        made = call_factory(target, options=options)
        return audit(*made, **arguments) if isinstance(made, tuple) else audit(_graph_of(made), **arguments)
    return audit(load_graph(target, options=options), **arguments)
