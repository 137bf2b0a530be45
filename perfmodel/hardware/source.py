"""The base class of every spec file: immutable tables, strict numbers, and a source for each number.

A number without a source is a fault, and so is a source that names a field the file does not have. An
estimate is allowed if it is marked: ``title = "estimate"`` and a note that says how it was made.
"""

import math
import operator
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NoReturn, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from perfmodel.derived import derived
from perfmodel.errors import nearest_hint
from perfmodel.units import to_base_units

if TYPE_CHECKING:
    from pydantic.functional_validators import ModelWrapValidatorHandler  # older versions name it nowhere else

PositiveNumber = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
"""A finite number above zero; text and booleans are not numbers."""
NonNegativeNumber = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
"""A finite number, zero allowed."""
Fraction = Annotated[float, Field(gt=0, le=1, strict=True, allow_inf_nan=False)]
"""A number in (0, 1]."""


@dataclass(frozen=True, slots=True)
class InRange:
    """Rejects a number that is implausible in its field's unit; usually it is in another unit."""

    low: float
    high: float
    unit: str

    def __call__(self, number: float) -> float:
        """Return the number; raise ValueError if it is out of range."""
        if not self.low <= number <= self.high:
            invalid(f"must be from {self.low:,g} to {self.high:,g} {self.unit}; is it in another unit?")
        return number


Check = Callable[[Any, ValidationInfo], Any]
"""Checks the field that ``field_validator`` names against earlier fields: (value, earlier fields) -> value."""


def _beside(field: str, *, allowed: str, is_wrong: Callable[[Any, Any], bool]) -> Check:
    def check(number: Any, info: ValidationInfo) -> Any:
        other = info.data.get(field)
        if number is not None and other is not None and is_wrong(number, other):
            invalid(f"must be {allowed} {field} = {other:g}")
        return number

    return check


def at_most(field: str) -> Check:
    """Return a check that a number is not above the value of an earlier field."""
    return _beside(field, allowed="at most", is_wrong=operator.gt)


def at_least(field: str) -> Check:
    """Return a check that a number is not below the value of an earlier field."""
    return _beside(field, allowed="at least", is_wrong=operator.lt)


def checks(*fields: str, beside: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Any]:
    """Let a function check the value of each field, given those of earlier fields if they are valid."""

    def decorate(check: Callable[..., None]) -> Any:
        def checked(value: Any, info: ValidationInfo) -> Any:
            if all(name in info.data for name in beside):
                check(value, *(info.data[name] for name in beside))
            return value

        return field_validator(*fields)(checked)

    return decorate


Count = Annotated[int, Field(ge=1, strict=True)]
"""A whole number of at least one."""
IDENTIFIER: Final = r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$"
Identifier = Annotated[str, Field(pattern=IDENTIFIER)]
"""Lower snake case, as in file stems."""


def is_identifier(name: Any) -> bool:
    """Return whether a value is an ``Identifier``."""
    return isinstance(name, str) and re.search(IDENTIFIER, name) is not None


Text = Annotated[str, Field(min_length=1)]
"""Text that is not empty."""


def _calendar_day(day: Any) -> date:
    if isinstance(day, str):
        with suppress(ValueError):
            day = date.fromisoformat(day)
    if type(day) is not date:
        invalid("must be a date, e.g. 2017-08-01")
    return day


Day = Annotated[date, BeforeValidator(_calendar_day)]
"""A date, or its text; a number is none, although pydantic takes one for seconds since 1970."""
ESTIMATE: Final = "estimate"
Provenance = Literal["datasheet", "measured", "fitted", "calculation", "estimate", "memory"]
"""How reliable a source is: a document on the thing (data sheet, manual, source code), a measurement of it, a fit to a
measured table, arithmetic on other numbers, our own estimate, or a document that was remembered and not re-read."""
PROVENANCES: Final[tuple[str, ...]] = get_args(Provenance)
"""All provenances, as explain() and the tables name them."""
_PROVENANCE_OF_TITLE: Final[dict[str, Provenance]] = {
    ESTIMATE: "estimate",
    "calculation": "calculation",
    "as on the GPU": "estimate",
}
_FITTED_WORDS: Final = ("Fitted by ", "fitted on ", "fit plan ")
_REMEMBERED_WORDS: Final = ("from memory", "not re-read", "not opened")


Fault = tuple[tuple[int | str, ...], Any, str]
"""A fault of a table: the place of a field below it, its value, and what is allowed."""


