"""Transformer configurations in Hugging Face's format as layer graphs; no weights are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from warnings import warn

from perfmodel.calls import CALLER, in_words
from perfmodel.errors import ArgumentError, ParameterWarning, PerfmodelWarning, SpecError, check_known, meant
from perfmodel.files import file_bytes, file_toml, is_folder, json_of, user_path
from perfmodel.graph import LayerGraph
from perfmodel.importers.archives import MOST_CONFIG_BYTES
from perfmodel.layers.checks import Check, check_choice, check_count, check_flag, check_fraction, check_text
from perfmodel.symbolic import is_symbolic
from perfmodel.zoo.encoders import bert, vit
from perfmodel.zoo.mixtures import mixture
from perfmodel.zoo.transformer import ATTENTIONS, MOST_BLOCKS, gpt, llama

ACTIVATIONS: Final = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Non-linearities by their names in configurations."""


@in_words
def from_huggingface_config(
    path_or_dict: str | Path | Mapping[str, Any],
    *,
    sequence_length: Any = None,
    head: str | None = None,
    dropout: float | None = None,
    attention: str = "fused",
    name: str | None = None,
) -> LayerGraph:
    """Build the network that a config.json describes: GPT-2, Llama, Mistral, Qwen2, Mixtral, DeepSeek, BERT or ViT.

    Parameters
    ----------
    path_or_dict : str, Path or mapping
        The file, the folder it lies in, or its content. [-]
    sequence_length : int, sympy.Symbol or None
        Positions of a sample; None for the most that the configuration allows. Not used for ViT, where the images
        determine it. [1]
    head : str or None
        The end of a BERT: ``pooler``, ``classification`` or ``masked_language_model``; of a ViT: ``classification``
        or ``pooler``; None for a classifier if ``architectures`` names one, else the pooler. GPT-2 and
        Llama always end in the scores of words. [-]
    dropout : float or None
        Rate of dropout; None for the configuration's own, zero for none, as in inference. [1]
    attention : str
        ``fused`` or ``materialised``: whether the scores stay on chip or go through memory. [-]
    name : str or None
        Name of the graph; None for the configuration's ``_name_or_path``, or its family. [-]

    Raises
    ------
    UnknownNameError
        If ``model_type`` is none of these families; suggests the nearest.
    SpecError
        If fields are missing, have values that do not go together, or name mixtures of experts or latent attention in
        a family that is read without them; names file, field, value and what is allowed.
    ArgumentError
        If an argument has a value that is not allowed.

    Warns
    -----
    ParameterWarning
        If the checkpoint stores weights in fewer bits (``quantization_config``), which is not read.
    PerfmodelWarning
        If attention has a window (``sliding_window``) shorter than the sequence: it is not read, and every position
        sees all before it.

    Examples
    --------
    >>> config = {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768}
    >>> from_huggingface_config(config).parameter_count
    124439808
    """
    fields = ConfigFields.read(path_or_dict)
    families = ", ".join(FAMILIES)
    if not fields.has("model_type"):
        raise SpecError(fields.where, [f"model_type is missing: must be one of {families}"])
    family = fields.text("model_type")
    if family not in WITH_EXPERTS:
        fields.refuse_unmodelled()
    remedy = "For others use pm.from_torch with the module."
    check_known(f"model_type in {fields.where}:", family, FAMILIES, remedy=remedy)
    check_choice("attention", attention, ATTENTIONS)
    if sequence_length is not None:
        check_count("sequence_length", sequence_length)
    if dropout is not None:
        check_fraction("dropout", dropout)
    if name is not None:
        check_text("name", name)
    model_name = name or fields.text("_name_or_path") or family
    wanted = _Caller(sequence_length=sequence_length, head=head, dropout=dropout, attention=attention)
    graph = FAMILIES[family](fields, wanted)
    graph.name = model_name
    for warning in _unread_warnings(fields, family, sequence_length=sequence_length):
        warn(warning, stacklevel=CALLER)
    return graph


