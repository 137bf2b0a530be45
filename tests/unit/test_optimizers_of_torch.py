"""State and passes of optimizers beside torch.optim: its tensors, and the calls that it makes of them."""

import itertools

import pytest

import perfmodel as pm
from perfmodel.framework.profile import load_framework
from perfmodel.layers.optimizers import load_optimizer
from perfmodel.prediction.memory.footprint import optimizer_bytes

torch = pytest.importorskip("torch")
python_dispatch = pytest.importorskip("torch.utils._python_dispatch")

OPTIMIZERS = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "nadam": ("NAdam", {}),
    "adamax": ("Adamax", {}),
    "adagrad": ("Adagrad", {}),
    "adadelta": ("Adadelta", {}),
    "rmsprop": ("RMSprop", {}),
    "adafactor": ("Adafactor", {}),
    "lbfgs": ("LBFGS", {"history_size": 3, "max_iter": 8, "tolerance_grad": 0.0, "tolerance_change": 0.0}),
}
OPTIONS = {"lbfgs": {"history_size": 3}}


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 7, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(7 * 4 * 4, 11)
    )


def stepped(module, optimizer, *, steps):
    """Take steps on numbers that do not fit, so that a history fills up."""
    samples, targets = torch.randn(16, 3, 6, 6), torch.randn(16, 11)

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(module(samples), targets)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


def tensors(value):
    """Yield every tensor in a state, which may be a list of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        yield from itertools.chain.from_iterable(map(tensors, value))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_has_the_bytes_of_torchs_tensors(name):
    kind, options = OPTIMIZERS[name]
    module = network()
    optimizer = getattr(torch.optim, kind)(module.parameters(), lr=1e-4, **options)
    stepped(module, optimizer, steps=1)
    kept = [tensor for state in optimizer.state.values() for tensor in tensors(list(state.values()))]
    # numbers of the step, not of parameters: counters, step sizes
    kept_bytes = sum(tensor.numel() * tensor.element_size() for tensor in kept if tensor.dim())
    graph = pm.from_torch(network(), torch.zeros(2, 3, 6, 6))
    predicted = optimizer_bytes(graph, load_optimizer(name, **OPTIONS.get(name, {})), element_bytes=4)
    assert predicted == kept_bytes


class Counted(python_dispatch.TorchDispatchMode):
    """Counts the calls on tensors of many elements, and the elements that they read and write."""

    OVERWRITES = ("copy_", "zero_", "fill_")

    def __init__(self, least):
        super().__init__()
        self.least, self.calls, self.read, self.written, self.names = least, 0, 0, 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.__name__.split(".")[0]
        if name in (
            "detach",
            "alias",
            "view",
            "reshape",
            "empty_like",
            "_local_scalar_dense",
            "slice",
            "as_strided",
            "t",
        ):
            return result
        read = written = 0
        met = set()  # a tensor times itself is read once
        for argument, value in zip(function._schema.arguments, args, strict=False):
            size = sum(tensor.numel() for tensor in tensors(value) if id(tensor) not in met)
            met.update(map(id, tensors(value)))
            changes = argument.alias_info is not None and argument.alias_info.is_write
            written += size * changes
            read += size * (not (changes and name.lstrip("_").removeprefix("foreach_") in self.OVERWRITES))
        in_place = any(a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments)
        written += 0 if in_place else sum(tensor.numel() for tensor in tensors(result))
        if max(read, written) >= self.least:
            self.calls, self.read, self.written = self.calls + 1, self.read + read, self.written + written
            self.names.append((name, read / self.least, written / self.least))
        return result


def counted(name, *, steps, size=64, **options):
    """Return the last step's calls, and reads and writes per parameter."""
    kind, _ = OPTIMIZERS[name]
    weight = torch.nn.Parameter(torch.randn(size, size))
    optimizer = getattr(torch.optim, kind)([weight], lr=1e-4, **OPTIMIZERS[name][1], **options)
    for _ in range(steps):
        weight.grad = torch.randn(size, size)
        with Counted(weight.numel()) as seen:
            optimizer.step()
    return seen


FOREACH = ("momentum", "nesterov", "adam", "adamw", "nadam", "adamax", "adagrad", "adadelta", "rmsprop")


@pytest.mark.parametrize("name", FOREACH)
def test_passes_are_the_calls_of_torch(name):
    seen = counted(name, steps=3, foreach=True)
    rule = load_framework("pytorch_2").gpu.lowering.passes[name]
    assert (rule.launches, rule.reads, rule.writes) == (seen.calls, seen.read / 64**2, seen.written / 64**2), seen.names


def test_adafactors_passes_are_the_calls_of_torch():
    seen = counted("adafactor", steps=3)
    passes = load_framework("pytorch_2").gpu.lowering.passes
    moments, direction = passes["adafactor_moments"], passes["adafactor_direction"]
    (*_, last) = load_optimizer("adafactor").operations({"w": 64**2}, batch_size=1, shapes={"w": ((64, 64),)})
    reads = moments.reads + direction.reads + last.read_elements / 64**2
    writes = moments.writes + direction.writes + last.written_elements / 64**2
    # rows, columns and norms are left out: 2 x 64 of 64 x 64 values here
    assert (reads, writes) == pytest.approx((seen.read / 64**2, seen.written / 64**2), abs=0.04)
    assert moments.launches + direction.launches + 1 == seen.calls


