"""The composition of a step from kernels whose times are set by hand, and one path for numbers, arrays, symbols."""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import sympy

from perfmodel import zoo
from perfmodel.cost.pipeline_order import orders_of
from perfmodel.framework.kernel_table import LayerOperation, build_kernel_table
from perfmodel.framework.profile import load_framework
from perfmodel.framework.rules import PassRule
from perfmodel.graph import LayerGraph
from perfmodel.hardware.library import LibrarySupport
from perfmodel.layers import Convolution2d, CrossEntropy, Dense, Flatten, ReLU, load_optimizer
from perfmodel.planning.formulas.evaluation import Values
from perfmodel.planning.formulas.named_expressions import Definitions
from perfmodel.prediction.device.cpu_target import CpuNumbers
from perfmodel.prediction.device.step_time import PARTS, chosen_times, group_times, step_time
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.job.compose import StageWork, compose
from perfmodel.prediction.job.lowered import lowered_graph
from perfmodel.records import Contraction, MemoryPass, Phase, Role
from perfmodel.symbolic import naming
from tests.lowering_rules import PLAIN, changed

UNLIMITED = float("inf")
N = sympy.Symbol("N", positive=True, integer=True)


@dataclass(frozen=True, slots=True)
class Toy:
    """A processor of 1 FLOP/s and 1 B/s."""

    launch_s: float = 0.0
    dispatch_s: float = 0.0
    step_overhead_s: float = 0.0
    overlap_exponent: float = math.inf
    configuration_count: None = None
    queued: bool = False
    issuer_dispatch_s: None = None

    def matmul_times(self, columns, efficiency):
        flop_count = 2 * columns["m"] * columns["n"] * columns["k"] * columns["count"]
        return flop_count, columns["read_bytes"] + columns["written_bytes"]

    def stream_times(self, columns, efficiency):
        return columns["flop_count"], columns["read_bytes"] + columns["written_bytes"]


def parts_of(parts):
    """All parts of a step as floats."""
    return [float(getattr(parts, name)) for name in PARTS]


def formula_of(symbol, table, numbers, **how):
    """The parts of a step as a function of a symbol, each expression of it written once."""
    definitions = Definitions()
    with naming(definitions):
        parts = step_time(table, numbers, **how)
    wanted = [getattr(parts, name) for name in PARTS]
    return lambda value: [float(each) for each in Values(definitions, [symbol], wanted)(value)]


def toy_step(numbers, passes=()):
    """One product of 10 x 10 x 10 N, two passes of 80 N B, one update of 24 B: 2000 N + 160 N + 24 s, 4 launches."""
    relu = {"name": "relu", "written_elements": 0, "flop_count": 1}

    def operations(n):
        yield "fc", Contraction(m=10 * n, n=10, k=10)
        yield "relu", MemoryPass(read_elements=20 * n, tensor_elements=20 * n, **relu)
        yield "relu_2", MemoryPass(read_elements=20 * n, tensor_elements=20 * n, **relu)
        yield "fc", MemoryPass(name="sgd", read_elements=4, written_elements=2, tensor_elements=2, role=Role.UPDATE)

    table = build_kernel_table(
        [[LayerOperation(layer, Phase.FORWARD, each) for layer, each in operations(n)] for n in (1, 2, 3)],
        rules=changed(PLAIN, passes=dict(passes)),
        element_bytes=4,
        processor="gpu",
    )
    return step_time(table, numbers, batch_size=3, workspace_limit_bytes=UNLIMITED)


def test_kernels_go_wholly_to_their_active_branch():
    parts = toy_step(Toy())
    # the product: 6000 FLOP against 4 (300 + 100 + 300) = 2800 B; relu twice: 240 B against 1 FLOP; sgd 16 + 8 B
    assert (parts.compute_s, parts.memory_bound_s, parts.update_s) == (6_000, 480, 24)
    assert (parts.overhead_s, parts.exposed_transfer_s) == (0, 0)
    assert parts.step_s == 6_504


