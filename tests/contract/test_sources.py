"""One network takes one time, whether it comes from the zoo, a configuration, a torch module or an ONNX file."""

import warnings
from functools import cache
from unittest.mock import patch

import pytest
import torch

import perfmodel as pm
from perfmodel.validation.live.modules import Bert, VisionTransformer
from torch_models import (
    alexnet,
    convolutional,
    googlenet,
    gpt,
    inception_v3,
    lenet,
    mobilenet_v2,
    nin,
    resnet,
    unet,
    vgg,
)
from torch_models import bert as torch_bert

LENGTH, WIDTH, HEADS, WORDS = 256, 256, 4, 1000
SIZES = {"layers": 6, "width": WIDTH, "heads": HEADS}
TOKENS = torch.zeros((2, LENGTH), dtype=torch.long)
MASK = torch.zeros(LENGTH, LENGTH)
TOLERANCE = 0.025  # GPT's mask in fp32 spares a cast of its scores in bf16
MAP_RANK = 4
ASKED = [
    (device, dtype, phase)
    for device in ("gtx_1080_ti", "rtx_3090", "h100_sxm", "epyc_9654")
    for dtype in {"rtx_3090": ("fp32", "bf16"), "h100_sxm": ("bf16",)}.get(device, ("fp32",))
    for phase in ("forward", "step")
]


def _gpt_config():
    sizes = {"n_layer": 6, "n_embd": WIDTH, "n_head": HEADS, "n_positions": LENGTH, "vocab_size": WORDS}
    return pm.from_huggingface_config({"model_type": "gpt2", **sizes}, attention="materialised")


def _gpt_zoo():
    options = {"dropout": 0.1, "attention": "materialised", "activation": "gelu_new"}
    return pm.zoo.gpt(**SIZES, sequence_length=LENGTH, vocabulary=WORDS, **options)


def attend(query, key, value, *, causal, dropout):
    """Attention in plain operators, with a mask that all blocks share, as transformers run it."""
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    if causal:
        scores = scores + MASK.to(scores.device)
    return torch.nn.functional.dropout(scores.softmax(-1), dropout) @ value


def _gpt_module():
    return gpt.GPT(**SIZES, vocabulary=WORDS, positions=LENGTH)


def _bert_config():
    sizes = {"num_hidden_layers": 6, "hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": 4 * WIDTH}
    config = {"model_type": "bert", "vocab_size": WORDS, **sizes}
    how = {"sequence_length": LENGTH, "head": "masked_language_model", "attention": "materialised"}
    return pm.from_huggingface_config(config, **how)


def _bert_zoo():
    how = {"sequence_length": LENGTH, "head": "masked_language_model", "attention": "materialised"}
    return pm.zoo.bert(**SIZES, vocabulary=WORDS, **how)


def _bert_module():
    return torch_bert.MaskedLanguageModel(Bert(**SIZES, vocabulary=WORDS))


def _vit_module(*, fused):
    options = {"patch_size": 16, "hidden": 4 * WIDTH, "image_size": 96, "classes": 10}
    return VisionTransformer(**SIZES, **options, fused=fused)


def _vit_zoo(attention):
    return pm.zoo.vit(**SIZES, mlp=4 * WIDTH, image_size=96, classes=10, attention=attention)


class SeparateHeads(torch.nn.Module):
    """Attention whose queries, keys and values are products of their own, as configurations of ViT have it."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        operands = (gpt.split_heads(project(x), HEADS) for project in (self.query, self.key, self.value))
        return self.output(gpt.join_heads(torch.nn.functional.scaled_dot_product_attention(*operands)))


def _vit_of_separate_heads():
    module = _vit_module(fused=True)
    for block in module.blocks:
        block.attention[1] = SeparateHeads()
    return module


def _vit_config():
    sizes = {"num_hidden_layers": 6, "hidden_size": WIDTH, "num_attention_heads": HEADS, "intermediate_size": 4 * WIDTH}
    labels = {"num_labels": 10, "architectures": ["ViTForImageClassification"]}
    return pm.from_huggingface_config({"model_type": "vit", "image_size": 96, **sizes, **labels})


def _without_copies(module):
    """Return a module whose ReLU6 makes a tensor of its own; in place, torch copies its input for back-propagation."""
    for each in module.modules():
        if isinstance(each, torch.nn.ReLU6):
            each.inplace = False
    return module


def _first(scores):
    return scores[0] if isinstance(scores, tuple) else scores  # others are of auxiliary classifiers


class WithLoss(torch.nn.Module):
    """A network and the cross entropy of its scores, along the last axis of positions and the first of maps."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, labels, *inputs):
        scores = _first(self.network(*inputs))
        is_map = scores.dim() == MAP_RANK
        scores = scores if is_map else scores.flatten(0, -2)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels if is_map else labels.flatten())}


