"""Recurrent layers: counts equal torch's own, by direction, depth and which gradients are wanted; calls are read."""

from dataclasses import replace

import pytest
import sympy
import torch
from torch.utils.flop_counter import FlopCounterMode

import perfmodel as pm
from perfmodel.errors import FixedBatchWarning
from perfmodel.layers import GRU, LSTM, RNN, CrossEntropy, Dense, RecurrentState, SharedShape
from perfmodel.layers.shapes import ShapeMismatchError
from perfmodel.layers.translation import Operand, OperatorCall
from perfmodel.records import Role

T, N, X, H = 5, 2, 6, 7
KINDS = {"lstm": (LSTM, torch.nn.LSTM), "gru": (GRU, torch.nn.GRU), "rnn": (RNN, torch.nn.RNN)}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_stack = pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (3, False), (1, True), (2, True)])


def flop_count(step):
    with FlopCounterMode(display=False) as counter:
        result = step()
    return counter.get_total_flops(), result


def products(operations):
    return sum(operation.product_flop_count for operation in operations)


def states_of(kind, layers, directions, *, requires_grad=False):
    count = 2 if kind == "lstm" else 1
    shape = (layers * directions, N, H)
    states = tuple(torch.empty(shape, device="meta", requires_grad=requires_grad) for _ in range(count))
    return states if kind == "lstm" else states[0]


@every_kind
@every_stack
@pytest.mark.parametrize("input_wanted", [True, False])
@pytest.mark.parametrize("state_wanted", [True, False, None])
def test_products_are_those_torch_counts(kind, layers, bidirectional, input_wanted, state_wanted):
    ours, theirs = KINDS[kind]
    directions = 1 + bidirectional
    module = theirs(X, H, num_layers=layers, bidirectional=bidirectional, batch_first=True, device="meta")
    x = torch.empty(N, T, X, device="meta", requires_grad=input_wanted)
    given = () if state_wanted is None else (states_of(kind, layers, directions, requires_grad=state_wanted),)
    forward, (output, _) = flop_count(lambda: module(x, *given))
    backward, _ = flop_count(lambda: output.sum().backward())

    layer = ours(hidden_size=H, layer_count=layers, bidirectional=bidirectional, bias_vectors=2)
    state_count = (0 if state_wanted is None else 1) * (2 if kind == "lstm" else 1)
    shapes = ((T, X), *[(layers * directions, H)] * state_count)
    assert layer.output_shape(shapes) == tuple(output.shape[1:])
    assert products(layer.forward_operations(shapes, batch_size=N)) == forward
    wanted = [input_wanted, *[bool(state_wanted)] * state_count]
    assert products(layer.gradient_operations(shapes, batch_size=N, wanted=wanted)) == backward


class Rows(torch.nn.Module):
    """Reads every row of an image as a sequence, as Sequencer2D does; or joins the samples to one sequence."""

    def __init__(self, kind, *, batch_first, joins_samples=False):
        super().__init__()
        self.cells = KINDS[kind][1](X, H, num_layers=2, bidirectional=True, batch_first=batch_first)
        self.batch_first, self.joins_samples = batch_first, joins_samples

    def forward(self, image):
        samples, rows, columns, features = image.shape
        shape = (1, -1, features) if self.joins_samples else (samples * rows, columns, features)
        sequences = image.reshape(shape)
        if self.batch_first:
            y, _ = self.cells(sequences)
        else:
            y = self.cells(sequences.transpose(0, 1))[0].transpose(0, 1)
        return y.reshape(samples, rows, columns, 2 * H)


