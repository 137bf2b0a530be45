"""Sizes that once took minutes: each is answered by an algorithm, or refused with the size that can be done."""

import itertools
import json

import pytest

import perfmodel as pm
from perfmodel.cost.pipeline_order import MOST_TURNS, orders_of
from perfmodel.errors import ArgumentError, SpecError
from perfmodel.numeric import divisors
from perfmodel.prediction.arguments.checks import MOST_ENTRIES
from perfmodel.simulation import engine, synchronous
from perfmodel.sync.ring_order import ring_order
from perfmodel.zoo.transformer import MOST_BLOCKS

ALEXNET = pm.zoo.build("alexnet")


@pytest.mark.parametrize(
    "spread", [{"device": "gtx_1080"}, {"system": "dgx_a100", "stages": 8, "parallelism": "pipeline"}]
)
def test_too_many_micro_batches_name_the_most_that_are_played(spread):
    most = MOST_TURNS // (2 * spread.get("stages", 1))
    with pytest.raises(ArgumentError, match=f"{most:,}") as refused:
        pm.predict(ALEXNET, batch_size=2**31, micro_batches=2**31, **spread)
    assert refused.value.argument == "micro_batches"
    with pytest.raises(ArgumentError):
        pm.predict(ALEXNET, batch_size=most + 1, micro_batches=most + 1, **spread)


def test_the_refused_size_is_the_first_that_is_too_large():
    how = {"stage_count": 2, "interleave": 1, "trains": True}
    most = MOST_TURNS // 4
    assert sum(map(len, orders_of("gpipe", micro_batch_count=most, **how))) == MOST_TURNS
    with pytest.raises(ArgumentError):
        orders_of("gpipe", micro_batch_count=most + 1, **how)


def test_a_long_pipeline_takes_one_stage_time_for_each_micro_batch():
    def step_s(count):
        arguments = {"system": "dgx_a100", "stages": 2, "parallelism": "pipeline"}
        return pm.predict(ALEXNET, batch_size=count, micro_batches=count, **arguments).step_s

    first, second, third = map(step_s, (2**12, 2**13, 3 * 2**12))
    assert third - second == pytest.approx(second - first, rel=1e-6)


@pytest.mark.parametrize("number", [1, 2, 36, 97, 360, 1024, 5040])
@pytest.mark.parametrize("most", [1, 6, 60, 10_000])
def test_divisors_are_those_that_a_list_of_all_numbers_gives(number, most):
    assert divisors(number, most=most) == tuple(n for n in range(1, min(number, most) + 1) if number % n == 0)


def test_divisors_of_the_largest_argument_are_found():
    assert divisors(2**62, most=2**62) == tuple(2**power for power in range(63))
    assert divisors(2**61 - 1, most=2**61) == (1, 2**61 - 1)
    assert divisors(2**61 - 1, most=8) == (1,)


def test_advice_at_a_huge_mini_batch_is_given():
    advice = pm.advise(ALEXNET, batch_size=10**9, system="dgx_a100", workers=2, kinds=["stages"])
    assert "stages" in str(advice)


def test_a_batch_that_is_not_shared_evenly_lists_small_divisors():
    with pytest.raises(ArgumentError, match=r"1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, \.\.\."):
        pm.predict(ALEXNET, batch_size=10**9, device="gtx_1080", micro_batches=3)


def test_a_configuration_with_endless_layers_names_its_field(tmp_path):
    content = {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100,
        "max_position_embeddings": 64, "num_hidden_layers": 2**64,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    with pytest.raises(SpecError, match=f"num_hidden_layers.*{MOST_BLOCKS:,}"):
        pm.from_huggingface_config(path, sequence_length=8)
    with pytest.raises(ArgumentError, match=f"layers.*{MOST_BLOCKS:,}"):
        pm.zoo.build("gpt", layers=MOST_BLOCKS + 1)


def test_a_simulation_of_too_many_events_says_how_many(monkeypatch):
    monkeypatch.setattr(engine, "MOST_TASKS", 10_000)
    p = pm.predict(ALEXNET, batch_size=16, system="dgx_a100", workers=8, bucket_bytes=0)
    count = len(p.play(step_count=2).spans)
    assert count < engine.MOST_TASKS < 20 * count
    played = len(p.play(step_count=1).spans)
    with pytest.raises(ArgumentError, match="at most 10,000 events") as refused:
        p.play(step_count=100)
    assert int(refused.value.given.removeprefix("about ").replace(",", "")) == pytest.approx(
        count + 98 * (count - played), rel=0.05
    )


def test_a_timeline_of_too_many_events_is_refused_before_they_are_made(monkeypatch):
    made = []
    monkeypatch.setattr(synchronous, "_message", lambda *of, **how: made.append(of))
    monkeypatch.setattr(engine, "MOST_TASKS", 1_000)
    p = pm.predict(ALEXNET, batch_size=16, system="dgx_a100", workers=8, bucket_bytes=0)
    with pytest.raises(ArgumentError, match=r"tasks must be at most 1,000 events.*got 'about "):
        p.timeline  # noqa: B018
    assert not made


def test_endless_tasks_are_counted_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(engine, "MOST_TASKS", 10)
    monkeypatch.setattr(engine, "MOST_COUNTED", 1_000)
    endless = (engine.Task(f"task {number}", duration_s=1.0) for number in itertools.count())
    with pytest.raises(ArgumentError, match="at least 1,000"):
        engine.simulate(endless, channels={}, resources={})


def test_cards_below_one_root_ask_for_one_route_of_each_kind(monkeypatch):
    topology = pm.load_system("gce_n1_standard_32_k80_x8").topology
    asked = []
    route = type(topology).route

    def counted(self, source, sink, **how):
        asked.append((source, sink))
        return route(self, source, sink, **how)

    expected = ring_order(topology, topology.devices())
    monkeypatch.setattr(type(topology), "route", counted)
    assert ring_order(topology, topology.devices()) == expected
    assert len(set(map(topology.attachment, topology.devices()))) ** 2 >= len(asked)
    count = len(topology.devices())
    assert len(asked) < count * (count - 1)


@pytest.mark.parametrize(
    "name", ["survey_fig5", "dgx_1_p100", "gce_n1_standard_32_k80_x8", "dgx_a100", "aws_p3_8xlarge"]
)
def test_cards_that_hang_on_the_same_are_as_far_from_every_third(name):
    topology = pm.load_system(name).topology
    devices = topology.devices()
    for one, other in itertools.combinations(devices, 2):
        if topology.attachment(one) == topology.attachment(other):
            for third in set(devices) - {one, other}:
                for ends in ((one, third), (third, one)):
                    swapped = [{one: other}.get(end, end) for end in ends]
                    first, second = topology.route(*ends), topology.route(*swapped)
                    assert (first.capacity_bytes_per_s, first.latency_s) == (
                        second.capacity_bytes_per_s,
                        second.latency_s,
                    )


@pytest.mark.parametrize("verb", [pm.sweep, pm.scaling])
def test_a_list_of_a_verb_and_an_axis_of_a_sweep_have_one_bound(verb):
    with pytest.raises(ArgumentError, match="a list of at most 1,000,000 entries"):
        verb(ALEXNET, batch_size=16, system="dgx_a100", workers=range(1, MOST_ENTRIES + 2))
