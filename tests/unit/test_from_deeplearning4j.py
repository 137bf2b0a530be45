"""``pm.from_deeplearning4j``: parameters by deeplearning4j's own formulas, products by torch's counter, bad files."""

import json
import zipfile

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, OpaqueLayerWarning, SpecError, UnknownNameError

LAYERS, ACTIVATIONS = "org.deeplearning4j.nn.conf.layers.", "org.nd4j.linalg.activations.impl.Activation"
LOSSES, GRAPH = "org.nd4j.linalg.lossfunctions.impl.Loss", "org.deeplearning4j.nn.conf.graph."
PROCESSORS = "org.deeplearning4j.nn.conf.preprocessor."


def layer(kind, activation="Identity", **fields):
    """A layer as version 1.0.0 writes it, with the fields that say nothing about its size."""
    return {
        "@class": LAYERS + kind,
        "activationFn": {"@class": ACTIVATIONS + activation},
        "biasInit": 0.0,
        "hasBias": True,
        "idropout": None,
        "iupdater": {"@class": "org.nd4j.linalg.learning.config.Adam", "learningRate": 0.001},
        "layerName": None,
        "weightInitFn": {"@class": "org.deeplearning4j.nn.weights.WeightInitXavier"},
        **fields,
    }


def loss(kind):
    return {"@class": LOSSES + kind}


def window(size, stride=1, padding=0, mode="Truncate"):
    spread = {"kernelSize": [size, size], "stride": [stride, stride], "padding": [padding, padding], "dilation": [1, 1]}
    return spread | {"convolutionMode": mode}


def chain(*layers, **processors):
    confs = [{"cacheMode": "NONE", "dataType": "FLOAT", "layer": each, "miniBatch": True, "seed": 1} for each in layers]
    return {
        "backpropType": "Standard",
        "confs": confs,
        "inputPreProcessors": {name.strip("_"): processor for name, processor in processors.items()},
    }


def image(channels, height, width, kind="FeedForwardToCnnPreProcessor"):
    return {"@class": PROCESSORS + kind, "numChannels": channels, "inputHeight": height, "inputWidth": width}


def lenet():
    return chain(
        layer("ConvolutionLayer", nin=1, nout=20, **window(5)),
        layer("SubsamplingLayer", poolingType="MAX", **window(2, stride=2)),
        layer("ConvolutionLayer", nin=20, nout=50, **window(5)),
        layer("SubsamplingLayer", poolingType="MAX", **window(2, stride=2)),
        layer("DenseLayer", "ReLU", nin=800, nout=500),
        layer("OutputLayer", "Softmax", nin=500, nout=10, lossFn=loss("NegativeLogLikelihood")),
        _0=image(1, 28, 28),
        _4=image(50, 4, 4, "CnnToFeedForwardPreProcessor"),
    )


def products(graph, phase="forward"):
    return sum(operation.product_flop_count for _, operation in graph.operations(batch_size=2, phase=phase))


def counted(module, *inputs):
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*inputs)
    return counter.get_total_flops()


def imported(content, **how):
    return pm.from_deeplearning4j(json.dumps(content), **how)


def test_lenet_has_its_published_parameters_and_torchs_products():
    graph = imported(lenet())
    assert graph.input_shapes == {"input": (1, 28, 28)}  # the image, whose rows a first step lays side by side
    assert graph.parameter_count == 431_080  # as Caffe's and deeplearning4j's examples print it
    module = nn.Sequential(
        *(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(800, 500), nn.Linear(500, 10)),
    )
    assert products(graph) == counted(module, torch.zeros(2, 1, 28, 28))
    assert graph.node("layer5.loss").layer.is_loss
    assert graph.label_bytes_per_sample == 4


def test_the_format_before_the_first_release_is_read_alike():
    names = {"ConvolutionLayer": "convolution", "SubsamplingLayer": "subsampling", "DenseLayer": "dense"}
    names |= {"OutputLayer": "output", "FeedForwardToCnnPreProcessor": "feedForwardToCnn"}
    names |= {"CnnToFeedForwardPreProcessor": "cnnToFeedForward"}

    def older(value):
        kind = value["@class"].rpartition(".")[2]
        fields = {key: each for key, each in value.items() if key != "@class"}
        if "activationFn" in fields:
            fields["activationFn"] = {fields["activationFn"]["@class"].rpartition("Activation")[2]: {}}
        if "lossFn" in fields:
            fields["lossFn"] = {fields["lossFn"]["@class"].rpartition("Loss")[2]: {}}
        return {names[kind]: fields}

    content = lenet()
    for each in content["confs"]:
        each["layer"] = older(each["layer"])
    processors = content["inputPreProcessors"]
    content["inputPreProcessors"] = {place: older(processor) for place, processor in processors.items()}
    assert imported(content).fingerprint == imported(lenet()).fingerprint


