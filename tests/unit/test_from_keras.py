"""``pm.from_keras`` against Keras itself: parameters, shapes, and products by torch's counter; and bad files."""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("KERAS_HOME", tempfile.mkdtemp())  # where an import of Keras writes its settings

import keras
from keras import layers as kl
from keras import ops
from keras.src.legacy.saving import legacy_h5_format

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import (
    ArgumentError,
    OpaqueLayerWarning,
    ParameterWarning,
    PrecisionWarning,
    SpecError,
    UnknownNameError,
)
from perfmodel.importers import archives

# of Keras 3.15 with numpy 2.4, when a model is saved
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

FULL_WALK = os.environ.get("PERFMODEL_FULL_WALK") == "1"
QUICK = ("ConvNeXtTiny", "InceptionV3", "MobileNetV2")
"""One with norms of the last axis, one with scales left out, one that is depth-wise."""
APPLICATIONS = tuple(name for name in dir(keras.applications) if name[0].isupper())
IMAGE = 224
"""Size of images for the applications that take any."""


def application(name, monkeypatch):
    """A network of keras.applications; NASNet's two are refused on torch's backend by a line before they are built."""
    if name.startswith("NASNet"):
        from keras.src.applications import nasnet

        class Backend:
            backend = staticmethod(lambda: "another")

            def __getattr__(self, other):
                return getattr(keras.src.backend, other)

        monkeypatch.setattr(nasnet, "backend", Backend())
    return getattr(keras.applications, name)(weights=None)


def products(graph, phase="forward"):
    return sum(operation.product_flop_count for _, operation in graph.operations(batch_size=2, phase=phase))


def inputs_of(model, shapes=None):
    shapes = shapes or {}
    made = []
    for tensor in model.inputs:
        shape = (2, *shapes.get(tensor.name, tensor.shape[1:]))
        is_index = "int" in str(tensor.dtype)
        made.append(torch.zeros(shape, dtype=torch.int64) if is_index else torch.rand(shape))
    return made


def counted(model, shapes=None):
    """Products of a forward pass of two samples by torch's counter, with attention as products."""
    without_content = FakeTensorMode(allow_non_fake_inputs=True)
    with without_content, FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(inputs_of(model, shapes) if len(model.inputs) > 1 else inputs_of(model, shapes)[0])
    return counter.get_total_flops()


def weights_of(model):
    """Parameters, frozen ones too, without statistics and the state of random numbers."""
    state = ("moving_mean", "moving_variance", "mean", "variance", "count", "seed_generator_state")
    return sum(math.prod(weight.shape) for weight in model.weights if weight.name not in state)


def agree(model, graph, shapes=None):
    assert graph.parameter_count == weights_of(model)
    assert products(graph) == counted(model, shapes)
    made = sorted(math.prod(graph.shape(name)) for name in graph.outputs)
    if not shapes:
        assert made == sorted(math.prod(tensor.shape[1:]) for tensor in model.outputs)


@pytest.mark.parametrize("name", APPLICATIONS if FULL_WALK else QUICK)
def test_an_application_has_kerass_parameters_and_torchs_products(name, monkeypatch):
    model = application(name, monkeypatch)
    size = tuple(IMAGE if extent is None else extent for extent in model.input_shape[1:])
    graph = pm.from_keras(model, input_shapes=size)
    agree(model, graph, {model.inputs[0].name: size})
    assert not [node for node in graph.layers if node.layer.kind == "opaque"]
    assert graph.image_layout == "channels_last"


