"""What ``explain()`` says of a network on several devices: plain, without contradiction, with the numbers it means."""

import re

import pytest

import perfmodel as pm
from perfmodel.presentation.quantities import seconds_text

LAYOUTS = {
    "hybrid": {"workers": 4, "parallelism": "hybrid"},
    "model": {"parallelism": "model", "stages": 4},
    "pipeline": {"workers": 2, "parallelism": "pipeline", "stages": 2, "micro_batches": 4},
    "tensor": {"workers": 2, "parallelism": "tensor", "tensor_size": 2},
    "accumulation": {"workers": 4, "accumulation_steps": 8},
    "one_device": {"accumulation_steps": 4},
}
SHAPE = {
    "hybrid": "(hybrid parallelism): 4 workers, which have all convolutions each and share the dense layers.",
    "model": "4 devices work (model parallelism): 4 stages.",
    "pipeline": "4 devices work (pipeline parallelism): 2 workers x 2 stages, in 4 micro-batches of 2 samples each.",
    "tensor": "4 devices work (tensor parallelism): 2 workers x 2 that share each layer.",
    "accumulation": "4 devices work (data parallelism): 4 workers, in 8 micro-batches of 1 sample each.",
    "one_device": "1 device works, in 4 micro-batches of 2 samples each.",
}


@pytest.fixture(scope="module")
def predictions():
    vgg = pm.zoo.vgg16()
    return {name: pm.predict(vgg, batch_size=8, system="survey_fig5", **layout) for name, layout in LAYOUTS.items()}


def words(p):
    return " ".join(p.explain().split())


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_said_has_no_factor_of_one_and_the_numbers_of_the_prediction(predictions, name):
    p, said = predictions[name], words(predictions[name])
    assert SHAPE[name] in said
    assert not re.search(r"(?<![\w.,])1 (stages|workers|devices|samples|micro-batches)\b| x 1 ", said)
    if p.sync_s:
        assert f"takes {seconds_text(p.sync_s)}, of which {seconds_text(p.exposed_sync_s)} are exposed." in said
    waits = f"works longest waits {seconds_text(p.bubble_s)} for others"
    assert (waits in said) == (p.bubble_s > 0) == (name in ("model", "pipeline"))


def test_only_a_pipeline_has_bubbles(predictions):
    for name, p in predictions.items():
        said, table = words(p), str(p)
        assert ("pipeline bubbles" in said) == ("pipeline bubbles" in table) == (name == "pipeline")
        assert ("waiting of devices for one another" in said) == (name == "model")
        assert ("waiting of devices for one another" in table) == (name == "model")
    assert predictions["model"].bottleneck == "pipeline_bubble"
    assert "What bounds it most is waiting of devices for one another." in words(predictions["model"])


def test_parts_of_a_hybrid_are_no_stages(predictions):
    assert "Of 2 parts of the network number 0 computes longest" in words(predictions["hybrid"])
    assert "stage" not in words(predictions["hybrid"]).partition("devices work")[2].partition("Memory:")[0]


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("layout", [{"parallelism": "model"}, {"parallelism": "pipeline", "micro_batches": 4}])
def test_what_is_exposed_is_never_more_than_the_total(stages, layout):
    """Transfers between other devices delay the one that works longest, by more than it exchanges itself."""
    for graph in (pm.zoo.vgg16(), pm.zoo.alexnet()):
        p = pm.predict(graph, batch_size=32, system="survey_fig5", stages=stages, **layout)
        works = p.basis.timed.composed.stages
        ways_s = sum(work.send_s[0] for work in works[:-1]) + sum(work.send_s[1] for work in works[1:])
        assert p.sync_s >= p.exposed_sync_s > 0
        if layout["parallelism"] == "model":  # nothing hides a transfer: all of them are waited for
            assert p.exposed_sync_s == pytest.approx(ways_s)
            assert p.sync_s == pytest.approx(ways_s)
