"""Where a Keras configuration lies: a model object, an archive, an HDF5 file or a text; read as data, within limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import ArgumentError, SpecError, package_for
from perfmodel.files import user_path
from perfmodel.importers.archives import JSON_TEXT, config_text, is_json_text, parsed
from perfmodel.importers.assembly import Weight

CONFIG_MEMBER: Final = "config.json"
"""The configuration in a ``.keras`` archive."""
H5_ATTRIBUTE: Final = "model_config"
"""The configuration in an HDF5 file: an attribute of its root."""
H5_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
BINARY_SUFFIXES: Final = (".keras", ".h5", ".hdf5")


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """What a model object tells of a layer besides its configuration."""

    output_shape: tuple[int | None, ...] | None
    weights: Mapping[str, Weight]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A configuration and where it came from."""

    where: str
    content: Mapping[str, Any]
    facts: Mapping[str, LayerFacts] = field(default_factory=dict)


def read_document(model_or_path: Any) -> Document:
    """Read the configuration of a model object, an archive, an HDF5 file, a JSON file or a JSON text."""
    if isinstance(model_or_path, str) and is_json_text(model_or_path):
        return Document(where=JSON_TEXT, content=parsed(JSON_TEXT, model_or_path))
    if isinstance(model_or_path, str | Path) and model_or_path:
        path = user_path(model_or_path)
        text = config_text(path, CONFIG_MEMBER, readers={H5_SIGNATURE: _text_in_h5}, binary_suffixes=BINARY_SUFFIXES)
        return Document(where=str(path), content=parsed(str(path), text))
    if hasattr(model_or_path, "to_json") and hasattr(model_or_path, "layers"):
        return _document_of_model(model_or_path)
    allowed = "a Keras model, the path of a .keras, .h5 or .json file, or the text of to_json()"
    raise ArgumentError("model_or_path", model_or_path, allowed)


def _text_in_h5(path: Path) -> str | bytes:
    """Return the attribute of an HDF5 file that holds the configuration."""
    h5py = package_for("h5py", "from_keras", "keras")
    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get(H5_ATTRIBUTE)
    except (OSError, RuntimeError, KeyError) as error:
        raise SpecError(path, [f"is no HDF5 file, or a truncated one ({error})"]) from error
    if not isinstance(text, str | bytes):
        raise SpecError(path, [f"has no {H5_ATTRIBUTE}: must be a saved model, not its weights alone"])
    return text


def _document_of_model(model: Any) -> Document:
    """Return the configuration of a model object, with the facts that only the object has."""
    try:
        text = model.to_json()
    except (NotImplementedError, TypeError, ValueError) as error:
        allowed = (
            "a model that has a configuration (Functional or Sequential); on torch's backend pm.from_torch reads any"
        )
        raise ArgumentError("model_or_path", model, f"{allowed}: {error}") from error
    where = f"model {model.name!r}"
    return Document(where=where, content=parsed(where, text), facts=dict(_facts(model, "")))


def _facts(model: Any, path: str) -> Iterator[tuple[str, LayerFacts]]:
    """Yield the facts that a model object has of each layer, by the layer's path through nested models."""
    for layer in model.layers:
        place = f"{path}{layer.name}"
        if hasattr(layer, "layers"):
            yield from _facts(layer, f"{place}.")
        try:
            shape = tuple(layer.output.shape)[1:]
        except (AttributeError, ValueError):  # of several calls, or several outputs
            shape = None
        weights = {
            f"{variable.name}_{index}" if index else variable.name: Weight(
                shape=tuple(variable.shape) or (1,), is_trained=bool(variable.trainable)
            )
            for index, variable in enumerate(layer.trainable_weights if layer.trainable else layer.weights)
        }
        yield place, LayerFacts(shape, weights)
