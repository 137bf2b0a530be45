"""Changes of software: data type, framework, library; and which software a GPU's vendor has no part in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_library
from perfmodel.planning.changes.situation import Change, Situation
from perfmodel.prediction.arguments.checks import DTYPES

if TYPE_CHECKING:
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.prediction.prediction import Prediction

NO_SOFTWARE: Final = ("generic", "library_calls")
"""Framework files that are no framework to change to: an average one, and calls without any."""

ANY_ARCHITECTURE: Final = "default"
"""Table of a library's file for architectures that it does not list."""


def dtype(now: Situation) -> Iterator[Change]:
    """Yield every other data type that the processor has."""
    spec = now.target.processor_spec
    supported = getattr(spec, "dtypes", DTYPES)
    for name in DTYPES:
        if name in supported and name != now.base.dtype:
            yield Change(what=f"dtype {name}", changes={"dtype": name})
    missing = [name for name in DTYPES if name not in supported]
    now.needs(not missing, f"{spec.name} has no {', '.join(missing)}")


def framework(now: Situation) -> Iterator[Change]:
    """Yield every other framework."""
    now.needs(now.target.lowered_for != "measured", "a measured machine has its own framework")
    assert now.base.basis is not None
    for name in spec_files.names("frameworks"):
        if name not in (*NO_SOFTWARE, now.base.basis.prepared.profile.stem):
            yield Change(what=f"framework {name}", changes={"framework": name})


def library(now: Situation) -> Iterator[Change]:
    """Yield every other version of a library in use."""
    assert now.base.basis is not None
    used = now.base.basis.prepared.libraries
    now.needs(used, "no library is used by its file")
    architecture, without = now.target.architecture, []
    for name in spec_files.names("libraries"):
        other = load_library(name)
        now_used = used.get(f"{other.processor}_{other.kind}")
        if now_used is None or now_used.stem == name:
            continue
        if architecture in now_used.architecture and architecture not in other.architecture:
            without.append(name)  # a gain would be that of values which are not known
        else:
            yield Change(what=f"library {name}", changes={"library": name})
    now.needs(not without, f"no values for {architecture}, which those in use have: {', '.join(without)}")


def foreign_library(p: Prediction, known: Sequence[LibraryProfile]) -> str:
    """Say which library of a prediction cannot run on its GPU, because it is another vendor's.

    Parameters
    ----------
    p : Prediction
        What is predicted. [-]
    known : sequence of LibraryProfile
        All libraries that there is a file of. [-]

    Returns
    -------
    str
        The reason; empty where all can: where a library that has values for the GPU's architecture has some for
        architectures of theirs too, or none has any for it. [-]
    """
    assert p.basis is not None
    prepared = p.basis.prepared
    architecture = prepared.target.architecture
    for library in prepared.libraries.values():
        if library.processor == "gpu" and not _may_run(library, architecture, known):
            return f"{library.name} is another vendor's: it does not run on {architecture}"
    return ""


def _may_run(library: LibraryProfile, architecture: str, known: Sequence[LibraryProfile]) -> bool:
    for_it = [other for other in known if architecture in other.architecture and other.kind == library.kind]
    own = set(library.architecture) - {ANY_ARCHITECTURE}
    return not for_it or any(own & set(other.architecture) for other in for_it)
