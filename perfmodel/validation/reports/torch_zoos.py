"""Networks of timm and torchvision as layer graphs, imported once and kept in the folder of kept fits."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import PerfmodelError, package_for
from perfmodel.files import is_file
from perfmodel.graph import LayerGraph
from perfmodel.importers.torch.module import import_torch
from perfmodel.measurements.kernel_tables import content_hash
from perfmodel.private_folders import cached_file

EXTRA: Final = "zoo-torch"
"""Extra of perfmodel that brings the packages. [-]"""

EXAMPLE_BATCH: Final = 8
"""Images in the example batch with which a network is imported. [1]"""

_FOLLOWED: Final = ("importers", "layers", "graph")
"""Parts of the package whose code decides what an imported graph is."""


def package(name: str) -> Any:
    """Import a package that defines networks, or torch; raise MissingPackageError if it is not installed."""
    return package_for(name, f"a table of networks of {name}", EXTRA)


def versions(zoo: str) -> str:
    """Return the versions of a package of networks and of torch."""
    return ", ".join(f"{name} {package(name).__version__}" for name in (zoo, "torch"))


def graph_of(zoo: str, network: str, *, image_size: int, training: bool, fused_attention: bool) -> LayerGraph:
    """Import a network of a package, or read it if the same code and package imported it before."""
    what = (zoo, versions(zoo), network, image_size, training, fused_attention, EXAMPLE_BATCH, _code())
    path = cached_file(f"{hashlib.sha256(repr(what).encode()).hexdigest()[:32]}.json", of="graphs")
    if path is not None and is_file(path):
        with suppress(PerfmodelError):
            return LayerGraph.load(path)
    graph = _imported(zoo, network, image_size=image_size, training=training, fused_attention=fused_attention)
    if path is not None:
        with suppress(PerfmodelError):  # e.g. a full disk
            graph.save(path)
    return graph


@cache
def _code() -> str:
    root = Path(__file__).resolve().parents[2]
    return content_hash(*sorted(path for part in _FOLLOWED for path in (root / part).rglob("*.py")), Path(__file__))


def _imported(zoo: str, network: str, *, image_size: int, training: bool, fused_attention: bool) -> LayerGraph:
    torch = package("torch")
    with warnings.catch_warnings(), _attention(zoo, fused=fused_attention), torch.device("meta"):
        warnings.simplefilter("ignore")
        module = _BUILDERS[zoo](package(zoo), network, image_size)
        images = torch.empty(EXAMPLE_BATCH, 3, image_size, image_size)
        return import_torch(module, images, training=training, name=network, progress=False).built.graph


def _of_timm(timm: Any, network: str, image_size: int) -> Any:
    """Build a network, for another image size if it has a fixed one."""
    module = timm.create_model(network)
    if module.default_cfg["input_size"][-1] != image_size:
        with suppress(TypeError):  # a network of convolutions takes images of any size
            return timm.create_model(network, img_size=image_size)
    return module


def _of_torchvision(torchvision: Any, network: str, image_size: int) -> Any:
    del image_size
    options = {"aux_logits": False} if network in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(network, weights=None, **options)


_BUILDERS: Final[Mapping[str, Callable[[Any, str, int], Any]]] = {"timm": _of_timm, "torchvision": _of_torchvision}
"""Package -> how it builds a network by name for images of a size."""


@contextmanager
def _attention(zoo: str, *, fused: bool) -> Iterator[None]:
    """Let timm use torch's fused attention or write attention out, as long as the block runs."""
    if zoo != "timm":
        yield
        return
    layers = import_module("timm.layers")
    before = {"enable": layers.use_fused_attn(), "experimental": layers.use_fused_attn(experimental=True)}
    layers.set_fused_attn(fused)
    try:
        yield
    finally:
        layers.set_fused_attn(**before)