@every_kind
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_sample_may_hold_several_sequences(kind, batch_first):
    module = Rows(kind, batch_first=batch_first).to("meta")
    image = torch.empty(N, 3, T, X, device="meta", requires_grad=True)
    forward, output = flop_count(lambda: module(image))
    backward, _ = flop_count(lambda: output.sum().backward())
    graph = pm.from_torch(torch.nn.Sequential(torch.nn.Identity(), module), image)
    assert graph.fixed_batch_size is None
    (node,) = (node for node in graph.layers if node.layer.kind == kind)
    rows, one = node.input_shapes, ((T, X), *[(4, H)] * (len(node.input_shapes) - 1))
    assert sorted(rows[0]) == sorted((3, T, X))
    assert node.layer.steps_first is not batch_first
    assert products(node.layer.forward_operations(rows, batch_size=N)) == forward
    wanted = [True, *[False] * (len(rows) - 1)]
    assert products(node.layer.gradient_operations(rows, batch_size=N, wanted=wanted)) == backward
    alone = KINDS[kind][0](hidden_size=H, layer_count=2, bidirectional=True, bias_vectors=2)
    for phase in ("forward", "backward"):
        ours = node.layer.operations(rows, batch_size=N, phase=phase)
        assert ours == alone.operations(one, batch_size=3 * N, phase=phase)
    sizes = {"element_bytes": 4}
    assert node.layer.saved_bytes(rows, batch_size=N, **sizes) == alone.saved_bytes(one, batch_size=3 * N, **sizes)


def test_samples_joined_to_one_sequence_are_not_several():
    module = Rows("gru", batch_first=True, joins_samples=True)
    with pytest.warns(FixedBatchWarning):
        graph = pm.from_torch(module, torch.empty(2, 3, 2, X))
    assert "gru" not in {node.layer.kind for node in graph.layers}


@pytest.mark.parametrize(("layout", "axes"), [(1, ((3, T, X), (3, 2, H))), (0, ((T, 3, X), (2, 3, H)))])
def test_nodes_of_onnx_may_hold_several_sequences_a_sample(layout, axes):
    x, h = (tensor(name, shape, (0, 1, 2)) for name, shape in zip("xh", axes, strict=True))
    for merged, is_read in ((1 - layout, True), (layout, False)):
        call = onnx_call("gru", 3, directions=2, layout=layout, **{"0": replace(x, merged_axis=merged), "5": h})
        translation = GRU.operators["GRU"](call)
        assert (translation is not None) is is_read
        if translation is not None:
            output = (3, T, 2, H) if layout else (T, 2, 3, H)
            assert translation.layer.output_shape(axes) == output
            assert RecurrentState(shape=axes[1]).output_shape((output,)) == axes[1]
            last = replace(translation.layer, return_sequences=False)
            assert last.output_shape(axes) == ((3, 2, H) if layout else (2, 3, H))


def test_states_of_several_sequences_must_be_as_many():
    with pytest.raises(ShapeMismatchError, match="2x2x7"):
        LSTM(hidden_size=H, layer_count=2).output_shape(((3, T, X), (2, 2, H)))


@every_kind
@every_stack
@pytest.mark.parametrize("bias", [True, False])
def test_parameters_are_those_of_torch(kind, layers, bidirectional, bias):
    ours, theirs = KINDS[kind]
    module = theirs(X, H, num_layers=layers, bidirectional=bidirectional, bias=bias, device="meta")
    layer = ours(hidden_size=H, layer_count=layers, bidirectional=bidirectional, bias_vectors=2 if bias else 0)
    assert layer.parameter_count(((T, X),)) == sum(each.numel() for each in module.parameters())
    assert len(layer.parameter_shapes(((T, X),))) == len(list(module.parameters()))