class SpecTable(BaseModel):
    """A table of a spec file: immutable, no unknown keys."""

    # built on first use: few programs read every kind of file
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def faults(self) -> Iterable["Fault"]:
        """List what is wrong with several fields together; each field by itself is right."""
        return ()

    @model_validator(mode="after")
    def _has_no_faults(self) -> Self:
        details = [_detail("value_error", message, place, value) for place, value, message in self.faults()]
        if details:
            raise ValidationError.from_exception_data("fault", details)
        return self

    def in_base_units(self, key: str) -> float:
        """Return a number of this table in base units, by the unit suffix of its key."""
        return to_base_units(key, getattr(self, key))

    def stated(self) -> dict[str, Any]:
        """Return the fields that the file states; iterating over a pydantic model takes ten times as long."""
        return {name: value for name, value in self.__dict__.items() if value is not None}


class Source(SpecTable):
    """Where some numbers of a spec file come from.

    Attributes
    ----------
    fields : tuple of str
        Dotted names of the fields it covers; a table's name covers all numbers beneath it. [-]
    title : str
        Document and edition, ``calculation``, or ``estimate``. [-]
    url : str or None
        Where it was read. [-]
    read_on : date or None
        When it was read. [-]
    note : str or None
        What the reader should know; for an estimate, how it was made. [-]
    provenance : str or None
        One of ``PROVENANCES``; None derives it from the words of title and note. [-]
    table : str or None
        Measured table behind a fit or measurement. [-]
    rows : int or None
        Rows of that table. [1]
    residual_percent : float or None
        Median absolute error on rows that the fit held out. [%]
    verified : bool or None
        Whether somebody read the source itself; None derives it from the provenance. [-]
    """

    fields: Annotated[tuple[Text, ...], Field(min_length=1)]
    title: Text
    url: Text | None = None
    read_on: Day | None = None
    note: Text | None = Field(default=None, validate_default=True)
    provenance: Provenance | None = None
    table: Text | None = None
    rows: Count | None = None
    residual_percent: NonNegativeNumber | None = None
    verified: Annotated[bool, Field(strict=True)] | None = None

    @checks("note", beside=("title",))
    @staticmethod
    def _an_estimate_says_how(note: str | None, title: str) -> None:
        if title == ESTIMATE and note is None:
            invalid("an estimate needs a note that says how it was made")

    def faults(self) -> Iterator[Fault]:  # noqa: D102
        stated = {"table": self.table, "rows": self.rows, "residual_percent": self.residual_percent}
        if self.provenance == "fitted" and None in stated.values():
            lacking = [name for name, value in stated.items() if value is None]
            yield ("provenance",), self.provenance, f"a fit needs {', '.join(lacking)} as well"
        named = [name for name, value in stated.items() if value is not None]
        if named and self.provenance not in ("fitted", "measured"):
            yield (named[0],), stated[named[0]], 'is allowed only with provenance "fitted" or "measured"'
        if self.title == ESTIMATE and self.provenance not in (None, ESTIMATE):
            yield ("provenance",), self.provenance, 'must be "estimate", as the title says'
        if self.provenance == "memory" and self.verified:
            yield ("verified",), self.verified, "must be false for what was remembered and not re-read"

    @property
    def kind(self) -> Provenance:
        """Its provenance: as stated, else from the words of its title and note."""
        note = self.note or ""
        if self.provenance is not None:
            return self.provenance
        if self.title in _PROVENANCE_OF_TITLE:
            return _PROVENANCE_OF_TITLE[self.title]
        if self.title.startswith("own measurement"):
            return "measured"
        if any(words in note for words in _FITTED_WORDS):
            return "fitted"
        return "memory" if any(words in note for words in _REMEMBERED_WORDS) else "datasheet"

    @property
    def is_verified(self) -> bool:
        """Whether the source itself was read: as stated, else false for memories and estimates."""
        return self.kind not in ("memory", "estimate") if self.verified is None else self.verified


_STEM: Final = "_stem"
_FOLDER: Final = "_folder"


