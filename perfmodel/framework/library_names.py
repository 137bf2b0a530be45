"""The libraries that a framework calls: which version of each, where it was built with another, what they may round."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from perfmodel.hardware.source import Identifier, SpecTable


class LibraryNames(SpecTable):
    """The libraries a framework calls, as file stems of ``hardware_specs/libraries``.

    Attributes
    ----------
    gpu_blas, gpu_dnn, cpu_blas : str
        Names. [-]
    by_architecture : dict of str to dict of str to str
        Other names on some architectures, where a framework was built with another version for them. [-]
    tf32 : tuple of str
        GPU libraries whose products of single-precision tensors it lets round to TF32, on devices that have it. [-]
    """

    gpu_blas: Identifier
    gpu_dnn: Identifier
    cpu_blas: Identifier
    by_architecture: dict[Identifier, dict[Literal["gpu_blas", "gpu_dnn", "cpu_blas"], Identifier]] = Field(
        default_factory=dict
    )
    tf32: tuple[Literal["gpu_blas", "gpu_dnn"], ...] = ()

    def name_of(self, role: str, architecture: str) -> str:
        """Return the library that fills a role on an architecture."""
        elsewhere = self.by_architecture.get(architecture, {})
        return elsewhere.get(role, getattr(self, role))  # type: ignore[call-overload,no-any-return]
