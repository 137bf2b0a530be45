"""Traces that the command line writes, held to the rules of the Trace Event Format.

The rules: Google, Trace Event Format, 2016: "JSON Object Format", "Event Descriptions", "Complete Events", "Metadata
Events". Viewers also drop an event that overlaps in part with another one of its track, and read times as whole ns.
"""

import json
import math
from itertools import pairwise

import pytest

import perfmodel as pm
from perfmodel.cli.app import run

PHASES = set("BEXiICbnestfPNODMVvRc(),")
"""Letters of the format's table of event types, with the older ones."""

METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
TOP_KEYS = {"traceEvents", "displayTimeUnit", "systemTraceEvents", "otherData", "stackFrames", "samples"}
TEXT, WHOLE, TIME = "text", "a whole number", "a finite time >= 0"


def is_a(kind, given):
    if kind == TEXT:
        return isinstance(given, str) and bool(given)
    if isinstance(given, bool) or not isinstance(given, int | float):
        return False
    return isinstance(given, int) if kind == WHOLE else math.isfinite(given) and given >= 0


def lacking(event, kinds):
    return [f"{key} of {event} must be {kind}" for key, kind in kinds.items() if not is_a(kind, event.get(key))]


def faults_of_trace(text):
    """Return what breaks the rules; nothing for a trace that every viewer takes."""

    def refuse(constant):
        raise ValueError(constant)

    try:
        trace = json.loads(text, parse_constant=refuse)
    except ValueError as error:
        return [f"no JSON: {error}"]
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["no object with a list traceEvents"]
    faults = [f"unknown key {key}" for key in trace.keys() - TOP_KEYS]
    if trace.get("displayTimeUnit", "ms") not in ("ms", "ns"):
        faults.append("displayTimeUnit must be ms or ns")
    events = trace["traceEvents"]
    for event in events:
        if event.get("ph") not in PHASES:
            faults.append(f"ph of {event}")
        faults += lacking(event, {"name": TEXT, "ph": TEXT, "pid": WHOLE, "tid": WHOLE, "ts": TIME})
        if event.get("ph") == "X":
            faults += lacking(event, {"dur": TIME, "cat": TEXT})
        if event.get("ph") == "M":
            key, kind = METADATA.get(event.get("name"), (None, ()))
            given = event.get("args", {}).get(key)
            if not isinstance(given, kind) or given == "":
                faults.append(f"args of {event}")
    return faults or faults_of_tracks(events)


def faults_of_tracks(events):
    """Return what is wrong with tracks whose events are sound each by itself."""
    faults = []
    bars = [event for event in events if event["ph"] == "X"]
    for title, place in (("process_name", "pid"), ("thread_name", "tid")):
        named = [event[place] for event in events if event["name"] == title]
        faults += [f"{place} {number} has {named.count(number)} names" for number in named if named.count(number) != 1]
        faults += [f"{place} {event[place]} has no name" for event in bars if event[place] not in named]
        titles = [(event["pid"], event["args"]["name"]) for event in events if event["name"] == title]
        if len(set(titles)) != len(titles):
            faults.append(f"two of one {title}")
    home = {event["tid"]: event["pid"] for event in events if event["name"] == "thread_name"}
    tracks = {}
    for bar in bars:
        if home.get(bar["tid"]) != bar["pid"]:
            faults.append(f"{bar['name']} is on a track of another process")
        start_ns = int(bar["ts"] * 1000)  # as viewers read them
        tracks.setdefault(bar["tid"], []).append((start_ns, start_ns + int(bar["dur"] * 1000)))
    for track, spans in tracks.items():
        for (start, end), (following, _) in pairwise(spans):
            if following < start:
                faults.append(f"track {track} is not in the order of time")
            elif following < end:
                faults.append(f"track {track}: events overlap")
    return faults


JOBS = {
    "a lone device": ["alexnet", "--device", "gtx_1080", "--batch-size", "16"],
    "a CPU": ["lenet5", "--device", "i7_3820", "--batch-size", "8"],
    "decoding bounds": [
        *("resnet50", "--system", "survey_fig5", "--workers", "4", "--sync", "none", "--batch-size", "32"),
        *("--dataset", "imagenet_jpeg", "--prefetch", "2"),
    ],
    "in turn": [
        *("resnet50", "--system", "survey_fig6", "--workers", "5", "--sync", "none", "--batch-size", "32"),
        *("--dataset", "imagenet_raw", "--input-from", "hdd_7200_rpm", "--prefetch", "0"),
    ],
    "unequal shares": [
        *("alexnet", "--system", "dgx_1_p100", "--workers", "3", "--sync", "none", "--batch-size", "64"),
        *("--framework", "caffe_1_0_rc3", "--dataset", "imagenet_jpeg"),
    ],
}