def convolutions(data_format):
    is_last = data_format == "channels_last"
    x = image = keras.Input((12, 10, 4) if is_last else (4, 12, 10))
    how = {"data_format": data_format}
    x = kl.ZeroPadding2D(((1, 0), (2, 1)), **how)(x)
    x = kl.Conv2D(6, (3, 2), strides=(2, 1), padding="same", activation="relu", **how)(x)
    x = kl.BatchNormalization(axis=-1 if is_last else 1)(x)
    x = kl.Conv2D(8, 3, groups=2, dilation_rate=2, padding="same", use_bias=False, **how)(x)
    x = kl.DepthwiseConv2D(3, depth_multiplier=2, padding="same", activation="silu", **how)(x)
    x = kl.SeparableConv2D(5, 3, depth_multiplier=3, activation="relu6", **how)(x)
    x = kl.Conv2DTranspose(6, 3, strides=2, padding="same", **how)(x)
    x = kl.Conv2DTranspose(4, 2, strides=3, **how)(x)
    x = kl.Conv2DTranspose(4, 4, strides=2, padding="same", output_padding=1, **how)(x)
    x = kl.UpSampling2D(2, interpolation="bilinear", **how)(kl.MaxPooling2D(3, strides=2, padding="same", **how)(x))
    x = kl.Cropping2D(((1, 2), (0, 1)), **how)(kl.AveragePooling2D(2, **how)(x))
    pooled = kl.Flatten(**how)(kl.GlobalAveragePooling2D(keepdims=True, **how)(x))
    return keras.Model(image, kl.Concatenate()([pooled, kl.GlobalMaxPooling2D(**how)(x), kl.Flatten(**how)(x)]))


def sequences():
    """Unrolled where Keras would call a cell once more than there are steps, to learn the shape of what it makes."""
    words = keras.Input((9,), dtype="int64", name="words")
    x = kl.Embedding(30, 6)(words)
    x = kl.Conv1D(7, 3, padding="causal", dilation_rate=2)(kl.SpatialDropout1D(0.1)(x))
    x = kl.LSTM(5, return_sequences=True, dropout=0.2)(x)
    x, h, c = kl.LSTM(4, return_sequences=True, return_state=True, use_bias=False)(x)
    x = kl.LSTM(4, return_sequences=True)(x, initial_state=[h, c])
    x = kl.GRU(6, return_sequences=True, reset_after=False, unroll=True)(x)
    x = kl.Bidirectional(kl.GRU(3, return_sequences=True))(x)
    x = kl.Bidirectional(kl.LSTM(3, return_sequences=True), merge_mode="sum")(x)
    x = kl.RNN(kl.LSTMCell(4), return_sequences=True, unroll=True)(x)
    x = kl.SimpleRNN(8, return_sequences=True, unroll=True)(kl.MaxPooling1D(2)(x))
    return keras.Model(words, [kl.GRU(3)(x), kl.Dense(2, activation="softmax")(x)])


def attention():
    x = steps = keras.Input((6, 8))
    other = keras.Input((5, 10))
    x = kl.LayerNormalization()(x)
    x = kl.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    x = kl.MultiHeadAttention(3, 4, value_dim=5, use_bias=False, output_shape=12)(x, other)
    x = kl.MultiHeadAttention(2, 3, dropout=0.1)(x, x)
    x = kl.GroupQueryAttention(3, 4, 2)(x, x)
    x = kl.EinsumDense("abc,cde->abde", output_shape=(6, 2, 6), bias_axes="de")(x)
    x = kl.EinsumDense("abde,def->abf", output_shape=(6, 8), activation="gelu")(x)
    x = kl.Attention(use_scale=True)([x, kl.Dense(8)(other)])
    return keras.Model([steps, other], kl.RMSNormalization()(x))


def sharing():
    encoder = keras.Sequential([keras.Input((8, 8, 3)), kl.Conv2D(4, 3), kl.PReLU(shared_axes=[1, 2]), kl.Flatten()])
    inner = keras.Input((144,))
    head = keras.Model(inner, kl.Dense(5)(keras.Sequential([kl.Dense(6, activation="tanh"), kl.Dropout(0.5)])(inner)))
    first, second = keras.Input((8, 8, 3)), keras.Input((8, 8, 3))
    both = [head(encoder(image)) for image in (first, second)]
    joined = [kl.Add()(both), kl.Subtract()(both), kl.Multiply()(both), kl.Average()(both), kl.Dot(-1)(both)]
    return keras.Model([first, second], kl.Concatenate()(joined))


