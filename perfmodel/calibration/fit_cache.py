"""Fits kept on disk by the content they follow from, so that asking again costs nothing and nothing can be stale."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfmodel.atomic_write import replacement_of
from perfmodel.calibration.fit import Fit
from perfmodel.hardware import spec_files

ENVIRONMENT_VARIABLE: Final = "PERFMODEL_CACHE"
"""Names the folder of kept fits; empty to keep none."""


def cache_folder() -> Path | None:
    """Return where fits are kept.

    Returns
    -------
    Path or None
        ``$PERFMODEL_CACHE``, else ``perfmodel`` in the user's cache folder; None where the variable is empty. [-]
    """
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    if given is not None:
        return Path(given) if given else None
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "perfmodel" / "fits"


FOLLOWING_FOLDERS: Final = frozenset({"calibrations", "fits", "intervals"})
"""Kind folders of what follows from fits, and of fit plans, of which callers name the one in use."""


ASIDE: Final = (
    "cli/",
    "importers/",
    "presentation/",
    "validation/",
    "calibration/interval_fit.py",
    "cost/interval.py",
    "hardware/interval_scale.py",
    "hardware/seen.py",
    *(f"prediction/{module}.py" for module in ("doubt", "explanation", "interval", "provenance")),
)
"""Parts of the package that no fit of shipped tables passes through, but for the modules of ``PREPARING``."""

PREPARING: Final = frozenset(
    f"validation/{module}.py"
    for module in ("ablation", "cells", "fitted", "kernel_protocols", "kernel_scores", "protocols", "system_tables")
)
"""Modules of the validation that prepare what is fitted; the others only score what came out."""


@cache
def code_fingerprint() -> str:
    """Return a fingerprint of every module that a fit may pass through: another formula is another fit."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name in PREPARING or not name.startswith(ASIDE):
            digest.update(name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def fingerprint(parts: Iterable[object]) -> str:
    """Return a fingerprint of what a fit follows from: the code, every spec file, and what the caller names.

    Parameters
    ----------
    parts : iterable of object
        Rows, runs, plan, protocol: anything whose ``repr`` tells its content. [-]

    Returns
    -------
    str
        Hexadecimal digits. [-]
    """
    digest = hashlib.sha256(code_fingerprint().encode())
    for folder in sorted(spec_files.NOUN_BY_FOLDER.keys() - FOLLOWING_FOLDERS):
        for path in spec_files.files(folder):
            digest.update(f"{folder}/{path.name}".encode())
            digest.update(path.read_bytes())
    for part in parts:
        digest.update(repr(part).encode())
    return digest.hexdigest()[:32]


def kept_fits(key: str) -> list[Fit] | None:
    """Return the fits kept under a key.

    Parameters
    ----------
    key : str
        Fingerprint. [-]

    Returns
    -------
    list of Fit or None
        None where there are none, or what is there cannot be read. [-]
    """
    folder = cache_folder()
    if folder is None:
        return None
    try:
        content = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
        return [_fit_of(entry) for entry in content]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_fits(key: str, fits: Iterable[Fit]) -> None:
    """Keep fits under a key; a folder that cannot be written is no fault.

    Parameters
    ----------
    key : str
        Fingerprint. [-]
    fits : iterable of Fit
        Fits in the order of their folds. [-]
    """
    folder = cache_folder()
    if folder is None:
        return
    content = [
        {
            "names": list(fit.names),
            "log_factors": fit.log_factors.tolist(),
            "covariance": fit.covariance.tolist(),
            "parameter_count": fit.parameter_count,
            "converged": fit.converged,
            "mean_abs_log_ratio": fit.mean_abs_log_ratio,
        }
        for fit in fits
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacement_of(folder / f"{key}.json") as path:
            path.write_text(json.dumps(content), encoding="utf-8")
    except OSError:
        return


def _fit_of(entry: dict[str, Any]) -> Fit:
    return Fit(
        names=tuple(entry["names"]),
        log_factors=np.array(entry["log_factors"]),
        covariance=np.array(entry["covariance"]),
        parameter_count=int(entry["parameter_count"]),
        converged=bool(entry["converged"]),
        mean_abs_log_ratio=float(entry["mean_abs_log_ratio"]),
    )
