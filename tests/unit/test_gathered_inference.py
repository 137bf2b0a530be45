"""Exchanges that are easily lost: parameters gathered in inference, gradients of layers fused into others."""

import pytest

import perfmodel as pm


@pytest.mark.parametrize("sync", ["ring_all_reduce", "all_reduce"])
def test_workers_that_share_parameters_gather_them_in_inference_too(sync):
    job = pm.Job(pm.zoo.vgg16(), batch_size=16, system="survey_fig6", workers=8, framework="pytorch_2", phase="forward",
                 sync=sync)  # fmt: skip
    whole, shared = job.predict(), job.replace(shard_stage=3).predict()
    assert whole.sync_s == 0
    seven_eighths = 7 / 8 * 4 * 138_357_544  # what each worker lacks of the parameters [B]
    link = pm.load_link("infiniband_edr").effective_bandwidth_bytes_per_s
    assert shared.sync_s > 0.5 * seven_eighths / link
    assert shared.step_s == pytest.approx(whole.step_s + shared.exposed_sync_s, rel=1e-12)
    assert shared.play(2).makespan_s - shared.play(1).makespan_s == pytest.approx(shared.step_s, rel=1e-9)


@pytest.mark.parametrize("framework", ["pytorch_2", "pytorch_2_compiled"])
@pytest.mark.parametrize("network", ["gpt2", "googlenet", "resnet50"])
def test_gradients_of_fused_layers_are_exchanged(network, framework):
    graph = pm.zoo.build(network)
    p = pm.predict(graph, batch_size=4, system="dgx_a100", workers=8, framework=framework, sync="all_reduce")
    gradients = p.basis.timed.gradients
    assert gradients.sizes_bytes.sum() == 4 * graph.parameter_count
    assert (gradients.ready_s >= 0).all()
    assert gradients.ready_s.max() <= gradients.backward_s * (1 + 1e-12)