class SpecFile(SpecTable):
    """One spec file: who it describes, its numbers, and the source of each of them.

    Attributes
    ----------
    schema_version : int
        Version of the file's layout, a key of ``SCHEMA_CHANGES``. [-]
    name : str
        Display name. [-]
    source : tuple of Source
        Where the numbers come from. [-]
    """

    SCHEMA_CHANGES: ClassVar[dict[int, str]] = {1: "first version"}
    """Version of the layout -> what changed in it; the newest is the only one that loads."""

    WITHOUT_SOURCE: ClassVar[frozenset[str]] = frozenset({"schema_version", "source"})
    """Top-level keys whose numbers are statements of the file itself and need no source."""

    schema_version: Annotated[int, Field(strict=True)]
    name: Text
    source: tuple[Source, ...]

    @property
    def stem(self) -> str:
        """Stem of the file it was loaded from, which other files use as its name; empty if it has no file."""
        return str(self.__dict__.get(_STEM, ""))

    @property
    def folder(self) -> Path | None:
        """Folder of the file it was loaded from, at which relative paths in it start; None if it has no file."""
        return self.__dict__.get(_FOLDER)

    def loaded_from(self, stem: str, folder: Path | None) -> Self:
        """Attach the stem and folder of its file to an object; content and equality ignore them."""
        self.__dict__.update({_STEM: stem, _FOLDER: folder})
        return self

    def missing(self) -> Iterable[str]:
        """List, a line for each, the optional fields that predictions read and the file leaves out."""
        return ()

    def source_of(self, field: str) -> Source | None:
        """Return the source of a number: the most specific one that covers it."""
        named = _source_by_name(self)
        return named.get(_covering(field, named))

    @field_validator("schema_version")
    @classmethod
    def _layout_is_current(cls, version: int) -> int:
        newest = max(cls.SCHEMA_CHANGES)
        since = [f"{number}: {note}" for number, note in sorted(cls.SCHEMA_CHANGES.items()) if number > version]
        if version != newest:
            invalid(f"must be {newest}" + (f"; changes since: {', '.join(since)}" if since else ""))
        return version

    @model_validator(mode="wrap")
    @classmethod
    def _every_number_has_a_source(cls, raw: Any, handler: "ModelWrapValidatorHandler[Self]") -> Self:
        """Add the faults of the sources to those of the fields, so that one error reports them all."""
        spec, details = None, []
        try:
            spec = handler(raw)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False)
            details = [_detail(item["type"], item["msg"], item["loc"], item["input"]) for item in faults]
        if isinstance(raw, dict):
            numbers = {key: entry for key, entry in raw.items() if key not in cls.WITHOUT_SOURCE}
            kinds = {".".join(map(str, item["loc"])): item["type"].type for item in details}
            details += _source_faults(numbers, raw, kinds)
        if spec is None or details:
            raise ValidationError.from_exception_data(cls.__name__, details)
        return spec

    def __repr__(self) -> str:
        return summary(self, stem=self.stem)

    def __str__(self) -> str:
        return repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file as plain tables, lists, text and numbers."""
        return self.model_dump(mode="json", exclude_unset=True)


SHOWN_CHARACTERS: Final = 160
"""Characters that the repr of a spec object shows of its name and key figures; ``to_dict`` has all of them. [1]"""


def summary(spec: Any, *, stem: str) -> str:
    """Return class, file, name and key figures of a spec object in one line."""
    figures = spec.describe() if hasattr(spec, "describe") else ""
    named = figures if figures.startswith(spec.name) else ": ".join(filter(None, (spec.name, figures)))
    text = textwrap.shorten(named, SHOWN_CHARACTERS, placeholder=" ...")
    return f"<{type(spec).__name__} {stem}, {text}>" if stem else f"<{type(spec).__name__} {text}>"


_KEY_FAULTS = ("missing", "extra_forbidden")


def invalid(message: str) -> NoReturn:
    """Raise the ValueError of a field's validator."""
    raise ValueError(message)


def fault_at(location: tuple[int | str, ...], value: Any, message: str) -> ValidationError:
    """Build an error that names one field, for a validator of a whole table."""
    return ValidationError.from_exception_data("fault", [_detail("value_error", message, location, value)])


def _detail(kind: str, message: str, location: tuple[int | str, ...], value: Any) -> Any:
    custom = PydanticCustomError(kind, message.replace("{", "{{").replace("}", "}}"))
    return InitErrorDetails(type=custom, loc=location, input=value)


