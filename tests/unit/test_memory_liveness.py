"""What is in memory at every moment of a step, on graphs small enough to count by hand; sizes in elements."""

from collections import Counter

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.graph import LayerGraph
from perfmodel.graph.execution import segments, wants_gradient
from perfmodel.graph.liveness import MemoryRules
from perfmodel.layers import (
    Accuracy,
    Add,
    BatchNorm,
    Binary,
    Concat,
    Constant,
    Convolution2d,
    CrossEntropy,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    MaxPool2d,
    Parameter,
    Reduction,
    ReLU,
    Sigmoid,
    Softmax,
    Tanh,
    Unary,
)
from perfmodel.presentation.quantities import bytes_text

FORWARD, BACKWARD = "forward", "backward"
ELEMENTS = {"element_bytes": 1, "index_bytes": 2}
"""Rules with elements of one byte, so that bytes are elements."""


def chain(*layers, features=100, name="chain", **given):
    """Put layers in a row: pairs of name and layer."""
    graph = LayerGraph(name, input_shape=(features,) if isinstance(features, int) else features, **given)
    x = graph.input
    for layer_name, layer in layers:
        x = graph.add(layer_name, layer, inputs=x)
    return graph


def classifier():
    """100 -> 50 -> relu -> 10 -> loss: 5050 + 510 parameters."""
    return chain(("hidden", Dense(units=50)), ("relu", ReLU()), ("scores", Dense(units=10)), ("loss", CrossEntropy()))


def alive(graph, *, phase="step", **rules):
    """Return (elements per sample, elements whatever the batch size, with weight gradients) by layer and phase."""
    live = graph.liveness(phase=phase, rules=MemoryRules(**(ELEMENTS | rules)))
    found = {}
    for place, (layer, part) in enumerate(live.moments):
        key = (layer, part.value)
        now = (live.activations[1][place], live.activations[0][place] + live.gradients[place])
        found.setdefault(key, []).append(now)
    return {key: moments[0] if len(moments) == 1 else moments for key, moments in found.items()}


class TestChain:
    def test_forward_keeps_what_back_propagation_reads(self):
        moments = alive(classifier(), in_place_kinds=("relu",))
        assert moments["hidden", FORWARD] == (50, 0)
        assert moments["relu", FORWARD] == (50, 0)  # in place
        assert moments["scores", FORWARD] == (50 + 10, 0)
        # relu's output for the weights of scores and for itself, logits, probabilities, the loss
        assert moments["loss", FORWARD] == (50 + 10 + 10 + 1, 0)

    def test_backward_frees_it_and_makes_gradients(self):
        moments = alive(classifier(), in_place_kinds=("relu",))
        # relu, probabilities, loss and its gradient, that of log-probabilities (scratch) and of logits; logits are gone
        assert moments["loss", BACKWARD] == (50 + 10 + 1 + 1 + 10 + 10, 0)
        # relu, loss, gradient of logits and of relu's output; 500 + 10 weights
        assert moments["scores", BACKWARD] == (50 + 1 + 10 + 50, 510)
        # relu's output, loss, gradient of the output and of the input
        assert moments["relu", BACKWARD] == (50 + 1 + 50 + 50, 510)
        # loss, gradient of hidden's output; nobody wants the input's; 5000 + 50 weights
        assert moments["hidden", BACKWARD] == (1 + 50, 510 + 5050)
        assert moments["", "update"] == (1, 5560)

    def test_without_in_place_the_rectifiers_input_lives_as_long_as_it_is_read(self):
        moments = alive(classifier())
        assert moments["relu", FORWARD] == (50 + 50, 0)
        assert moments["scores", FORWARD] == (50 + 10, 0)

    def test_inference_keeps_two_neighbours(self):
        moments = alive(classifier(), phase="forward")
        assert [moments[name, FORWARD] for name in ("hidden", "relu", "scores", "loss")] == [
            (50, 0), (100, 0), (60, 0), (10 + 10 + 1, 0)  # probabilities are made here too, and given back
        ]  # fmt: skip

    def test_the_input_gradient_where_it_is_asked_for(self):
        live = classifier().liveness(input_gradient=True, rules=MemoryRules(**ELEMENTS))
        place = [name for name, _ in live.moments].index("", 1) - 1
        assert live.moments[place] == ("hidden", BACKWARD)
        assert live.activations[1][place] == 1 + 50 + 100

    def test_the_peak_is_the_largest_of_the_moments(self):
        # many samples: the relu's backward phase, 151 N + 510; few: the end, 51 N + 5560; they meet at N = 50.5
        graph = classifier()
        for batch_size, activations, gradients in ((50, 51, 5560), (51, 151, 510)):
            memory = pm.predict(graph, batch_size=batch_size, device="gtx_1080").memory
            assert memory.activations_bytes == 4 * activations * batch_size
            assert memory.gradients_bytes == 4 * gradients

    def test_fixed_mini_batch(self):
        layers = [(node.name, node.layer) for node in classifier().layers]
        fixed = chain(*layers, name="fixed", fixed_batch_size=8)
        free, one = (pm.predict(each, batch_size=8, device="gtx_1080").memory for each in (classifier(), fixed))
        assert one == free
        assert pm.max_batch_size(fixed, device="gtx_1080") == 8
        assert fixed.kept_bytes() == classifier().kept_bytes(batch_size=8)


