"""What a user names by a word or a path, as a graph: a network of the zoo, a graph's file, ONNX, or a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Final

from perfmodel import zoo
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.graph import LayerGraph
from perfmodel.importers.huggingface import CONFIG_NAME

FILE_ENDINGS: Final = (".json", ".onnx")
"""Endings by which a word without a folder is a file's name."""


def load_network(name_or_path: str | Path, *, options: Mapping[str, Any] | None = None) -> LayerGraph:
    """Return the network that a user names.

    Parameters
    ----------
    name_or_path : str or Path
        A network of the zoo; or the path of a graph's JSON file, an ONNX file, or a configuration of Hugging Face's (or
        the folder with its config.json). It is a path if it ends in .json or .onnx or names a folder. [-]
    options : mapping of str to object or None
        Options of the zoo's builder or of the configuration's import; of an ONNX file, its free sizes besides
        ``batch_size``, ``name`` and ``progress``. [-]

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
        If options are given for a graph's file, which has none.
    """
    given = dict(options or {})
    path = Path(name_or_path).expanduser()
    if not path.parent.name and path.suffix not in FILE_ENDINGS and not (path.anchor or path.is_dir()):
        return zoo.build(str(name_or_path), **given)
    if str(name_or_path) in zoo.BUILDERS:
        return zoo.build(str(name_or_path), **given)  # rather than a folder of that name
    if path.suffix == ".onnx":
        return _onnx(path, given)
    if _is_configuration(path):
        return _configuration(path, given)
    if given:
        allowed = "a graph's file has no options; networks of the zoo, configurations and ONNX files do"
        raise ArgumentError("options", given, allowed)
    return LayerGraph.load(path)


def _onnx(path: Path, options: dict[str, Any]) -> LayerGraph:
    """Return the network of an ONNX file; options that are no argument of the import are its free sizes."""
    from perfmodel.importers.onnx.file import from_onnx

    arguments = {name: options.pop(name) for name in ("batch_size", "name", "progress") if name in options}
    return from_onnx(path, sizes=options, **arguments)


def _configuration(path: Path, options: Mapping[str, Any]) -> LayerGraph:
    from perfmodel.importers.huggingface import from_huggingface_config

    known = [name for name in signature(from_huggingface_config).parameters if name != "path_or_dict"]
    for option in options:
        if option not in known:
            noun = "option of a configuration:"
            raise UnknownNameError(noun, option, known)
    return from_huggingface_config(path, **options)


def _is_configuration(path: Path) -> bool:
    """Tell whether a path holds a configuration: JSON that names its type of model, or a folder with a config.json."""
    if path.is_dir():
        return (path / CONFIG_NAME).is_file()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # what is wrong with it is told by who reads it as a graph
    return isinstance(content, dict) and "model_type" in content and "layers" not in content