def numbers_in(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Walk a table and yield each number, or list of numbers, with its dotted name."""
    for key, entry in table.items():
        if isinstance(entry, dict):
            yield from numbers_in(entry, f"{prefix}{key}.")
        elif isinstance(entry, list) and any(isinstance(item, dict) for item in entry):
            for item in entry:
                yield from numbers_in(item if isinstance(item, dict) else {}, f"{prefix}{key}.")
        elif _is_number(entry) or (isinstance(entry, list) and any(_is_number(item) for item in entry)):
            yield f"{prefix}{key}", entry


def _is_number(entry: Any) -> bool:
    return isinstance(entry, int | float) and not isinstance(entry, bool)


def _field_names(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, entry in table.items():
        yield f"{prefix}{key}"
        for nested in entry if isinstance(entry, list) else [entry]:
            if isinstance(nested, dict):
                yield from _field_names(nested, f"{prefix}{key}.")


def _covering(field: str, names: Collection[str]) -> str:
    """Return a field or the innermost table around it that is among the names; empty if none is."""
    while field and field not in names:
        field = field.rpartition(".")[0]
    return field


@derived
def _source_by_name(file: SpecFile) -> dict[str, Source]:
    """Last source that names each field or table."""
    return {name: source for source in file.source for name in source.fields}


def _source_faults(numbers: dict[str, Any], raw: dict[str, Any], kinds: Mapping[str, str]) -> list[Any]:
    """List numbers that no source names, and named fields that do not exist, except for ``kinds``.

    ``kinds`` holds the kinds of other faults by dotted name: one misspelt key must not be reported three times: as
    unknown, as unsourced and as a source's unknown field; nor a number twice where a text should be.
    """
    astray = [name for name, kind in kinds.items() if kind in _KEY_FAULTS]
    sources = raw.get("source")
    entries = [entry for entry in sources if isinstance(entry, dict)] if isinstance(sources, list) else []
    lists = [entry.get("fields") for entry in entries]
    named = [name for fields in lists if isinstance(fields, list) for name in fields if isinstance(name, str)]
    faults, covering = [], {*named, *astray}
    for field, value in numbers_in(numbers):
        if field not in kinds and not _covering(field, covering):
            message = f"no [[source]] names it; every number needs one, or an entry titled {ESTIMATE!r}"
            faults.append(_detail("unsourced", message, tuple(field.split(".")), value))
    existing = set(_field_names(numbers))
    astray_tables = {name.rpartition(".")[0] for name in astray}
    for name in dict.fromkeys(named):
        excused = _covering(name, astray) or name.rpartition(".")[0] in astray_tables
        if name not in existing and not excused:
            message = f"must name a field of this file{nearest_hint(name, sorted(existing), what='nearest field')}"
            faults.append(_detail("unknown_source_field", message, ("source", "fields"), name))
    return faults


ConstantValue = float | tuple[float, ...]
"""A constant is a number, or a list of numbers to choose from (e.g. tile sizes)."""


def _finite_numbers(value: Any) -> ConstantValue:
    entries = value if isinstance(value, list | tuple) else [value]
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, int | float) or not math.isfinite(entry):
            invalid("must be a finite number, or a list of them")
    if not entries:
        invalid("must not be an empty list")
    return tuple(entries) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


StrictConstant = Annotated[ConstantValue, PlainValidator(_finite_numbers), PlainSerializer(_plain, return_type=Any)]
"""``ConstantValue`` as pydantic validates it: finite, neither text nor boolean."""
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number of any sign."""


class Constant(SpecTable):
    """Unit, meaning and validity range of one named constant.

    Attributes
    ----------
    unit : str
        Unit of the values in the file, ``1`` for a fraction or count. [-]
    meaning : str
        What the constant is, in a line. [-]
    valid_min, valid_max : float
        Smallest and largest value allowed. [``unit``]
    """

    unit: Text
    meaning: Text
    valid_min: FiniteNumber
    valid_max: FiniteNumber

    _range_is_not_empty = field_validator("valid_max")(at_least("valid_min"))

    def admits(self, value: ConstantValue) -> bool:
        """Tell whether a value, or every value of a list, lies in the range.

        >>> Constant(unit="1", meaning="share of peak", valid_min=0, valid_max=1).admits((0.5, 1.2))
        False
        """
        entries = value if isinstance(value, tuple) else (value,)
        return all(self.valid_min <= entry <= self.valid_max for entry in entries)


def constant_faults(values: Mapping[str, ConstantValue], constants: Mapping[str, Constant]) -> Iterator[str]:
    """Yield a line for each value without a described constant, or outside the constant's range."""
    for name, value in values.items():
        constant = constants.get(name)
        if constant is None:
            hint = nearest_hint(name, constants, what="nearest described constant")
            yield f"{name}: value {value!r}: needs a table [constant.{name}]{hint}"
        elif not constant.admits(value):
            unit = "" if constant.unit == "1" else f" {constant.unit}"
            yield f"{name}: value {value!r}: must be from {constant.valid_min:g} to {constant.valid_max:g}{unit}"