def _unread_warnings(fields: ConfigFields, family: str, *, sequence_length: Any) -> Iterator[PerfmodelWarning]:
    """Yield a warning for each unread field that changes how long the network runs."""
    if fields.has("quantization_config"):
        remedy = "predict it with weight_dtype= int8, fp8 or int4, or weights count in dtype"
        yield ParameterWarning(f"{fields.where}: quantization_config is not read: {remedy}")
    has_window = family in WINDOWED and fields.flag("use_sliding_window", default=WINDOWED[family])
    if has_window and fields.has("sliding_window"):
        window = fields.count("sliding_window")
        fields.check()
        length = fields.count("max_position_embeddings") if sequence_length is None else sequence_length
        if is_symbolic(length) or length > window:
            counted = f"attention is counted to all of {length} positions; a sequence of up to {window} is exact"
            yield PerfmodelWarning(f"{fields.where}: sliding_window={window} is not read: {counted}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caller:
    """Options of the caller that override the configuration."""

    sequence_length: Any
    head: str | None
    dropout: float | None
    attention: str

    def length(self, context: int) -> Any:
        """Return the positions of a sequence: those asked for, or all of the context."""
        return context if self.sequence_length is None else self.sequence_length

    def rates(self, fields: ConfigFields, *, default: float, **names: str) -> dict[str, float]:
        """Return the dropout rates: the one asked for, or the configuration's, whose fields are ``names``."""
        rates = {name: fields.rate(field, default=default) for name, field in names.items()}
        return rates if self.dropout is None else dict.fromkeys(rates, self.dropout)

    def no_head(self, family: str) -> None:
        """Reject a head for families that have only one."""
        if self.head is not None:
            check_choice(f"head of {family}", self.head, ())

    def head_of(self, fields: ConfigFields, *, classifiers: str) -> str:
        """Return the head asked for, or that of the checkpoint's architecture."""
        names_classifier = any(text.endswith(classifiers) for text in fields.texts("architectures"))
        of_architecture = "classification" if names_classifier else "pooler"
        return of_architecture if self.head is None else self.head


def _gpt2(fields: ConfigFields, wanted: _Caller) -> LayerGraph:
    wanted.no_head("gpt2")
    options = fields.options("gpt2")
    options["intermediate"] = fields.count("n_inner", default=4 * options["width"])
    options |= wanted.rates(fields, dropout="resid_pdrop", attention_dropout="attn_pdrop", default=0.1)
    fields.check_divides("n_head", "n_embd", part=options["heads"], of=options["width"])
    fields.refuse("add_cross_attention", True, "must be false: only a decoder without an encoder is supported")
    fields.check()
    return gpt(**options, sequence_length=wanted.length(options["positions"]), attention=wanted.attention)


def _decoder(fields: ConfigFields, wanted: _Caller, family: str) -> dict[str, Any]:
    """Return the options of a family of Llama's kind."""
    wanted.no_head(family)
    options = fields.options("decoder", family)
    return options | {"sequence_length": wanted.length(options["sequence_length"])}


def _grouped(fields: ConfigFields, wanted: _Caller, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of attention whose keys groups of heads share."""
    width, heads = options["width"], options["heads"]
    key_heads = fields.count("num_key_value_heads", default=heads)
    head_size = fields.count("head_dim", default=max(width // heads, 1))
    if not fields.has("head_dim"):
        fields.check_divides("num_attention_heads", "hidden_size", part=heads, of=width)
    fields.check_divides("num_key_value_heads", "num_attention_heads", part=key_heads, of=heads)
    rates = wanted.rates(fields, attention_dropout="attention_dropout", default=0.0)
    return {"key_heads": key_heads, "head_size": head_size, **rates, "attention": wanted.attention}


def _llama(
    fields: ConfigFields, wanted: _Caller, *, projection_bias: bool | None = None, output_bias: bool | None = None
) -> LayerGraph:
    """Build a network of Llama's kind; related families pass the biases that Llama's configurations state."""
    options = _decoder(fields, wanted, "llama")
    has_bias = fields.flag("attention_bias", default=False) if projection_bias is None else projection_bias
    biases = {"attention_bias": has_bias, "output_bias": has_bias if output_bias is None else output_bias}
    options |= biases | _grouped(fields, wanted, options)
    fields.check()
    return llama(**options)


def _mixtral(fields: ConfigFields, wanted: _Caller) -> LayerGraph:
    options = _decoder(fields, wanted, "mixtral")
    options |= _grouped(fields, wanted, options)
    fields.word("hidden_act", {"silu": "silu"}, default="silu")
    fields.check()
    return mixture("mixtral", **options)


def _deepseek(fields: ConfigFields, wanted: _Caller) -> LayerGraph:
    """Build DeepSeek-V2 or V3, without the module that predicts a second word (num_nextn_predict_layers)."""
    check_choice("attention of deepseek", wanted.attention, ("fused",))
    options = _decoder(fields, wanted, "deepseek")
    options["query_latent"] = fields.count("q_lora_rank") if fields.has("q_lora_rank") else None
    fields.word("hidden_act", {"silu": "silu"}, default="silu")
    if fields.whole("moe_layer_freq", default=1) != 1:
        fields.fault("moe_layer_freq", "must be 1: every block behind the dense ones has experts")
    fields.check()
    return mixture("deepseek", **options)


def _encoder(fields: ConfigFields, wanted: _Caller, family: str, *, dropout: float, classifiers: str) -> dict[str, Any]:
    """Return the options of BERT or ViT; ``dropout`` is the default of its rates [1]."""
    options = fields.options("encoder", family)
    fields.check_divides("num_attention_heads", "hidden_size", part=options["heads"], of=options["width"])
    rates = {"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"}
    return options | {
        "classes": fields.count("num_labels", default=fields.size("id2label") or 2),
        "attention": wanted.attention,
        "head": wanted.head_of(fields, classifiers=classifiers),
        **wanted.rates(fields, **rates, default=dropout),
    }


def _bert(fields: ConfigFields, wanted: _Caller) -> LayerGraph:
    options = _encoder(fields, wanted, "bert", dropout=0.1, classifiers="ForSequenceClassification")
    fields.word("position_embedding_type", {"absolute": ""}, default="absolute")
    for field in ("is_decoder", "add_cross_attention"):
        fields.refuse(field, True, "must be false: only the encoder is supported")
    fields.check()
    return bert(**options, sequence_length=wanted.length(options["positions"]))


def _vit(fields: ConfigFields, wanted: _Caller) -> LayerGraph:
    if wanted.sequence_length is not None:
        check_choice("sequence_length of vit, whose images say it,", wanted.sequence_length, ())
    options = _encoder(fields, wanted, "vit", dropout=0.0, classifiers="ForImageClassification")
    fields.check_divides("patch_size", "image_size", part=options["patch_size"], of=options["image_size"])
    fields.refuse("qkv_bias", False, "must be true: queries, keys and values need a bias")
    fields.check()
    return vit(operands="separate", **options)


FAMILIES: Final[Mapping[str, Callable[..., LayerGraph]]] = {
    "bert": _bert,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": partial(_llama, projection_bias=False),
    "mixtral": _mixtral,
    "qwen2": partial(_llama, projection_bias=True, output_bias=False),
    "vit": _vit,
}
"""Builder of each family, by ``model_type``."""


WINDOWED: Final[Mapping[str, bool]] = {"mistral": True, "mixtral": True, "qwen2": False}
"""Family whose attention may have a window -> default of ``use_sliding_window``."""

WITH_EXPERTS: Final = ("mixtral", "deepseek_v2", "deepseek_v3")
"""Families that are read with their experts and latent attention."""

UNMODELLED: Final[Mapping[str, tuple[str, int]]] = {
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), ("a mixture of experts", 1)),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), ("latent attention", 0)),
}
"""Field -> part of blocks that no layer models, and the largest value without it (Mixtral, Qwen MoE, DeepSeek)."""

OPTIONS: Final = file_toml(Path(__file__).with_name("configurations.toml"))
"""Table of options -> option of a builder -> field that states it."""

LAYER_FIELDS: Final = ("n_layer", "num_hidden_layers")
"""Fields that state the number of blocks."""

MOST_SIZE: Final = 10**9
"""Largest width, vocabulary or number of positions: products of three of them are still exact. [1]"""

CONFIG_NAME: Final = "config.json"
"""Name of the file in the folder of a checkpoint."""


class ConfigFields:
    """Fields of a configuration, with the faults met while reading them."""

    def __init__(self, where: str, content: Mapping[str, Any]) -> None:
        self.where = where
        self._content = content
        self._faults: list[str] = []
        self._at_fault: set[str] = set()

    @classmethod
    def read(cls, path_or_dict: str | Path | Mapping[str, Any]) -> ConfigFields:
        """Read a configuration."""
        if isinstance(path_or_dict, Mapping):
            return cls("configuration", path_or_dict)
        if not isinstance(path_or_dict, str | Path) or not path_or_dict:
            allowed = "the path of a config.json or its folder, or its content as a dict"
            raise ArgumentError("path_or_dict", path_or_dict, allowed)
        path = user_path(path_or_dict)
        path = path / CONFIG_NAME if is_folder(path) else path
        content = json_of(path, file_bytes(path, most_bytes=MOST_CONFIG_BYTES))
        if not isinstance(content, dict):
            raise SpecError(path, ["must be a JSON object of fields"])
        return cls(str(path), content)

    def has(self, field: str) -> bool:
        """Tell whether a field is given and not null."""
        return self._content.get(field) is not None

    def text(self, field: str) -> str:
        """Return a text field; empty if it is missing."""
        return str(self._content[field]) if self.has(field) else ""

    def fault(self, field: str, allowed: str) -> None:
        """Record that a field has a value that is not allowed."""
        self._at_fault.add(field)
        self._faults.append(f"{field}={self._content.get(field)!r}: {allowed}")

    def _given(self, field: str, *, default: Any) -> Any:
        """Return a field's value, or its default if missing or null; record a fault if there is no default."""
        if self.has(field):
            return self._content[field]
        if default is None:
            self._at_fault.add(field)
            self._faults.append(f"{field} is missing{meant(field, map(str, self._content))}")
        return default

    def _checked(self, field: str, check: Check, *, default: Any, instead: Any) -> Any:
        """Return a field's value; if it is missing or not allowed, record a fault and return ``instead``."""
        value = self._given(field, default=default)
        try:
            if value is not None:
                check(field, value)
        except ArgumentError as error:
            self.fault(field, error.allowed)
            value = None
        return instead if value is None else value

    def options(self, *tables: str) -> dict[str, Any]:
        """Return the options of a builder whose fields tables of ``configurations.toml`` name."""
        stated = {option: {**how} for table in tables for option, how in OPTIONS[table].items()}
        return {option: getattr(self, how.pop("kind", "count"))(**how) for option, how in stated.items()}

    def count(self, field: str, *, default: int | None = None) -> int:
        """Return a whole number of at least one."""
        count = int(self._checked(field, check_count, default=default, instead=1))
        most = MOST_BLOCKS if field in LAYER_FIELDS else MOST_SIZE
        if count > most:
            self.fault(field, f"must be at most {most:,}")
        return min(count, most)

    def whole(self, field: str, *, default: int) -> int:
        """Return a whole number, which may be zero."""
        if not self.has(field):
            return default
        return 0 if self._content[field] == 0 else self.count(field)

    def rate(self, field: str, *, default: float) -> float:
        """Return a number in [0, 1)."""
        return float(self._checked(field, check_fraction, default=default, instead=0.0))

    def flag(self, field: str, *, default: bool) -> bool:
        """Return a Boolean."""
        return bool(self._checked(field, check_flag, default=default, instead=default))

    def word(self, field: str, words: Mapping[str, str], *, default: str) -> str:
        """Return the meaning of a field that holds one of a few words."""
        value = self._given(field, default=default)
        if not isinstance(value, str) or value not in words:
            self.fault(field, f"must be one of {', '.join(words)}{meant(str(value), words)}")
            return words[default]
        return words[value]

    def activation(self, field: str, *, default: str) -> str:
        """Return a non-linearity by its name here."""
        return self.word(field, ACTIVATIONS, default=default)

    def size(self, field: str) -> int:
        """Return the number of entries of a list or an object; zero if it is missing [1]."""
        value = self._content.get(field)
        return len(value) if isinstance(value, list | dict) else 0

    def texts(self, field: str) -> tuple[str, ...]:
        """Return a list of texts; empty if it is missing."""
        value = self._content.get(field)
        return tuple(map(str, value)) if isinstance(value, list) else ()

    def refuse(self, field: str, value: Any, allowed: str) -> None:
        """Record a fault if a field has a value."""
        if self._content.get(field) == value:
            self.fault(field, allowed)

    def refuse_unmodelled(self) -> None:
        """Raise SpecError if a field that the family does not read states experts or latent attention."""
        for field, (part, most) in UNMODELLED.items():
            value = self._content.get(field)
            if value is not None and not (isinstance(value, int) and value <= most):
                self.fault(field, f"{part}, which is read of {', '.join(WITH_EXPERTS)} alone")
        self.check()

    def check_divides(self, field: str, whole: str, *, part: int, of: int) -> None:
        """Record a fault unless one field divides another; skipped if either already has a fault."""
        if of % part and not self._at_fault & {field, whole}:
            self._faults.append(f"{field}={part}: must divide {whole}={of}")

    def check(self) -> None:
        """Raise SpecError with all recorded faults, if any."""
        if self._faults:
            raise SpecError(self.where, self._faults)
