"""What must hold for every framework, network, processor and batch size."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.framework.kernel_table import LayerOperation, build_kernel_table
from perfmodel.framework.lowering import lower
from perfmodel.framework.profile import load_framework
from perfmodel.hardware import spec_files
from perfmodel.hardware.library import LibrarySupport
from perfmodel.kernels import Matmul
from perfmodel.layers import load_optimizer
from perfmodel.layers.passes import one_pass
from perfmodel.prediction.device.gpu_clock import sustained_peak_flop_per_s
from perfmodel.prediction.device.step_time import PARTS, step_time
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.job.lowered import lowered_graph
from perfmodel.records import Phase, Role

FRAMEWORKS = spec_files.names("frameworks")
GRAPHS = {name: pm.zoo.build(name) for name in pm.zoo.names()}
PROCESSORS = (
    {"device": "gtx_1080"},
    {"device": "tesla_k80_gk210"},
    {"device": "i7_3820", "threads": 3},
    {"system": "server_2x_xeon_e5_2630_v3", "threads": 32},
)
FEW = settings(max_examples=25, deadline=None, derandomize=True)
frameworks, networks = st.sampled_from(FRAMEWORKS), st.sampled_from(sorted(GRAPHS))
batch_sizes = st.integers(1, 4096)


def prepared(graph, framework, where):
    target = resolve_target(**{"device": None, "system": None, "threads": None} | where)
    profile = load_framework(framework)
    libraries = target.libraries(profile, None)
    support = target.support(profile, libraries, dtype="fp32")
    lowered = lowered_graph(
        graph, phase=Phase.STEP, optimizer=load_optimizer("momentum"), input_gradient=False, dtype="fp32",
        profile=profile, processor=target.processor, support=support,
    )  # fmt: skip
    lowering = getattr(profile, target.processor).lowering
    return lowered, target.numbers(profile, libraries, dtype="fp32"), lowering, support


def busy_s(parts):
    return parts.compute_s + parts.memory_bound_s + parts.update_s + parts.launch_s


@FEW
@given(
    framework=frameworks,
    network=networks,
    where=st.sampled_from(PROCESSORS),
    batch_size=batch_sizes,
    phase=st.sampled_from(("step", "forward_backward", "forward")),
)
def test_parts_are_not_negative_and_sum_to_the_step_and_to_the_rows(framework, network, where, batch_size, phase):
    p = pm.predict(GRAPHS[network], batch_size=batch_size, framework=framework, phase=phase, **where)
    assert set(p.breakdown) == set(PARTS)
    assert min(p.breakdown.values()) >= 0
    assert sum(p.breakdown.values()) == pytest.approx(p.step_s, rel=1e-12)
    rows = sum(row.seconds for row in p.layers)
    assert rows == pytest.approx(p.compute_s + p.memory_bound_s + p.update_s + p.launch_s, rel=1e-9)
    assert (p.update_s > 0) == (phase == "step")
    assert p.step_s >= p.dispatch_s * (1 - 1e-12)


def with_gradient_buffers(graph, backward, *, in_product):
    """Yield the operations of back-propagation; after a layer's last, each gradient is added to its buffer."""
    shapes = {node.name: node.trained_shapes.values() for node in graph.layers}
    last = {layer: place for place, (layer, _) in enumerate(backward)}
    products = {layer for layer, each in backward if each.kind == "contraction" and each.role == "weight_gradient"}
    for place, (layer, operation) in enumerate(backward):
        yield layer, operation
        for shape in shapes.get(layer, ()) if last[layer] == place else ():
            size, role = math.prod(shape), Role.WEIGHT_GRADIENT
            if not in_product:
                yield layer, one_pass("clear", read=0, written=size, role=role)
            of_product = in_product and layer in products and len(shape) > 1  # which writes as much without adding
            read, written = (size, 0) if of_product else (2 * size, size)
            yield layer, one_pass("gradient_sum", read=read, written=written, tensor=size, flop=size, role=role)


def direct_forward_count(graph, batch_size):
    return len(graph.operations(batch_size=batch_size, phase=Phase.FORWARD, input_gradient=False))


def with_outputs_again(graph, operations, *, forward_count):
    """Yield the operations of a step; before its first gradient a layer with weights makes its output again."""
    forward, backward = operations[:forward_count], operations[forward_count:]
    yield from forward
    pending = {node.name for node in graph.layers if node.trained_shapes}
    for layer, operation in backward:
        if layer in pending:
            pending.remove(layer)
            yield from [again for again in forward if again[0] == layer]
        yield layer, operation