class TestWhoSharesMemory:
    def test_a_view_keeps_its_source_alive(self):
        graph = chain(
            ("pool", MaxPool2d(kernel_size=2)), ("flat", Flatten()), ("scores", Dense(units=10)),
            ("loss", CrossEntropy()), features=(3, 4, 4),
        )  # fmt: skip
        moments = alive(graph)
        # nothing before the pool wants a gradient, so it keeps neither its input nor its indices, which it makes
        assert moments["pool", FORWARD] == (12 + 12 * 2, 0)
        assert moments["flat", FORWARD] == (12, 0)
        assert moments["loss", BACKWARD] == (12 + 10 + 1 + 1 + 10 + 10, 0)
        assert moments["scores", BACKWARD] == (12 + 1 + 10, 10 * 12 + 10)

    def test_indices_of_maxima_have_the_frameworks_size(self):
        graph = chain(
            ("conv", Convolution2d(out_channels=3, kernel_size=1)), ("pool", MaxPool2d(kernel_size=2)),
            ("flat", Flatten()), ("scores", Dense(units=10)), ("loss", CrossEntropy()), features=(3, 4, 4),
        )  # fmt: skip
        # conv's output stays for the pool; the pool's 12, and 12 indices of 2 or 8 B
        assert alive(graph)["scores", FORWARD] == (48 + 12 + 12 * 2 + 10, 0)
        assert alive(graph, index_bytes=8)["scores", FORWARD] == (48 + 12 + 12 * 8 + 10, 0)

    @pytest.mark.parametrize(
        ("first", "habit_holds"),
        [
            (Dense(units=50), True),  # reads its input going back, not its output
            (Sigmoid(), False),  # reads its output going back: nobody may overwrite it
        ],
    )
    def test_a_habit_overwrites_nothing_that_is_read(self, first, habit_holds):
        graph = chain(
            ("start", Dense(units=50)), ("first", first), ("drop", Dropout()), ("scores", Dense(units=10)),
            ("loss", CrossEntropy()),
        )  # fmt: skip
        held = {kinds: alive(graph, in_place_kinds=kinds)["drop", FORWARD][0] for kinds in ((), ("dropout",))}
        assert held[()] - held["dropout",] == (50 if habit_holds else 0)

    def test_the_graph_wins_over_the_habit(self):
        def of(in_place):
            graph = LayerGraph("one", input_shape=(100,))
            x = graph.add("hidden", Dense(units=50), inputs=graph.input)
            x = graph.add("relu", ReLU(), inputs=x, in_place=in_place)
            graph.add("loss", CrossEntropy(), inputs=x)
            return graph

        for kinds in ((), ("relu",)):
            assert alive(of(True), in_place_kinds=kinds)["relu", FORWARD] == (50, 0)
            assert alive(of(False), in_place_kinds=kinds)["relu", FORWARD] == (100, 0)

    def test_constants_are_there_all_the_time_and_are_not_overwritten(self):
        graph = LayerGraph("table", input_shape=(100,))
        x = graph.add("start", Dense(units=20, bias=False), inputs=graph.input)
        table = graph.add("table", Constant(shape=(20,)), inputs=())
        y = graph.add("relu", ReLU(), inputs=table)
        z = graph.add("product", Binary(function="multiply"), inputs=(x, y))
        graph.add("loss", CrossEntropy(), inputs=z)
        moments = alive(graph, in_place_kinds=("relu",))
        assert moments["start", FORWARD] == (20, 20)  # already, though the graph names it later
        assert moments["relu", FORWARD] == (20, 20 + 20)  # the next step reads the table again
        assert moments["", "update"] == (1, 20 + 2000)

    def test_outputs_that_are_read_twice_are_not_overwritten(self):
        graph = LayerGraph("two", input_shape=(100,))
        x = graph.add("hidden", Dense(units=50), inputs=graph.input)
        y = graph.add("relu", ReLU(), inputs=x)
        z = graph.add("sum", Add(), inputs=(x, y))
        graph.add("loss", CrossEntropy(), inputs=z)
        moments = alive(graph, in_place_kinds=("relu", "add"))
        assert moments["relu", FORWARD] == (100, 0)  # the sum still reads x
        assert moments["sum", FORWARD] == (100, 0)  # into x: relu reads its own output going back


