"""Shared memory of tensors: views, outputs that overwrite an input, and inputs that back-propagation still reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from perfmodel.derived import derived
from perfmodel.graph.node import Node
from perfmodel.layers import Shape, SharedShape
from perfmodel.layers.attention import SoftmaxTypes
from perfmodel.layers.shapes import element_count

Bytes = tuple[Any, Any]
"""Size in memory: constant part [B] and part per sample [B/sample]."""

NOTHING: Bytes = (0, 0)


def affine(count: Callable[[Any], Any]) -> Bytes:
    """Return constant and slope of a count that is affine in the batch size. [B/sample]

    >>> affine(lambda batch_size: 3 + 5 * batch_size)
    (3, 5)
    """
    one = count(1)
    slope = count(2) - one
    return one - slope, slope


def tensor_bytes(shape: Shape, *, element_bytes: int) -> Bytes:
    """Return the size of a tensor. [B/sample]"""
    size = element_bytes * element_count(shape, batch_size=1)
    return (size, 0) if isinstance(shape, SharedShape) else (0, size)


def mask_tensors(nodes: Sequence[Node]) -> set[str]:
    """Return the Boolean tensors: results of comparisons, tensors read as masks, and views of them."""
    masks = {node.name for node in nodes if node.layer.makes_mask}
    for node in reversed(nodes):
        if read := node.layer.mask_inputs:
            masks.update(name for place, name in enumerate(node.input_names) if place in read)
        if node.name in masks and node.layer.is_view:
            masks.update(node.input_names[:1])
    return masks


@derived
def saved_bytes(node: Node, element_bytes: int, index_bytes: int, softmax: SoftmaxTypes | None) -> Bytes:
    """Return the bytes that a layer keeps for back-propagation besides its inputs and output."""
    how: dict[str, Any] = {"element_bytes": element_bytes, "index_bytes": index_bytes, "softmax": softmax}
    return affine(lambda batch_size: node.saved_bytes(batch_size=batch_size, **how))


def is_parameter(node: Node) -> bool:
    """Return whether a node only holds a parameter, so that its output is the weights' own memory."""
    return not node.input_names and bool(node.layer.parameter_shapes(node.input_shapes))


def kept_inputs(node: Node, *, wanted: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the inputs that the layer's back-propagation reads."""
    return _kept_inputs(node, tuple(node.into(wanted))) if wanted[node.name] else ()


@derived
def _kept_inputs(node: Node, into: tuple[bool, ...]) -> tuple[str, ...]:
    kept = node.layer.kept_inputs(list(into), is_trained=node.trains_weights)
    return tuple(name for name, is_kept in zip(node.input_names, kept, strict=True) if is_kept)


def kept_tensors(nodes: Iterable[Node], *, wanted: Mapping[str, bool]) -> set[str]:
    """Return the tensors that back-propagation reads."""
    kept: set[str] = set()
    for node in nodes:
        if not wanted[node.name]:
            continue
        kept.update(kept_inputs(node, wanted=wanted))
        if node.layer.keeps_output:
            kept.add(node.name)
    return kept


@derived
def _fitting(node: Node) -> list[str]:
    """Return the inputs of the size of the output."""
    return [name for name, shape in zip(node.input_names, node.input_shapes, strict=True) if _same_size(node, shape)]


def _same_size(node: Node, shape: Shape) -> bool:
    alike = isinstance(shape, SharedShape) == isinstance(node.output_shape, SharedShape)
    return alike and element_count(shape, batch_size=1) == node.output_elements


def shared_storage(
    nodes: Sequence[Node],
    *,
    in_place_kinds: Collection[str],
    kept: Collection[str],
    stays: Collection[str],
    apart: Collection[str] = (),
    element_bytes: Callable[[str], int] = lambda _: 1,
) -> dict[str, str]:
    """Map each layer whose output is a view to the tensor whose memory it uses.

    A view uses its input's memory, except a part that devices exchange and views that are kept ``apart``. Sharing that
    the graph states is accepted. A kind that usually works in place needs an input of the output's size and type that
    neither another layer nor back-propagation reads later under any of its names.
    """
    last_reader: dict[str, int] = {}
    for place, node in enumerate(nodes):
        last_reader.update(dict.fromkeys(node.input_names, place))
    source: dict[str, str] = {}
    names_of: dict[str, list[str]] = {}  # memory to the tensors in it so far, by the name of the first
    memory_of: dict[str, str] = {}
    untouchable = {*kept, *stays, *(node.name for node in nodes if not node.input_names)}

    def is_free(name: str, place: int) -> bool:
        tensors = names_of.get(memory_of.get(name, name), [name])
        return all(tensor not in untouchable and last_reader.get(tensor, place) <= place for tensor in tensors)

    for place, node in enumerate(nodes):
        if node.layer.shares_memory and node.name not in apart:
            chosen = node.input_names[:1]
        elif node.usage.in_place is not None:
            chosen = tuple(_fitting(node)[:1]) if node.usage.in_place else ()
        elif node.layer.kind in in_place_kinds:
            own_bytes = element_bytes(node.name)
            alike = [name for name in _fitting(node) if element_bytes(name) == own_bytes]
            chosen = tuple(name for name in alike if is_free(name, place))[:1]
        else:
            chosen = ()
        for name in chosen:
            source[node.name] = name
        memory = memory_of.get(chosen[0], chosen[0]) if chosen else node.name
        memory_of[node.name] = memory
        names_of.setdefault(memory, [memory]).append(node.name)
    return source
