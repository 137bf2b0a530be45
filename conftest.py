"""What every test and doctest shares."""

import gc
import os
from collections.abc import Iterator

import pytest

for _library in (
    "OPENBLAS",
    "MKL",
    "OMP",
):  # before numpy: threads that wait for tiny products take four times the work
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every process that tests start would compile all modules anew
gc.set_threshold(100_000, 20, 100)  # graphs and modules that tests keep are many: searched rarely, tests take 12 % less


@pytest.fixture(autouse=True, scope="session")
def _no_kept_fits() -> Iterator[None]:
    """Fit anew in every test, and write nothing to the cache of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_CACHE", "")
        yield
