"""Files are replaced whole or not at all; links are followed; what is no regular file is refused, not destroyed."""

import os
from pathlib import Path

import pytest

from perfmodel.atomic_write import replacement_of
from perfmodel.errors import ArgumentError


def write(path: Path, text: str) -> None:
    with replacement_of(path) as temporary:
        assert temporary.parent == path.resolve().parent
        temporary.write_text(text, encoding="utf-8", newline="\n")


def test_writing_replaces_the_file_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "calibration.toml"
    path.write_text("old", encoding="utf-8")
    write(path, "new µs\n")
    assert path.read_text(encoding="utf-8") == "new µs\n"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "calibration.toml"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(ArgumentError, match="No space left on device") as refused:
        write(path, "new")
    assert refused.value.given == str(path)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_of_the_writer_itself_keeps_the_old_file_and_its_own_name(tmp_path):
    path = tmp_path / "calibration.toml"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(UnicodeEncodeError):
        write(path, "half \ud800")  # half of a pair, which UTF-8 cannot say
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_followed_and_a_pipe_is_not_destroyed(tmp_path):
    target, link, pipe = tmp_path / "target.toml", tmp_path / "link.toml", tmp_path / "pipe"
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    write(link, "new")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"
    os.mkfifo(pipe)
    with pytest.raises(ArgumentError, match="regular file"):
        write(pipe, "new")
    assert pipe.is_fifo()


def test_a_link_to_nothing_makes_its_target_and_links_in_a_circle_are_refused(tmp_path):
    link, first, second = tmp_path / "link", tmp_path / "first", tmp_path / "second"
    link.symlink_to(tmp_path / "target")
    write(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "target").read_text(encoding="utf-8") == "new"
    first.symlink_to(second)
    second.symlink_to(first)
    with pytest.raises(ArgumentError, match=r"path must be a"):
        write(first, "new")
    assert first.is_symlink()
    assert second.is_symlink()


def test_a_path_that_cannot_be_written(tmp_path):
    with pytest.raises(ArgumentError, match="nowhere does not exist") as refused:
        write(tmp_path / "nowhere" / "x.toml", "")
    assert refused.value.given == str(tmp_path / "nowhere" / "x.toml")
    with pytest.raises(ArgumentError, match="regular file"):
        write(tmp_path, "")
    (tmp_path / "file").write_text("old", encoding="utf-8")
    with pytest.raises(ArgumentError, match="Not a directory"):
        write(tmp_path / "file" / "x.toml", "")
