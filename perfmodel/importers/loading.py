"""Load any network that a user names: of the zoo, a graph file, or a file of another program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Final

from perfmodel import zoo
from perfmodel.errors import ArgumentError, SpecError, check_known
from perfmodel.files import MOST_DATA_BYTES, file_text, is_folder, json_of, user_path
from perfmodel.graph import LayerGraph

FILE_ENDINGS: Final = (".json", ".onnx", ".keras", ".h5", ".hdf5", ".zip")
"""Suffixes by which a name without a folder is taken for a file."""


def load_network(name_or_path: str | Path, *, options: Mapping[str, Any] | None = None) -> LayerGraph:
    """Load a network by name or path."""
    stated = dict(options or {})
    if "input_shapes" in stated:
        stated["input_shapes"] = named_shapes(stated["input_shapes"])
    path = user_path(name_or_path)
    if not path.parent.name and path.suffix not in FILE_ENDINGS and not (path.anchor or is_folder(path)):
        return zoo.build(str(name_or_path), **stated)
    if str(name_or_path) in zoo.BUILDERS:
        return zoo.build(str(name_or_path), **stated)  # rather than a folder of that name
    content = _json_of(path)
    for kind in FORMATS:
        if kind.recognises(path, content):
            return kind.load(path, stated)
    if stated:
        allowed = "left out for a graph file; networks of the zoo and files of other programs have options"
        raise ArgumentError("options", stated, allowed)
    return LayerGraph.load(path)


def named_shapes(typed: Any) -> Any:
    """Return shapes of several inputs that were typed as one text; anything else as it is. [1]

    >>> named_shapes("words:128;image:3,224,224")
    {'words': (128,), 'image': (3, 224, 224)}
    """
    if not isinstance(typed, str):
        return typed
    shapes: dict[str, tuple[int, ...]] = {}
    for part in typed.removesuffix(";").split(";"):
        name, colon, sizes = part.strip().rpartition(":")
        try:
            extents = tuple(int(size) for size in sizes.removesuffix(",").split(","))
        except ValueError:
            extents = ()
        if not colon or not name or not extents or name in shapes:
            allowed = "a shape, as in 128,40, or a shape for each input, as in 'words:128;image:3,224,224'"
            raise ArgumentError("input_shapes", typed, allowed)
        shapes[name] = extents
    return shapes


def _json_of(path: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file, or the configuration in a folder; nothing where there is none."""
    if path.suffix in FILE_ENDINGS[1:]:
        return {}
    from perfmodel.importers.huggingface import CONFIG_NAME

    try:
        file = path / CONFIG_NAME if is_folder(path) else path
        content = json_of(file, file_text(file, most_bytes=MOST_DATA_BYTES))
    except SpecError:
        return {}  # reading it as a graph reports its faults
    return content if isinstance(content, dict) else {}


@dataclass(frozen=True, slots=True)
class Format:
    """Files of one program: how they are recognised, and ``module:function`` that reads them."""

    kind: str
    reader: str
    recognises: Callable[[Path, Mapping[str, Any]], bool]

    def load(self, path: Path, options: dict[str, Any]) -> LayerGraph:
        """Read a file; raise UnknownNameError for an option that its reader does not take."""
        module, _, name = self.reader.partition(":")
        read: Callable[..., LayerGraph] = getattr(import_module(f"perfmodel.importers.{module}"), name)
        known = list(signature(read).parameters)[1:]  # the first is the path
        if "sizes" in known:  # whose names are the file's own
            known.remove("sizes")
            sizes = {option: options.pop(option) for option in [*options] if option not in known}
            return read(path, sizes=sizes, **options)
        for option in options:
            check_known(f"option of {self.kind}:", option, known)
        return read(path, **options)


def _is_keras(path: Path, content: Mapping[str, Any]) -> bool:
    from perfmodel.importers.keras.configuration import MODEL_CLASSES

    return path.suffix in (".keras", ".h5", ".hdf5") or content.get("class_name") in MODEL_CLASSES


def _is_deeplearning4j(path: Path, content: Mapping[str, Any]) -> bool:
    from perfmodel.importers.deeplearning4j.configuration import is_network

    return path.suffix == ".zip" or is_network(content)


FORMATS: Final = (
    Format("an ONNX file", "onnx.file:from_onnx", lambda path, content: path.suffix == ".onnx"),
    Format(
        "a configuration",
        "huggingface:from_huggingface_config",
        lambda path, content: "model_type" in content and "layers" not in content,
    ),
    Format("a Keras model", "keras.model:from_keras", _is_keras),
    Format("a deeplearning4j network", "deeplearning4j.network:from_deeplearning4j", _is_deeplearning4j),
)
"""Formats of other programs; all other files are graph files."""