def test_an_iteration_of_lbfgs_makes_the_calls_of_torch():
    history, size = 3, 64**2

    def seen(iterations):
        weight = torch.nn.Parameter(torch.randn(size))
        scale = torch.linspace(1.0, 2.0, size)

        def closure():
            with python_dispatch._disable_current_modes():
                weight.grad = scale * weight.detach()
                return (weight.grad * weight.detach()).sum()

        options = {"history_size": history, "max_iter": iterations, "tolerance_grad": 0.0, "tolerance_change": 0.0}
        optimizer = torch.optim.LBFGS([weight], lr=1e-3, **options)
        with Counted(size) as count:
            optimizer.step(closure)
        return count

    longer, shorter = seen(9), seen(8)
    (one,) = load_optimizer("lbfgs", history_size=history).operations({"w": size}, batch_size=1)
    # single numbers, such as results of inner products, are left out
    assert (longer.read - shorter.read) / size == pytest.approx(one.read_elements / size, rel=1e-3), longer.names
    assert (longer.written - shorter.written) / size == pytest.approx(one.written_elements / size, rel=1e-3)


def test_a_second_evaluation_repeats_forward_and_backward_only():
    graph = pm.zoo.alexnet()
    once, twice = (
        pm.predict(graph, batch_size=16, device="gtx_1080", optimizer=load_optimizer("lbfgs", evaluations=count))
        for count in (1, 2)
    )
    assert twice.update_s == once.update_s
    assert twice.step_s - twice.update_s > 1.9 * (once.step_s - once.update_s)
    per_pass = graph.work(batch_size=16, phase="forward_backward").flop_count
    optimizer = load_optimizer("lbfgs", evaluations=2)
    update = graph.work(batch_size=16, phase="update", optimizer=optimizer).flop_count
    assert graph.work(batch_size=16, phase="step", optimizer=optimizer).flop_count == 2 * per_pass + update
    probed = graph.probed_operations((8, 16), phase=pm.records.Phase.STEP, optimizer=optimizer)
    at_16 = [(layer, operations[1]) for layer, operations in probed]
    assert at_16 == list(graph.operations(batch_size=16, phase="step", optimizer=optimizer))


@pytest.mark.parametrize(
    "how",
    [
        {"workers": 2, "sync": "ring_all_reduce"},
        {"workers": 2, "parallelism": "pipeline", "stages": 2, "micro_batches": 4},
        {"workers": 2, "parallelism": "tensor", "tensor_size": 2},
        {"workers": 1, "sync": "parameter_server"},
        {"workers": 1, "sync": "downpour"},
    ],
)
def test_evaluations_that_would_exchange_each_time_are_refused(how):
    asked = {"batch_size": 16, "system": "survey_fig6"} | how
    with pytest.raises(pm.errors.ArgumentError, match="evaluations must be 1"):
        pm.predict(pm.zoo.alexnet(), **asked, optimizer=load_optimizer("lbfgs", evaluations=2))
    assert pm.predict(pm.zoo.alexnet(), **asked, optimizer="lbfgs").step_s > 0


def test_a_penalty_of_weights_takes_two_passes_for_each_term():
    graph = pm.zoo.alexnet()
    plain = graph.work(batch_size=16, phase="update")
    count = graph.parameter_count
    for penalty, flop, terms in (("l1", 5, 1), ("l2", 4, 1), ("l1_l2", 9, 2)):
        work = graph.work(batch_size=16, phase="update", optimizer=load_optimizer("sgd", weight_penalty=penalty))
        assert work.flop_count - plain.flop_count == flop * count
        assert work.read_bytes - plain.read_bytes == terms * 3 * 4 * count
        p = pm.predict(graph, batch_size=16, device="gtx_1080", weight_penalty=penalty)
        assert p.update_s > (1 + terms) * pm.predict(graph, batch_size=16, device="gtx_1080").update_s
    for wrong in ({"phase": "forward"}, {"optimizer": "none"}, {"weight_penalty": "l3"}):
        with pytest.raises(pm.errors.PerfmodelError):
            pm.predict(graph, **{"batch_size": 16, "device": "gtx_1080", "weight_penalty": "l1"} | wrong)


def test_factored_state_depends_on_shapes_and_norms_take_passes():
    adafactor = load_optimizer("adafactor")
    assert adafactor.state_elements([(3, 5, 7, 11), (13,)]) == 3 * 5 * (7 + 11) + 13
    names = [op.name for op in adafactor.operations({"w": 6}, batch_size=1, shapes={"w": ((2, 3),)})]
    assert names == ["adafactor_moments", "adafactor_direction", "adafactor"]
    predicted = pm.predict(pm.zoo.alexnet(), batch_size=8, device="gtx_1080", optimizer="lamb")
    moments_bytes = 2 * 4 * pm.zoo.alexnet().parameter_count
    assert predicted.memory.optimizer_bytes == pytest.approx(moments_bytes, rel=0.1)