@FEW
@given(framework=frameworks, network=networks, processor=st.sampled_from(("gpu", "cpu")), batch_size=batch_sizes)
def test_the_table_is_the_direct_lowering_at_any_batch_size(framework, network, processor, batch_size):
    graph = GRAPHS[network]
    where = {"device": "gtx_980" if processor == "gpu" else "i7_3820"}
    lowered, _, lowering, support = prepared(graph, framework, where)
    assume(not lowering.fuses)  # a fused pass is no operation of the graph
    rules = lowering.rules(support)
    table = lowered.table
    matmul, stream = table.matmul.at(float(batch_size)), table.stream.at(float(batch_size))
    workspace = table.workspace.at(float(batch_size))["workspace_bytes"]
    direct = [
        (layer, operation)
        for phase in (Phase.FORWARD, Phase.BACKWARD)
        for layer, operation in graph.operations(batch_size=batch_size, phase=phase, input_gradient=False)
    ]
    if lowering.outputs_again:
        direct = list(with_outputs_again(graph, direct, forward_count=direct_forward_count(graph, batch_size)))
    if lowering.gradient_accumulation in ("apart", "in_product"):
        forward_count, how = direct_forward_count(graph, batch_size), lowering.gradient_accumulation
        buffered = with_gradient_buffers(graph, direct[forward_count:], in_product=how == "in_product")
        direct = [*direct[:forward_count], *buffered]
    direct += load_optimizer("momentum").layer_operations(graph.parameter_counts, batch_size=batch_size)
    assert [each.layer for each in table.occurrences] == [layer for layer, _ in direct]
    ends = np.append(table.alternative_starts[1:], len(table.row_order))
    for occurrence, (_, operation) in zip(table.occurrences, direct, strict=True):
        expected = lower(operation, rules=rules, element_bytes=4, processor=processor)
        choices = list(dict.fromkeys(table.choices[:, occurrence.group]))
        assert [table.alternative_names[choice] for choice in choices] == [each.name for each in expected]
        for choice, alternative in zip(choices, expected, strict=True):
            assert workspace[choice] == pytest.approx(alternative.workspace_bytes, rel=1e-12)
            rows = table.row_order[table.alternative_starts[choice] : ends[choice]]
            for row, kernel in zip(rows, alternative.kernels, strict=True):
                of_matmul = isinstance(kernel, Matmul)
                assert (row < table.matmul.row_count) == of_matmul
                columns, place = (matmul, row) if of_matmul else (stream, row - table.matmul.row_count)
                names = table.matmul_efficiency if of_matmul else table.stream_efficiency
                assert names[place] == kernel.efficiency
                for name, column in columns.items():
                    assert column[place] == pytest.approx(getattr(kernel, name), rel=1e-12)


@FEW
@given(framework=frameworks, network=networks, device=st.sampled_from(("gtx_980", "gtx_1080", "tesla_k80_gk210")),
       sizes=st.tuples(st.integers(1, 2048), st.integers(1, 64)))  # fmt: skip
def test_more_samples_never_take_a_gpu_less_time(framework, network, device, sizes):
    # Each entry of the tile menu grows with the batch, and so does the least of them; a limit on workspace only takes
    # choices away. It is the time of kernels and gaps: an algorithm of fewer launches may win and expose less dispatch.
    smaller, more = sizes
    lowered, numbers, lowering, _ = prepared(GRAPHS[network], framework, {"device": device})
    both = step_time(
        lowered.table,
        numbers,
        batch_size=np.array([smaller, smaller + more]),
        workspace_limit_bytes=lowering.workspace_limit_bytes,
    )
    before, after = busy_s(both)
    assert after >= before * (1 - 1e-12)


@FEW
@given(framework=frameworks, network=networks, sizes=st.tuples(st.integers(1, 512), st.integers(1, 64)))
def test_more_samples_never_take_one_core_less_time(framework, network, sizes):
    # On one core: with several, work that grows beyond a library's threshold starts to use them, and time may fall.
    smaller, more = sizes
    where = {"device": "i7_3820", "threads": 1}
    before, after = (
        pm.predict(GRAPHS[network], batch_size=size, framework=framework, **where).step_s
        for size in (smaller, smaller + more)
    )
    assert after >= before * (1 - 1e-12)