def test_launch_gaps_hide_behind_nothing():
    parts = toy_step(Toy(launch_s=5.0))
    assert (parts.launch_s, parts.overhead_s, parts.step_s) == (20, 20, 6_524)


# kernels of 6000, 240, 240 and 24 s; each launch is held against its own kernel, whatever the others take


def test_with_a_full_overlap_each_launch_takes_the_longer_of_its_kernel_and_its_dispatch():
    assert toy_step(Toy(dispatch_s=24.0)).step_s == 6_504  # no kernel is shorter
    parts = toy_step(Toy(dispatch_s=1_000.0))
    # the product's 6000 s hide 1000 s, and none of the 4000 s that the other three need
    assert parts.step_s == 6_000 + 3 * 1_000
    assert parts.overhead_s == 2 * (1_000 - 240) + (1_000 - 24)
    late = toy_step(Toy(dispatch_s=2_000.0, launch_s=5.0, step_overhead_s=7.0))
    # 6005 s, and three times 2000 s in which kernel and gap are hidden; the script's 7 s come on top
    assert late.step_s == 6_005 + 3 * 2_000 + 7
    assert late.overhead_s == 4 * 5 + 2 * (2_000 - 245) + (2_000 - 29) + 7
    assert late.dispatch_s == 8_007


def test_without_overlap_nothing_is_hidden():
    parts = toy_step(Toy(dispatch_s=1_000.0, step_overhead_s=7.0, overlap_exponent=1.0))
    assert (parts.overhead_s, parts.step_s) == (4_007, 6_504 + 4_007)
    with_gaps = toy_step(Toy(dispatch_s=1_000.0, launch_s=5.0, overlap_exponent=1.0))
    assert (with_gaps.launch_s, with_gaps.overhead_s) == (20, 4_020)


def test_in_between_short_kernels_wait_and_long_ones_hide():
    parts = toy_step(Toy(dispatch_s=70.0, overlap_exponent=2.0))
    # sqrt(240^2 + 70^2) = 250 twice, sqrt(24^2 + 70^2) = 74; the product: sqrt(6000^2 + 70^2) - 6000 = 0.408
    of_product = math.sqrt(36_004_900) - 6_000
    assert parts.overhead_s == pytest.approx(10 + 10 + 50 + of_product, rel=1e-12)
    assert parts.step_s == pytest.approx(6_504 + 70 + of_product, rel=1e-12)
    assert (parts.dispatch_s, parts.launch_s) == (280, 0)
    # the gap belongs to the time the device is busy: sqrt((24 + 8)^2 + 24^2) = 40
    gaps = toy_step(Toy(dispatch_s=24.0, launch_s=8.0, overlap_exponent=2.0))
    others = 2 * (math.hypot(248, 24) - 248) + math.hypot(6_008, 24) - 6_008
    assert gaps.overhead_s == pytest.approx(4 * 8 + 8 + others, rel=1e-12)


def test_every_launch_of_a_kernel_is_held_against_its_own_share_of_the_time():
    # each pass in three launches of 80 s: sqrt(80^2 + 60^2) = 100, six times
    parts = toy_step(Toy(dispatch_s=60.0, overlap_exponent=2.0), {"relu": PassRule(reads=1, writes=0, launches=3)})
    others = math.hypot(6_000, 60) - 6_000 + math.hypot(24, 60) - 24
    assert parts.memory_bound_s == pytest.approx(480)
    assert parts.overhead_s == pytest.approx(6 * (100 - 80) + others, rel=1e-12)
    assert parts.dispatch_s == 8 * 60


def with_copies(before_s, meanwhile_s):
    """A step of one device that copies its mini-batch."""
    work = StageWork(times=SimpleNamespace(whole=toy_step(Toy())))
    orders = orders_of("1f1b", stage_count=1, micro_batch_count=1, interleave=1, trains=True)
    return compose([work], orders=orders, copies_s=(before_s, meanwhile_s)).parts


