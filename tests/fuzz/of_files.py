"""Files, each with something in it spoilt: spec files, graphs, ONNX, configurations, tables."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import perfmodel as pm
from perfmodel.hardware import spec_files
from perfmodel.hardware.spec_files import toml_value
from tests.fuzz.of_arguments import JOB, network
from tests.fuzz.trial import Trial, shown
from tests.fuzz.values import PLAIN, TEXTS, spoilt, spoilt_text

MOST_FILE_BYTES = 60_000
"""Largest shipped file that is spoilt: larger ones take too long. [B]"""


@cache
def _shipped(kind: str) -> tuple[Path, ...]:
    return tuple(path for path in spec_files.files(kind) if path.stat().st_size < MOST_FILE_BYTES)


@cache
def _tables_of(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _toml(content: dict[str, Any]) -> str:
    """Write tables as TOML, each in one line; what TOML cannot write is left out."""
    lines = []
    for key, value in content.items():
        if value is not None:
            lines.append(f"{json.dumps(str(key), ensure_ascii=False)} = {_value(value)}")
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        entries = [
            f"{json.dumps(str(key), ensure_ascii=False)} = {_value(it)}" for key, it in value.items() if it is not None
        ]
        return f"{{ {', '.join(entries)} }}"
    if isinstance(value, list):
        return f"[{', '.join(_value(entry) for entry in value if entry is not None)}]"
    return toml_value(value)


def _written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
    return path


def _on(**place: Any) -> list[float]:
    return [pm.predict(network(), **{"batch_size": 4, "framework": "caffe_1_0_rc3", **place}).step_s]


def _of_device(path: Path) -> list[float]:
    device = pm.load_device(path)
    return [*_on(device=path), *([] if device.kind == "gpu" else _on(device=path, threads=2))]


def _of_system(path: Path) -> list[float]:
    system = pm.load_system(path)
    workers = min(2, max(1, len(system.devices)))
    return _on(system=path, workers=workers, framework="pytorch_2")


def _of_framework(path: Path) -> list[float]:
    pm.load_framework(path)
    on_cpu = pm.predict(network(), batch_size=4, device="xeon_e5_2630_v3", framework=path) if path.exists() else None
    return [*_on(device="gtx_1080", framework=path), on_cpu.step_s]


def _of_library(path: Path) -> list[float]:
    library = pm.load_library(path)
    device = "gtx_1080" if library.kind in ("cublas", "cudnn", "gpu_blas", "gpu_dnn") else "xeon_e5_2630_v3"
    return _on(device=device, library=path)


def _of_dataset(path: Path) -> list[float]:
    pm.load_dataset(path)
    return _on(system="dgx_a100", dataset=path, framework="pytorch_2")


def _of_price(path: Path) -> list[float]:
    pm.load_price(path)
    return [pm.cost_per_year(path)]


def _of_calibration(path: Path) -> list[float]:
    pm.load_calibration(path)
    return _on(device="gtx_1080", calibration=path)


def _of_link(path: Path) -> list[float]:
    return [pm.load_link(path).latency_s]


def _of_storage(path: Path) -> list[float]:
    pm.load_storage(path)
    return _on(system="dgx_a100", dataset="imagenet_jpeg", input_from=path, framework="pytorch_2")


SPEC_READERS: dict[str, Callable[[Path], list[float]]] = {
    "devices": _of_device,
    "systems": _of_system,
    "frameworks": _of_framework,
    "libraries": _of_library,
    "datasets": _of_dataset,
    "prices": _of_price,
    "calibrations": _of_calibration,
    "links": _of_link,
    "storage": _of_storage,
}


def spec_file(chance: Random, folder: Path) -> Trial:
    """Spoil a shipped spec file, in its tables or in its text, and predict with it."""
    kind = chance.choice([*SPEC_READERS])
    source = chance.choice(_shipped(kind))
    if chance.random() < 0.7:
        values = tuple(value for value in PLAIN if value is not None and value != 10**400)
        text = _toml(spoilt(_tables_of(source), chance, values))
    else:
        text = spoilt_text(source.read_text(encoding="utf-8"), chance)
    path = folder / kind / f"spoilt_{source.stem}.toml"
    path.parent.mkdir(exist_ok=True)
    return Trial(f"{kind}/{source.name}", lambda: SPEC_READERS[kind](_written(path, text)))


@cache
def _graphs() -> tuple[dict[str, Any], ...]:
    made = (pm.zoo.lenet5(), pm.zoo.gpt(layers=2, width=32, heads=2, sequence_length=16, vocabulary=50))
    made += (pm.zoo.build("resnet18"),) if "resnet18" in pm.zoo.BUILDERS else ()
    return tuple(json.loads(graph._document().to_text()) for graph in made)


def graph_file(chance: Random, folder: Path) -> Trial:
    """Spoil a graph file, and predict with it."""
    content = chance.choice(_graphs())
    if chance.random() < 0.75:
        text = json.dumps(spoilt(content, chance))
    else:
        text = spoilt_text(json.dumps(content, indent=1), chance)
    path = folder / "graph.json"

    return Trial(shown(content["name"]), lambda: _of_graph(_written(path, text)))


def _of_graph(path: Path) -> list[float]:
    return [pm.predict(pm.LayerGraph.load(path), **JOB).step_s]


CONFIGURATIONS = (
    {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64, "n_positions": 32, "vocab_size": 100},
    {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "vocab_size": 100,
        "max_position_embeddings": 32,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "architectures": ["LlamaForCausalLM"],
    },
    {
        "model_type": "bert",
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "vocab_size": 100,
        "id2label": {"0": "no", "1": "yes"},
        "hidden_dropout_prob": 0.1,
        "architectures": ["BertForSequenceClassification"],
    },
    {
        "model_type": "vit",
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "image_size": 32,
        "patch_size": 16,
    },
)


def configuration(chance: Random, folder: Path) -> Trial:
    """Spoil a configuration of transformers, as a file or as a mapping."""
    content = chance.choice(CONFIGURATIONS)
    made = spoilt(content, chance)
    text = spoilt_text(json.dumps(made, indent=1), chance) if chance.random() < 0.2 else json.dumps(made)
    path = folder / "config.json"
    is_file = chance.random() < 0.5

    return Trial(shown(made), lambda: _of_configuration(_written(path, text) if is_file else made))


def _of_configuration(path_or_dict: Any) -> list[float]:
    return [pm.predict(pm.from_huggingface_config(path_or_dict), **JOB).step_s]


TABLE = """network,batch_size,framework,device,step_s,threads
alexnet,16,caffe_1_0_rc3,gtx_980,0.05,
alexnet,32,caffe_1_0_rc3,gtx_980,0.09,
alexnet,16,caffe_1_0_rc3,gtx_1080,0.03,
lenet5,16,torch_423cfba,gtx_1080,0.004,
"""


def table(chance: Random, folder: Path) -> Trial:
    """Spoil a table of measured steps: values, columns, separators, lines."""
    rows = [line.split(",") for line in TABLE.splitlines()]
    for _ in range(chance.choice((0, 1, 1, 2))):
        row = chance.choice(rows)
        odd = (*TEXTS, "0", "-1", "1e400", "9" * 30, "nan", "4.5", "gtx_9999", "=1+1", '"', "'", "\x00", "1,5")
        row[chance.randrange(len(row))] = chance.choice(odd)
    text = "\n".join(map(",".join, rows)) + "\n"
    if chance.random() < 0.4:
        text = spoilt_text(text, chance)
    path = folder / "table.csv"
    return Trial(shown(text), lambda: _of_table(_written(path, text)))


def _of_table(path: Path) -> list[float]:
    return [pm.validate(path, protocol="nothing_fitted").mape]


@cache
def _onnx_models() -> tuple[bytes, ...]:
    from onnx import TensorProto, helper

    floats = TensorProto.FLOAT
    weights = [
        helper.make_tensor("w1", floats, (4, 3, 3, 3), [0.1] * 108),
        helper.make_tensor("w2", floats, (10, 4 * 36), [0.1] * 1440),
        helper.make_tensor("shape", TensorProto.INT64, (2,), [0, -1]),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], kernel_shape=[3, 3], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Reshape", ["r", "shape"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w2"], ["y"], transB=1, name="fc"),
        helper.make_node("Softmax", ["y"], ["z"], axis=1, name="softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", floats, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("z", floats, ["N", 10])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return (model.SerializeToString(),)


def onnx_file(chance: Random, folder: Path) -> Trial:
    """Spoil an ONNX file: fields of its messages, or bytes."""
    content = chance.choice(_onnx_models())
    how = "bytes"
    if chance.random() < 0.75:
        import onnx

        model = onnx.load_model_from_string(content)
        said = [_spoilt_field(model, chance) for _ in range(chance.choice((1, 1, 2, 3)))]
        content, how = model.SerializeToString(), "; ".join(said)
    else:
        damaged = bytearray(content)
        for _ in range(chance.choice((1, 2, 8))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        content = bytes(damaged[: chance.randrange(len(damaged))] if chance.random() < 0.2 else damaged)
    path = folder / "net.onnx"

    def run() -> list[float]:
        path.write_bytes(content)
        return _of_onnx(path)

    return Trial(how, run)


def _of_onnx(path: Path) -> list[float]:
    graph = pm.from_onnx(path)
    return [pm.predict(graph, **{**JOB, "batch_size": graph.fixed_batch_size or 4}).step_s]


NUMBERS_OF_FIELDS = (0, 1, -1, 2, 7, 2**31 - 1, 2**62, 2**63 - 1, -(2**63))


def _spoilt_field(message: Any, chance: Random) -> str:
    """Change one field somewhere in a message of protocol buffers, and say which."""
    from google.protobuf.descriptor import FieldDescriptor

    while True:
        set_fields = message.ListFields()
        if not set_fields:
            return "nothing"
        descriptor, value = chance.choice(set_fields)
        repeated = hasattr(value, "append") or hasattr(value, "add")
        if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            how = chance.randrange(12)
            if repeated and how == 0:
                del value[chance.randrange(len(value))]
                return f"{descriptor.name} less one"
            if repeated and how == 1:
                value.add().CopyFrom(chance.choice(value))
                return f"{descriptor.name} twice"
            if not repeated and how == 0:
                message.ClearField(descriptor.name)
                return f"no {descriptor.name}"
            message = chance.choice(value) if repeated else value
            continue
        made = _field_value(descriptor, chance)
        try:
            if repeated:
                value[chance.randrange(len(value))] = made
            elif chance.random() < 0.2:
                message.ClearField(descriptor.name)
            else:
                setattr(message, descriptor.name, made)
        except (ValueError, TypeError):
            message.ClearField(descriptor.name)
        return f"{descriptor.name}={shown(made)}"


def _field_value(descriptor: Any, chance: Random) -> Any:
    if descriptor.type == descriptor.TYPE_STRING:
        others = ("x", "c", "w1", "w2", "Conv", "Gemm", "Loop", "If", "Reshape", "MatMul", "Attention", "LSTM", "pads")
        return chance.choice((*others, *(text for text in TEXTS if text != "\ud800")))
    if descriptor.type == descriptor.TYPE_BYTES:
        return chance.choice((b"", b"\xff\xfe", b"VALID", b"SAME_UPPER", b"x" * 5000, b"8 bytes."))
    if descriptor.type in (descriptor.TYPE_FLOAT, descriptor.TYPE_DOUBLE):
        return chance.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    if descriptor.type == descriptor.TYPE_ENUM:
        return chance.randrange(12)
    return chance.choice(NUMBERS_OF_FIELDS)


KINDS = {
    "spec files": spec_file,
    "graph files": graph_file,
    "configurations": configuration,
    "tables": table,
    "onnx files": onnx_file,
}

READERS: dict[str, Callable[[Path], list[float]]] = {
    **SPEC_READERS,
    "graph.json": _of_graph,
    "config.json": _of_configuration,
    "table.csv": _of_table,
    "net.onnx": _of_onnx,
}
"""What is read from a file, by its name, or by its folder for a spec file. [-]"""


def file_of(name: str, content: bytes, folder: Path) -> Trial:
    """Make a trial of a file, named as in ``READERS`` or ``frameworks/x.toml``."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return Trial(name, lambda: READERS[name.rpartition("/")[0] or name](path))