def test_recurrences_have_deeplearning4js_parameters():
    """``GravesLSTMParamInitializer``: n_in 4 n + n (4 n + 3) + 4 n; without peepholes n (4 n)."""
    content = chain(
        layer("LSTM", "TanH", nin=7, nout=5),
        layer("GravesLSTM", "TanH", nin=5, nout=6),
        layer("GravesBidirectionalLSTM", "TanH", nin=6, nout=4),
        {"@class": LAYERS + "recurrent.Bidirectional", "mode": "CONCAT", "fwd": layer("LSTM", nin=4, nout=3)},
        {"@class": LAYERS + "recurrent.LastTimeStep", "underlying": layer("recurrent.SimpleRnn", nin=6, nout=8)},
        layer("OutputLayer", "Sigmoid", nin=8, nout=2, lossFn=loss("BinaryXENT")),
    )
    graph = imported(content, input_shapes=(11, 7))

    def graves(features, units):
        return features * 4 * units + units * (4 * units + 3) + 4 * units

    def lstm(features, units):
        return 4 * units * (features + units + 1)

    parts = [lstm(7, 5), graves(5, 6), 2 * graves(6, 4), 2 * lstm(4, 3), 8 * (6 + 8 + 1), 18]
    assert graph.parameter_count == sum(parts)
    per_step = 20 * 12 + 24 * 11 + 2 * 16 * 10 + 2 * 12 * 7 + 8 * 14
    assert products(graph) == 2 * 2 * (11 * per_step + 16)
    assert [node.name for node in graph.layers if getattr(node.layer, "peepholes", False)] == ["layer1", "layer2"]
    assert {graph.shape("layer2.merge"), graph.shape("layer3")} == {(11, 4), (11, 6)}


def residual(**changes):
    vertices = {
        "stem": layer("ConvolutionLayer", "ReLU", nin=3, nout=8, **window(3, mode="Same")),
        "norm": layer("BatchNormalization", nin=8, nout=8),
        "branch": layer("ConvolutionLayer", nin=8, nout=8, **(window(3, padding=1) | {"hasBias": False})),
        "pool": layer("GlobalPoolingLayer", poolingType="AVG", collapseDimensions=True),
        "scores": layer("OutputLayer", "Softmax", nin=16, nout=4, lossFn=loss("MCXENT")),
    }
    content = {
        "networkInputs": ["image"],
        "networkOutputs": ["scores"],
        "vertices": {
            name: {"@class": GRAPH + "LayerVertex", "layerConf": {"layer": value}, "preProcessor": None}
            for name, value in vertices.items()
        },
        "vertexInputs": {
            "scores": ["pool"],
            "stem": ["image"],
            "norm": ["stem"],
            "branch": ["norm"],
            "sum": ["branch", "stem"],
            "both": ["sum", "stem"],
            "pool": ["both"],
        },
    }
    content["vertices"]["sum"] = {"@class": GRAPH + "ElementWiseVertex", "op": "Add"}
    content["vertices"]["both"] = {"@class": GRAPH + "MergeVertex", "mergeAxis": 1}
    return content | changes


def test_a_graph_with_branches():
    graph = imported(residual(), input_shapes={"image": (3, 9, 9)}, name="residual")
    assert graph.name == "residual"
    assert graph.shape("both") == (16, 9, 9)
    # moving averages of the norm, which deeplearning4j counts among its parameters, are not trained
    assert graph.parameter_count == (27 * 8 + 8) + 16 + 72 * 8 + (16 * 4 + 4)
    assert products(graph) == 2 * 2 * (81 * (27 * 8 + 72 * 8) + 64)