def test_a_decoder_sends_the_gradient_of_its_first_state_to_the_encoder():
    encoder = torch.nn.LSTM(X, H, num_layers=2, batch_first=True, device="meta")
    decoder = torch.nn.LSTM(X, H, num_layers=2, batch_first=True, device="meta")
    scores = torch.nn.Linear(H, 10, device="meta")
    source, target = torch.empty(N, T, X, device="meta"), torch.empty(N, 3, X, device="meta")
    forward, output = flop_count(lambda: scores(decoder(target, encoder(source)[1])[0]))
    backward, _ = flop_count(lambda: output.sum().backward())

    graph = pm.LayerGraph("seq2seq", inputs={"source": (T, X), "target": (3, X)})
    x = graph.add("encoder", LSTM(hidden_size=H, layer_count=2, bias_vectors=2), inputs="source")
    states = [graph.add(name, RecurrentState(shape=(2, H)), inputs=x) for name in ("h", "c")]
    x = graph.add("decoder", LSTM(hidden_size=H, layer_count=2, bias_vectors=2), inputs=["target", *states])
    x = graph.add("scores", Dense(units=10), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    ours = {phase: [op for _, op in graph.operations(batch_size=N, phase=phase)] for phase in ("forward", "backward")}
    assert products(ours["forward"]) == forward
    # torch spares the encoder the h of its own last step only where nobody reads it; here the decoder does
    assert products(ours["backward"]) == backward


def test_gru_bytes_and_flop_by_hand():
    layer, shapes = GRU(hidden_size=3, bias_vectors=2), ((4, 5),)
    sequence = N * 4 * 3
    work = layer.work(shapes, batch_size=N, phase="forward")
    # products of 3 gates with x and h; sigmoids 4 + 4, r (h U) 1, tanh 1, (1 - z) n + z h 4, second bias 3
    assert work.flop_count == 2 * sequence * 3 * (5 + 3) + 17 * sequence
    # x, matrices, two biases of 3 gates
    assert work.read_bytes == 4 * (N * 4 * 5 + 9 * (5 + 3) + 2 * 9)
    assert work.written_bytes == 4 * (3 + 1) * sequence  # gates and h
    # gates and the candidate's recurrent part; h is the output
    assert layer.saved_bytes(shapes, batch_size=N, element_bytes=4) == 4 * 4 * sequence
    assert layer.keeps_output
    last = GRU(hidden_size=3, bias_vectors=2, return_sequences=False)
    assert last.saved_bytes(shapes, batch_size=N, element_bytes=4) == 4 * 5 * sequence
    assert not last.keeps_output


def test_rnn_flop_by_hand():
    for bias_vectors, pointwise in ((0, 1), (1, 1), (2, 2)):
        layer = RNN(hidden_size=3, function="relu", bias_vectors=bias_vectors)
        # a sum of k terms is 2 k FLOP with and without its bias; then one comparison, and the second bias
        expected = N * 4 * 3 * (2 * (5 + 3) + pointwise)
        assert layer.work(((4, 5),), batch_size=N, phase="forward").flop_count == expected
    # the result of the function at every step
    assert layer.saved_bytes(((4, 5),), batch_size=N, element_bytes=4) == 4 * N * 4 * 3


def test_two_directions_double_the_width_and_add_their_gradients():
    layer = LSTM(hidden_size=3, layer_count=2, bidirectional=True)
    assert layer.output_shape(((4, 5),)) == (4, 6)
    assert LSTM(hidden_size=3, bidirectional=True, return_sequences=False).output_shape(((4, 5),)) == (6,)
    assert LSTM(hidden_size=3, bidirectional=True, direction_axis=True).output_shape(((4, 5),)) == (4, 2, 3)
    operations = layer.backward_operations(((4, 5),), batch_size=N)
    sums = [each for each in operations if each.kind == "memory_pass"]
    # dx of both directions: of the upper layer's 6 features, then of the 5 of the input
    assert [each.read_elements for each in sums] == [2 * N * 4 * 6, 2 * N * 4 * 5]
    unwanted = layer.gradient_operations(((4, 5),), batch_size=N, wanted=[False])
    assert [each.read_elements for each in unwanted if each.kind == "memory_pass"] == [2 * N * 4 * 6]
    # kept: four gates and c of four recurrences, h of the two below
    assert layer.saved_bytes(((4, 5),), batch_size=N, element_bytes=4) == 4 * N * 4 * 3 * (4 * 5 + 2)


def test_dropout_between_layers():
    layer = GRU(hidden_size=3, layer_count=3, dropout=0.5)
    kinds = [each.kind for each in layer.forward_operations(((4, 5),), batch_size=N)]
    assert kinds == ["recurrence", "memory_pass", "recurrence", "memory_pass", "recurrence"]
    backward = layer.backward_operations(((4, 5),), batch_size=N)
    assert [each.kind for each in backward] == [*["recurrence", "recurrence", "memory_pass"] * 2, *["recurrence"] * 2]
    without = GRU(hidden_size=3, layer_count=3).saved_bytes(((4, 5),), batch_size=N, element_bytes=4)
    # twice a mask of 1 B and what was dropped of N x 4 x 3 elements
    assert layer.saved_bytes(((4, 5),), batch_size=N, element_bytes=4) - without == 2 * (1 + 4) * N * 4 * 3
    alone = GRU(hidden_size=3, dropout=0.5)
    assert len(alone.forward_operations(((4, 5),), batch_size=N)) == 1  # torch's applies between layers only


@every_kind
def test_every_size_may_stay_open(kind):
    s, f, h, n = sympy.symbols("S F H N", positive=True, integer=True)
    layer = KINDS[kind][0](hidden_size=h, layer_count=2, bidirectional=True, bias_vectors=2, dropout=0.1)
    numbers = {s: 5, f: 6, h: 7, n: 3}
    closed = KINDS[kind][0](hidden_size=7, layer_count=2, bidirectional=True, bias_vectors=2, dropout=0.1)
    shapes = ((s, f), (4, h))
    assert layer.parameter_count(shapes).subs(numbers) == closed.parameter_count(((5, 6),))
    for phase in ("forward", "backward"):
        exact = layer.work(shapes, batch_size=n, phase=phase)
        assert exact.flop_count.subs(numbers) == closed.work(((5, 6), (4, 7)), batch_size=3, phase=phase).flop_count


def test_predictions_of_every_kind_run():
    for kind in (LSTM, GRU, RNN):
        seconds = {}
        for bidirectional in (False, True):
            graph = pm.LayerGraph("net", inputs={"x": (32, 64)})
            x = graph.add("recurrent", kind(hidden_size=256, bidirectional=bidirectional), inputs="x")
            x = graph.add("scores", Dense(units=10), inputs=x)
            graph.add("loss", CrossEntropy(), inputs=x)
            seconds[bidirectional] = pm.predict(graph, batch_size=64, device="gtx_1080").step_s
        assert 1.3 * seconds[False] < seconds[True] < 2.5 * seconds[False]


def tensor(key, shape, axes=None, **options):
    if axes is None:
        return Operand(key=key, shape=SharedShape(shape), axes=tuple(range(len(shape))), **options)
    return Operand(key=key, shape=shape, axes=axes, **options)


def torch_call(kind, *, batch_first=True, overload="input", train=True, **options):
    module = KINDS[kind][1](X, H, **options)
    params = tuple(tensor(name, tuple(each.shape), is_parameter=True) for name, each in module.named_parameters())
    directions = 2 if module.bidirectional else 1
    state = tensor("h", (module.num_layers * directions, H), (0, None, 1))
    operator = f"aten.{kind}" if kind != "rnn" else f"aten.rnn_{module.nonlinearity}"
    arguments = {
        "input": tensor("x", (T, X), (None, 0, 1) if batch_first else (0, None, 1)),
        "hx": (state, state) if kind == "lstm" else state,
        "params": params,
        "has_biases": module.bias,
        "num_layers": module.num_layers,
        "dropout": module.dropout,
        "train": train,
        "bidirectional": module.bidirectional,
        "batch_first": batch_first,
    }
    return module, OperatorCall(operator=operator, overload=overload, arguments=arguments, outputs=())


@every_kind
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "dropout": 0.5}, {"bias": False}])
@pytest.mark.parametrize("batch_first", [True, False])
def test_calls_of_torch_are_read_with_all_their_parameters(kind, options, batch_first):
    module, call = torch_call(kind, batch_first=batch_first, **options)
    translation = KINDS[kind][0].operators[call.operator](call)
    layer, shapes = translation.layer, tuple(each.shape for each in translation.inputs)
    expected = layer.parameter_shapes(shapes)
    assert set(translation.parameters) == set(expected)
    for name, shape in expected.items():
        given = tuple(translation.parameters[name].shape)
        assert given[::-1] == shape  # torch keeps (outputs, inputs)
    assert layer.hidden_size == H
    assert layer.bidirectional == module.bidirectional
    assert layer.dropout == module.dropout
    assert len(translation.inputs) == (3 if kind == "lstm" else 2)
    assert layer.output_shape(shapes)[-1] == H * (2 if module.bidirectional else 1)


