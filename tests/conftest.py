"""Property tests: not timed anywhere; other examples in every run, but the same ones in continuous integration."""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "project",
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("project")


def pytest_runtest_setup(item):
    """Skip what is marked ``gpu`` where torch finds none."""
    if item.get_closest_marker("gpu") is not None:
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("torch finds no CUDA GPU here")


@pytest.fixture
def fits_of_this_run(tmp_path_factory, monkeypatch):
    """Let a test that changes no formula take fits that another test of this run, in whatever process, has made."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers
    monkeypatch.setenv("PERFMODEL_CACHE", str(folder / "fits"))


@pytest.fixture
def quick_collections():
    """Let a test collect garbage without a look at the millions of objects that other tests have left."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def hears_ctrl_c():
    """Let commands that a test starts hear Ctrl-C where the tests themselves ignore it, as behind ``nohup``."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