def test_layers_over_maps_agree_with_torch():
    content = chain(
        layer("DepthwiseConvolution2D", nin=4, nout=8, depthMultiplier=2, **window(3)),
        layer("SeparableConvolution2D", nin=8, nout=6, depthMultiplier=1, **window(3, padding=1)),
        layer("Deconvolution2D", nin=6, nout=5, **window(2, stride=2)),
        layer("ZeroPaddingLayer", padding=[1, 0, 2, 1]),
        layer("Upsampling2D", size=[2, 2]),
        layer("LocalResponseNormalization", n=5.0, k=2.0),
        layer("misc.FrozenLayer", layer=layer("ConvolutionLayer", "LReLU", nin=5, nout=3, **window(3, stride=2))),
        layer("CnnLossLayer", "Softmax", lossFn=loss("MCXENT")),
    )
    graph = imported(content, input_shapes=(4, 12, 12))
    module = nn.Sequential(
        *(nn.Conv2d(4, 8, 3, groups=4), nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.Conv2d(8, 6, 1)),
        *(nn.ConvTranspose2d(6, 5, 2, stride=2), nn.ZeroPad2d((2, 1, 1, 0)), nn.Upsample(scale_factor=2)),
        nn.Conv2d(5, 3, 3, stride=2),
    )
    assert products(graph) == counted(module, torch.zeros(2, 4, 12, 12))
    assert graph.parameter_count == sum(weight.numel() for weight in module.parameters())
    assert graph.parameter_count - graph.trained_parameter_count == 5 * 3 * 9 + 3


def test_dropout_states_what_is_kept():
    dropout = {"@class": "org.deeplearning4j.nn.conf.dropout.Dropout", "p": 0.8}
    graph = imported(
        chain(layer("DenseLayer", nin=4, nout=3, idropout=dropout), layer("LossLayer", lossFn=loss("MSE")))
    )
    assert graph.node("layer0.dropout").layer.rate == pytest.approx(0.2)


def test_an_unknown_class_is_a_named_hole():
    content = chain(
        layer("DenseLayer", nin=4, nout=6),
        {"@class": "com.mine.Polish", "nout": 5},
        layer("OutputLayer", nin=5, nout=2, lossFn=loss("Wasserstein")),
    )
    with pytest.warns(OpaqueLayerWarning) as caught:
        graph = imported(content)
    told = sorted(str(warning.message) for warning in caught)
    assert len(told) == 2
    assert "'LossWasserstein' is opaque (1 layers: layer2.loss)" in told[0]
    assert "'Polish' is opaque (1 layers: layer1): no layer translates it, and without parameters" in told[1]
    assert graph.shape("layer1") == (5,)
    assert graph.parameter_count == 30 + 12