class TestGradients:
    def test_they_meet_at_a_tensor_that_two_layers_read(self):
        graph = LayerGraph("branches", input_shape=(100,))
        x = graph.add("start", Dense(units=20, bias=False), inputs=graph.input)
        y = graph.add("left", Dense(units=20, bias=False), inputs=x)
        z = graph.add("sum", Add(), inputs=(x, y))
        graph.add("loss", CrossEntropy(), inputs=z)
        moments = alive(graph)
        # x, loss, and one gradient that both inputs of the sum share
        assert moments["sum", BACKWARD] == (20 + 1 + 20, 0)
        assert moments["left", BACKWARD] == (20 + 1 + 20 + 20, 400)
        first, second = moments["start", BACKWARD]
        assert first == (1 + 20 + 20, 400)  # added into left's: nobody else reads it
        assert second == (1 + 20, 400 + 2000)

    def test_a_tensor_added_to_itself_needs_a_new_one(self):
        graph = LayerGraph("twice", input_shape=(100,))
        x = graph.add("start", Dense(units=20, bias=False), inputs=graph.input)
        z = graph.add("sum", Add(), inputs=(x, x))
        graph.add("loss", CrossEntropy(), inputs=z)
        assert alive(graph)["start", BACKWARD][0] == (1 + 20 + 20, 0)

    def test_concatenated_branches_get_parts(self):
        graph = LayerGraph("joined", input_shape=(100,))
        x = graph.add("left", Dense(units=20), inputs=graph.input)
        y = graph.add("right", Dense(units=30), inputs=graph.input)
        z = graph.add("both", Concat(), inputs=(x, y))
        graph.add("loss", CrossEntropy(), inputs=z)
        moments = alive(graph)
        assert moments["both", FORWARD] == (20 + 30 + 50, 0)
        assert moments["loss", FORWARD] == (50 + 50 + 1, 0)  # joining keeps nothing
        assert moments["both", BACKWARD] == (1 + 50, 0)  # two views of one gradient
        # which stays whole until the second of them is read; 3000 + 30, then 2000 + 20 weights
        assert moments["right", BACKWARD] == (1 + 50, 3030)
        assert moments["left", BACKWARD] == (1 + 50, 3030 + 2020)

    def test_nothing_is_added_into_a_part(self):
        graph = LayerGraph("parts", input_shape=(100,))
        x = graph.add("start", Dense(units=20, bias=False), inputs=graph.input)
        y = graph.add("product", Dense(units=30, bias=False), inputs=x)
        z = graph.add("both", Concat(), inputs=(x, y))
        graph.add("loss", CrossEntropy(), inputs=z)
        first, second = alive(graph)["start", BACKWARD]
        # the gradient of both, of which x's is a part, and that from the product; the sum goes into the latter
        assert first == (1 + 50 + 20, 600)
        assert second == (1 + 20, 600 + 2000)

    def test_a_gradient_that_another_still_reads_is_not_added_into(self):
        graph = LayerGraph("thrice", input_shape=(100,))
        x = graph.add("start", Dense(units=20, bias=False), inputs=graph.input)
        y = graph.add("early", Dense(units=20, bias=False), inputs=x)
        w = graph.add("late", Dense(units=20, bias=False), inputs=x)
        z = graph.add("inner", Add(), inputs=(x, y))
        z = graph.add("outer", Add(), inputs=(z, w))
        graph.add("loss", CrossEntropy(), inputs=z)
        # the sums give x, early and late one and the same gradient; late's sum into x's must leave it to early, so
        # here are x, loss, that gradient, x's sum so far, and early's contribution to it; weights of late and early
        assert alive(graph)["early", BACKWARD] == (20 + 1 + 20 + 20 + 20, 400 + 400)

    def test_a_sums_gradient_is_repeated_not_stored(self):
        graph = chain(("start", Dense(units=50)), ("total", Reduction(function="sum", over_batch=True)))
        moments = alive(graph)
        # one number whatever the batch size, and its gradient seen through a view; 5000 + 50 weights
        assert moments["total", BACKWARD] == (0, 1 + 1)
        assert moments["start", BACKWARD] == (0, 1 + 1 + 5050)

    def test_element_wise_gradients_need_room_for_their_formula(self):
        graph = chain(("start", Dense(units=50)), ("square", Unary(function="square")), ("loss", CrossEntropy()))
        # x; the loss; dy; dx = dy (2 x^1): x^1 and twice that
        assert alive(graph)["square", BACKWARD] == (50 + 1 + 50 + 50 + 2 * 50, 0)

    def test_the_gradient_of_a_repeated_operand_is_whole_before_it_is_summed(self):
        def of(is_trained):
            graph = LayerGraph("gate", input_shape=(100,))
            x = graph.add("start", Dense(units=50), inputs=graph.input)
            gate = graph.add("gate", Parameter(shape=(50,)), inputs=(), is_trained=is_trained)
            x = graph.add("product", Binary(function="multiply"), inputs=(x, gate))
            graph.add("loss", CrossEntropy(), inputs=x)
            return graph

        # x; the loss; dy; dx; dy x before it is summed over the samples to 50 in all
        assert alive(of(True))["product", BACKWARD] == (50 + 1 + 50 + 50 + 50, 50)
        assert alive(of(False))["product", BACKWARD] == (1 + 50 + 50, 0)

    def test_frozen_products_keep_nothing(self):
        def of(is_trained):
            graph = LayerGraph("tuned", input_shape=(100,))
            x = graph.add("start", Dense(units=50), inputs=graph.input)
            x = graph.add("frozen", Dense(units=60), inputs=x, is_trained=is_trained)
            graph.add("loss", CrossEntropy(), inputs=x)
            return graph

        assert alive(of(True))["loss", FORWARD] == (50 + 60 + 60 + 1, 0)
        assert alive(of(False))["loss", FORWARD] == (60 + 60 + 1, 0)
        assert alive(of(False))["", "update"] == (1, 5050)
        memory = pm.predict(of(False), batch_size=1, device="gtx_1080", optimizer="adam").memory
        assert memory.weights_bytes == 4 * (5050 + 3060)
        assert memory.optimizer_bytes == 2 * 4 * 5050  # nothing is kept for what is not updated

    def test_layers_before_the_first_trained_one_keep_nothing(self):
        graph = LayerGraph("head", input_shape=(100,))
        x = graph.add("frozen", Dense(units=50), inputs=graph.input, is_trained=False)
        x = graph.add("relu", ReLU(), inputs=x)
        x = graph.add("scores", Dense(units=10), inputs=x)
        graph.add("loss", CrossEntropy(), inputs=x)
        moments = alive(graph)
        assert ("relu", BACKWARD) not in moments
        assert moments["scores", BACKWARD] == (50 + 1 + 10, 510)

    def test_shared_parameters_have_one_gradient(self):
        graph = LayerGraph("tied", input_shape=(5,))
        x = graph.add("words", Embedding(vocabulary=30, features=4), inputs=graph.input)
        x = graph.add(
            "scores", Dense(units=30, bias=False), inputs=x, shared_parameters={"weight": ("words", "weight")}
        )
        graph.add("loss", CrossEntropy(), inputs=x)
        moments = alive(graph)
        # five words of 4 features; scores makes the gradient, words a second one to be added to it
        assert moments["scores", BACKWARD] == (20 + 5 + 150 + 20, 120)
        assert moments["words", BACKWARD] == (5 + 20, 120 + 120)
        assert moments["", "update"] == (5, 120)

    def test_metrics_keep_nothing(self):
        graph = classifier()
        graph.add("hits", Accuracy(), inputs="scores")
        assert alive(graph)["loss", BACKWARD][0] == alive(classifier())["loss", BACKWARD][0] + 1  # its own output
        assert ("hits", BACKWARD) not in alive(graph)

    def test_softmax_and_loss_over_probabilities(self):
        graph = chain(("scores", Dense(units=10)), ("p", Softmax()), ("loss", CrossEntropy(over="probabilities")))
        moments = alive(graph)
        assert moments["loss", FORWARD] == (10 + 1, 0)  # softmax and loss read the same ten
        assert moments["loss", BACKWARD] == (10 + 1 + 1 + 10, 0)

    def test_statistics_do_not_grow_with_the_batch(self):
        graph = chain(("start", Dense(units=50)), ("norm", BatchNorm()), ("loss", CrossEntropy()))
        assert alive(graph)["loss", FORWARD] == (50 + 50 + 50 + 1, 2 * 50)


