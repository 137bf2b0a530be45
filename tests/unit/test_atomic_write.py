"""Files are replaced whole or not at all; links are followed; what is no regular file is refused, not destroyed."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perfmodel.atomic_write import check_room, replacement_of, save_text
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


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    """And nothing of a writer that lives."""
    path = tmp_path / "sweep.csv"
    path.write_text("old", encoding="utf-8")
    code = f"""
from perfmodel.atomic_write import replacement_of
with replacement_of({str(path)!r}) as temporary:
    temporary.write_text("half")
    print("written", flush=True)
    input()
"""
    writer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert writer.stdout.readline() == b"written\n"
        save_text(path, "new")
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        writer.kill()
        writer.communicate()
    assert path.read_text(encoding="utf-8") == "new"
    save_text(path, "newer")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text(encoding="utf-8") == "newer"


def test_a_file_that_another_writer_creates_while_its_place_is_looked_at_is_replaced(tmp_path, monkeypatch):
    """Whoever asks sees no file, and there is one when they ask in another way."""
    path, ask = tmp_path / "x.json", os.stat

    def created_once_it_was_missed(asked, **options):
        if asked == path:
            path.unlink(missing_ok=True)
        try:
            return ask(asked, **options)
        except FileNotFoundError:
            if asked == path:
                path.write_text("another's", encoding="utf-8")
            raise

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", created_once_it_was_missed)
        save_text(path, "ours")
    assert path.read_text(encoding="utf-8") == "ours"


def test_writers_at_once_leave_the_text_of_one(tmp_path):
    path = tmp_path / "x.json"
    writers = [
        threading.Thread(target=lambda letter=letter: [save_text(path, letter * 10_000) for _ in range(20)])
        for letter in "abcdefgh"
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    text = path.read_text(encoding="utf-8")
    assert (len(text), len(set(text))) == (10_000, 1)
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_stays_private_and_the_longest_name_can_be_written(tmp_path):
    path = tmp_path / ("x" * 255)
    save_text(path, "old")
    path.chmod(0o600)
    save_text(path, "new")
    assert (path.read_text(encoding="utf-8"), path.stat().st_mode & 0o777) == ("new", 0o600)


def test_room_is_looked_for_without_touching_the_file(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("old", encoding="utf-8")
    check_room(path, size_bytes=1000)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]
