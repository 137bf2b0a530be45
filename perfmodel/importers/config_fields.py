"""Fields of a configuration file, read with everything that is wrong with them told at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import ArgumentError, SpecError, nearest_match
from perfmodel.layers.checks import check_fraction

CONFIG_NAME: Final = "config.json"
"""Name of the file in the folder of a checkpoint."""


class ConfigFields:
    """Fields of a configuration, with the faults met while reading them.

    Parameters
    ----------
    where : str
        The file, or where else the fields are from. [-]
    content : mapping of str to object
        The fields. [-]
    """

    def __init__(self, where: str, content: Mapping[str, Any]) -> None:
        self.where = where
        self._content = content
        self._faults: list[str] = []
        self._at_fault: set[str] = set()

    @classmethod
    def read(cls, path_or_dict: str | Path | Mapping[str, Any]) -> ConfigFields:
        """Read a configuration.

        Parameters
        ----------
        path_or_dict : str, Path or mapping
            The file, the folder it lies in as config.json, or its content. [-]

        Returns
        -------
        ConfigFields
            Its fields. [-]

        Raises
        ------
        ArgumentError
            If it is neither.
        SpecError
            If the file cannot be read or is no JSON object.
        """
        if isinstance(path_or_dict, Mapping):
            return cls("configuration", path_or_dict)
        if not isinstance(path_or_dict, str | Path) or not str(path_or_dict):
            allowed = "must be the path of a config.json, of its folder, or its content as a dict"
            raise ArgumentError("path_or_dict", path_or_dict, allowed)
        path = Path(path_or_dict).expanduser()
        path = path / CONFIG_NAME if path.is_dir() else path
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SpecError(path, [f"cannot be read ({error.strerror or error})"]) from error
        except (ValueError, RecursionError) as error:
            raise SpecError(path, [f"is not JSON: {error}"]) from error
        if not isinstance(content, dict):
            raise SpecError(path, ["must be a JSON object of fields"])
        return cls(str(path), content)

    def has(self, field: str) -> bool:
        """Tell whether a field is given and not null."""
        return self._content.get(field) is not None

    def text(self, field: str) -> str:
        """Return a field as a text; empty where it is missing."""
        return str(self._content[field]) if self.has(field) else ""

    def fault(self, field: str, allowed: str) -> None:
        """Note that a field has a value that is not allowed."""
        self._at_fault.add(field)
        self._faults.append(f"{field}={self._content.get(field)!r}: {allowed}")

    def _given(self, field: str, *, default: Any) -> Any:
        """Return a field's value, or its default where it is missing or null; a fault where it has none."""
        if self.has(field):
            return self._content[field]
        if default is None:
            nearest = nearest_match(field, [str(each) for each in self._content])
            hint = f"; did you mean {nearest!r}?" if nearest else ""
            self._at_fault.add(field)
            self._faults.append(f"{field} is missing{hint}")
        return default

    def count(self, field: str, *, default: int | None = None) -> int:
        """Return a whole number of at least one.

        Parameters
        ----------
        field : str
            Name of the field. [-]
        default : int or None
            Value where it is missing; None where it must be given. [1]

        Returns
        -------
        int
            The number; one where it is at fault. [1]
        """
        value = self._given(field, default=default)
        if value is None:
            return 1
        if type(value) is not int or value < 1:
            self.fault(field, "must be a whole number >= 1")
            return 1
        return value

    def rate(self, field: str, *, default: float) -> float:
        """Return a number in [0, 1).

        Parameters
        ----------
        field : str
            Name of the field. [-]
        default : float
            Value where it is missing. [1]

        Returns
        -------
        float
            The number; zero where it is at fault. [1]
        """
        value = self._given(field, default=default)
        try:
            check_fraction(field, value)
        except ArgumentError:
            self.fault(field, "must be a number in [0, 1)")
            return 0.0
        return float(value)

    def flag(self, field: str, *, default: bool) -> bool:
        """Return a truth value.

        Parameters
        ----------
        field : str
            Name of the field. [-]
        default : bool
            Value where it is missing. [-]

        Returns
        -------
        bool
            The value; the default where it is at fault. [-]
        """
        value = self._given(field, default=default)
        if not isinstance(value, bool):
            self.fault(field, "must be true or false")
            return default
        return value

    def word(self, field: str, words: Mapping[str, str], *, default: str) -> str:
        """Return what one of a few words means.

        Parameters
        ----------
        field : str
            Name of the field. [-]
        words : mapping of str to str
            The words, and what they mean here. [-]
        default : str
            The word where it is missing. [-]

        Returns
        -------
        str
            What it means; that of the default where it is at fault. [-]
        """
        value = self._given(field, default=default)
        if not isinstance(value, str) or value not in words:
            nearest = nearest_match(str(value), words)
            hint = f"; did you mean {nearest!r}?" if nearest else ""
            self.fault(field, f"must be one of {', '.join(words)}{hint}")
            return words[default]
        return words[value]

    def size(self, field: str) -> int:
        """Return the number of entries of a list or an object; zero where it is missing [1]."""
        value = self._content.get(field)
        return len(value) if isinstance(value, list | dict) else 0

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts; empty where it is missing."""
        value = self._content.get(field)
        return tuple(map(str, value)) if isinstance(value, list) else ()

    def refuse(self, field: str, value: Any, allowed: str) -> None:
        """Note a fault where a field has a value.

        Parameters
        ----------
        field : str
            Name of the field. [-]
        value : object
            The value it must not have. [-]
        allowed : str
            What is allowed instead. [-]
        """
        if self._content.get(field) == value:
            self.fault(field, allowed)

    def check_divides(self, field: str, whole: str, *, part: int, of: int) -> None:
        """Note a fault unless one field's number divides another's; none where either is at fault already.

        Parameters
        ----------
        field, whole : str
            Names of the fields. [-]
        part, of : int
            Their values. [1]
        """
        if of % part and not self._at_fault & {field, whole}:
            self._faults.append(f"{field}={part}: must divide {whole}={of}")

    def check(self) -> None:
        """Raise SpecError with all faults noted, if any."""
        if self._faults:
            raise SpecError(self.where, self._faults)
