"""Memory that an allocator takes beyond what is in use, and what groups of devices keep: bytes counted by hand."""

from dataclasses import replace

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel.graph.arena import Span, gap_bytes, reserved_bytes
from perfmodel.graph.liveness import MemoryRules
from perfmodel.parallelism.base import TensorHabits
from perfmodel.parallelism.tensor_split import tensor_split
from perfmodel.records import Phase, Role

LLAMA = {"layers": 2, "width": 64, "heads": 4, "key_heads": 4, "intermediate": 160}
WORDS, POSITIONS, DEVICES = 4096, 32, 4


def llama(**options):
    return pm.zoo.llama(size="llama3_8b", **LLAMA, vocabulary=WORDS, sequence_length=POSITIONS, **options)


def split(**how):
    return tensor_split(llama(), tensor_size=DEVICES, element_bytes=2, sequence_parallel=True, **how)


def most(graph, **rules):
    return int(graph.liveness(rules=MemoryRules(element_bytes=2, **rules)).activations[1].max())


def test_the_smallest_gap_that_fits_is_filled():
    # gaps of 5 at 0 and of 3 at 6, apart by what stays; 2 and 1 fit the smaller, 4 the larger, and nothing grows
    stay = [Span(1, 0, 9), Span(1, 0, 9)]
    spans = [Span(5, 0, 1), stay[0], Span(3, 0, 1), stay[1], Span(2, 2, 9), Span(4, 2, 9), Span(1, 2, 9)]
    assert reserved_bytes(spans) == 10
    # of the same size together, but in an order in which the first takes from the gap that the last would need
    assert reserved_bytes([*spans[:4], Span(4, 2, 9), Span(2, 2, 9), Span(2, 2, 9)]) == 10 + 2


def test_gaps_that_touch_are_one_and_the_end_grows_from_its_gap():
    assert reserved_bytes([Span(2, 0, 1), Span(3, 0, 1), Span(1, 0, 5), Span(5, 2, 5)]) == 6
    assert reserved_bytes([Span(1, 0, 5), Span(3, 0, 1), Span(4, 2, 5)]) == 5
    assert reserved_bytes([Span(3, 0, 1), Span(1, 0, 5), Span(4, 2, 5)]) == 8
    assert reserved_bytes([]) == 0


def test_no_less_is_reserved_than_is_in_use():
    rng = np.random.default_rng(3)
    for _ in range(20):
        first = rng.integers(0, 50, 60)
        spans = [
            Span(int(size), int(begin), int(begin + length))
            for size, begin, length in zip(rng.integers(1, 100, 60), first, rng.integers(0, 20, 60), strict=True)
        ]
        in_use = max(sum(span.size for span in spans if span.first <= moment <= span.last) for moment in range(70))
        assert in_use <= reserved_bytes(spans) <= sum(span.size for span in spans)


def test_scores_in_a_narrow_type_leave_a_gap_that_wide_ones_do_not_fit():
    """What a narrow copy of the scores takes is never used again: all of the loss's tensors are twice as large."""
    job = {"batch_size": 4, "device": "h100_sxm_96_hbm2e", "dtype": "bf16", "optimizer": "adamw"}
    whole = pm.predict(llama(), framework="torchtitan_compiled", **job).memory
    profile = pm.load_framework("torchtitan_compiled")
    exact = replace_allocator(profile)
    without = pm.predict(llama(), framework=exact, **job).memory
    scores_bytes = 2 * 4 * POSITIONS * WORDS
    assert whole.activations_bytes - without.activations_bytes == pytest.approx(scores_bytes, rel=0.1)
    assert replace(whole, activations_bytes=without.activations_bytes) == without


def replace_allocator(profile):
    return profile.model_copy(update={"memory": profile.memory.model_copy(update={"allocator": "exact"})})


def test_symbols_leave_no_gaps():
    graph = llama()
    how = {"rules": MemoryRules(element_bytes=2), "input_gradient": False}
    lifetimes = graph.lifetimes(Phase.STEP, **how)
    assert gap_bytes(lifetimes.spans) > 0
    lifetimes.storages[0].size = (0, sympy.Symbol("n"))
    assert gap_bytes(lifetimes.spans) == 0


def test_a_group_keeps_the_whole_of_what_it_gathered():
    graph = split().graph
    # a block has two gathered tensors, the scores one; a part of each stays too where a norm wrote it
    gathered = 2 * POSITIONS * LLAMA["width"]
    kept = [
        int(graph.liveness(rules=MemoryRules(element_bytes=2, keeps_gathered=keeps)).kept[1]) for keeps in (False, True)
    ]
    blocks = LLAMA["layers"]
    assert kept[1] - kept[0] == pytest.approx((2 * blocks + 1) * gathered * (1 - 1 / DEVICES))


def test_a_divided_loss_makes_a_tensor_more():
    scores_bytes = 2 * POSITIONS * WORDS
    assert most(split().graph, divided_loss_tensors=1) - most(split().graph) == scores_bytes / DEVICES
    assert most(llama(), divided_loss_tensors=1) == most(llama())


def test_inputs_that_are_kept_are_not_gathered_again():
    stage = split()
    again = [sent for sent in stage.exchanges if sent.beside is not None and sent.beside.role is Role.INPUT_GRADIENT]
    left = split(habits=TensorHabits(keeps_gathered=True))
    assert len(again) == 2 * LLAMA["layers"] + 1
    assert left.exchanges == tuple(sent for sent in stage.exchanges if sent not in again)
