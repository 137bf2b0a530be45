"""Data sets: number of examples, their stored and decoded sizes, and the cost of decoding.

``DatasetFile`` is a file's layout, with sources; predictions take a ``Dataset``, from a file or made in Python.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationError

from perfmodel.errors import ArgumentError, SpecError, nearest_hint, short_repr
from perfmodel.hardware.source import Count, Fault, Identifier, InRange, PositiveNumber, SpecFile, Text, summary
from perfmodel.hardware.spec_files import faults_of
from perfmodel.records import ELEMENT_BYTES

STORED_BYTES: dict[str, int] = {**ELEMENT_BYTES, "fp8": 1, "int8": 1, "uint8": 1, "int32": 4, "int64": 8}
"""Bytes of one element of a decoded example, by data type. [B]"""


FORMATS: dict[str, str] = {
    "raw": "as it is used",
    **dict.fromkeys(("binary", "idx", "npy", "tfrecord", "lmdb", "hdf5", "csv", "text"), "plain"),
    **dict.fromkeys(("jpeg", "png", "webp", "tiff", "dicom", "flac", "mp3", "mp4", "npz", "gzip"), "compressed"),
}
"""Format of a stored example -> its class: ``raw`` holds the exact bytes that the network takes, plain formats add
labels, frames or digits to them, compressed ones must be decoded at a rate that the data set states."""


MOST_AXES: Final = 32
"""Most axes of an example. [1]"""


class DatasetFile(SpecFile):
    """A data set, as its file states it.

    Attributes
    ----------
    format : str
        How an example is stored: a key of ``FORMATS``. [-]
    stored_in : str
        ``files``: one file per example, read at random; ``shards``: many examples per file, read sequentially. [-]
    example_count : int
        Examples that one epoch reads. [samples]
    encoded_bytes_per_example : float
        Mean size of an example in storage. [B]
    decoded_shape : tuple of int
        Shape of an example as the network takes it. [1]
    decoded_dtype : str
        Type of its elements in host memory. [-]
    decode_rate_per_core : float or None
        Examples that one core decodes, crops and mirrors; None if they need no decoding. [samples/s]
    """

    format: Identifier
    stored_in: Literal["files", "shards"] = "files"
    example_count: Count
    encoded_bytes_per_example: Annotated[PositiveNumber, AfterValidator(InRange(1e-3, 1e12, "B"))]
    decoded_shape: Annotated[tuple[Count, ...], Field(min_length=1)]
    decoded_dtype: Text = "uint8"
    decode_rate_per_core: Annotated[PositiveNumber, AfterValidator(InRange(1e-3, 1e9, "samples/s"))] | None = None

    def faults(self) -> Iterator[Fault]:  # noqa: D102
        if self.decoded_dtype not in STORED_BYTES:
            yield ("decoded_dtype",), self.decoded_dtype, f"must be one of {', '.join(STORED_BYTES)}"
        if self.format not in FORMATS:
            yield ("format",), self.format, f"must be one of {', '.join(FORMATS)}{nearest_hint(self.format, FORMATS)}"
        how, rate, stored = FORMATS.get(self.format), self.decode_rate_per_core, self.encoded_bytes_per_example
        used = math.prod(self.decoded_shape) * STORED_BYTES.get(self.decoded_dtype, 0)
        if how == "compressed" and rate is None:
            yield ("decode_rate_per_core",), None, f"is needed: {self.format} must be decoded"
        if how == "as it is used" and rate is not None:
            yield ("decode_rate_per_core",), rate, f"must not be given: {self.format} is not decoded"
        if how == "as it is used" and used and stored != used:
            allowed = f"must be the {used:,} B of a decoded example: {self.format} is stored as it is used"
            yield ("encoded_bytes_per_example",), stored, allowed


@dataclass(frozen=True, kw_only=True, repr=False)
class Dataset:
    """Examples to train on: ``predict(dataset=...)`` reads, decodes and copies them.

    Parameters
    ----------
    name : str
        Display name. [-]
    example_count : int
        Examples that one epoch reads. [samples]
    encoded_bytes_per_example : float
        Mean size of an example in storage. [B]
    decoded_shape : tuple of int
        Shape of an example as the network takes it. [1]
    decoded_dtype : str
        Type of its elements in host memory. [-]
    format : str
        How an example is stored: ``raw`` for the exact bytes the network takes, or another key of ``FORMATS``. [-]
    stored_in : str
        ``files``: one file per example, read at random; ``shards``: many examples per file, read sequentially. [-]
    decode_rate_per_core : float or None
        Examples that one core decodes; None if they need no decoding. [samples/s]
    file : DatasetFile or None
        The file it comes from, with its sources; None for one made in Python. [-]

    Raises
    ------
    SpecError
        With every fault: no examples, no bytes, a negative number, an unknown data type or format, numbers that do
        not fit the format.

    Examples
    --------
    >>> scans = Dataset(name="scans", example_count=1000, encoded_bytes_per_example=262_144, decoded_shape=(512, 512))
    >>> scans.encoded_bytes, scans.decoded_bytes_per_example
    (262144000, 262144)
    """

    name: str
    example_count: int
    encoded_bytes_per_example: float
    decoded_shape: tuple[int, ...]
    decoded_dtype: str = "uint8"
    format: str = "raw"
    stored_in: str = "files"
    decode_rate_per_core: float | None = None
    file: DatasetFile | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_kinds()
        if self.file is not None:
            if all(getattr(self, name) == getattr(self.file, name) for name in self._of_file()):
                return
            object.__setattr__(self, "file", None)  # a changed copy differs from its file
        stated = {name: getattr(self, name) for name in self._of_file() if getattr(self, name) is not None}
        source = {"fields": _numbers_of(stated), "title": "as given", "provenance": "estimate", "note": "in Python"}
        try:
            checked = DatasetFile.model_validate({**stated, "schema_version": 1, "source": [source]})
        except ValidationError as error:
            made = f"Dataset {short_repr(self.name)}"
            raise SpecError(made, faults_of(error, DatasetFile)) from None
        object.__setattr__(self, "decoded_shape", checked.decoded_shape)

    def _check_kinds(self) -> None:
        """Raise for what the file's layout cannot look at: a list that never ends, or no file."""
        if self.file is not None and not isinstance(self.file, DatasetFile):
            raise ArgumentError("file", self.file, "a DatasetFile, or left out for a data set made in Python")
        shape = self.decoded_shape
        if not isinstance(shape, list | tuple) or len(shape) > MOST_AXES:
            raise ArgumentError("decoded_shape", shape, f"a tuple of at most {MOST_AXES} whole numbers >= 1")

    @classmethod
    def _of_file(cls) -> list[str]:
        return [name for name in DatasetFile.model_fields if name in cls.__dataclass_fields__]

    @classmethod
    def of_file(cls, file: DatasetFile) -> Self:
        """Return the data set that a file describes.

        Parameters
        ----------
        file : DatasetFile
            A loaded file. [-]

        Returns
        -------
        Dataset
            The same numbers, and the file for their sources. [-]
        """
        stated = {name: getattr(file, name) for name in cls._of_file()}
        return cls(**stated, file=file)

    @property
    def encoded_bytes(self) -> float:
        """Size of all examples in storage. [B]."""
        return self.example_count * self.encoded_bytes_per_example

    @property
    def element_count(self) -> int:
        """Elements of one decoded example. [1]."""
        return math.prod(self.decoded_shape)

    @property
    def decoded_bytes_per_example(self) -> int:
        """Size of one example in host memory. [B]."""
        return self.element_count * STORED_BYTES[self.decoded_dtype]

    def __repr__(self) -> str:
        return summary(self, stem="" if self.file is None else self.file.stem)

    def describe(self) -> str:
        """Return the data set in one line."""
        shape = " x ".join(map(str, self.decoded_shape))
        rate = self.decode_rate_per_core
        decoding = "used as stored" if rate is None else f"decoded at {rate:g}/s per core"
        sizes = f"{self.encoded_bytes_per_example:,g} B each as {self.format} in {self.stored_in}"
        return f"{self.example_count:,} examples, {sizes}, {shape} {self.decoded_dtype}, {decoding}"


def _numbers_of(stated: dict[str, Any]) -> list[str]:
    return [name for name in stated if name not in ("name", "format", "stored_in", "decoded_dtype")]
