"""The refresh question of the survey, to the digits it prints, and done right."""

import math

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, UnknownNameError

SURVEY = {"memory_bytes": 8e9, "bandwidth_bytes_per_s": 31.5e9, "compute_s": 0.5}

TABLE = {  # devices: (n - 1) t, idle (a), efficiency (a), utilisation (b), utilisation (c)
    1: (0, 0, 1, 0.663158, 1),
    2: (0.253968, 0, 1, 0.663158, 0.984375),
    3: (0.507937, 0.007937, 0.984375, 0.656250, 0.656250),
    4: (0.761905, 0.261905, 0.656250, 0.492188, 0.492188),
    5: (1.015873, 0.515873, 0.492188, 0.393750, 0.393750),
}
DIGITS = 5.01e-7  # six printed digits; 0.4921875 lies halfway


@pytest.mark.parametrize(("count", "row"), TABLE.items())
def test_the_table_to_six_digits(count, row):
    survey, single, double = (
        pm.refresh(**SURVEY, device_count=count, reading=reading)
        for reading in ("survey", "single_buffer", "double_buffer")
    )
    assert survey.all_transfers_s - survey.transfer_s == pytest.approx(row[0], abs=DIGITS)
    assert survey.idle_s == pytest.approx(row[1], abs=DIGITS)
    assert (survey.utilisation, single.utilisation, double.utilisation) == pytest.approx(row[2:], abs=DIGITS)


@pytest.mark.parametrize("count", range(1, 9))
def test_the_formulas_beyond_the_table(count):
    t, c = 8 / 31.5, 0.5
    period_s = {
        "survey": max(c, (count - 1) * t),
        "single_buffer": t + max(c, (count - 1) * t),
        "double_buffer": max(c, count * t),
    }
    for reading, expected in period_s.items():
        answer = pm.refresh(**SURVEY, device_count=count, reading=reading)
        assert answer.period_s == pytest.approx(expected, rel=1e-12)
        assert answer.utilisation == pytest.approx(c / expected, rel=1e-12)
        assert answer.idle_s == pytest.approx(expected - c, abs=1e-12)


def test_the_numbers_that_the_survey_prints():
    assert f"{pm.refresh(**SURVEY).transfer_s:.6f}" == "0.253968"
    assert f"{pm.refresh(**SURVEY, device_count=4).all_transfers_s:.6f}" == "1.015873"
    assert f"{pm.refresh(**SURVEY, device_count=3).all_transfers_s:.4f}" == "0.7619"
    printed = pm.refresh(**SURVEY, device_count=4, reading="survey")
    assert f"{printed.idle_s:.4f}" == "0.2619"
    assert math.floor(printed.utilisation * 1e4) / 100 == 65.62  # printed truncated
    assert printed.utilisation == pytest.approx(0.65625, rel=1e-12)
    # which is what three devices reach, and four only this
    assert pm.refresh(**SURVEY, device_count=3).utilisation == pytest.approx(0.65625, rel=1e-12)
    assert f"{100 * pm.refresh(**SURVEY, device_count=4).utilisation:.2f}" == "49.22"
    assert f"{100 * pm.refresh(**SURVEY, device_count=4, reading='single_buffer').utilisation:.2f}" == "49.22"


def test_the_default_counts_the_own_refresh():
    assert pm.refresh(**SURVEY, device_count=4).reading == "double_buffer"


def test_the_real_card_runs_at_its_own_generation():
    real = pm.refresh(
        memory_bytes=8e9, compute_s=0.5, device_count=4, device="gtx_1080", link="pcie_4_x16", reading="survey"
    )
    assert real.transfer_s == pytest.approx(0.5078, abs=5e-5)
    assert real.all_transfers_s - real.transfer_s == pytest.approx(1.52344, abs=5e-6)
    assert real.utilisation == pytest.approx(0.3282, abs=5e-5)
    assert "runs at pcie_3_x16 in a slot of pcie_4_x16" in real.describe()
    assert "leaves out a device's own refresh" in real.describe()
    alone = pm.refresh(memory_bytes=8e9, compute_s=0.5, device="gtx_1080")
    assert alone.transfer_s == real.transfer_s
    assert "in a slot" not in alone.describe()


def test_a_link_alone_is_the_slot_as_it_stands():
    exact = pm.refresh(memory_bytes=8e9, compute_s=0.5, link="pcie_4_x16")
    assert exact.transfer_s == pytest.approx(0.253906, abs=DIGITS)
    assert exact == pm.refresh(memory_bytes=8e9, compute_s=0.5, link=pm.load_link("pcie_4_x16"))


def test_the_memory_of_a_device_is_in_gibibytes():
    card = pm.refresh(compute_s=0.5, device="gtx_1080", bandwidth_bytes_per_s=31.5e9)
    assert card.memory_bytes == 8 * 2**30
    assert card.transfer_s == pytest.approx(0.272696, abs=DIGITS)
    assert "as asked, although NVIDIA GeForce GTX 1080 has pcie_3_x16" in card.describe()
    assert card == pm.refresh(compute_s=0.5, device=pm.load_device("gtx_1080"), bandwidth_bytes_per_s=31.5e9)


def test_the_words_hold_the_numbers():
    words = pm.refresh(**SURVEY, device_count=4).describe()
    for number in ("4 devices", "31.50 GB/s", "8.000 GB", "254.0 ms", "1.016 s", "49.2 %"):
        assert number in words


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"memory_bytes": 0}, ArgumentError, "memory_bytes must be "),
        ({"memory_bytes": -8e9}, ArgumentError, "memory_bytes"),
        ({"memory_bytes": None}, ArgumentError, "memory_bytes must be"),
        ({"bandwidth_bytes_per_s": float("nan")}, ArgumentError, r"bandwidth_bytes_per_s must.*\(got nan"),
        ({"bandwidth_bytes_per_s": None}, ArgumentError, "bandwidth_bytes_per_s must be"),
        ({"bandwidth_bytes_per_s": True}, ArgumentError, r"bandwidth_bytes_per_s must.*\(got True"),
        ({"compute_s": 0}, ArgumentError, r"compute_s must.*\(got 0"),
        ({"compute_s": "0.5"}, ArgumentError, r"compute_s must.*\(got '0.5'"),
        ({"device_count": 0}, ArgumentError, r"device_count must.*\(got 0"),
        ({"device_count": 1.5}, ArgumentError, r"device_count must.*\(got 1.5"),
        ({"reading": "double_bufer"}, UnknownNameError, "Did you mean 'double_buffer'"),
        ({"link": "pcie_4_x16"}, ArgumentError, "link must not be given with bandwidth_bytes_per_s="),
        ({"bandwidth_bytes_per_s": None, "link": "pcie_4_x32"}, UnknownNameError, "pcie_4_x16"),
        ({"device": "i7_3820"}, ArgumentError, "a GPU"),
        (
            {"bandwidth_bytes_per_s": None, "device": "gtx_1080", "link": "infiniband_edr"},
            ArgumentError,
            "link must be",
        ),
        ({"device": "gtx1080"}, UnknownNameError, "Did you mean 'gtx_1080'"),
    ],
)
def test_bad_questions_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        pm.refresh(**{**SURVEY, **given})
