"""Names of a package that load on first use; the stub file beside it is the only list of them."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_LINE: Final = re.compile(r"^from (perfmodel\S+) import \(?\s*(\w+) as \2\b", re.MULTILINE)


def listed(init_file: str) -> dict[str, str]:
    """Return the names that a package's stub passes on, and the modules that define them."""
    with open(f"{init_file}i", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib is a third of the time of an import
        return {name: module for module, name in _LINE.findall(stub.read())}


def loaded(package: str, module_of: Mapping[str, str], name: str) -> Any:
    """Return the object that a package lists under a name."""
    if name not in module_of:
        message = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=import_module(package))  # so that Python suggests the nearest name
    from perfmodel.derived import uncollected  # here, so that importing the package alone stays instant

    return getattr(uncollected(import_module)(module_of[name]), name)
