"""The event engine by hand, its timeline, trace and chart, and what it refuses."""

import doctest
import json
from pathlib import Path

import pytest

from perfmodel.errors import ArgumentError, TaskError, UnknownNameError
from perfmodel.presentation.timeline_figure import LaneBar, gantt_chart, rows_of, trace_events
from perfmodel.simulation import Task, engine, simulate


def ends(tasks, *, channels=None, resources=None):
    timeline = simulate(tasks, channels=channels or {}, resources=resources or {})
    return [span.end_s for span in timeline.spans]


def test_a_long_simulation_tells_how_far_it_is(monkeypatch, capsys):
    tasks = [Task(f"task{number}", duration_s=1.0, resource="cpu") for number in range(12_000)]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    simulate(tasks[:3], channels={}, resources={"cpu": 1})
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(engine, "PATIENCE_S", 0.0)
    simulate(tasks, channels={}, resources={"cpu": 1})
    assert "12000" in capsys.readouterr().err


def test_units_go_to_whoever_waited_longest_then_to_the_first_named():
    tasks = [
        Task("late", resource="core", duration_s=1.0, after=("wake",)),
        Task("wake", duration_s=0.5),
        Task("first", resource="core", duration_s=2.0),
        Task("second", resource="core", duration_s=4.0),
    ]
    assert ends(tasks, resources={"core": 1}) == [7.0, 0.5, 2.0, 6.0]
    assert ends(tasks, resources={"core": 2}) == [3.0, 0.5, 2.0, 4.0]


def test_a_flow_speeds_up_when_another_ends_and_slows_down_when_one_begins():
    # a alone 10 B/s until 2 s (20 sent), with b 5 B/s each: b's 30 take 6 s, a has 50 sent at 8 s, 10 more take 1 s
    tasks = [
        Task("a", flow_bytes=60, channels=("root",)),
        Task("b", flow_bytes=30, channels=("root",), latency_s=2.0),
    ]
    assert ends(tasks, channels={"root": 10.0}) == [9.0, 8.0]


def test_a_flow_bound_elsewhere_leaves_its_share_to_others():
    tasks = [
        Task("bound", flow_bytes=20, channels=("root", "narrow")),
        Task("free", flow_bytes=80, channels=("root",)),
    ]
    assert ends(tasks, channels={"root": 10.0, "narrow": 2.0}) == [10.0, 10.0]


def test_a_channel_passed_twice_carries_the_bytes_twice():
    staged = Task("staged", flow_bytes=20, channels=("bus", "bus"))
    assert ends([staged], channels={"bus": 10.0}) == [4.0]
    assert simulate([staged], channels={"bus": 10.0}, resources={}).utilisation("bus") == 1.0


def test_a_copy_engine_is_held_through_latency_and_flow():
    copies = [
        Task(f"copy {n}", resource="engine", latency_s=0.5, flow_bytes=10, channels=("link",), duration_s=0.25)
        for n in range(2)
    ]
    assert ends(copies, channels={"link": 10.0}, resources={"engine": 1}) == [1.75, 3.5]
    timeline = simulate(copies, channels={"link": 10.0}, resources={"engine": 1})
    assert (timeline.busy_s("engine"), timeline.busy_s("link"), timeline.idle_s("link")) == (3.5, 2.0, 1.5)
    assert timeline.span("copy 1").flow_start_s == 2.5


def test_tasks_of_no_length_pass_at_once():
    tasks = [Task("a"), Task("b", after=("a",), resource="core"), Task("c", after=("b", "a", "a"), channels=("link",))]
    timeline = simulate(tasks, channels={"link": 1.0}, resources={"core": 1})
    assert timeline.makespan_s == 0.0
    assert timeline.utilisation("core") == 0.0
    assert simulate([], channels={}, resources={}).makespan_s == 0.0


