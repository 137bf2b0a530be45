"""Names as measured tables write them, matched to spec files: devices by their words, libraries by their versions."""

from __future__ import annotations

import re
from functools import cache

from perfmodel.errors import UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_library
from perfmodel.hardware.library import LibraryProfile

LIBRARY_WORDS = {"blas": ("CUDA", "cublas"), "dnn": ("cuDNN", "cudnn")}
"""Kind of library -> the word before its version in a table's text, and how its files begin; cuBLAS comes with CUDA."""


def device_of_text(text: str) -> str:
    """Return the device file that a table's text names.

    Raises
    ------
    UnknownNameError
        If no file's words all occur; names the nearest.

    Examples
    --------
    >>> device_of_text("Tesla P100-PCIE (host X99-E WS)")
    'tesla_p100_pcie'
    """
    words = _words(text)
    fitting = [stem for stem in spec_files.names("devices") if set(stem.split("_")) <= set(words)]
    if not fitting:
        kind = "device of a measured table"
        raise UnknownNameError(kind, "_".join(words), spec_files.names("devices"))
    return max(fitting, key=lambda stem: stem.count("_"))


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", text.lower()) if word]


def version_of_text(text: str, word: str) -> tuple[int, ...] | None:
    """Return the version that follows a word. [1]

    Examples
    --------
    >>> version_of_text("CUDA 8.0.88; cuDNN 6.0.21; driver 375.66", "cuDNN")
    (6, 0, 21)
    """
    found = re.search(rf"\b{re.escape(word)}\s*(\d+(?:\.\d+)*)", text, re.IGNORECASE)
    return None if found is None else tuple(int(part) for part in found.group(1).split("."))


@cache
def _versions(names: tuple[str, ...]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return versions and stems of libraries, the oldest first."""
    return tuple(sorted((_numbers(load_library(stem).version), stem) for stem in names))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def library_of_text(text: str, kind: str) -> LibraryProfile | None:
    """Return the GPU library that a table's text names.

    Parameters
    ----------
    text : str
        Software as a table writes it. [-]
    kind : str
        ``blas`` or ``dnn``. [-]

    Returns
    -------
    LibraryProfile or None
        Of the highest version whose stated digits are not above the text's (``cuDNN 5`` may be 5.1), else the oldest;
        None where none is stated. [-]

    Examples
    --------
    >>> library_of_text("CUDA 7.5.18; cuDNN 5; driver 352.99", "blas").stem
    'cublas_7_5'
    """
    word, beginning = LIBRARY_WORDS[kind]
    stated = version_of_text(text, word)
    if stated is None:
        return None
    libraries = _versions(tuple(stem for stem in spec_files.names("libraries") if stem.startswith(beginning)))
    not_above = [stem for version, stem in libraries if version[: len(stated)] <= stated]
    return load_library(not_above[-1] if not_above else libraries[0][1])
