"""What was loaded is given again, but not once a file it was made of changes, goes, or has another put before it."""

import os
import re

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, SpecError
from perfmodel.hardware import spec_files
from perfmodel.hardware.spec_files import SHIPPED_LOOK_S, kept_while_unchanged, shipped_folder, state_of

SYSTEM = "survey_fig6"
"""Names machines, which name GPUs, which name links: four files deep."""
CARD = (shipped_folder() / "devices" / "gtx_1080.toml").read_text(encoding="utf-8")


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "specs" / "devices").mkdir(parents=True)
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path / "specs"))
    return tmp_path / "specs"


def write(path, bandwidth_gb_per_s):
    """Write a card of another bandwidth, changed at another time however coarse the clock of the disk."""
    old = path.stat().st_mtime_ns if path.exists() else 0
    assert "bandwidth_gb_per_s = 320\n" in CARD
    path.write_text(CARD.replace("bandwidth_gb_per_s = 320\n", f"bandwidth_gb_per_s = {bandwidth_gb_per_s}\n"))
    os.utime(path, ns=(0, max(path.stat().st_mtime_ns, old + 1)))


def bandwidth(load=lambda: pm.load_system(SYSTEM).devices[0][1]):
    return load().memory_bandwidth_bytes_per_s / 1e9


@pytest.mark.parametrize(
    ("load", "name"), [(pm.load_system, SYSTEM), (pm.load_system, "survey_fig5"), (pm.load_device, "gtx_1080")]
)
def test_it_is_made_once(load, name):
    assert load(name) is load(name)


def test_a_file_put_before_changed_and_taken_away_is_noticed_from_afar(own):
    card = own / "devices" / "gtx_1080.toml"
    kept = pm.load_system(SYSTEM)
    assert bandwidth() == 320
    write(card, 321)
    assert bandwidth() == bandwidth(lambda: pm.load_device("gtx_1080")) == 321
    write(card, 322)
    assert bandwidth() == bandwidth(lambda: pm.load_device("gtx_1080")) == 322
    assert dict(kept.devices)["node0/gpu0"].memory_bandwidth_bytes_per_s == 320e9  # what was given is not altered
    card.unlink()
    assert bandwidth() == bandwidth(lambda: pm.load_device("gtx_1080")) == 320


def test_a_part_that_was_loaded_before_counts_as_well(own):
    card = own / "devices" / "gtx_1080.toml"
    write(card, 321)
    assert bandwidth(lambda: pm.load_device("gtx_1080")) == 321
    assert bandwidth() == 321  # made of a card that was kept
    write(card, 322)
    assert bandwidth() == 322


def test_other_spec_folders_have_other_systems(own, monkeypatch):
    write(own / "devices" / "gtx_1080.toml", 321)
    assert bandwidth() == 321
    monkeypatch.delenv("PERFMODEL_SPECS")
    assert bandwidth() == 320


def test_a_library_put_before_and_taken_away_is_noticed_by_predictions(own):
    graph = pm.zoo.lenet5()

    def compute_s():
        return pm.predict(graph, batch_size=64, device="gtx_1080", framework="tensorflow_0_9").compute_s

    before = compute_s()
    (name,) = (
        spec.stem
        for spec in pm.predict(graph, batch_size=64, device="gtx_1080", framework="tensorflow_0_9").sources
        if getattr(spec, "kind", "") == "dnn"
    )
    text = (shipped_folder() / "libraries" / f"{name}.toml").read_text(encoding="utf-8")
    slower = re.sub(r"(?m)^(conv_\w+ = 0\.)\d", r"\g<1>1", text)
    assert slower != text
    own_library = own / "libraries" / f"{name}.toml"
    own_library.parent.mkdir()
    own_library.write_text(slower, encoding="utf-8")
    assert compute_s() > 1.05 * before
    own_library.unlink()
    assert compute_s() == before


def test_faults_are_told_until_they_are_mended(own):
    card = own / "devices" / "gtx_1080.toml"
    write(card, -1)
    for _ in range(2):
        with pytest.raises(SpecError, match="bandwidth_gb_per_s"):
            pm.load_system(SYSTEM)
    write(card, 321)
    assert bandwidth() == 321


def test_a_path_is_one_of_the_folder_where_one_is(tmp_path, monkeypatch):
    for name, rate in (("first", 321), ("second", 322)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "card.toml", rate)
    for name, rate in (("first", 321), ("second", 322), ("first", 321)):
        monkeypatch.chdir(tmp_path / name)
        assert bandwidth(lambda: pm.load_device("card.toml")) == rate


def test_names_serve_where_the_working_folder_is_gone(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert bandwidth() == 320


def test_what_names_no_file_is_refused():
    with pytest.raises(ArgumentError, match="a name, or a path"):
        pm.load_system(["survey_fig6"])


def test_a_file_that_keeps_its_time_is_loaded_again(own):
    """As after ``cp -p``, a checkout, or two writes within one tick of the clock."""
    path = own / "devices" / "gtx_1080.toml"
    write(path, 320)
    then = path.stat()
    assert bandwidth(lambda: pm.load_device("gtx_1080")) == 320
    path.write_text(path.read_text().replace("bandwidth_gb_per_s = 320\n", "bandwidth_gb_per_s = 640\n"))
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert path.stat().st_size == then.st_size
    assert bandwidth(lambda: pm.load_device("gtx_1080")) == 640


@pytest.mark.parametrize("is_shipped", [True, False])
def test_shipped_files_are_looked_at_again_after_a_while_and_own_ones_at_once(tmp_path, monkeypatch, is_shipped):
    clock_s = [100.0]
    monkeypatch.setattr(spec_files, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(spec_files, "shipped_folder", lambda: tmp_path / ("shipped" if is_shipped else "other"))
    path = tmp_path / "shipped" / "card.toml"
    path.parent.mkdir()
    path.write_text("1")

    @kept_while_unchanged(lambda: "")
    def load(name):
        state_of(path)
        return path.read_text()

    assert load("card") == "1"
    path.write_text("22")
    clock_s[0] += 0.9 * SHIPPED_LOOK_S
    assert load("card") == ("1" if is_shipped else "22")
    clock_s[0] += 0.2 * SHIPPED_LOOK_S
    assert load("card") == "22"