def test_busy_time_counts_a_moment_once_and_utilisation_every_unit():
    tasks = [Task("a", resource="cores", duration_s=2.0), Task("b", resource="cores", duration_s=1.0),
             Task("c", duration_s=4.0)]  # fmt: skip
    timeline = simulate(tasks, channels={}, resources={"cores": 4, "gpu0": 1})
    assert timeline.busy_s("cores") == 2.0
    assert timeline.utilisation("cores") == pytest.approx(3.0 / 16.0)
    assert timeline.busy_s("gpu0") == 0.0
    with pytest.raises(UnknownNameError, match="Did you mean 'cores'"):
        timeline.busy_s("core")
    with pytest.raises(TaskError, match="did not run"):
        timeline.span("d")


@pytest.mark.parametrize(
    ("tasks", "named"),
    [
        ([Task("a"), Task("a")], "task 'a': must be the name of one task"),
        ([Task("copy 1"), Task("b", after=("copy1",))], "task 'b'.*no 'copy1'.*did you mean 'copy 1'"),
        ([Task("a", after=("a",))], "'a' after 'a'"),
        ([Task("a", after=("c",)), Task("b", after=("a",)), Task("c", after=("b",)), Task("d", after=("c",))],
         "waits for itself: ('a' after 'c' after 'b' after 'a'|'b' after 'a' after 'c' after 'b'"
         "|'c' after 'b' after 'a' after 'c')"),
    ],
)  # fmt: skip
def test_tasks_that_cannot_be_played_are_named(tasks, named):
    with pytest.raises(TaskError, match=named):
        simulate(tasks, channels={}, resources={})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"duration_s": -1.0}, "duration_s must.*-1.0"),
        ({"duration_s": float("nan")}, "duration_s must.*nan"),
        ({"latency_s": float("inf")}, "latency_s must.*inf"),
        ({"flow_bytes": -5, "channels": ("link",)}, "flow_bytes must.*-5"),
        ({"flow_bytes": 5}, "channels must name at least one"),
        ({"after": "abc"}, "after must be a tuple.*'abc'"),
        ({"channels": "link"}, "channels must be a tuple.*'link'"),
    ],
)
def test_impossible_tasks_are_refused(fields, named):
    with pytest.raises(TaskError, match=f"task 'copy': .*{named}"):
        Task("copy", **fields)


def test_unknown_channels_and_resources_are_named():
    with pytest.raises(UnknownNameError, match=r"unknown channel of task 'a' 'root'\. Did you mean 'root0'"):
        simulate([Task("a", channels=("root",))], channels={"root0": 1.0}, resources={})
    with pytest.raises(UnknownNameError, match=r"unknown resource of task 'a' 'gpu'\. Did you mean 'gpu0'"):
        simulate([Task("a", resource="gpu")], channels={}, resources={"gpu0": 1})


