"""The rules by which a framework turns operations into kernels: tables of its file, joined with its libraries'."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from perfmodel.derived import derived
from perfmodel.framework.mixed_precision import MixedPrecisionTable
from perfmodel.framework.narrow import RECIPES, NarrowRecipe, base_dtype
from perfmodel.hardware import source as spec
from perfmodel.hardware.library import LibrarySupport
from perfmodel.records import SINGLE_BYTES, Role
from perfmodel.units import MIB

FUSED: Final = "recurrence_fused"
"""A library's layer: hoisted input product, all gates of a step in one product and one element-wise kernel."""

PERSISTENT: Final = "recurrence_persistent"
"""A library's layer in one launch, its weights in registers over all time steps."""


class PassRule(spec.SpecTable):
    """Reads and writes of a tensor in one pass, if they differ from the compulsory count.

    ``in_single``: elements are of single precision; narrower ones are converted before, and the result after.
    """

    reads: spec.NonNegativeNumber
    writes: spec.NonNegativeNumber
    launches: Annotated[int, Field(ge=0, strict=True)] = 1
    bandwidth_of: spec.Identifier | None = None
    in_single: bool = False

    def traffic(self, tensor_elements: Any, *, element_bytes: int) -> tuple[Any, Any, int]:
        """Bytes read and written, and launches, for a number of elements of the main tensor."""
        if not self.in_single or element_bytes >= SINGLE_BYTES:
            size = element_bytes * tensor_elements
            return self.reads * size, self.writes * size, self.launches
        conversions = (SINGLE_BYTES + element_bytes) * tensor_elements  # to single precision, and back
        size = SINGLE_BYTES * tensor_elements
        return self.reads * size + conversions, self.writes * size + conversions, self.launches + 2


class RecurrentTable(spec.SpecTable):
    """Rules by which a framework runs a recurrent layer; with ``library`` it calls a library's own if there is one."""

    gate_products: Literal["grouped", "per_gate"]
    input_product: Literal["per_step", "concatenated", "hoisted"]
    weight_gradient: Literal["per_step", "hoisted"]
    forward_pointwise_kernels: spec.Count
    backward_pointwise_kernels: spec.Count
    library: bool = False
    persistent_units: spec.Count | None = None


class ShardPass(spec.SpecTable):
    """A pass over a unit's parameters or gradients, or over a device's share of them, from one type to another.

    There are three types: of the parameters that a device holds, of gathered parameters and computed gradients, and of
    summed gradients. A ``cast`` to a tensor's own type costs nothing.
    """

    reads: Literal["held", "gathered", "exchanged"]
    writes: Literal["held", "gathered", "exchanged"]
    cast: bool = False

    def bytes_per_parameter(self, sizes: Mapping[str, int]) -> int:
        """Bytes read and written for each parameter, by the size of an element of each type [B]. [B]"""
        read, written = sizes[self.reads], sizes[self.writes]
        return 0 if self.cast and read == written else read + written


class ShardedPassesTable(spec.SpecTable):
    """Passes of software that gathers shared parameters and scatters gradients, unit by unit.

    ``parameters`` and ``gradients`` run where layers compute, over all of a unit: after its parameters have arrived,
    and before its gradients leave. The others are on other streams: before a gather over a device's share
    (``parameter_shares``), before a reduce-scatter over all (``messages``), after it over a share
    (``message_shares``). Each of these passes occupies the whole device, so that computing stands still.
    """

    parameters: tuple[ShardPass, ...] = ()
    parameter_shares: tuple[ShardPass, ...] = ()
    gradients: tuple[ShardPass, ...] = ()
    messages: tuple[ShardPass, ...] = ()
    message_shares: tuple[ShardPass, ...] = ()

    def bytes_per_parameter(self, kind: str, sizes: Mapping[str, int]) -> int:
        """Bytes that the passes of a kind read and write for each parameter they pass over. [B]"""
        return sum(shard_pass.bytes_per_parameter(sizes) for shard_pass in getattr(self, kind))


class NarrowTable(spec.SpecTable):
    """How a framework casts the operands of linear layers to eight bits or four.

    ``scales`` are found in a pass over a tensor before it is cast (``current``), or known from the steps before
    (``delayed``). ``weights`` are cast for ``each`` product, or ``kept`` cast from one update to the next. Tensor
    groups gather the operands of products ``wide``, or ``narrow`` if they have one scale: cast before they are sent.
    """

    scales: Literal["current", "delayed"] = "current"
    weights: Literal["each", "kept"] = "each"
    gathers: Literal["wide", "narrow"] = "wide"

    def recipe(self, name: str) -> NarrowRecipe:
        """Return the recipe of a data type as the framework follows it."""
        recipe = RECIPES[name]
        is_delayed = self.scales == "delayed" and not recipe.block_scaled
        return replace(recipe, delayed_scales=is_delayed, keeps_weights=self.weights == "kept")

    def gathered_bytes(self, dtype: str) -> int | None:
        """Size of an element of an operand that a tensor group casts before it gathers; None if it casts after. [B]"""
        recipe = RECIPES.get(dtype)
        if self.gathers == "wide" or recipe is None or recipe.block_scaled:
            return None
        return round(recipe.operand_bytes)