def test_a_prefetched_feed_costs_what_the_step_does_not_cover():
    hidden = with_copies(10.0, 6_000.0)
    assert (hidden.exposed_transfer_s, hidden.transfer_s, hidden.step_s) == (10, 6_010, 6_514)
    late = with_copies(10.0, 7_000.0)
    assert (late.exposed_transfer_s, late.step_s) == (10 + 496, 7_010)


def small_net():
    graph = LayerGraph("small", input_shape=(3, 32, 32))
    x = graph.add("conv_5x5", Convolution2d(out_channels=32, kernel_size=5, padding=2), inputs=graph.input)
    x = graph.add("relu", ReLU(), inputs=x)
    x = graph.add("conv_3x3", Convolution2d(out_channels=64, kernel_size=3, padding=1), inputs=x)
    x = graph.add("flat", Flatten(), inputs=x)
    x = graph.add("fc", Dense(units=10), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph


def prepared(graph, framework, clipping="none", **where):
    """Return table, numbers and workspace limit of a training step."""
    target = resolve_target(
        **{"device": None, "system": None, "threads": None} | where,
    )
    profile = load_framework(framework)
    libraries = target.libraries(profile, None)
    lowered = lowered_graph(
        graph,
        phase=Phase.STEP,
        optimizer=load_optimizer("sgd", clipping=clipping),
        input_gradient=False,
        dtype="fp32",
        profile=profile,
        processor=target.processor,
        support=target.support(profile, libraries, dtype="fp32"),
    )
    limit = getattr(profile, target.processor).lowering.workspace_limit_bytes
    return lowered.table, target.numbers(profile, libraries, dtype="fp32"), limit


CASES = [
    ("generic", {"device": "gtx_1080"}),
    ("torch_423cfba", {"device": "tesla_k80_gk210"}),
    ("caffe_1_0_rc3", {"device": "gtx_980"}),  # with a workspace limit
    ("cntk_1_5_rc", {"device": "gtx_1080", "clipping": "per_sample"}),  # with a pass that is never launched
    ("tensorflow_0_9", {"system": "server_2x_xeon_e5_2630_v3"}),
    ("caffe_1_0_rc3", {"system": "desktop_i7_3820", "threads": 2}),
]
SIZES = (1, 7, 32, 33, 100)
TILE_MENU = ("tile_rows", "tile_columns", "tile_efficiency", "split_k")


def for_symbols(numbers):
    """Leave out all but the outer tiles, which only make it longer."""
    if isinstance(numbers, CpuNumbers):
        return numbers
    libraries = [
        library._replace(
            reach=replace(library.reach, **{name: getattr(library.reach, name)[[0, -1]] for name in TILE_MENU})
        )
        for library in numbers.matmul_libraries
    ]
    return replace(numbers, matmul_libraries=tuple(libraries))


@pytest.mark.parametrize(("framework", "where"), CASES)
def test_numbers_arrays_and_symbols_agree_on_the_batch_size(framework, where):
    table, numbers, limit = prepared(small_net(), framework, **where)
    fast = for_symbols(numbers)
    one_by_one = [step_time(table, fast, batch_size=size, workspace_limit_bytes=limit) for size in SIZES]
    together = step_time(table, fast, batch_size=np.array(SIZES), workspace_limit_bytes=limit)
    for name in PARTS:
        expected = [float(getattr(parts, name)) for parts in one_by_one]
        np.testing.assert_allclose(np.broadcast_to(getattr(together, name), len(SIZES)), expected, rtol=1e-12)
    of_symbol = formula_of(N, table, fast, batch_size=N, workspace_limit_bytes=limit)
    for size, parts in list(zip(SIZES, one_by_one, strict=True))[::2]:
        assert of_symbol(size) == pytest.approx(parts_of(parts), rel=1e-9, abs=1e-18)


def _with(numbers, field, value):
    """Return a processor with another value of a number, of its own or of its products."""
    if field in getattr(numbers, "of_products", ()):
        return replace(numbers, of_products={**numbers.of_products, field: value})
    return replace(numbers, **{field: value})


@pytest.mark.parametrize(("framework", "where"), CASES)
def test_numbers_arrays_and_symbols_agree_on_the_processor(framework, where):
    table, numbers, limit = prepared(small_net(), framework, **where)
    on_cpu = "device" not in where
    fields = ("peak_flop_per_s_per_core", "total_bandwidth_bytes_per_s") if on_cpu else (
        "peak_flop_per_s", "bandwidth_bytes_per_s", "launch_s",
    )  # fmt: skip
    numbers = for_symbols(numbers)
    for field in fields:
        symbol = sympy.Symbol("x", positive=True)
        own = numbers.of_products[field] if field in getattr(numbers, "of_products", ()) else getattr(numbers, field)
        values = own * np.array([0.3, 1.0, 4.0])  # the second is the processor's own
        expected = [
            float(step_time(table, _with(numbers, field, value), batch_size=16, workspace_limit_bytes=limit).step_s)
            for value in values
        ]
        assert len(set(expected)) == 3 or field == "total_bandwidth_bytes_per_s"
        together = step_time(
            table, _with(numbers, field, values), batch_size=np.full(3, 16), workspace_limit_bytes=limit
        )
        np.testing.assert_allclose(together.step_s, expected, rtol=1e-12)
        symbolic = _with(numbers, field, symbol)
        of_symbol = formula_of(symbol, table, symbolic, batch_size=16, workspace_limit_bytes=limit)
        np.testing.assert_allclose([sum(of_symbol(value)) for value in values[::2]], expected[::2], rtol=1e-12)


def test_a_whole_network_has_a_symbolic_step():
    table, numbers, _ = prepared(zoo.resnet18(), "generic", system="desktop_i7_3820")
    of_symbol = formula_of(N, table, numbers, batch_size=N, workspace_limit_bytes=UNLIMITED)
    expected = step_time(table, numbers, batch_size=24, workspace_limit_bytes=UNLIMITED)
    assert of_symbol(24) == pytest.approx(parts_of(expected), rel=1e-12)


@pytest.mark.parametrize("limit", [UNLIMITED, 0.0])
def test_sums_over_rows_are_those_over_groups(limit):
    table, numbers, _ = prepared(small_net(), "tensorflow_0_9", device="gtx_1080")
    chosen = chosen_times(table, numbers, batch_size=16, workspace_limit_bytes=limit)
    assert chosen.groups is not chosen
    for weights in (table.weights, *map(table.phase_weights, Phase.STEP.parts)):
        assert chosen.sums(weights) == pytest.approx(chosen.groups.sums(weights), rel=1e-13)


def test_the_workspace_limit_decides_the_algorithm():
    # 5 x 5 filters on 27 x 27, 64 -> 192 of 64 images: fft needs 8 x 544 x (4096 + 12288 + 12288) B = 125 MB
    graph = LayerGraph("second layer", input_shape=(64, 27, 27))
    graph.add("conv", Convolution2d(out_channels=192, kernel_size=5, padding=2), inputs=graph.input)
    table, numbers, _ = prepared(graph, "generic", device="gtx_1080")

    def forward(limit):
        groups = group_times(table, numbers, batch_size=64, workspace_limit_bytes=limit)
        seconds = groups.compute_s + groups.memory_s + groups.launches * numbers.launch_s
        return table.alternative_names[groups.chosen[0]], seconds[0]

    generous, fast = forward(4 * 2**30)
    tight, slow = forward(8 * 2**20)
    assert generous.startswith("fft")
    assert tight in ("implicit_gemm", "implicit_precomp_gemm")
    assert fast < slow
    workspace = dict(zip(table.alternative_names, table.workspace.at(64)["workspace_bytes"], strict=True))
    assert workspace["fft"] > 8 * 2**20
    # a limit just below and just at what the chosen one needs
    needed = table.workspace.at(64)["workspace_bytes"][table.choices[:, 0]].max()
    assert forward(needed)[1] <= forward(needed - 1)[1]


@pytest.mark.parametrize("size", [16, N])
def test_where_nothing_fits_the_first_alternative_is_taken(size):
    table, numbers, _ = prepared(small_net(), "generic", device="gtx_1080")
    # of the alternatives of each group, those that need scratch memory; some groups are left with no other
    starved = replace(table, choices=np.where(table.choices == table.choices[0], table.choices[-1], table.choices))
    how = {"batch_size": size, "workspace_limit_bytes": -1.0}
    found = formula_of(N, starved, numbers, **how)(16) if size is N else parts_of(step_time(starved, numbers, **how))
    first = replace(table, choices=starved.choices[:1])
    expected = step_time(first, numbers, batch_size=16, workspace_limit_bytes=UNLIMITED)
    assert found == pytest.approx(parts_of(expected), rel=1e-12)


def test_the_fastest_alternative_that_fits_is_taken():
    table, numbers, _ = prepared(small_net(), "generic", device="gtx_1080")
    groups = group_times(table, numbers, batch_size=16, workspace_limit_bytes=UNLIMITED)
    chosen = groups.compute_s + groups.memory_s + groups.launches * numbers.launch_s
    for place in table.choices:
        # force each group to the alternative at this place
        forced = replace(table, choices=place[None])
        other = group_times(forced, numbers, batch_size=16, workspace_limit_bytes=UNLIMITED)
        assert (chosen <= other.compute_s + other.memory_s + other.launches * numbers.launch_s).all()


def test_weight_gradients_run_beside_the_path_where_a_scheduler_has_several_threads():
    graph = LayerGraph("two layers", input_shape=(8,))
    hidden = graph.add("first", Dense(units=8), inputs=graph.input)
    graph.add("second", Dense(units=8), inputs=hidden)
    lowered = lowered_graph(
        graph,
        phase=Phase("forward_backward"),
        optimizer=load_optimizer("none"),
        input_gradient=False,
        dtype="fp32",
        profile=load_framework("generic"),
        processor="cpu",
        support=LibrarySupport(),
    )
    arguments = {"batch_size": 4, "workspace_limit_bytes": UNLIMITED}
    table, numbers = lowered.table, Toy(overlap_exponent=1.0)
    groups = group_times(table, numbers, **arguments)
    kernel_s = groups.compute_s + groups.memory_s
    path, beside = 0.0, []
    for occurrence in table.occurrences:
        if occurrence.role is Role.WEIGHT_GRADIENT:
            beside.append((occurrence.layer, path, kernel_s[occurrence.group]))
        else:
            path += kernel_s[occurrence.group]
    serial = step_time(table, numbers, **arguments).step_s
    many = step_time(table, numbers, scheduler_threads=1000, **arguments).step_s
    first = [(start, duration) for layer, start, duration in beside if layer == "first"]
    assert many == pytest.approx(max(path, first[0][0] + sum(duration for _, duration in first)))
    assert step_time(table, numbers, scheduler_threads=2, **arguments).step_s >= serial / 2
    assert many < serial


def test_a_queue_hides_all_dispatches_behind_all_kernels():
    """A host that runs ahead is seen only by what all its dispatches exceed all kernels, 6,504 s of them."""
    assert toy_step(Toy(dispatch_s=1_000.0, queued=True)).overhead_s == 0
    late = toy_step(Toy(dispatch_s=2_000.0, queued=True, step_overhead_s=7.0))
    assert late.step_s == pytest.approx(4 * 2_000 + 7)
    assert toy_step(Toy(queued=True)).overhead_s == 0