@pytest.mark.parametrize("capacity", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_channels_are_refused(capacity):
    with pytest.raises(ArgumentError, match="'link'"):
        simulate([], channels={"link": capacity}, resources={})


@pytest.mark.parametrize("units", [0, -1, 1.5, float("nan")])
def test_impossible_resources_are_refused(units):
    with pytest.raises(ArgumentError, match="'gpu0'"):
        simulate([], channels={}, resources={"gpu0": units})


def test_a_channel_and_a_resource_may_not_share_a_name():
    with pytest.raises(ArgumentError, match="gpu0"):
        simulate([], channels={"gpu0": 1.0}, resources={"gpu0": 1})


@pytest.fixture
def shared_root():
    """Two workers on a root: reads and copies meet, kernels do not."""
    tasks = []
    for device in range(2):
        tasks += [
            Task(f"copy {device}", flow_bytes=3e6, channels=("root", f"link {device}"), kind="transfer"),
            Task(f"kernel {device}", resource=f"gpu{device}", duration_s=1e-3 / 3, after=(f"copy {device}",),
                 kind="compute"),
            Task(f"pause {device}", duration_s=1e-4, kind="pause"),
        ]  # fmt: skip
    return simulate(
        tasks, channels={"root": 1.2e10, "link 0": 9e9, "link 1": 9e9}, resources={"gpu0": 1, "gpu1": 1, "gpu2": 1}
    )


def test_a_trace_has_a_named_track_for_each_lane_and_no_bars_that_overlap(shared_root, tmp_path):
    path = shared_root.save(tmp_path / "step.trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    headings = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(tracks.values()) == [
        "gpu0", "gpu1", "root", "root (2)", "link 0", "link 1", "(waiting)", "(waiting) (2)"
    ]  # fmt: skip
    assert list(headings.values()) == ["resources", "channels", "other"]
    bars = [event for event in events if event["ph"] == "X"]
    kernel = next(event for event in bars if event["name"] == "kernel 1")
    assert (tracks[kernel["tid"]], headings[kernel["pid"]], kernel["cat"]) == ("gpu1", "resources", "compute")
    assert kernel["ts"] == pytest.approx(500.0)  # 6 MB at 12 GB/s, in us
    assert kernel["dur"] == pytest.approx(333.333)
    for track in tracks:
        of_track = sorted((event["ts"], event["dur"]) for event in bars if event["tid"] == track)
        ends_ns = [int(start * 1000) + int(length * 1000) for start, length in of_track]
        assert all(int(start * 1000) >= end for (start, _), end in zip(of_track[1:], ends_ns, strict=False))


def test_times_of_a_trace_are_whole_nanoseconds_when_read_back():
    bars = [LaneBar(lane="gpu", name=str(n), kind="k", start_s=n / 3e6, end_s=(n + 1) / 3e6) for n in range(3000)]
    events = [event for event in trace_events(bars, groups={}) if event["ph"] == "X"]
    reached = 0
    for number, event in enumerate(events):
        assert int(event["ts"] * 1000) == round(number / 3e-3)
        assert int(event["ts"] * 1000) == reached
        reached += int(event["dur"] * 1000)


def test_a_trace_that_cannot_be_written_leaves_the_old_one(shared_root, tmp_path):
    with pytest.raises(ArgumentError, match="missing"):
        shared_root.save(tmp_path / "missing" / "step.json")


def test_overlapping_bars_take_as_few_rows_as_keep_them_apart():
    bars = [LaneBar(lane="cores", name=str(n), kind="k", start_s=n, end_s=n + 2.5) for n in range(9)]
    rows = rows_of(bars)["cores"]
    assert len(rows) == 3
    assert [bar.name for bar in rows[0]] == ["0", "3", "6"]


def test_a_chart_has_a_lane_for_each_used_resource_and_channel_and_a_colour_for_each_kind(shared_root, tmp_path):
    figure = shared_root.plot(tmp_path / "step.png")
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "gpu0", "gpu1", "root", "link 0", "link 1", "(waiting)"
    ]  # fmt: skip
    boxes = {collection.get_label(): collection.get_paths() for collection in axes.collections}
    assert (len(boxes["compute"]), len(boxes["transfer"]), len(boxes["pause"])) == (2, 4, 2)
    assert "µs" in axes.get_xlabel()
    assert boxes["compute"][0].get_extents().x0 == pytest.approx(500.0)
    assert boxes["transfer"][0].get_extents().height == pytest.approx(0.4)  # two flows share the lane of the root
    assert boxes["transfer"][2].get_extents().height == pytest.approx(0.8)
    assert (tmp_path / "step.png").stat().st_size > 10_000


def test_an_empty_chart_is_refused():
    with pytest.raises(ArgumentError, match="longer than 0 s"):
        gantt_chart([LaneBar(lane="a", name="b", kind="c", start_s=1.0, end_s=1.0)], title="")


def test_what_the_documentation_shows_is_so():
    page = Path(__file__).parents[2] / "docs" / "simulation.md"
    outcome = doctest.testfile(str(page), module_relative=False)
    assert outcome.attempted > 8
    assert outcome.failed == 0
