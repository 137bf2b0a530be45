"""A faster device is never slower: raising rates of any shipped GPU does not lengthen a step."""

import pytest

import perfmodel as pm

NETWORKS = {
    "convolutions": (pm.zoo.alexnet(), 64),
    "products": (pm.zoo.gpt(layers=1, width=1024, heads=16, sequence_length=512, vocabulary=4096), 8),
}
GPUS = [name for name in pm.catalogue().names("device") if isinstance(pm.load_device(name), pm.Gpu)]
FASTER = 1.1


@pytest.mark.parametrize("name", GPUS)
def test_a_faster_gpu_takes_no_longer(name):
    device = pm.load_device(name)
    bandwidth = f"devices/{name}/memory.bandwidth_gb_per_s"
    for graph, batch_size in NETWORKS.values():
        for dtype in device.dtypes:
            prepared = pm.Job(graph, batch_size=batch_size, device=device, dtype=dtype, framework="pytorch_2").prepared
            step_s = prepared.step().composed.parts.step_s
            # energies of a FLOP are stated for one type, and hold for others in the ratio of their rates: all rise
            rises = [{f"devices/{name}/peak_tflop_per_s.{each}": FASTER for each in device.dtypes}]
            rises += [{f"devices/{name}/peak_tflop_per_s.{dtype}": FASTER}]
            # memory that could move more draws more, which the lanes lack where they have little to do with it
            rises += [{bandwidth: FASTER}] if dtype != "fp64" else []
            for rise in rises:
                assert prepared.step(rise).composed.parts.step_s <= step_s * (1 + 1e-9), (dtype, graph.name, rise)