def test_the_first_parameters_are_those_torch_lists_first():
    _, call = torch_call("gru", bidirectional=True)
    parameters = LSTM.operators["aten.lstm"](call).parameters
    assert parameters["input_weight_0"].key == "weight_ih_l0"
    assert parameters["recurrent_bias_0_reverse"].key == "bias_hh_l0_reverse"


def test_calls_that_are_no_plain_recurrence_are_left_alone():
    _, packed = torch_call("lstm", overload="data")
    assert LSTM.operators["aten.lstm"](packed) is None
    _, projected = torch_call("lstm", proj_size=3)
    assert LSTM.operators["aten.lstm"](projected) is None
    _, over_samples = torch_call("lstm", batch_first=True)
    over_samples.arguments["batch_first"] = False
    assert LSTM.operators["aten.lstm"](over_samples) is None
    _, inference = torch_call("gru", num_layers=2, dropout=0.5, train=False)
    assert GRU.operators["aten.gru"](inference).layer.dropout == 0
    _, relu = torch_call("rnn", nonlinearity="relu")
    assert RNN.operators["aten.rnn_relu"](relu).layer.function == "relu"


def onnx_call(kind, gates, *, directions=1, **options):
    arguments = {
        "0": tensor("x", (T, X), (0, None, 1)),
        "1": tensor("w", (directions, gates * H, X), is_parameter=True),
        "2": tensor("r", (directions, gates * H, H), is_parameter=True),
        "3": tensor("b", (directions, 2 * gates * H), is_parameter=True),
        "5": tensor("h", (directions, H), (0, None, 1)),
        "hidden_size": H,
        "direction": "bidirectional" if directions == 2 else "forward",
    }
    return OperatorCall(operator=kind.upper(), arguments=arguments | options, outputs=())