def frozen():
    model = sharing()
    model.layers[2].trainable = False
    return model


def over_time():
    film = keras.Input((4, 10, 10, 3))
    x = kl.TimeDistributed(kl.Conv2D(5, 3, activation="relu"))(film)
    x = kl.TimeDistributed(kl.MaxPooling2D(2))(x)
    x = kl.TimeDistributed(keras.Sequential([kl.Conv2D(6, 3), kl.GlobalAveragePooling2D()]))(x)
    return keras.Model(film, kl.TimeDistributed(kl.Dense(7))(x))


def operations():
    x = image = keras.Input((6, 4, 8))
    x = ops.relu(x * 2.0 + 1.0) - x
    x = ops.reshape(x, (-1, 24, 8))
    scores = ops.softmax(ops.matmul(x, ops.transpose(x, (0, 2, 1))) / 3.0)
    x = ops.concatenate([ops.matmul(scores, x), x], axis=-1)[:, 1:, :12]
    x = ops.expand_dims(ops.mean(ops.exp(x), axis=1, keepdims=True), -1)
    return keras.Model(image, kl.Dense(3)(ops.squeeze(x, -1)))


def norms():
    x = image = keras.Input((6, 6, 8))
    x = kl.BatchNormalization(scale=False)(kl.Rescaling(1 / 255, offset=-1)(x))
    x = kl.BatchNormalization(center=False)(x)
    x = kl.GroupNormalization(4)(x)
    x = kl.GroupNormalization(groups=-1, scale=False)(x)
    x = kl.LayerNormalization(center=False)(x)
    x = kl.LayerNormalization(axis=[1, 2, 3], scale=False)(x)
    x = kl.UnitNormalization()(kl.LeakyReLU(0.1)(x))
    x = kl.Permute((3, 1, 2))(kl.Dense(3, activation="log_softmax")(x))
    return keras.Model(image, kl.Softmax(axis=1)(kl.RepeatVector(2)(kl.Flatten()(x))))


MODELS = {
    "channels last": lambda: convolutions("channels_last"),
    "channels first": lambda: convolutions("channels_first"),
    "sequences": sequences,
    "attention": attention,
    "nested and shared": sharing,
    "frozen in part": frozen,
    "over time": over_time,
    "operations": operations,
    "norms": norms,
}


@pytest.fixture(autouse=True)
def same_names():
    keras.utils.clear_session(free_memory=False)  # a full collection takes longer than a test


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_kerass_parameters_and_torchs_products(name):
    model = MODELS[name]()
    graph = pm.from_keras(model)
    agree(model, graph)
    assert graph.trained_parameter_count == sum(math.prod(weight.shape) for weight in model.trainable_weights)


def test_products_agree_going_back_too():
    """Without groups, whose filters' gradient torch counts too often."""
    x = image = keras.Input((8, 8, 3))
    x = kl.Conv2D(4, 3, padding="same")(x)
    x = kl.Conv2DTranspose(5, 2, strides=2)(kl.BatchNormalization()(x))
    model = keras.Model(image, kl.Dense(6)(kl.Dense(7)(x)))
    with FlopCounterMode(display=False) as counter:
        model(torch.rand(2, 8, 8, 3)).sum().backward()
    assert products(pm.from_keras(model), "forward_backward") == counter.get_total_flops()