def _images(channels, size):
    return torch.empty(2, channels, size, size)


NETWORKS = {
    "gpt": (_gpt_module, (TOKENS,), {"zoo": _gpt_zoo, "configuration": _gpt_config}),
    "bert": (_bert_module, (TOKENS, TOKENS), {"zoo": _bert_zoo, "configuration": _bert_config}),
    "vit": (lambda: _vit_module(fused=False), (_images(3, 96),), {"zoo": lambda: _vit_zoo("materialised")}),
    "vit, fused": (lambda: _vit_module(fused=True), (_images(3, 96),), {"zoo": lambda: _vit_zoo("fused")}),
    "vit, separate": (_vit_of_separate_heads, (_images(3, 96),), {"configuration": _vit_config}),
    "alexnet": (alexnet.alexnet, (_images(3, 224),), {"zoo": pm.zoo.alexnet}),
    "vgg11": (vgg.vgg11, (_images(3, 224),), {"zoo": pm.zoo.vgg11}),
    "googlenet": (googlenet.googlenet, (_images(3, 224),), {"zoo": pm.zoo.googlenet}),
    "inception_v3": (inception_v3.inception_v3, (_images(3, 299),), {"zoo": pm.zoo.inception_v3}),
    "resnet18": (resnet.resnet18, (_images(3, 224),), {"zoo": pm.zoo.resnet18}),
    "resnet50": (resnet.resnet50, (_images(3, 224),), {"zoo": lambda: pm.zoo.resnet50(stride_on="3x3")}),
    "mobilenet_v2": (
        lambda: _without_copies(mobilenet_v2.mobilenet_v2()),
        (_images(3, 224),),
        {"zoo": pm.zoo.mobilenet_v2},
    ),
    "nin": (nin.nin_imagenet, (_images(3, 224),), {"zoo": pm.zoo.nin}),
    "lenet5": (lenet.lenet5, (_images(1, 32),), {"zoo": pm.zoo.lenet5}),
    "convolutional": (convolutional.digits, (_images(1, 28),), {"zoo": pm.zoo.convolutional}),
    "unet": (unet.unet, (_images(1, 572),), {"zoo": pm.zoo.unet}),
}


@cache
def imported(name, *, training):
    make, inputs, _ = NETWORKS[name]
    with torch.device("meta"):
        module, inputs = WithLoss(make()), [torch.empty_like(each, device="meta") for each in inputs]
        labels = torch.empty(scores_shape(name)[:-1], dtype=torch.long)
    with (
        patch.object(gpt, "attend", attend),
        warnings.catch_warnings(action="ignore"),
    ):  # of parameters that only training uses
        return pm.from_torch(module, (labels, *inputs), training=training, progress=False)


@cache
def scores_shape(name):
    """Shape of a network's scores, classes last."""
    make, inputs, _ = NETWORKS[name]
    with torch.device("meta"):
        scores = _first(make().eval()(*(torch.empty_like(each, device="meta") for each in inputs)))
    return scores.movedim(1, -1).shape if scores.dim() == MAP_RANK else scores.shape


def times(graph, *, batch_size=16, phases=("forward", "step")):
    """Times with channels last, as only a torch module tells how its images lie."""
    how = {"batch_size": batch_size, "framework": "pytorch_2", "image_layout": "channels_last"}
    return {
        (device, dtype, phase): pm.predict(graph, device=device, dtype=dtype, phase=phase, **how).step_s
        for device, dtype, phase in ASKED
        if phase in phases
    }


@pytest.mark.parametrize(
    ("name", "source"), [(name, source) for name, (_, _, sources) in NETWORKS.items() for source in sources]
)
def test_a_torch_module_takes_the_time_of_the_other_source(name, source):
    other = times(NETWORKS[name][2][source]())
    training, inference = imported(name, training=True), imported(name, training=False)
    own = times(training, phases=("step",)) | times(inference, phases=("forward",))
    assert own == pytest.approx(other, rel=TOLERANCE)


@pytest.mark.parametrize("name", ["gpt", "bert", "convolutional", "resnet18", "mobilenet_v2"])
def test_an_onnx_file_takes_the_time_of_its_module(tmp_path, name):
    make, inputs, _ = NETWORKS[name]
    module, path = make().eval(), tmp_path / "network.onnx"
    with warnings.catch_warnings(action="ignore"):  # of the exporter, about itself
        torch.onnx.export(
            module,
            inputs,
            path,
            dynamo=False,
            do_constant_folding=False,
            training=torch.onnx.TrainingMode.PRESERVE,
        )
        file = pm.from_onnx(path)
        graph = pm.from_torch(module, inputs, training=False, progress=False)
    assert times(file, phases=("forward",)) == pytest.approx(times(graph, phases=("forward",)), rel=TOLERANCE)