@every_kind
@pytest.mark.parametrize("directions", [1, 2])
def test_nodes_of_onnx_are_read_with_all_their_parameters(kind, directions):
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    call = onnx_call(kind, gates, directions=directions)
    translation = KINDS[kind][0].operators[kind.upper()](call)
    layer, shapes = translation.layer, tuple(each.shape for each in translation.inputs)
    expected = layer.parameter_shapes(shapes)
    assert {name: tuple(part.shape)[::-1] for name, part in translation.parameters.items()} == expected
    # every part is told from the others, and together they are the node's tensors
    assert len({part.key for part in translation.parameters.values()}) == len(expected)
    tensors = [call[position].shape for position in ("1", "2", "3")]
    assert layer.parameter_count(shapes) == sum(torch.Size(shape).numel() for shape in tensors)
    assert layer.output_shape(shapes) == (T, directions, H)


def test_nodes_of_onnx_that_are_other_cells_are_left_alone():
    read = LSTM.operators["LSTM"]
    assert read(onnx_call("lstm", 4)).layer.bias_vectors == 2
    assert read(onnx_call("lstm", 4, **{"7": tensor("p", (1, 3 * H), is_parameter=True)})) is None
    assert read(onnx_call("lstm", 4, activations=("HardSigmoid", "Tanh", "Tanh"))) is None
    assert read(onnx_call("lstm", 4, **{"2": tensor("r", (1, 4 * H, H))})) is None  # weights that are computed
    assert read(onnx_call("lstm", 4, **{"3": None})).layer.bias_vectors == 0
    relu = onnx_call("rnn", 1, activations=("Relu",))
    assert RNN.operators["RNN"](relu).layer.function == "relu"
    assert RNN.operators["RNN"](onnx_call("rnn", 1, activations=("Affine",))) is None


def test_a_state_is_a_view():
    layer = RecurrentState(shape=(2, H))
    assert layer.output_shape(((T, H),)) == (2, H)
    assert layer.operations(((T, H),), batch_size=N, phase="forward_backward") == ()
    assert layer.is_view


def test_roles_of_a_recurrence():
    operations = LSTM(hidden_size=H).backward_operations(((T, X),), batch_size=N)
    assert [each.role for each in operations] == [Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT]


def test_peepholes_are_a_weight_for_each_unit_and_gate():
    plain, peeping = LSTM(hidden_size=H, layer_count=2), LSTM(hidden_size=H, layer_count=2, peepholes=True)
    both = plain.parameter_shapes(((T, X),)), peeping.parameter_shapes(((T, X),))
    assert both[1].items() - both[0].items() == {(f"peephole_weight_{index}", (3 * H,)) for index in range(2)}
    (first, _), (with_them, _) = (layer.forward_operations(((T, X),), batch_size=N) for layer in (plain, peeping))
    assert with_them.product_flop_count == first.product_flop_count
    assert with_them.work(element_bytes=4).flop_count - first.work(element_bytes=4).flop_count == N * T * 6 * H
