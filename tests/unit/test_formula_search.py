"""The smallest solution is the smallest: held against dense scans, also where two turns lie in one cell of the grid."""

import os
from functools import cache

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel.planning.formulas.evaluation import Bounded
from perfmodel.planning.formulas.named_expressions import Definitions
from perfmodel.planning.formulas.solutions import GRID, Search

FREE = ("memory_bandwidth_bytes_per_s", "peak_flop_per_s", "batch_size")
BUMPY = "alexnet" if os.environ.get("PERFMODEL_FULL_WALK") else "convolutional"
"""Network whose formulas have bumps and teeth; the smaller one is scanned and solved in a third of the time."""


@cache
def opened(network="alexnet"):
    return pm.formula(graph=pm.zoo.build(network), device="tesla_p100_pcie", framework="torch_423cfba", batch_size=32,
                      free=FREE)  # fmt: skip


def scanned(formula, symbol, low, high, pieces=32):
    """Return a fine scan, the places of the grid, and for each place of the scan the end of its cell of the grid."""
    if symbol == "batch_size":
        places = np.arange(low, high + 1.0)
        return places, formula(batch_size=places)
    grid = np.geomspace(low, high, GRID)
    places = np.unique(np.append(np.geomspace(low, high, (GRID - 1) * pieces + 1), grid))
    return places, formula(**{symbol: places})


def first_other_side(values, target):
    return int(np.flatnonzero(np.sign(values - target) != np.sign(values[0] - target))[0])


@pytest.mark.parametrize("quantity", ["compute_s", "memory_bound_s", "step_s", "samples_per_s"])
@pytest.mark.parametrize("symbol", FREE[:2])
def test_bounds_hold_what_they_bound(quantity, symbol):
    f = opened().of(quantity)
    at = {f.symbols[name]: value for name, value in f.stated.items() if name != symbol}
    ends = f.stated[symbol] * np.geomspace(0.01, 100, 60)
    bounds = Bounded(f.definitions, f.named_parts[quantity], f.symbols[symbol], at)(ends[:-1], ends[1:])
    shares = np.random.default_rng(0).random((40, 59))
    places = ends[:-1] * (ends[1:] / ends[:-1]) ** shares
    values = f(**{symbol: places})
    rounding = 1e-12 * np.abs(values)
    assert (values >= bounds.low - rounding).all()
    assert (values <= bounds.high + rounding).all()
    assert np.median((bounds.high - bounds.low) / values.max(axis=0)) < 0.5  # they say something
    steps = 1e-6 * places
    slopes = (f(**{symbol: places + steps}) - f(**{symbol: places - steps})) / (2 * steps)
    inside = (places - steps > ends[:-1]) & (places + steps < ends[1:]) & ~bounds.jumps
    off = 1e-5 * np.abs(values / places)
    assert ((slopes >= bounds.slope_low - off) | ~inside).all()
    assert ((slopes <= bounds.slope_high + off) | ~inside).all()