@FEW
@given(
    framework=frameworks,
    network=networks,
    batch_size=batch_sizes,
    faster=st.floats(1.0, 8.0),
    field=st.sampled_from(("peak_flop_per_s", "bandwidth_bytes_per_s")),
)
def test_a_faster_gpu_is_never_slower(framework, network, batch_size, faster, field):
    # The kernels: a framework whose dispatch is exposed can lose where a faster memory makes an algorithm of more
    # launches the best one.
    lowered, numbers, lowering, _ = prepared(GRAPHS[network], framework, {"device": "gtx_980"})
    better = replace(numbers, **{field: faster * getattr(numbers, field)})
    slow, fast = (
        busy_s(
            step_time(lowered.table, each, batch_size=batch_size, workspace_limit_bytes=lowering.workspace_limit_bytes)
        )
        for each in (numbers, better)
    )
    assert slow / faster * (1 - 1e-12) <= fast + numbers.launch_s * len(lowered.table.occurrences) * 100
    assert fast <= slow * (1 + 1e-12)


@FEW
@given(framework=frameworks, network=networks, device=st.sampled_from(("gtx_980", "gtx_1080", "tesla_k80_gk210")),
       batch_size=batch_sizes)  # fmt: skip
def test_no_kernel_beats_peak_or_bandwidth(framework, network, device, batch_size):
    p = pm.predict(GRAPHS[network], batch_size=batch_size, framework=framework, device=device)
    spec = pm.load_device(device)
    peak, bandwidth = sustained_peak_flop_per_s(spec, "fp32"), spec.memory_bandwidth_bytes_per_s
    for row in p.layers:
        assert row.seconds >= row.flop_count / peak * (1 - 1e-9), row
        assert row.seconds >= row.bytes / bandwidth * (1 - 1e-9), row


@FEW
@given(framework=frameworks, network=networks, batch_size=batch_sizes)
def test_no_product_beats_the_cpus_peak(framework, network, batch_size):
    p = pm.predict(GRAPHS[network], batch_size=batch_size, framework=framework, system="desktop_i7_3820")
    for row in p.layers:
        if row.kernel == "gemm":
            assert row.seconds >= row.flop_count / p.peak_flop_per_s * (1 - 1e-9), row


@FEW
@given(framework=frameworks, network=networks, batch_size=st.integers(1, 256))
def test_memory_grows_with_the_batch_and_inference_needs_less(framework, network, batch_size):
    # without scratch memory: a larger batch may pick an algorithm that needs none
    def memory(size, phase="step"):
        return pm.predict(GRAPHS[network], batch_size=size, framework=framework, phase=phase, device="gtx_1080").memory

    step, larger, forward = memory(batch_size), memory(2 * batch_size), memory(batch_size, "forward")
    assert larger.activations_bytes > step.activations_bytes
    assert larger.input_bytes == pytest.approx(2 * step.input_bytes)
    assert larger.total_bytes - larger.workspace_bytes > step.total_bytes - step.workspace_bytes
    assert forward.gradients_bytes == forward.optimizer_bytes == 0
    assert forward.total_bytes - forward.workspace_bytes <= step.total_bytes - step.workspace_bytes


def test_a_table_does_not_depend_on_which_operations_stand_beside():
    # the same layer alone and among others: deduplication must not mix groups
    graph = GRAPHS["alexnet"]
    profile = load_framework("torch_423cfba")
    rules = profile.gpu.lowering.rules(LibrarySupport(algorithms=("implicit_gemm", "fft")))
    pairs = [graph.operations(batch_size=n, phase="forward", input_gradient=False) for n in (1, 2, 3)]
    whole = build_kernel_table(
        [[LayerOperation(layer, Phase.FORWARD, op) for layer, op in each] for each in pairs],
        rules=rules, element_bytes=4, processor="gpu",
    )  # fmt: skip
    total = whole.matmul.at(16)
    assert total["m"].shape == (whole.matmul.row_count,)
    for place, occurrence in enumerate(whole.occurrences):
        alone = build_kernel_table(
            [[LayerOperation(each[place][0], Phase.FORWARD, each[place][1])] for each in pairs],
            rules=rules, element_bytes=4, processor="gpu",
        )  # fmt: skip
        choices = list(dict.fromkeys(whole.choices[:, occurrence.group]))
        assert [whole.alternative_names[choice] for choice in choices] == list(alone.alternative_names)