class LoweringTable(spec.SpecTable):
    """Rules by which a framework lowers neutral operations on one kind of processor, as in its file.

    With ``outputs_again`` each layer with parameters computes its output again before its backward phase. Key heads
    that several query heads share are read as they are, or ``repeated`` by passes before attention.
    ``gradient_accumulation`` adds up the gradients of micro-batches: false, in a pass for all but the first; true, in
    products that always add to buffers; ``apart``, in separate passes to cleared buffers; ``in_product``, in products
    that add to buffers of another type, in every micro-batch. With ``pads_products`` products may run on weights whose
    rows are filled up to whole loads of tensor cores.
    """

    convolution_algorithms: tuple[spec.Identifier, ...] | None = None
    workspace_limit_mib: spec.PositiveNumber | None = None
    bias: Literal["fused", "separate"]
    batched_contraction: Literal["batched", "loop"]
    gradient_accumulation: Literal[False, True, "apart", "in_product"]
    message_copies: Annotated[int, Field(ge=0, le=2, strict=True)] = 0
    sharded_passes: ShardedPassesTable = Field(default_factory=ShardedPassesTable)
    input_gradient_accumulation: bool = False
    convolution_transposes: bool
    padding_copies: bool = False
    image_layout: Literal["channels_first", "channels_last"] = "channels_first"
    pointwise_products: bool = False
    depthwise_kernel: bool = False
    key_heads: Literal["shared", "repeated"] = "shared"
    weight_layout: Literal["in_out", "out_in"]
    serial_rows: tuple[spec.Identifier, ...] = ()
    outputs_again: bool = False
    recurrent: RecurrentTable
    passes: dict[spec.Identifier, PassRule] = Field(default_factory=dict)
    mixed_precision: MixedPrecisionTable | None = None
    narrow: NarrowTable = Field(default_factory=NarrowTable)
    fuses: bool = False
    pads_products: bool = False
    packed_weights: tuple[Literal["int8", "int4", "2:4"], ...] = ()

    @property
    def workspace_limit_bytes(self) -> float:
        """Most scratch memory one convolution may take. [B]"""
        return float("inf") if self.workspace_limit_mib is None else self.workspace_limit_mib * MIB

    def mixed(self, dtype: str) -> MixedPrecisionTable | None:
        """Return the table of mixed precision if it holds for a data type, of a recipe for its base."""
        table = self.mixed_precision
        base = base_dtype(dtype)
        if table is None or base not in table.dtypes:
            return None
        return table.with_halves if base == "fp16" or self.fuses else table

    @derived
    def rules(self, support: LibrarySupport) -> "LoweringRules":
        """Return the table joined with the features of libraries."""
        recurrent = [name for name in support.algorithms if name in (FUSED, PERSISTENT)]
        convolutions = tuple(name for name in support.algorithms if name not in recurrent)
        from_elsewhere: dict[str, Any] = {
            "convolution_algorithms": self.convolution_algorithms or convolutions,
            "groups_together": support.groups_together,
            "grouped_channels": support.grouped_channels,
            "layout_passes": support.tensor_cores and (support.image_layout or self.image_layout) == "channels_first",
            "attention": support.attention,
            "sparse_products": support.sparse_products,
            "narrow_recipe": self.narrow.recipe(support.narrow) if support.narrow else None,
            "library_recurrence": tuple(recurrent) if self.recurrent.library else (),
        }
        return LoweringRules.model_construct(**(self.__dict__ | from_elsewhere))


class LoweringRules(LoweringTable):
    """A framework's rules on one kind of processor, joined with the features of its libraries there."""

    convolution_algorithms: tuple[str, ...]
    groups_together: bool = False
    layout_passes: bool = False
    grouped_channels: tuple[int, ...] | None = None
    attention: bool = False
    sparse_products: bool = False
    narrow_recipe: NarrowRecipe | None = None
    library_recurrence: tuple[str, ...] = ()

    def accumulates(self, role: Role) -> bool:
        """Return whether a product or convolution adds its result to a buffer, which it then reads."""
        accumulated = {
            Role.WEIGHT_GRADIENT: self.gradient_accumulation is True,
            Role.INPUT_GRADIENT: self.input_gradient_accumulation,
        }
        return accumulated.get(role, False)

    def clears(self, role: Role) -> bool:
        """Return whether a pass clears the buffer first; the optimizer clears those of weights."""
        return role is Role.INPUT_GRADIENT and self.accumulates(role)

    def product_efficiency(self, role: Role) -> str:
        """Return the name of the efficiency of a product with weights, by its role.

        >>> LoweringRules.model_construct(weight_layout="out_in").product_efficiency(Role.OUTPUT)
        'gemm_transposed'
        """
        reads_across = {"in_out": Role.INPUT_GRADIENT, "out_in": Role.OUTPUT}[self.weight_layout]
        return "gemm_transposed" if role is reads_across else "gemm"