@pytest.mark.parametrize("name", ["channels last", "sequences", "nested and shared", "operations"])
def test_file_text_and_object_give_the_same_graph(name, tmp_path):
    model = MODELS[name]()
    model.save(tmp_path / "net.keras")
    legacy_h5_format.save_model_to_hdf5(model, tmp_path / "net.h5")
    (tmp_path / "net.json").write_text(model.to_json())
    expected = pm.from_keras(model)
    made = [pm.from_keras(tmp_path / file) for file in ("net.keras", "net.h5", "net.json")] + [
        pm.from_keras(model.to_json())
    ]
    assert {graph.fingerprint for graph in made} == {expected.fingerprint}


def test_files_are_read_without_keras(tmp_path):
    model = convolutions("channels_last")
    model.save(tmp_path / "net.keras")
    program = (
        "import sys, perfmodel as pm\n"
        f"print(pm.from_keras({str(tmp_path / 'net.keras')!r}).parameter_count, 'keras' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(weights_of(model)), "False"]


def test_a_model_of_keras_2_is_read():
    """Its calls are lists of [layer, call, result, arguments], its types are texts."""

    def layer(name, class_name, reads, **config):
        nodes = [[[read, 0, 0, {}] for read in reads]] if reads else []
        return {
            "class_name": class_name,
            "config": {"name": name, "trainable": True, **config},
            "name": name,
            "inbound_nodes": nodes,
        }

    config = {
        "name": "old",
        "layers": [
            layer("x", "InputLayer", (), batch_input_shape=[None, 8, 8, 3], dtype="float32"),
            layer("c", "Conv2D", ["x"], filters=4, kernel_size=[3, 3], strides=[1, 1], padding="same", use_bias=True),
            layer("d", "Conv2D", ["c"], filters=4, kernel_size=[1, 1], use_bias=False, activation="relu"),
            layer("a", "Add", ["c", "d"]),
            layer("f", "Flatten", ["a"]),
            layer("y", "Dense", ["f"], units=2),
        ],
        "input_layers": [["x", 0, 0]],
        "output_layers": [["y", 0, 0]],
    }
    graph = pm.from_keras(json.dumps({"class_name": "Model", "config": config, "keras_version": "2.3.1"}))
    assert graph.parameter_count == (27 * 4 + 4) + 16 + (256 * 2 + 2)
    assert graph.shape("a") == (4, 8, 8)


@keras.saving.register_keras_serializable("mine")
class Polish(kl.Layer):
    def build(self, shape):
        self.wax = self.add_weight(shape=(shape[-1], 3), name="wax")

    def call(self, x):
        return x @ self.wax


def test_an_unknown_class_is_a_named_hole_within_bounds():
    model = keras.Sequential([keras.Input((6, 4)), Polish(name="shine"), kl.Dense(2)])
    with pytest.warns(
        OpaqueLayerWarning, match=r"'Polish' is opaque \(1 layers: shine\): its class is not Keras's own"
    ):
        graph = pm.from_keras(model)
    assert graph.shape("shine") == (6, 3)
    assert graph.parameter_count == 4 * 3 + 3 * 2 + 2  # the object tells the weights
    with pytest.warns(OpaqueLayerWarning, match=r"without parameters .* 42 FLOP forward .* up to 864"):
        graph = pm.from_keras(model.to_json())  # 6 x 4 read and 6 x 3 written; 2 x 18 x 24 at most
    assert graph.shape("shine") == (6, 3)
    assert graph.parameter_count == 3 * 2 + 2


@pytest.mark.parametrize("return_sequences", [False, True])
def test_stacked_cells_are_a_chain_of_recurrences(return_sequences):
    cells = [kl.LSTMCell(6, dropout=0.5), kl.GRUCell(7), kl.SimpleRNNCell(5)]
    model = keras.Sequential([keras.Input((8, 3)), kl.RNN(cells, return_sequences=return_sequences, name="r")])
    graph = pm.from_keras(model.to_json())
    chain = keras.Sequential(
        [
            keras.Input((8, 3)),
            kl.LSTM(6, return_sequences=True),
            kl.GRU(7, return_sequences=True),
            kl.SimpleRNN(5, return_sequences=return_sequences),
        ]
    )
    assert graph.parameter_count == weights_of(model)
    assert products(graph) == products(pm.from_keras(chain))
    assert graph.outputs == ("r.cell_2",)
    assert graph.shape("r.cell_2") == ((8, 5) if return_sequences else (5,))


def test_a_recurrence_that_is_a_hole_has_no_bound():
    model = keras.Sequential([keras.Input((8, 3)), kl.Bidirectional(kl.RNN([kl.LSTMCell(600), kl.LSTMCell(700)]))])
    with pytest.warns(OpaqueLayerWarning, match="guesses, and the most that it takes is unknown") as caught:
        pm.from_keras(model.to_json())
    assert "up to" not in str(caught[0].message)


def test_a_class_of_ones_own_that_is_called_dense_is_not_kerass():
    content = json.loads(keras.Sequential([keras.Input((4,)), kl.Dense(3), kl.ReLU()]).to_json())
    content["config"]["layers"][1] |= {"module": "mine.layers", "registered_name": "mine>Dense"}
    with pytest.warns(OpaqueLayerWarning, match=r"mine>Dense"):
        assert pm.from_keras(json.dumps(content)).parameter_count == 0


def test_code_in_a_lambda_is_not_run(tmp_path):
    witness = tmp_path / "ran"

    def code(x):
        witness.write_text("yes")
        return x

    model = keras.Sequential([keras.Input((4,)), kl.Lambda(code, name="sly"), kl.Dense(3)])
    witness.unlink()  # building the model ran it
    model.save(tmp_path / "net.keras")
    with pytest.warns(
        OpaqueLayerWarning, match=r"'Lambda' is opaque \(1 layers: sly\): it holds code, which is not run"
    ):
        graph = pm.from_keras(tmp_path / "net.keras")
    assert graph.parameter_count == 15
    assert not witness.exists()


def test_an_unknown_activation_leaves_the_product_countable():
    content = json.loads(keras.Sequential([keras.Input((4,)), kl.Dense(3, name="fc")]).to_json())
    content["config"]["layers"][1]["config"]["activation"] = "wobble"
    with pytest.warns(OpaqueLayerWarning, match="'wobble' is opaque"):
        graph = pm.from_keras(json.dumps(content))
    assert products(graph) == 2 * 2 * 4 * 3


def test_half_precision_is_told():
    model = keras.Sequential([keras.Input((4,)), kl.Dense(3, dtype="mixed_bfloat16")])
    with pytest.warns(PrecisionWarning, match="predict it with dtype='bf16'"):
        assert pm.from_keras(model).parameter_count == 15


def test_open_axes_are_given():
    model = keras.Model(words := keras.Input((None,), name="words"), kl.LSTM(3)(kl.Embedding(9, 4)(words)))
    with pytest.raises(SpecError, match=r"input 'words' leaves axes open \(None,\): give .* by input_shapes"):
        pm.from_keras(model)
    graph = pm.from_keras(model, input_shapes={"words": (7,)})
    assert graph.input_shapes == {"words": (7,)}
    agree(model, graph, {"words": (7,)})
    assert pm.from_keras(model, input_shapes=7, name="mine").name == "mine"
    with pytest.raises(UnknownNameError, match="wordz"):
        pm.from_keras(model, input_shapes={"wordz": (7,)})
    closed = keras.Sequential([keras.Input((4,)), kl.Dense(3)])
    with pytest.raises(ArgumentError, match="input_shapes"):
        pm.from_keras(closed, input_shapes=(5,))


def archived(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


SMALL = json.dumps(
    {
        "class_name": "Sequential",
        "config": {
            "name": "small",
            "layers": [
                {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [None, 8]}},
                {"class_name": "Dense", "config": {"name": "fc", "units": 4}},
            ],
        },
    }
)


class TestBadFiles:
    """Each is refused in one line that names the file; nothing is run and nothing written."""

    @pytest.fixture(autouse=True)
    def in_its_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        self.folder = tmp_path

    def refused(self, path, match):
        before = sorted(self.folder.rglob("*"))
        with pytest.raises(SpecError, match=match) as caught:
            pm.from_keras(path)
        assert "\n" not in str(caught.value)
        assert len(caught.value.faults) == 1
        assert sorted(self.folder.rglob("*")) == before

    def test_a_good_one(self):
        assert pm.from_keras(archived("a.keras", **{"config.json": SMALL})).parameter_count == 36

    def test_a_bomb(self, monkeypatch):
        self.refused(archived("a.keras", **{"config.json": b" " * 30_000_000}), "times what it has compressed")
        whole = SMALL.encode() + b" " * 40_000
        path = archived("b.keras", **{"config.json": whole})
        monkeypatch.setattr(archives, "MOST_CONFIG_BYTES", 20_000)
        self.refused(path, "must have at most 20,000 B")
        content = bytearray(path_bytes(path))
        size = struct.pack("<L", len(whole))
        for _ in range(content.count(size)):  # an entry that lies about its size
            place = content.index(size)
            content[place : place + 4] = struct.pack("<L", 100)
        (self.folder / "c.keras").write_bytes(content)
        self.refused("c.keras", "must have at most 20,000 B|damaged|truncated")

    def test_many_members(self, monkeypatch):
        monkeypatch.setattr(archives, "MOST_MEMBERS", 3)
        path = archived("a.keras", **{"config.json": SMALL, **{str(index): "" for index in range(3)}})
        self.refused(path, "has 4 members: must have at most 3")

    @pytest.mark.parametrize("name", ["../evil.json", "/etc/evil", "..\\evil", "assets/../../evil"])
    def test_a_path_that_leads_outside(self, name):
        self.refused(archived("a.keras", **{"config.json": SMALL, name: "x"}), "points outside the archive")

    def test_a_truncated_one(self):
        path = archived("a.keras", **{"config.json": SMALL})
        whole = path_bytes(path)
        for length in (10, len(whole) // 2, len(whole) - 4):
            (self.folder / "cut.keras").write_bytes(whole[:length])
            self.refused("cut.keras", "truncated or damaged|truncated")
        damaged = bytearray(whole)
        damaged[50:60] = b"\xff" * 10
        (self.folder / "cut.keras").write_bytes(damaged)
        self.refused("cut.keras", "damaged")

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ("{" * 5, "not JSON"),
            ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply"),
            ("[1]", "must be a JSON object|must hold|JSON"),
            ('{"class_name": "Mine", "config": {}}', "must be Functional or Sequential"),
            *(
                (SMALL.replace('"units": 4', f'"units": {value}'), rf"layer 'fc' \(Dense\): units={shown}: must be")
                for value, shown in {
                    '"many"': "'many'",
                    "-4": "-4",
                    "0": "0",
                    "NaN": "nan",
                    "true": "True",
                    "4.5": "4.5",
                    "null": "null",
                }.items()
            ),
            (SMALL.replace('"units": 4', '"unit": 4'), r"layer 'fc' \(Dense\): its field 'units' is missing"),
            (
                SMALL.replace("Dense", "LSTM").replace("[null, 8]", "[null, 5, 8]").replace(": 4", ": -4"),
                "units=-4: must",
            ),
            (
                SMALL.replace("Dense", "Dropout").replace('"units": 4', '"rate": "x"'),
                "rate='x': must be a finite number",
            ),
            (SMALL.replace('"class_name": "Dense", ', ""), "malformed"),
            (SMALL.replace("[null, 8]", '"wide"'), "input 'x' leaves axes open"),
        ],
    )
    def test_a_configuration_that_is_none(self, text, match):
        path = self.folder / "net.json"
        path.write_text(text)
        self.refused(path, match)

    def test_a_text_is_json_and_is_not_repeated(self):
        for text in ("[" * 100_000 + "]" * 100_000, " [1]", "x" * 100_000):
            with pytest.raises(SpecError) as caught:
                pm.from_keras(text)
            assert len(str(caught.value)) < 200
            assert ("JSON text" in str(caught.value)) == ("[" in text)
        (self.folder / "[1].json").write_text(json.dumps(json.loads(SMALL)))
        assert pm.from_keras("[1].json").parameter_count

    def test_a_name_with_control_characters(self):
        self.refused(
            SMALL.replace('"fc"', '"f\\u001b[2Jc"'), r"must have no control characters, as the text 'f\\x1b\[2Jc' has"
        )

    def test_models_in_models_without_end(self):
        content = json.loads(SMALL)
        for _ in range(40):
            content = {"class_name": "Sequential", "config": {"name": "outer", "layers": [content]}}
        self.refused(json.dumps(content), "more than 32 deep")

    def test_a_circle(self):
        content = json.loads(functional_text())
        content["config"]["layers"][1]["inbound_nodes"] = content["config"]["layers"][2]["inbound_nodes"]
        content["config"]["layers"][1]["inbound_nodes"][0]["args"][0]["config"]["keras_history"][0] = "b"
        self.refused(json.dumps(content), "layer 'a' reads 'b', which waits for it")

    def test_files_of_another_kind(self):
        (self.folder / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 50)
        self.refused("a.h5", "no HDF5 file, or a truncated one")
        (self.folder / "a.keras").write_bytes(b"hello")
        self.refused("a.keras", "is no .keras file")
        self.refused("missing.keras", "cannot be read")
        self.refused(archived("b.keras", **{"model.weights.h5": "x"}), "has no config.json")
        import h5py

        with h5py.File("weights.h5", "w") as file:
            file.attrs["layer_names"] = ["fc"]
        self.refused("weights.h5", "not its weights alone")

    def test_a_shape_that_the_file_does_not_bear_out(self):
        content = json.loads(functional_text())
        content["config"]["layers"][2]["inbound_nodes"][0]["args"][0]["config"]["shape"] = [None, 9]
        self.refused(json.dumps(content), r"layer 'a' \(Dense\) makes 5, but the file says \(9,\)")

    @pytest.mark.parametrize("wrong", [7, None, "", ["net.keras"]])
    def test_another_kind_of_argument(self, wrong):
        with pytest.raises(ArgumentError, match="model_or_path must be a Keras model"):
            pm.from_keras(wrong)

    def test_a_subclassed_model(self):
        class Mine(keras.Model):
            def call(self, x):
                return x

        with pytest.raises((ArgumentError, SpecError), match=r"subclassed|configuration"):
            pm.from_keras(Mine())


