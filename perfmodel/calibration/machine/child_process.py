"""What a process that measures is started with."""

from __future__ import annotations

import os
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that tell libraries how many threads they may use."""


def child_environment(threads: int) -> dict[str, str]:
    """Return the environment of another process: threads fixed before any library is loaded, this package found.

    Parameters
    ----------
    threads : int
        Threads of its libraries. [1]

    Returns
    -------
    dict of str to str
        Values by name. [-]
    """
    found = [str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")]
    counts = {name: str(threads) for name in THREADS}
    return {**os.environ, **counts, "PYTHONPATH": os.pathsep.join(path for path in found if path)}
