"""What translates each class of Keras: one table per family, chosen by where the class comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from perfmodel.importers.keras import dense, maps, operations, pointwise, sequences
from perfmodel.importers.keras.call import Translator
from perfmodel.importers.keras.configuration import LayerRecord

LAYERS: Final[Mapping[str, Translator]] = {
    **pointwise.TRANSLATORS,
    **maps.TRANSLATORS,
    **dense.TRANSLATORS,
    **sequences.TRANSLATORS,
}
"""Class of ``keras.layers`` -> what plans its layers."""
APPLICATIONS: Final = ("keras.src.applications", "keras.applications")
"""What the module of a class begins with that only ``keras.applications`` has."""


def translator_of(record: LayerRecord) -> Translator | None:
    """Return what plans the layers of a class; None for one that is not known, or not Keras's own."""
    if not record.is_builtin:
        return None
    if record.module.startswith(operations.MODULES):
        return operations.TRANSLATORS.get(record.class_name)
    if not record.module and "trainable" not in record.config:  # an operation, where the module is not said (HDF5)
        return operations.TRANSLATORS.get(record.class_name) or LAYERS.get(record.class_name)
    if record.module.startswith(APPLICATIONS):
        return pointwise.APPLICATION_TRANSLATORS.get(record.class_name)
    return LAYERS.get(record.class_name)
