"""What every test and doctest shares."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_kept_fits() -> Iterator[None]:
    """Fit anew in every test, and write nothing to the cache of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_CACHE", "")
        yield