@pytest.mark.parametrize(
    ("quantity", "symbol"), [("compute_s", FREE[0]), ("compute_s", FREE[1]), ("memory_bound_s", FREE[0])]
)
def test_a_bump_between_two_places_of_the_grid_is_not_missed(quantity, symbol):
    f = opened(BUMPY).of(quantity)
    low, high = f.stated[symbol] / 1000, f.stated[symbol] * 1000
    places, values = scanned(f, symbol, low, high)
    grid = np.geomspace(low, high, GRID)
    so_far = np.maximum.accumulate(f(**{symbol: grid})), np.minimum.accumulate(f(**{symbol: grid}))
    cells = np.clip(np.searchsorted(grid, places), 0, GRID - 1)
    # more, or less, than at any place of the grid up to the end of the cell: at the ends of the cell nothing shows
    above, below = values - so_far[0][cells], so_far[1][cells] - values
    hidden = np.flatnonzero(np.maximum(above, below) > 1e-9 * values)
    assert len(hidden) > 3
    for place in hidden[len(hidden) // 4 :: len(hidden) // 2]:
        reached = so_far[0][cells[place]] if above[place] > 0 else so_far[1][cells[place]]
        target = float(values[place] + reached) / 2
        found = f.solve_for(symbol, target)
        assert found.value <= places[first_other_side(values, target)]
        assert np.sign(f(**{symbol: found.value}) - target) != np.sign(values[0] - target) or f(
            **{symbol: found.value}
        ) == pytest.approx(target, rel=1e-12)
        assert found.value < grid[cells[place]]


@pytest.mark.parametrize("quantity", ["step_s", "samples_per_s"])
def test_the_first_of_many_whole_numbers_is_that_of_trying_each(quantity):
    f = opened(BUMPY).of(quantity)
    sizes, values = scanned(f, "batch_size", 1, 20_000)  # more than are tried at first
    # teeth of the saw that are higher than all before, which the next size is not, and some sizes anywhere
    so_far = np.maximum.accumulate(values)
    teeth = np.flatnonzero((values[1:-1] >= so_far[1:-1]) & (values[2:] < values[1:-1])) + 1
    assert len(teeth) > 3 or quantity == "step_s"  # a step never gets shorter
    places = [*teeth[:: 1 + len(teeth) // 3][:3], 77, 5_003, 16_385]
    targets = [values[place] * (1 - 1e-12) for place in places]
    for target in map(float, targets):
        found = f.solve_for("batch_size", target, between=(1, 20_000))
        assert found.value == sizes[first_other_side(values, target)]
        assert found.proven


def test_a_rate_that_rises_and_falls_is_solved_where_it_rises():
    f = opened().of("samples_per_s")
    _, values = scanned(f, "batch_size", 1, 256)
    assert (np.diff(values) < 0).any()
    assert (np.diff(values) > 0).any()
    target = 0.999 * values.max()
    found = f.solve_for("batch_size", target, between=(1, 256))
    assert found.value == 1 + np.argmax(values >= target)


def search_of(expression, symbol):
    bounded = Bounded(Definitions(), expression, symbol, {})
    function = sympy.lambdify(symbol, expression, "numpy")
    return Search(difference=lambda x: (function(x), np.ones_like(x)), bounds=bounded, unit=0.0)


@pytest.mark.parametrize("width", [1e-1, 1e-3, 1e-5])
def test_two_turns_close_together_are_found(width):
    x = sympy.Symbol("x", positive=True)
    # nothing at 3, and more on both sides: less a little, it dips below zero for a moment in the middle of a cell
    dip = x / 3 + 3 / x - 2
    search = search_of(dip - width**2, x)
    turn = search.first_turn(np.array([1.0, 8.0, 20.0]))
    # as far as 1e-13 of the sum, which is its rounding, is moved by the slope there
    rounding = 1e-9 + 3e-13 / width
    assert turn.high == pytest.approx(3 * (1 + width**2 / 2 - width * np.sqrt(1 + width**2 / 4)), abs=rounding)
    assert turn.certain
    near = search_of(dip + width**2, x)
    assert near.first_turn(np.array([1.0, 8.0, 20.0])) is None
    assert near.certain


def test_a_stretch_where_two_are_equal_is_told():
    # slow links show, fast ones hide behind the computing: from there on both are nothing
    f = pm.formula(graph=pm.zoo.lstm32(), device="gtx_1080", batch_size=64, framework="caffe_cudnn5",
                   free=["link_bandwidth_bytes_per_s", "batch_size"])  # fmt: skip
    between = (1e3, 1e9)
    found = f.crossover("exposed_transfer_s", "input_wait_s", symbol="link_bandwidth_bytes_per_s", between=between)
    exposed = f.of("exposed_transfer_s")
    assert found.equal_between == (found.value, pytest.approx(1e9))
    assert exposed(link_bandwidth_bytes_per_s=found.value * (1 - 1e-6)) > 0
    assert exposed(link_bandwidth_bytes_per_s=found.value * (1 + 1e-6)) == 0
    assert "are equal from" in found.sentence
    assert "below, exposed_transfer_s is larger" in found.sentence


def test_equal_from_the_lower_end_on():
    f = pm.formula(graph=pm.zoo.lstm32(), device="gtx_1080", batch_size=64, framework="caffe_cudnn5",
                   free=["peak_flop_per_s", "link_bandwidth_bytes_per_s"])  # fmt: skip
    bandwidth = f.crossover("exposed_transfer_s", "input_wait_s", symbol="link_bandwidth_bytes_per_s",
                            between=(1e3, 1e9)).value  # fmt: skip
    at = {"link_bandwidth_bytes_per_s": 1.05 * bandwidth}
    found = f.crossover("step_s", "device_s", symbol="peak_flop_per_s", at=at)
    exposed = f.of("exposed_transfer_s")
    assert found.value > f.stated["peak_flop_per_s"]
    assert exposed(peak_flop_per_s=found.value * (1 - 1e-6), **at) == 0
    assert exposed(peak_flop_per_s=found.value * (1 + 1e-6), **at) > 0
    assert "from there on step_s is larger" in found.sentence
    stays = exposed.solve_for("peak_flop_per_s", 0.0, at=at)
    assert stays.value == pytest.approx(f.stated["peak_flop_per_s"] / 1000)
    assert stays.equal_between[1] == pytest.approx(found.value, rel=1e-9)
    assert "stays there up to" in stays.sentence