def path_bytes(path):
    with open(path, "rb") as file:  # noqa: PTH123  # in the folder of the test
        return file.read()


def functional_text():
    x = keras.Input((4,), name="x")
    return keras.Model(x, kl.Dense(6, name="b")(kl.Dense(5, name="a")(x))).to_json()


def test_the_command_line_takes_a_file_and_a_function(tmp_path, capsys):
    model = keras.Model(words := keras.Input((None, 4), name="words"), kl.LSTM(3)(words))
    model.save(tmp_path / "net.keras")
    target = str(tmp_path / "net.keras")
    assert run(["audit", target, "--option", "input_shapes=7,4", "--phase", "forward", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forward_flop_count"] == 2 * 7 * 12 * (4 + 3)
    words = ["--device", "gtx_1080", "--batch-size", "8", "--option", "input_shapes=7,4", "--json"]
    assert run(["predict", target, *words]) == 0
    assert json.loads(capsys.readouterr().out)["memory"]["weights_bytes"] == 4 * 12 * (4 + 3 + 1)
    (tmp_path / "nets.py").write_text(
        "import keras\ndef net(width=3):\n    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(width)])\n"
    )
    assert run(["audit", f"{tmp_path / 'nets.py'}:net", "--option", "width=5", "--phase", "forward", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forward_flop_count"] == 2 * 4 * 5
    assert run(["audit", target, "--option", "input_shape=7,4"]) == 2
    assert "input_shapes" in capsys.readouterr().err


def test_the_command_line_takes_shapes_of_several_inputs(tmp_path, capsys):
    a, b = keras.Input((None, 4), name="a"), keras.Input((None,), name="b")
    keras.Model([a, b], [kl.LSTM(3)(a), kl.Embedding(10, 5)(b)]).save(tmp_path / "two.keras")
    words = ["audit", str(tmp_path / "two.keras"), "--phase", "forward", "--json", "--option"]
    assert run([*words, "input_shapes=a:12,4;b:7"]) == 0
    assert json.loads(capsys.readouterr().out)["forward_flop_count"] == 2 * 12 * 12 * (4 + 3)
    assert run([*words, "input_shapes=a:12,4"]) == 2
    assert "'b' leaves axes open" in capsys.readouterr().err


def quantised_model(mode):
    model = keras.Sequential(
        [
            keras.Input((8,)),
            kl.Embedding(100, 32, name="table"),
            kl.EinsumDense("abc,cd->abd", output_shape=(None, 48), bias_axes="d", name="wide"),
            kl.Dense(16, activation="relu", name="narrow"),
        ]
    )
    for layer in model.layers:
        layer.quantize(mode)
    return model


@pytest.mark.parametrize(("mode", "bytes_per_weight"), [("int8", 1.0), ("int4", 0.5)])
def test_quantised_layers_keep_the_bytes_of_their_weights(mode, bytes_per_weight):
    model = quantised_model(mode)
    tables = {"table": 100 * 32, "wide": 32 * 48, "narrow": 48 * 16}
    with pytest.warns(PrecisionWarning, match=f"3 layers are quantised .{mode}"):
        graph = pm.from_keras(model.to_json())
    assert graph.parameter_count == sum(tables.values()) + 48 + 16
    stored = sum(  # what Keras keeps of each table, without scales and zero points
        math.prod(weight.shape)
        for layer in model.layers
        for weight in layer.weights
        if weight.name in ("kernel", "embeddings")
    )
    assert stored == bytes_per_weight * sum(tables.values())
    packed = graph.weight_bytes(element_bytes=4) - 4 * (48 + 16)
    assert stored <= packed <= 1.04 * stored
    dense = pm.from_keras(keras.Sequential.from_config(json.loads(quantised_model_before().to_json())["config"]))
    how = {"batch_size": 4, "device": "a100_80_sxm", "phase": "forward"}
    assert pm.predict(graph, **how).memory.weights_bytes < pm.predict(dense, **how).memory.weights_bytes / 3
    trained = pm.predict(graph, batch_size=4, device="a100_80_sxm")  # Keras freezes quantised weights: biases train
    assert trained.basis.prepared.subject.graph.trained_parameter_count == 48 + 16


def quantised_model_before():
    return keras.Sequential([keras.Input((8,)), kl.Embedding(100, 32), kl.Dense(48), kl.Dense(16, activation="relu")])


def test_low_rank_adapters_are_warned_of():
    model = keras.Sequential([keras.Input((64,)), kl.Dense(32, name="adapted"), kl.Dense(8)])
    model.layers[0].enable_lora(4)
    with pytest.warns(ParameterWarning, match="1 layers are left out: adapted"):
        graph = pm.from_keras(model.to_json())
    assert graph.parameter_count == model.count_params() - 4 * (64 + 32)


def test_a_plain_model_warns_of_neither():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pm.from_keras(quantised_model_before().to_json()).weight_bytes(element_bytes=4) == 4 * (
            3200 + 1584 + 784
        )
