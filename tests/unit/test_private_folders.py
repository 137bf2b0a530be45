"""What is cached lies where only the user may write; what anybody could have planted is not read."""

import os
import stat

import pytest

from perfmodel import private_folders
from perfmodel.errors import PerfmodelWarning
from perfmodel.private_folders import cached_file, temporary_file


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFMODEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_new_folder_is_the_users_own_whatever_the_umask(cache):
    before = os.umask(0)
    try:
        assert cached_file("fit.json", of="fits") == cache / "fit.json"
        assert mode(cache) == 0o700
    finally:
        os.umask(before)


def test_the_usual_folder_is_of_its_kind(monkeypatch, tmp_path):
    monkeypatch.delenv("PERFMODEL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = cached_file("net.json", of="graphs")
    assert path == tmp_path / "perfmodel" / "graphs" / "net.json"
    assert mode(path.parent) == 0o700


@pytest.mark.parametrize("others", [0o770, 0o702])
def test_a_folder_that_others_may_write_is_not_used(cache, others):
    cache.mkdir()
    cache.chmod(others)
    with pytest.warns(PerfmodelWarning, match="nothing is cached in .*: nobody else may write to it"):
        assert cached_file("fit.json", of="fits") is None


def test_a_folder_of_another_user_is_not_used(cache, monkeypatch):
    cache.mkdir()
    monkeypatch.setattr(private_folders.os, "getuid", lambda: 12345)
    cache_owner = cache.stat().st_uid
    if cache_owner == 0:  # the administrator's folder is everybody's: take one who is not
        os.chown(cache, 54321, -1)
    with pytest.warns(PerfmodelWarning, match="it must belong to you, not to user"):
        assert cached_file("fit.json", of="fits") is None


@pytest.mark.parametrize("stated", ["", "file/inside", "x" * 5000])
def test_where_no_folder_can_be_nothing_is_cached(monkeypatch, tmp_path, stated):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERFMODEL_CACHE", stated and str(tmp_path / stated))
    assert cached_file("fit.json", of="fits") is None


def test_a_planted_folder_for_temporary_files_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    usual = temporary_file("points.json")
    assert mode(usual.parent) == 0o700
    assert temporary_file("points.json") == usual
    usual.parent.chmod(0o777)
    other = temporary_file("points.json")
    assert other.parent != usual.parent
    assert mode(other.parent) == 0o700
    usual.parent.rmdir()
    usual.parent.symlink_to(tmp_path)
    assert temporary_file("points.json").parent not in (usual.parent, tmp_path)
