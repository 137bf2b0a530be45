"""What the constants of a class are multiplied by, of points as of a network: by the one lowering that both share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.measured_kernel import kernel_features
from perfmodel.framework.kernel_classes import family_of, measured_kernel
from perfmodel.framework.kernel_table import MATMUL_COLUMNS, STREAM_COLUMNS
from perfmodel.kernels import Matmul
from perfmodel.records import ELEMENT_BYTES, Operation
from perfmodel.units import MIB

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Machine:
    """What the features depend on.

    Parameters
    ----------
    vector_lanes : int
        Elements of single precision in a vector. [1]
    near_cache_bytes, cache_bytes : float
        Cache in which one kernel's operands stay; last-level cache. [B]
    reuse_bytes : float
        Other traffic after which data has left the caches. [B]
    memory_bytes : float
        Memory. [B]
    """

    vector_lanes: int
    near_cache_bytes: float
    cache_bytes: float
    reuse_bytes: float
    memory_bytes: float

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Machine:
        """Return it from the table ``machine`` of a file."""
        return cls(
            vector_lanes=int(facts["vector_lanes"]),
            near_cache_bytes=float(facts["near_cache_mib"]) * MIB,
            cache_bytes=float(facts["cache_mib"]) * MIB,
            reuse_bytes=float(facts.get("reuse_mib") or facts["cache_mib"]) * MIB,
            memory_bytes=float(facts["memory_gib"]) * MIB * 1024,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Operations of one class as a fit sees them.

    Parameters
    ----------
    family : str
        ``contraction``, ``convolution`` or ``stream``. [-]
    names : tuple of str
        Constants. [-]
    features : ndarray, shape (operations, constants)
        What each constant is multiplied by. [1, FLOP, B]
    flop_count, moved_bytes : ndarray, shape (operations,)
        Arithmetic and traffic. [FLOP, B]
    """

    family: str
    names: tuple[str, ...]
    features: NDArray[np.float64]
    flop_count: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]


def columns_of(operations: Sequence[Operation], *, dtype: str, machine: Machine) -> Columns:
    """Return the columns of operations that are all of one family.

    Parameters
    ----------
    operations : sequence of Operation
        At least one. [-]
    dtype : str
        Data type. [-]
    machine : Machine
        Vectors and caches. [-]

    Returns
    -------
    Columns
        One row for each. [-]
    """
    size = ELEMENT_BYTES[dtype]
    kernels = [measured_kernel(operation, element_bytes=size) for operation in operations]
    names = MATMUL_COLUMNS if isinstance(kernels[0], Matmul) else STREAM_COLUMNS
    table = {name: np.array([float(getattr(kernel, name)) for kernel in kernels]) for name in names}
    family = family_of(kernels[0].efficiency)
    features = kernel_features(
        family,
        table,
        element_bytes=size,
        vector_lanes=machine.vector_lanes,
        near_cache_bytes=machine.near_cache_bytes,
    )
    return Columns(
        family=family,
        names=tuple(features),
        features=np.stack([np.broadcast_to(column, len(kernels)) for column in features.values()], axis=1).astype(
            float
        ),
        flop_count=np.array([float(kernel.flop_count) for kernel in kernels]),
        moved_bytes=table["read_bytes"] + table["written_bytes"],
    )
