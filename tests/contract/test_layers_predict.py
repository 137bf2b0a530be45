"""Every layer can be predicted: each example in a graph of its own, as a step and as inference, on GPU and CPU."""

import math

import pytest

import perfmodel as pm
from perfmodel.graph import LayerGraph
from perfmodel.layers import LAYERS, Constant, Dense, Output, SharedShape
from tests.layer_examples import EXAMPLES

CASES = [
    pytest.param(layer(**options), shapes, id=f"{kind}-{index}")
    for kind, layer in LAYERS.items()
    for index, (options, shapes) in enumerate(EXAMPLES[kind])
]


def graph_of(layer, shapes):
    """The layer, behind dense layers whose weights want its gradients, beside one that always has something to do."""
    fed = {f"input{index}": shape for index, shape in enumerate(shapes) if not isinstance(shape, SharedShape)}
    graph = LayerGraph("example", inputs=fed | {"beside": (3,)})
    graph.add("output", Output(), inputs=graph.add("dense", Dense(units=2), inputs="beside"))
    names = []
    for index, (shape, flow) in enumerate(zip(shapes, layer.differentiable(len(shapes)), strict=True)):
        if isinstance(shape, SharedShape):
            names.append(graph.add(f"shared{index}", Constant(shape=tuple(shape))))
        elif flow and shape:
            names.append(graph.add(f"before{index}", Dense(units=shape[-1]), inputs=f"input{index}"))
        else:
            names.append(f"input{index}")
    graph.add("layer", layer, inputs=names)
    return graph


@pytest.mark.parametrize(("layer", "shapes"), CASES)
def test_every_example_has_a_time(layer, shapes):
    graph = graph_of(layer, shapes)
    for phase, running in (("step", graph), ("forward", graph.at_inference())):
        node = running.node("layer")
        runs = bool(node.layer.forward_operations(node.input_shapes, batch_size=4))
        assert runs or node.layer.is_view  # what runs nothing is a view
        for device in ("gtx_1080", "i7_3820"):
            prediction = pm.predict(graph, batch_size=4, device=device, framework="generic", phase=phase)
            assert 0 < prediction.step_s < math.inf, (phase, device)
            rows = [row for row in prediction.layers if row.layer == "layer"]
            assert runs == any(row.phase == "forward" for row in rows), (phase, device)
            assert all(0 < row.seconds < math.inf for row in rows), (phase, device)