@pytest.fixture(scope="module", params=JOBS.values(), ids=JOBS.keys())
def trace(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "x.json"
    assert run(["predict", *request.param, "--measured", "none", "--trace", str(path), "--json"]) == 0
    return path.read_text(encoding="utf-8")


def test_a_trace_of_the_command_line_keeps_the_rules(trace):
    assert faults_of_trace(trace) == []
    assert json.loads(trace)["displayTimeUnit"] == "ms"


def test_it_shows_the_steps_of_the_prediction(tmp_path):
    path = tmp_path / "x.json"
    assert run(["predict", *JOBS["decoding bounds"], "--measured", "none", "--trace", str(path), "--json"]) == 0
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    timeline = pm.predict(
        pm.zoo.resnet50(), batch_size=32, system="survey_fig5", workers=4, sync="none", dataset="imagenet_jpeg",
        prefetch=2,
    ).timeline  # fmt: skip
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    bars = [event for event in events if event["ph"] == "X"]
    computing = [(tracks[bar["tid"]], bar["name"]) for bar in bars if bar["cat"] == "compute"]
    assert sorted(computing) == sorted((span.resource, span.task) for span in timeline.spans if span.kind == "compute")
    assert {lane for lane, _ in computing} == {"gpu0", "gpu1", "gpu2", "gpu3"}
    for bar in bars:
        span = timeline.span(bar["name"])
        assert bar["cat"] == span.kind
        assert bar["ts"] + bar["dur"] == pytest.approx(1e6 * span.end_s, abs=2e-3)
    assert max(bar["ts"] + bar["dur"] for bar in bars) == pytest.approx(1e6 * timeline.makespan_s, abs=2e-3)


def a_trace():
    """Two tracks of one process, one of another."""
    events = [
        {"name": "process_name", "ph": "M", "ts": 0, "pid": 1, "tid": 0, "args": {"name": "resources"}},
        {"name": "process_name", "ph": "M", "ts": 0, "pid": 2, "tid": 0, "args": {"name": "channels"}},
        {"name": "thread_name", "ph": "M", "ts": 0, "pid": 1, "tid": 1, "args": {"name": "gpu0"}},
        {"name": "thread_name", "ph": "M", "ts": 0, "pid": 1, "tid": 2, "args": {"name": "gpu1"}},
        {"name": "thread_name", "ph": "M", "ts": 0, "pid": 2, "tid": 3, "args": {"name": "root"}},
        {"name": "a", "cat": "k", "ph": "X", "ts": 0, "dur": 2.5, "pid": 1, "tid": 1},
        {"name": "b", "cat": "k", "ph": "X", "ts": 2.5, "dur": 0, "pid": 1, "tid": 1},
        {"name": "c", "cat": "k", "ph": "X", "ts": 1.0, "dur": 3.0, "pid": 1, "tid": 2},
        {"name": "d", "cat": "k", "ph": "X", "ts": 0.5, "dur": 3.0, "pid": 2, "tid": 3},
    ]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def test_the_rules_take_a_sound_trace():
    assert faults_of_trace(json.dumps(a_trace())) == []


@pytest.mark.parametrize(
    ("place", "changed", "told"),
    [
        (5, {"dur": -1e-3}, "dur of"),
        (5, {"dur": None}, "dur of"),
        (5, {"dur": math.nan}, "no JSON: NaN"),
        (5, {"ts": math.inf}, "no JSON: Infinity"),
        (5, {"ts": -1}, "ts of"),
        (5, {"ts": "0"}, "ts of"),
        (5, {"pid": "gpu"}, "pid of"),
        (5, {"tid": 1.5}, "tid of"),
        (5, {"tid": 9}, "tid 9 has no name"),
        (5, {"pid": 2}, "another process"),
        (5, {"ph": "Y"}, "ph of"),
        (5, {"name": ""}, "name of"),
        (5, {"cat": ""}, "cat of"),
        (5, {"dur": 2.6}, "events overlap"),
        (5, {"ts": 3.0}, "not in the order of time"),
        (0, {"args": {}}, "args of"),
        (0, {"args": {"name": 3}}, "args of"),
        (0, {"name": "process_title"}, "args of"),
        (2, {"tid": 2}, "tid 2 has 2 names"),
        (3, {"args": {"name": "gpu0"}}, "two of one thread_name"),
        (1, {"pid": 3}, "pid 2 has no name"),
    ],
)
def test_the_rules_find_what_breaks_them(place, changed, told):
    trace = a_trace()
    trace["traceEvents"][place] |= changed
    faults = faults_of_trace(json.dumps(trace))
    assert faults
    assert any(told in fault for fault in faults)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[", "no JSON"),
        ("[]", "no object"),
        ('{"traceEvents": {}}', "no object"),
        ('{"traceEvents": [], "displayTimeUnit": "us"}', "displayTimeUnit"),
        ('{"traceEvents": [], "unit": "us"}', "unknown key unit"),
    ],
)
def test_the_rules_find_what_is_no_trace(text, told):
    (fault,) = faults_of_trace(text)
    assert told in fault
