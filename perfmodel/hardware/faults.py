"""What pydantic says is wrong with a spec file, turned into one line per fault for the file's owner.

Each line is ``field: value ...: what is allowed``. A misspelt key comes with the nearest key, a key with a
missing or wrong unit with the key that carries the right one; neither is reported again as missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import isclass
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from perfmodel.errors import nearest_match
from perfmodel.units import FACTOR_BY_SUFFIX

_LONGEST_VALUE: Final = 60
_PYDANTIC_PREFIXES: Final = (("Input should be ", "must be "), ("Value error, ", ""))


def faults_of(error: ValidationError, model_class: type[BaseModel]) -> list[str]:
    """Turn a validation error into one line per fault."""
    items = error.errors(include_url=False, include_context=False)
    missing = {item["loc"] for item in items if item["type"] == "missing"}
    explained: set[tuple[int | str, ...]] = set()
    lines: dict[tuple[int | str, ...], list[str]] = {}
    for item in items:
        location = item["loc"]
        if item["type"] == "extra_forbidden":
            *parent, key = location
            allowed = _keys_of(model_class, parent)
            meant, advice = _meant_key(str(key), allowed, [str(loc[-1]) for loc in missing if [*loc[:-1]] == parent])
            if meant is not None:
                explained.add((*parent, meant))
            lines.setdefault(location, []).append(_line(location, item["input"], advice))
        elif item["type"] != "missing":
            lines.setdefault(location, []).append(_line(location, item["input"], _readable(item["msg"])))
    for location in sorted(missing - explained, key=str):
        lines.setdefault(location, []).append(f"{dotted(location)}: required key is missing")
    return [line for of_location in lines.values() for line in of_location]


def dotted(location: Iterable[int | str]) -> str:
    """Write the place of a fault the way a spec file's owner would.

    Examples
    --------
    >>> dotted(("source", 0, "title"))
    'source[0].title'
    """
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".") or "file"


def _line(location: Iterable[int | str], given: Any, allowed: str) -> str:
    value = repr(given)
    if len(value) > _LONGEST_VALUE:
        value = f"{value[:_LONGEST_VALUE]}..."
    return f"{dotted(location)}: value {value}: {allowed}"


def _readable(message: str) -> str:
    for prefix, replacement in _PYDANTIC_PREFIXES:
        if message.startswith(prefix):
            return replacement + message.removeprefix(prefix)
    return message


def _meant_key(key: str, allowed: list[str], missing: list[str]) -> tuple[str | None, str]:
    """Return the key that was probably meant, preferring missing ones, and the advice to give."""
    for candidates in (missing, allowed):
        same_stem = [other for other in candidates if _stem(other) == _stem(key) and _stem(other) != other]
        if same_stem:
            return same_stem[0], f"unknown key; the key carries its unit: {same_stem[0]}"
    nearest = nearest_match(key, missing) or nearest_match(key, allowed)
    if nearest is not None:
        return nearest, f"unknown key; nearest key: {nearest}"
    return None, f"unknown key; allowed: {', '.join(allowed)}"


def _stem(key: str) -> str:
    """Strip the unit suffix from a key."""
    suffixes = [suffix for suffix in FACTOR_BY_SUFFIX if key.endswith(suffix)]
    return key.removesuffix(max(suffixes, key=len)) if suffixes else key


def _keys_of(model_class: type[BaseModel], location: Iterable[int | str]) -> list[str]:
    """Return the keys that the table at a location may have."""
    table = model_class
    for step in location:
        field = table.model_fields.get(str(step))
        nested = _table_class(field.annotation) if field is not None else None
        table = nested or table  # a list index or a free key stays within the same table class
    return list(table.model_fields)


def _table_class(annotation: Any) -> type[BaseModel] | None:
    if isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _table_class(part))), None)