class TestBadFiles:
    """Each is refused in one line that names the file; nothing is run and nothing written."""

    @pytest.fixture(autouse=True)
    def in_its_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        self.folder = tmp_path

    def refused(self, source, match, **how):
        before = sorted(self.folder.rglob("*"))
        with pytest.raises(SpecError, match=match) as caught:
            pm.from_deeplearning4j(source, **how)
        assert "\n" not in str(caught.value)
        assert sorted(self.folder.rglob("*")) == before

    def saved(self, name, **members):
        with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as file:
            for member, content in members.items():
                file.writestr(member, content)
        return name

    def test_a_good_one(self):
        path = self.saved("lenet.zip", **{"configuration.json": json.dumps(lenet()), "coefficients.bin": b"\0" * 9})
        assert pm.from_deeplearning4j(path).name == "lenet"
        assert pm.from_deeplearning4j(path).fingerprint == imported(lenet(), name="lenet").fingerprint

    def test_archives(self):
        self.refused(self.saved("a.zip", **{"configuration.json": " " * 30_000_000}), "times what it has compressed")
        self.refused(self.saved("b.zip", **{"configuration.json": "{}", "../x": ""}), "points outside the archive")
        self.refused(self.saved("c.zip", **{"config.json": "{}"}), r"has no configuration\.json")
        whole = (self.folder / self.saved("d.zip", **{"configuration.json": json.dumps(lenet())})).read_bytes()
        (self.folder / "d.zip").write_bytes(whole[: len(whole) // 2])
        self.refused("d.zip", "truncated or damaged")

    @pytest.mark.parametrize(
        ("content", "match"),
        [
            ("{", "not JSON"),
            ("{}", "must be a MultiLayerConfiguration"),
            (json.dumps({"confs": [{}]}), "'layer' is missing"),
            (json.dumps({"confs": [None]}), r"confs\[0\]=None: must be an object with a 'layer'"),
            *(
                (
                    json.dumps(chain(layer("DenseLayer", nin=4, nout=value))),
                    rf"'layer0' \(DenseLayer\): nout={shown}: must",
                )
                for value, shown in [
                    (-4, "-4"),
                    (0, "0"),
                    (float("nan"), "nan"),
                    ("4", "'4'"),
                    (None, "null"),
                    (True, "True"),
                ]
            ),
            (
                json.dumps(chain(layer("DenseLayer", nin=4, nout=3), layer("LSTM", nin=5, nout=3))),
                r"'layer1' \(LSTM\): nin=5: must be the 3 features",
            ),
            (json.dumps(chain({"nout": 3, "nin": 4})), "must say its class"),
            (json.dumps(chain("dense")), "must be an object with its class"),
            (json.dumps(chain(layer("LSTM", nin=4, nout=3))), "pass input_shapes="),
            (json.dumps(residual(vertexInputs={"stem": ["image"]})), "'norm' is missing"),
            (json.dumps(residual(networkInputs=["other"])), "'stem' reads 'image', which no vertex"),  # not its shape
            (json.dumps(residual(networkInputs=["image", "other"])), "input 'other': its shape does not follow"),
            (json.dumps(chain({"@class": "com.mine.Polish", "nout": 5})), r"where 'layer0' \(Polish\) reads it; pass"),
        ],
    )
    def test_a_configuration_that_is_none(self, content, match):
        self.refused(content, match)

    def test_a_text_is_json_and_is_not_repeated(self):
        for text in ("[" * 100_000 + "]" * 100_000, " [1]", "x" * 100_000):
            with pytest.raises(SpecError) as caught:
                pm.from_deeplearning4j(text)
            assert len(str(caught.value)) < 200
            assert ("JSON text" in str(caught.value)) == ("[" in text)
        (self.folder / "[1].json").write_text(json.dumps(lenet()))
        assert pm.from_deeplearning4j("[1].json").parameter_count

    def test_a_name_with_control_characters(self):
        self.refused(
            json.dumps(chain(layer("DenseLayer", nin=4, nout=3, layerName="f\x1b[2Jc"))),
            r"must have no control characters, as the text 'f\\x1b\[2Jc' has",
        )

    def test_a_vertex_that_nothing_makes(self):
        inputs = residual()["vertexInputs"] | {"branch": ["nowhere"]}
        content = json.dumps(residual(vertexInputs=inputs))
        self.refused(content, "'nowhere', which no vertex", input_shapes=(3, 9, 9))
        content = json.dumps(residual(networkOutputs=["nothing"]))
        self.refused(content, "output 'nothing' is made by no vertex", input_shapes=(3, 9, 9))
        self.refused(content, "output 'nothing' is made by no vertex")  # before what its shapes lack
        self.refused(json.dumps(residual(vertexInputs=inputs)), "'nowhere', which no vertex")

    def test_arguments(self):
        self.refused("missing.json", "cannot be read")
        with pytest.raises(ArgumentError, match="path_or_text must be"):
            pm.from_deeplearning4j(7)
        with pytest.raises(UnknownNameError, match="imagge"):
            imported(residual(), input_shapes={"imagge": (3, 9, 9)})


def test_the_command_line_takes_it(tmp_path, capsys):
    (tmp_path / "net.json").write_text(json.dumps(residual()))
    words = ["--device", "gtx_1080", "--batch-size", "8", "--option", "input_shapes=3,9,9", "--json"]
    assert run(["predict", str(tmp_path / "net.json"), *words]) == 0
    graph = imported(residual(), input_shapes=(3, 9, 9))
    named = [*words[:-2], "input_shapes=image:3,9,9", "--json"]
    of_shape = capsys.readouterr().out
    assert run(["predict", str(tmp_path / "net.json"), *named]) == 0
    assert capsys.readouterr().out == of_shape
    assert json.loads(of_shape)["memory"]["weights_bytes"] == 4 * graph.parameter_count
    for typed in ("image:3,x,9", "image:", ":3", "image:3;image:4"):
        assert run(["predict", str(tmp_path / "net.json"), *words[:-2], f"input_shapes={typed}"]) == 2
        assert "words:128;image:3,224,224" in capsys.readouterr().err
