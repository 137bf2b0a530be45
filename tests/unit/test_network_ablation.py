"""Leaving out the terms of today's processors: each changes what it is about, and nothing else."""

import pytest

import perfmodel as pm
from ablation import NETWORK_TERMS as TERMS
from ablation import NOTHING
from perfmodel.layers import Convolution2d
from perfmodel.prediction.job.job import Job


def _grouped():
    graph = pm.LayerGraph("grouped", input_shape=(64, 56, 56))
    x = graph.input
    for place in range(4):
        x = graph.add(f"conv{place}", Convolution2d(out_channels=256, kernel_size=3, padding=1, groups=32), inputs=x)
    return graph


AMP = {"device": "rtx_3090", "framework": "pytorch_2", "dtype": "fp16", "batch_size": 64}
STATED = {
    "calls by part of the step": {"batch_size": 1},
    "what feeds an SM": {"device": "a100_80_sxm"},
    "the clock under the power limit": {"device": "l4"},
}
NETWORKS = {
    "types and casts of mixed precision": pm.zoo.resnet50,
    "calls by part of the step": lambda: pm.zoo.bert(layers=2),
    "a host that runs ahead": pm.zoo.resnet50,
    "the clock under the power limit": lambda: pm.zoo.bert(layers=2),
    "what feeds an SM": pm.zoo.resnet50,
    "write-out of tiles of convolutions": pm.zoo.resnet50,
    "grouped convolutions on tensor cores": _grouped,
    "slow gradients of depth-wise convolutions": pm.zoo.mobilenet_v2,
    "layout of images": pm.zoo.resnet50,
}


def test_each_term_is_held_to_a_network():
    assert set(TERMS) == {NOTHING, *NETWORKS}


@pytest.mark.parametrize("term", NETWORKS)
def test_a_term_changes_its_network(term):
    graph, stated = NETWORKS[term](), AMP | STATED.get(term, {})
    job = Job(graph, **stated)
    steps = [Job(graph, **stated | TERMS[each](job)).predict().step_s for each in (NOTHING, term)]
    assert steps[0] == job.predict().step_s != pytest.approx(steps[1], rel=1e-3)