def residual(blocks, width=20):
    """A stem and blocks x + relu(x W), each of two layers and a sum: stem, block 1, block 2 ..., head."""
    graph = LayerGraph("residual", input_shape=(100,))
    x = graph.add("stem", Dense(units=width, bias=False), inputs=graph.input)
    for block in range(blocks):
        y = graph.add(f"product{block}", Dense(units=width, bias=False), inputs=x)
        y = graph.add(f"relu{block}", ReLU(), inputs=y, in_place=True)
        x = graph.add(f"sum{block}", Add(), inputs=(x, y))
    x = graph.add("head", Dense(units=10, bias=False), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph


class TestRecompute:
    def test_full_keeps_the_inputs_of_blocks(self):
        graph = residual(3)
        # of each block its input and its relu's output; the last sum for the head, and probabilities
        assert graph.kept_bytes() == 4 * (3 * 40 + 20 + 10)
        # of all blocks but the last the input only
        assert graph.kept_bytes(recompute="full") == 4 * (2 * 20 + 40 + 20 + 10)

    def test_a_block_runs_again_before_its_back_propagation(self):
        graph = residual(3)
        pairs = graph.operations(batch_size=1, phase="backward", recompute="full")
        names = [name for name, _ in pairs]
        # product2 and relu2 were kept; product0 and relu0 run again, the sums are checkpoints
        assert [names.count(f"product{block}") for block in range(3)] == [3, 3, 2]
        assert names.index("relu1") < names.index("product1") + 2
        again = graph.work(phase="backward", recompute="full").flop_count - graph.work(phase="backward").flop_count
        assert again == 2 * (2 * 20 * 20 + 20)  # two products of 20 x 20, two rectifiers

    def test_what_is_alive_while_a_block_runs_again(self):
        moments = alive(residual(3), recompute="full")
        product, backward = moments["product0", BACKWARD]
        gradients = 10 * 20 + 2 * 400  # head, blocks 2 and 1
        # the block's input, its gradient so far (the sum passes it on), the loss, and what is computed
        assert product == (20 + 20 + 1 + 20, gradients)
        # the block's input, its gradient from the sum and that from here, the gradient of the product, the loss
        assert backward == (20 + 20 + 20 + 20 + 1, gradients + 400)

    def test_sqrt_makes_segments_of_equal_memory(self):
        layers = [(f"dense{place}", Dense(units=100, bias=False)) for place in range(99)]
        graph = chain(*layers, ("head", Dense(units=10, bias=False)), ("loss", CrossEntropy()))
        kept = graph.kept_bytes(recompute="sqrt") / 400
        # 100 layers to cut between: ten segments, nine checkpoints and the ten of the last segment
        assert graph.kept_bytes() / 400 == pytest.approx(99.1)
        assert kept == pytest.approx(9 + 10, abs=1.2)
        peak = graph.liveness(rules=MemoryRules(recompute="sqrt")).activations[1].max() / 400
        # checkpoints, the outputs of one segment, two gradients: 2 sqrt(n) as in Chen et al.
        assert peak == pytest.approx(9 + 10 + 2, abs=2.5)

    @pytest.mark.parametrize(("layer", "runs_again"), [(Dropout(), True), (Sigmoid(), False)])
    def test_a_checkpoint_runs_again_only_for_what_it_keeps_besides(self, layer, runs_again):
        # dropout's mask is thrown away with the segment; sigmoid's output is all it needs, and that is kept
        rows = [
            (f"{name}{place}", each)
            for place in range(8)
            for name, each in (("dense", Dense(units=100)), ("end", layer))
        ]
        graph = chain(*rows, ("loss", CrossEntropy()))
        nodes = list(graph.layers)
        wanted = wants_gradient(graph.input_shapes, nodes, input_gradient=False)
        *repeated, last = segments(nodes, wanted=wanted, recompute="sqrt")
        assert len(repeated) > 1
        assert not last.again
        for part in repeated:
            assert part.nodes[-1].name.startswith("end")
            assert (part.nodes[-1] in part.again) == runs_again

    def test_what_nobody_reads_again_is_not_computed_again(self):
        pairs = [
            (f"{kind}{place}", layer)
            for place in range(16)
            for kind, layer in (("dense", Dense(units=10)), ("tanh", Tanh()))
        ]
        graph = chain(*pairs, ("head", Dense(units=10)), ("loss", CrossEntropy()))
        kept, sqrt = (
            Counter(name for name, _ in graph.operations(batch_size=1, phase=BACKWARD, recompute=how))
            for how in (None, "sqrt")
        )
        again = sqrt - kept
        # 34 layers, 33 places to cut: 6 segments, of which 5 end in a checkpoint; its product and tanh run once
        ends = [place for place in range(14) if f"dense{place}" not in again]
        assert len(ends) == 5
        assert all(f"tanh{place}" not in again for place in ends)
        # nor does the last segment run again, which is needed first
        assert not again.keys() & {"dense14", "tanh14", "dense15", "tanh15", "head", "loss"}

    def test_what_it_saves_is_said(self):
        def remark(graph):
            kept, p = (pm.predict(graph, batch_size=16, device="gtx_1080", recompute=how) for how in (None, "full"))
            spared = kept.memory.total_bytes - p.memory.total_bytes
            (remark,) = [each for each in p.remarks if "second time" in each]
            assert remark in " ".join(str(p).split())
            return spared, remark

        spared, text = remark(pm.zoo.resnet50())
        assert spared > 1e8
        assert text.endswith(f"which saves {bytes_text(spared)}")
        # the translator's peak is at its 80,000 scores a word, behind the last checkpoint
        spared, text = remark(pm.zoo.seq2seq())
        assert spared == 0
        assert "saves no memory here" in text
        forward = pm.predict(classifier(), batch_size=1, device="gtx_1080", phase="forward", recompute="full")
        assert not any("second time" in each for each in forward.remarks)

    def test_networks_without_branches_have_no_blocks(self):
        graph = classifier()
        full, sqrt = (graph.work(phase="backward", recompute=how) for how in ("full", "sqrt"))
        assert full == sqrt

    def test_a_step_costs_a_forward_phase_more(self):
        graph = pm.zoo.resnet50()
        forward, backward = (graph.work(phase=part).flop_count for part in (FORWARD, BACKWARD))
        twice = graph.work(phase=BACKWARD, recompute="full").flop_count
        # all but the last block and what lies behind it, so somewhat less than a whole forward phase
        assert 0.9 * forward < twice - backward < forward
        p, q = (pm.predict(graph, batch_size=16, device="gtx_1080", recompute=how) for how in (None, "full"))
        assert 1.2 < q.step_s / p.step_s < 4 / 3
        assert q.memory.activations_bytes < 0.5 * p.memory.activations_bytes
        assert {row.phase for row in q.layers if row.layer == "stage1_block1_a_conv"} >= {"forward", "backward"}
        assert "second time" in q.explain()

    def test_refused(self):
        with pytest.raises(UnknownNameError, match=r"'ful'.*full"):
            classifier().work(phase="step", recompute="ful")
        with pytest.raises(UnknownNameError, match="sqrt"):
            pm.predict(classifier(), batch_size=1, device="gtx_1080", recompute="sqr")
        with pytest.raises(ArgumentError, match="keeps every activation"):
            pm.predict(classifier(), batch_size=1, device="gtx_1080", framework="caffe_1_0_rc3", recompute="full")


class TestPrecision:
    @pytest.mark.parametrize("dtype", ["fp16", "bf16"])
    def test_mixed_precision_takes_sixteen_bytes_per_parameter_with_adam(self, dtype):
        # 2 + 2 + 12: weights, gradients; copy of the weights and two moments (Rajbhandari et al., SC 2020, section 3.1)
        memory = pm.predict(classifier(), batch_size=1, device="a100_40_sxm", dtype=dtype, optimizer="adam").memory
        parts = (memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes)
        assert parts == (2 * 5560, 2 * 5560, 12 * 5560)
        assert memory.activations_bytes == 2 * 51  # at the end: the loss and hidden's gradient

    def test_eight_bits_keep_what_sixteen_keep(self):
        memory = pm.predict(classifier(), batch_size=1, device="h100_sxm", dtype="fp8", optimizer="adam").memory
        parts = (memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes)
        assert parts == (2 * 5560, 2 * 5560, 12 * 5560)

    def test_what_is_not_updated_needs_no_copy(self):
        memory = pm.predict(classifier(), batch_size=1, device="v100_sxm2", dtype="fp16", optimizer="none").memory
        assert memory.optimizer_bytes == 0

    def test_inference_needs_the_weights_alone(self):
        memory = pm.predict(classifier(), batch_size=1, device="v100_sxm2", dtype="fp16", phase="forward").memory
        assert (memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes) == (2 * 5560, 0, 0)

    def test_without_an_update_nobody_needs_a_copy(self):
        memory = pm.predict(
            classifier(), batch_size=1, device="v100_sxm2", dtype="fp16", phase="forward_backward", optimizer="adam"
        ).memory
        assert memory.optimizer_bytes == 0

    def test_indices_keep_their_size(self):
        graph = LayerGraph("words", input_shape=(5,))
        x = graph.add("words", Embedding(vocabulary=30, features=4), inputs=graph.input)
        x = graph.add("scores", Dense(units=30), inputs=x)
        graph.add("loss", CrossEntropy(), inputs=x)
        memory = pm.predict(graph, batch_size=3, device="v100_sxm2", dtype="fp16").memory
        assert memory.input_bytes == 2 * 3 * (5 * 8 + 5 * 4)  # two mini-batches, indices of 8 B, labels of 4


class TestSymbols:
    def test_kept_bytes_are_an_exact_expression(self):
        n, width = sympy.symbols("N W", positive=True, integer=True)
        graph = chain(("hidden", Dense(units=width)), ("scores", Dense(units=10)), ("loss", CrossEntropy()))
        kept = graph.kept_bytes(batch_size=n)
        assert sympy.simplify(kept - 4 * n * (width + 10)) == 0
        assert kept.subs({width: 50, n: 3}) == graph.with_sizes(W=50).kept_bytes(batch_size=3)

    def test_half_precision_halves_them(self):
        assert classifier().kept_bytes(batch_size=2, dtype="fp16") == classifier().kept_bytes(batch_size=2) / 2


class TestMaxBatchSize:
    @pytest.mark.parametrize("recompute", [None, "full", "sqrt"])
    def test_it_fits_and_the_next_does_not(self, recompute):
        graph = pm.zoo.resnet50()
        size = pm.max_batch_size(graph, device="gtx_980", recompute=recompute)
        fits = [
            pm.predict(graph, batch_size=each, device="gtx_980", recompute=recompute).memory.fits
            for each in (size, size + 1)
        ]
        assert fits == [True, False]

    def test_recomputing_and_inference_leave_room(self):
        graph = pm.zoo.resnet50()
        kept, recomputed, inference = (
            pm.max_batch_size(graph, device="gtx_980", **how) for how in ({}, {"recompute": "full"}, {"phase": FORWARD})
        )
        assert kept < recomputed < inference

    def test_zero_where_the_weights_alone_are_too_large(self):
        graph = chain(("wide", Dense(units=10_000_000)), ("loss", CrossEntropy()))  # 4 GB of weights
        assert pm.max_batch_size(graph, device="gtx_980") == 0
        fixed = chain(("wide", Dense(units=10_000_000)), ("loss", CrossEntropy()), fixed_batch_size=8)
        assert pm.max_batch_size(fixed, device="gtx_980") == 0

    @pytest.mark.parametrize(
        ("system", "workers", "device"),
        [("survey_fig5", 4, "gtx_1080"), ("survey_fig6", 16, "gtx_1080"), ("shi2016_desktop", 1, "gtx_980")],
    )
    def test_on_a_system_it_is_what_each_of_its_devices_holds(self, system, workers, device):
        graph = pm.zoo.resnet50()
        size = pm.max_batch_size(graph, system=system, workers=workers)
        assert size == pm.max_batch_size(graph, device=device)
        fits = [
            pm.predict(graph, batch_size=each, system=system, workers=workers, sync="none").memory.fits
            for each in (size, size + 1)
        ]
        assert fits == [True, False]

    @pytest.mark.parametrize(
        "where",
        [
            {"system": "survey_fig5", "workers": 5},
            {"system": "survey_fig5", "workers": 0},
            {"system": "survey_fig5", "workers": 1.5},
            {"system": "survey_fig5", "threads": 2},
            {"system": "shi2016_desktop", "workers": 2},
            {"system": "gce_n1_standard_4", "workers": 2},
            {"device": "gtx_1080", "workers": 2},
        ],
    )
    def test_places_are_refused_as_predict_does(self, where):
        with pytest.raises(ArgumentError) as told:
            pm.max_batch_size(classifier(), **where)
        with pytest.raises(ArgumentError) as predicted:
            pm.predict(classifier(), batch_size=1, sync="none", **where)
        assert str(told.value) == str(predicted.value)

    def test_unknown_capacity(self):
        with pytest.raises(ArgumentError, match="a memory capacity"):
            pm.max_batch_size(classifier(), device="xeon_e5_2630_v3")
        assert pm.max_batch_size(classifier(), system="desktop_i7_3820") > 1000


def test_many_batch_sizes_at_once():
    from perfmodel.prediction.memory.footprint import Moments

    live = residual(3).liveness(rules=MemoryRules(**ELEMENTS))
    moments = Moments.of(live.activations, live.gradients)
    sizes = np.array([1, 10, 100, 1000])
    activations, gradients = moments.peak(sizes)
    totals = live.activations[0][:, None] + live.activations[1][:, None] * sizes + live.gradients[:, None]
    assert (activations + gradients == totals.max(axis=0)).all()
    assert len(moments.gradients) < 0.3 * len(live.moments)  # the others never matter
