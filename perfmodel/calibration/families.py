"""Shapes of the benchmarks of each kind, and their neutral operations, the same for every backend.

The layers of networks make the operations, so that a calibration counts fitted and predicted operations alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from perfmodel.calibration.benchmark import POINTS, Axis, Benchmark, Prepare, Prepared, Sizes
from perfmodel.files import file_toml
from perfmodel.framework.measured_lowering import measured_kernel
from perfmodel.layers import GRU, LAYERS, LSTM, OPTIMIZERS, RNN, Layer, Shape
from perfmodel.layers.recurrent import RecurrentLayer
from perfmodel.records import Attention, Contraction, Convolution, Gather, Operation, Recurrence, Role

ROLES: Final = (Role.OUTPUT, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
"""Roles of a product; the last two belong to back-propagation."""


@dataclass(frozen=True, slots=True)
class Family:
    """Shapes of one kind."""

    axes: Mapping[str, Axis]
    batch: str
    sample: tuple[str, ...]
    inputs: int = 1

    def shape(self, sizes: Sizes) -> Shape:
        """Return the shape of a sample."""
        return tuple(sizes[name] for name in self.sample)

    def tensor(self, sizes: Sizes) -> tuple[int, ...]:
        """Return the shape of a tensor of all samples."""
        return (sizes[self.batch], *self.shape(sizes))


STATED: Final = file_toml(Path(__file__).with_name("shapes.toml"))
"""Sizes of all kinds of kernels, and the element-wise passes of torch."""


def axes_of(stated: Mapping[str, Mapping[str, Any]]) -> dict[str, Axis]:
    """Return the axes of a table of ``shapes.toml``."""
    return {name: Axis(**{**axis, "values": tuple(axis.get("values", ()))}) for name, axis in stated.items()}


def family(name: str, further: Mapping[str, Axis] | None = None, *, inputs: int = 1) -> Family:
    """Return a family of ``shapes.toml``, with a number of inputs and further axes."""
    stated = STATED["family"][name]
    axes = axes_of(stated["axes"]) | dict(further or {})
    return Family(axes, batch=stated["batch"], sample=tuple(stated["sample"]), inputs=inputs)


ROWS: Final = family("rows")
ELEMENTS: Final = family("elements")
TWO_OF_ELEMENTS: Final = family("elements", inputs=2)
TWO_ROWS: Final = family("rows", inputs=2)
SEQUENCES: Final = family("sequences")
MAPS: Final = family("maps")


def of_layer(
    name: str,
    family: Family,
    layer: Layer | Callable[[Sizes], Layer],
    *,
    shapes: Callable[[Sizes], tuple[Shape, ...]] | None = None,
    role: Callable[[Sizes], Role] | None = None,
) -> Callable[[Sizes], Operation]:
    """Return a function from sizes to the operation of a class, taken from its layer."""

    def operation(sizes: Sizes) -> Operation:
        made = layer if isinstance(layer, Layer) else layer(sizes)
        inputs = (family.shape(sizes),) * family.inputs if shapes is None else shapes(sizes)
        wanted = None if role is None else role(sizes)
        operations = made.operations(inputs, batch_size=sizes[family.batch], phase="forward_backward")
        return next(
            candidate
            for candidate in operations
            if measured_kernel(candidate, element_bytes=4).efficiency == name and wanted in (None, candidate.role)
        )

    return operation


CONTRACTION_AXES, BATCHED_AXES, RECURRENT_AXES, ATTENTION_AXES, GATHER_AXES, UPDATE_AXES = (
    axes_of(STATED["axes"][name])
    for name in ("contraction", "batched_contraction", "recurrence", "attention", "gather", "update")
)


def pass_benchmark(
    name: str,
    family: Family,
    layer: Layer | Callable[[Sizes], Layer],
    prepare: Prepare,
    *,
    shapes: Callable[[Sizes], tuple[Shape, ...]] | None = None,
    role: Callable[[Sizes], Role] | None = None,
    weight: float = 1.0,
) -> Benchmark:
    """Return the benchmark of a pass, whose operation is taken from its layer."""
    operation = of_layer(name, family, layer, shapes=shapes, role=role)
    return Benchmark(name=name, axes=family.axes, operation=operation, prepare=prepare, weight=weight)


PARTS: Final = {"part": Axis(values=(0, 1))}
"""Whether a gradient is that of the input, or of scale and shift."""


def part_of_gradient(sizes: Sizes) -> Role:
    """Return the role of a gradient that is computed in two parts."""
    return Role.WEIGHT_GRADIENT if sizes["part"] else Role.INPUT_GRADIENT


def _option(value: Any, sizes: Sizes) -> Any:
    """Return an option of a layer: a list as a tuple, ``@features`` as that size, a table as one of its values."""
    if isinstance(value, list):
        return tuple(_option(entry, sizes) for entry in value)
    if isinstance(value, dict):
        return value["values"][sizes[value["size"]]]
    return sizes[value[1:]] if isinstance(value, str) and value.startswith("@") else value


def _stated_layer(stated: Mapping[str, Any], sizes: Sizes) -> Layer:
    """Return a layer of ``shapes.toml``, whose options may be sizes."""
    options = {name: _option(value, sizes) for name, value in stated.items()}
    return LAYERS[options.pop("kind")](**options)


def stated_passes(backend: str, prepared: Callable[[Mapping[str, Any], Family, str], Prepare]) -> Iterator[Benchmark]:
    """Yield the benchmarks of the passes of ``shapes.toml`` that a backend runs, and of their gradients.

    ``prepared`` makes the kernel of a table, on tensors of a family, in the phase ``forward`` or ``backward``.
    """
    for name, shared in STATED["pass"].items():
        stated = {**shared, **shared.get(backend, {})}
        axes, inputs, shapes = axes_of(stated.get("axes", {})), stated.get("inputs", 1), stated.get("shapes")
        for phase, suffix in (("forward", ""), ("backward", "_backward")):
            if phase in stated:
                in_parts = phase == "backward" and "in_parts" in stated
                of_phase = family(stated.get("family", "elements"), axes | (PARTS if in_parts else {}), inputs=inputs)
                yield pass_benchmark(
                    f"{name}{suffix}",
                    of_phase,
                    partial(_stated_layer, stated["layer"]),
                    prepared(stated, of_phase, phase),
                    shapes=None if shapes is None else partial(_option, shapes),
                    role=part_of_gradient if in_parts else None,
                    weight=stated.get("weight", 1.0),
                )


def _in_role(make: Callable[[Sizes, Role], Operation], role: Role, sizes: Sizes) -> Operation:
    return make(sizes, role)


def by_role(name: str, roles: Sequence[Role] = ROLES) -> dict[Role, str]:
    """Return the class of a product in each role."""
    return {role: f"{name}_{role.value}" for role in roles}


def role_benchmarks(
    names: Mapping[Role, str],
    axes: Mapping[str, Axis],
    make: Callable[[Sizes, Role], Operation],
    prepare: Prepare,
    *,
    point_count: int = POINTS,
    weight: float = 1.0,
) -> Iterator[Benchmark]:
    """Yield the benchmark of an operation in each role."""
    for role, name in names.items():
        operation = partial(_in_role, make, role)
        yield Benchmark(
            name=name, axes=axes, operation=operation, prepare=prepare, point_count=point_count, weight=weight
        )


def contraction(sizes: Sizes, role: Role) -> Contraction:
    """Return the product of a dense layer in a role."""
    rows, inputs, outputs = sizes["rows"], sizes["inputs"], sizes["outputs"]
    if role is Role.OUTPUT:
        return Contraction(m=rows, n=outputs, k=inputs, bias_elements=outputs)
    m, n, k = (rows, inputs, outputs) if role is Role.INPUT_GRADIENT else (inputs, outputs, rows)
    return Contraction(m=m, n=n, k=k, role=role)


def batched_contraction(sizes: Sizes, role: Role) -> Contraction:
    """Return ``count`` products of ``rows`` x ``inner`` by ``inner`` x ``columns``."""
    return Contraction(m=sizes["rows"], n=sizes["columns"], k=sizes["inner"], count=sizes["count"], role=role)


def batched_operands(tools: Any, sizes: Sizes, operation: Operation) -> tuple[Any, Any]:
    """Return the operands of a batched product; a gradient reads one of them transposed."""
    count, m, n, k = sizes["count"], sizes["rows"], sizes["columns"], sizes["inner"]
    left = tools.normal(count, m, k)
    if operation.role is Role.OUTPUT:
        return left, tools.normal(count, k, n)
    return left, tools.normal(count, n, k).swapaxes(1, 2)


EXTENTS: Final = {1: Axis(16, 2000), 2: Axis(5, 120), 3: Axis(5, 40)}
"""Number of spatial axes -> extent of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionFamily:
    """Convolutions that have one kernel class for each role."""

    name: str
    spatial_axes: int = 2
    kernels: Sequence[int]
    strides: Sequence[int] = (1,)
    inputs: Mapping[str, Any] | None = None
    depthwise: bool = False
    groups: Sequence[int] = (1,)
    weight: float = 1.0

    @property
    def axes(self) -> dict[str, Axis]:
        """Sizes that are drawn."""
        channels = Axis(16, 1024 if self.spatial_axes > 1 else 512, "features")
        axes = {"batch": Axis(3, 33, "odd"), "inputs": channels}
        axes |= {} if self.inputs is None else axes_of({"inputs": self.inputs})
        if not self.depthwise:
            axes["outputs"] = channels
        axes |= {"extent": EXTENTS[self.spatial_axes], "kernel": Axis(values=tuple(self.kernels))}
        axes["stride"] = Axis(values=tuple(self.strides))
        return axes if len(self.groups) == 1 else axes | {"groups": Axis(values=tuple(self.groups))}

    def operation(self, sizes: Sizes, role: Role) -> Convolution:
        """Return the convolution of sizes in a role."""
        groups = sizes["inputs"] if self.depthwise else sizes.get("groups", 1)
        channels_in = sizes["inputs"] if self.depthwise else max(1, sizes["inputs"] // groups) * groups
        outputs = sizes["inputs"] if self.depthwise else max(1, sizes["outputs"] // groups) * groups
        kernel, stride, extent = sizes["kernel"], sizes["stride"], max(sizes["extent"], sizes["kernel"])
        padding = kernel // 2
        produced = (extent + 2 * padding - kernel) // stride + 1
        along = self.spatial_axes
        return Convolution(
            batch_size=sizes["batch"],
            in_channels=channels_in,
            out_channels=outputs,
            input_size=(extent,) * along,
            output_size=(produced,) * along,
            kernel_size=(kernel,) * along,
            stride=(stride,) * along,
            padding=((padding, padding),) * along,
            dilation=(1,) * along,
            groups=groups,
            bias_elements=0,
            role=role,
        )


CONVOLUTIONS: Final = tuple(
    ConvolutionFamily(**{"name": name, **stated}) for name, stated in STATED["convolution"].items()
)
"""Convolutions that are timed, in all three roles each; the others fall back to the nearest of these."""

CELLS: Final[dict[str, type[RecurrentLayer]]] = {"lstm": LSTM, "gru": GRU, "rnn": RNN}


def recurrence(cell: str, sizes: Sizes, role: Role) -> Recurrence:
    """Return one recurrent layer in a role."""
    kind = CELLS[cell]
    return Recurrence(
        batch_size=sizes["batch"],
        steps=sizes["steps"],
        input_size=sizes["inputs"],
        hidden_size=sizes["hidden"],
        gate_count=kind.gate_count,
        pointwise_flop_count=kind.pointwise_flop_count + kind.gate_count,
        state_count=kind.state_count,
        bias_vectors=2,
        role=role,
    )


def attention(sizes: Sizes, role: Role) -> Attention:
    """Return self-attention of sizes in a role; dropped probabilities go through memory."""
    return Attention(
        batch_size=sizes["batch"],
        heads=sizes["heads"],
        key_heads=sizes["heads"],
        queries=sizes["queries"],
        keys=sizes["queries"],
        head_size=sizes["head_size"],
        value_size=sizes["head_size"],
        causal=bool(sizes["causal"]),
        scores="materialised" if sizes["drops"] else "recomputed",
        drops=bool(sizes["drops"]),
        role=role,
    )


GATHERS: Final = {Role.OUTPUT: "gather", Role.WEIGHT_GRADIENT: "scatter_add"}


def gather(sizes: Sizes, role: Role) -> Gather:
    """Return a look-up of rows, or the sum of their gradients."""
    return Gather(rows=sizes["rows"], width=sizes["features"], table_rows=sizes["table_rows"], role=role)


def _update(name: str) -> Callable[[Sizes], Operation]:
    """Return a function from a tensor's size to its update, ``gradient_norm`` or ``gradient_scale``."""
    if name in OPTIMIZERS:
        return lambda sizes: OPTIMIZERS[name]().operations({"one": sizes["elements"]}, batch_size=1)[0]
    clipped = OPTIMIZERS["sgd"](clipping="per_batch")
    return lambda sizes: next(
        operation
        for operation in clipped.operations({"one": sizes["elements"]}, batch_size=1)
        if measured_kernel(operation, element_bytes=4).efficiency == name
    )


def update_benchmarks(names: Iterable[str], prepare: Callable[..., Prepared]) -> Iterator[Benchmark]:
    """Yield a benchmark for each optimizer's update of a tensor; its name is the first argument of ``prepare``."""
    for name in names:
        yield Benchmark(name=name, axes=UPDATE_AXES, operation=_update(name), prepare=partial(prepare, name))
