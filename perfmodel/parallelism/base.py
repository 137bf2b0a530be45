"""The interface of parallelism: the graphs that devices run, and what these exchange in each phase."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

import numpy as np

from perfmodel.cost.pipeline_order import Orders, orders_of
from perfmodel.derived import derived, kept
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.graph.execution import Recompute
from perfmodel.graph.repeats import shortened_for
from perfmodel.numeric import divisors
from perfmodel.records import Phase, Role
from perfmodel.symbolic import Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

ExchangeKind = Literal["all_reduce", "all_gather", "reduce_scatter", "send", "all_to_all", "pass_on"]
"""``pass_on``: each device passes on what it received, until every device has had everything, or all is summed."""
Group = Literal["data", "tensor", "pipeline", "context"]
CONTEXT_METHODS: Final = ("ring", "all_to_all", "gather")
"""Ways in which devices that share sequences attend to each other's positions."""

STAGE_CUTS: Final = ("balanced", "even_blocks", "even_modules", "counted_ends")
"""Ways to cut a network into stages: of equal times, or of equal numbers of blocks, of modules (blocks, and layers with
parameters outside them), or of blocks and ends."""


class TensorHabits(NamedTuple):
    """Ways in which software departs from Megatron-LM's tensor and context groups.

    It gathers the scores of all classes on every device, or adds up the gradient of the tensor that a gate and its
    units read once for each. It keeps gathered inputs for their weight gradients. It cuts products into parts that run
    beside those of their exchange, but for sums of input gradients if they run beside weight gradients. It gathers
    operands of the products of blocks in elements of a size of their own. Before context groups pass keys and values
    on, it copies them for all heads of queries.
    """

    gathers_scores: bool = False
    sums_gates_apart: bool = False
    keeps_gathered: bool = False
    cuts_products: bool = False
    sums_beside_weights: bool = False
    operand_bytes: int | None = None
    copies_keys: bool = False


MEGATRON: Final = TensorHabits()
"""Megatron-LM's own rules."""


class Beside(NamedTuple):
    """Products of some layers, by result, that neither wait for an exchange nor feed it."""

    role: Role
    layers: tuple[str, ...]


MOST_PARTS_SHOWN: Final = 4096
"""Largest divisor of a batch that an error looks for. [1]"""

ALL_SHARED: Final = 3
"""``shard_stage`` (of ZeRO) at which workers share parameters too, and so gather them in every phase. [1]"""
GRADIENTS_SHARED: Final = 2
"""``shard_stage`` at which workers share gradients; software differs in where parameters are meanwhile. [1]"""

AFTER_UPDATE: Final = "after_update"
"""Gathers of stage 2 that leave every worker with whole parameters from step to step; others gather shares. [-]"""
AFTER_SUMS: Final = "forward_after_sums"
"""Gathers of stage 2 before a forward turn, unless gradients have not been added up since the last. [-]"""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange of a device with others in a step.

    ``beside`` are products that software may run meanwhile, if it starts the exchange without waiting for its end.
    """

    kind: ExchangeKind
    group: Group
    phase: Phase
    after_layer: str
    bytes_per_sample: int = 0
    fixed_bytes: int = 0
    beside: Beside | None = None

    def size_bytes(self, batch_size: Quantity) -> Quantity:
        """Bytes of the tensor at a batch size [samples]. [B]"""
        return self.fixed_bytes + self.bytes_per_sample * batch_size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class StageGraph:
    """Consecutive layers on one device, or on one group that shares them."""

    graph: LayerGraph
    device: int = 0
    input_gradient: bool = False
    exchanges: tuple[Exchange, ...] = ()
    batch_factor: int = 1
    replicated: Mapping[str, int] = field(default_factory=dict)
    copied: Mapping[str, int] = field(default_factory=dict)
    padding: int = 0
    replicated_layers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A network placed on devices."""

    parallelism: str
    layout: Layout
    stages: tuple[StageGraph, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Numbers of devices by role."""

    workers: int = 1
    stages: int = 1
    tensor_size: int = 1
    sequence_parallel: bool = False
    micro_batches: int = 1
    schedule: str = "1f1b"
    interleave: int = 1
    shard_stage: int = 0
    accumulation_steps: int = 1
    shard_group: int | None = None
    prefetch_limit: int = 1
    no_sync: bool = False
    gradient_dtype: str | None = None
    context_size: int = 1
    context_method: str = "ring"
    stage_cut: str = "balanced"
    stage_2_gathers: str = AFTER_UPDATE
    """When workers gather with ``shard_stage=2``, a habit of the framework. [-]"""

    def __post_init__(self) -> None:
        for name in (
            "workers",
            "stages",
            "tensor_size",
            "micro_batches",
            "interleave",
            "accumulation_steps",
            "context_size",
        ):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ArgumentError(name, size, "a whole number >= 1")
        if isinstance(self.shard_stage, bool) or self.shard_stage not in (0, 1, 2, 3):
            raise ArgumentError("shard_stage", self.shard_stage, "0, 1, 2 or 3")
        if not isinstance(self.sequence_parallel, bool):
            raise ArgumentError("sequence_parallel", self.sequence_parallel, "True or False")
        group = self.stages * self.tensor_size
        if self.workers % group:
            allowed = f"a multiple of stages x tensor_size = {self.stages} x {self.tensor_size} = {group}"
            raise ArgumentError("workers", self.workers, allowed)
        if self.data_size % self.context_size:
            raise ArgumentError("context_size", self.context_size, f"a divisor of the {self.data_size} copies")
        if self.shard_group is not None and self.data_size % self.shard_group:
            allowed = f"a divisor of the {self.data_size} workers that share"
            raise ArgumentError("shard_group", self.shard_group, allowed)

    @property
    def data_size(self) -> int:
        """Copies of the network, whose gradients are added up; of a context group, each device has one. [1]"""
        return self.workers // (self.stages * self.tensor_size)

    @property
    def batch_count(self) -> int:
        """Mini-batches at a time: copies of the network, by groups that share sequences. [1]"""
        return self.data_size // self.context_size

    @property
    def sharing_size(self) -> int:
        """Workers among which sharded state is divided; others hold copies. [1]"""
        return self.data_size if self.shard_group is None else self.shard_group

    @property
    def update_share(self) -> float:
        """Part of the update that a device does; those that share the optimizer's state do the rest. [1]"""
        return 1 / self.sharing_size if self.shard_stage else 1.0

    @property
    def reduces_each(self) -> bool:
        """Whether workers add up the gradients of every micro-batch, so that none keeps all of them whole."""
        return self.scatters and not self.no_sync

    @property
    def scatters(self) -> bool:
        """Whether workers keep shares of gradients, and gather parameters in the type of the products. [-]"""
        return self.shard_stage > 1

    @property
    def holds_shares(self) -> bool:
        """Whether a device holds its share of parameters only, but for those which it has gathered. [-]"""
        keeps_whole = self.stage_2_gathers == AFTER_UPDATE
        return self.shard_stage == ALL_SHARED or (self.shard_stage == GRADIENTS_SHARED and not keeps_whole)

    @property
    def gathered_in(self) -> tuple[Phase, ...]:
        """Phases in which workers gather parameters that they share, or whose optimizer state they share. [-]"""
        if self.shard_stage == ALL_SHARED:
            return Phase.FORWARD, Phase.BACKWARD
        if self.holds_shares:
            return (Phase.FORWARD,)
        return (Phase.UPDATE,) if self.shard_stage else ()

    def orders(self, chunk_count: int, *, trains: bool) -> Orders:
        """Return the turns in which the devices of a worker process micro-batches of so many chunks [1]."""
        return orders_of(
            self.schedule,
            stage_count=self.stages,
            micro_batch_count=self.micro_batches,
            interleave=chunk_count // self.stages,
            trains=trains,
        )

    @property
    def gathers_ahead(self) -> int | None:
        """Units gathered ahead of the one that computes; None for any number, where they are not freed. [1]"""
        return self.prefetch_limit if self.shard_stage == ALL_SHARED else None

    @property
    def gathers_once(self) -> bool:
        """Whether parameters that the first micro-batch gathers stay for all others, as in any pipeline [1]. [-]

        References
        ----------
        .. [1] PyTorch, torch/distributed/pipelining/stage.py, backward_maybe_with_nosync (set_reshard_after_backward).
        """
        stays = self.stages > 1 or (self.no_sync and self.stage_2_gathers == AFTER_SUMS)
        return self.holds_shares and self.shard_stage < ALL_SHARED and stays

    @property
    def adding_share(self) -> float:
        """Part of a micro-batch's gradients that a device adds to those of the micro-batches before. [1]"""
        return 1 / self.sharing_size if self.reduces_each else 1.0

    @property
    def parts(self) -> int:
        """Micro-batches of a worker's mini-batch, over all passes. [1]"""
        return self.micro_batches * self.accumulation_steps

    @property
    def is_whole(self) -> bool:
        """Whether each worker is one device that runs the whole network and mini-batch at once."""
        return self.stages == self.tensor_size == self.interleave == self.parts == 1

    def micro_batch_size(self, batch_size: int) -> int:
        """Return the samples of a micro-batch. [samples]

        >>> Layout(workers=4, stages=4, micro_batches=8).micro_batch_size(64)
        8
        """
        if batch_size % self.parts:
            few = divisors(batch_size, most=min(batch_size, MOST_PARTS_SHOWN))
            shown = ", ".join(map(str, few[:12])) + (", ..." if len(few) > 12 or few[-1] < batch_size else "")
            several = [name for name in ("micro_batches", "accumulation_steps") if getattr(self, name) > 1]
            raise ArgumentError(" x ".join(several), self.parts, f"a divisor of the batch of {batch_size}: {shown}")
        return batch_size // self.parts


ONE_DEVICE: Final = Layout()
"""The whole network and mini-batch on one device."""

LayerSeconds = Mapping[str, Quantity]
"""Forward and backward phase of each layer, perhaps for several micro-batch sizes. [s]"""


@lru_cache(maxsize=64)
def whole_on_each(workers: int) -> Layout:
    """Return the layout of workers that each have the whole network."""
    return Layout(workers=workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A network to be placed on devices."""

    graph: LayerGraph
    layout: Layout
    element_bytes: int = 4
    gradient_bytes: int | None = None
    whole_bytes: int | None = None
    layer_s: LayerSeconds | None = None
    send_s: Callable[[int], Quantity] | None = None
    cuts: tuple[int, ...] = ()
    habits: TensorHabits = MEGATRON
    known: dict[Hashable, Any] | None = None
    """Results shared by requests with the same times of layers and transfers, while their graphs live. [-]"""


SIZES: Final = (
    "stages", "tensor_size", "sequence_parallel", "micro_batches", "interleave", "shard_stage", "accumulation_steps",
    "shard_group", "prefetch_limit", "no_sync", "gradient_dtype", "context_size", "context_method",
    "stage_cut",
)  # fmt: skip
"""Fields of Layout that only some parallelisms use."""


class Parallelism(ABC):
    """A way to use several devices for one network: one final class per kind."""

    name: ClassVar[str]
    uses: ClassVar[frozenset[str]]
    """Fields of Layout, besides the workers, that may differ from their defaults [-]."""

    @abstractmethod
    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Return the graphs that devices run, in order, with their exchanges; raise ArgumentError if impossible."""

    def cut(self, request: Request) -> NDArray[np.intp]:
        """First layer behind each cut, in rows where layers have several times; empty if no cut depends on them."""
        del request
        return np.empty(0, dtype=np.intp)

    def used_by(self, workers: int) -> frozenset[str]:
        """Fields of Layout that a job with this many workers may set."""
        del workers
        return self.uses

    def resolved(self, layout: Layout) -> Layout:
        """Complete a layout from its workers; raise ArgumentError for sizes that this parallelism does not use."""
        uses = self.used_by(layout.workers)
        for name in SIZES:
            size, plain = getattr(layout, name), getattr(ONE_DEVICE, name)
            if size != plain and name not in uses:
                allowed = f"{plain!r} with parallelism={self.name!r}; pass a parallelism that uses it"
                raise ArgumentError(name, size, allowed)
        return layout

    def place(self, request: Request) -> Placement:
        """Place the network on devices."""
        return Placement(parallelism=self.name, layout=request.layout, stages=self.stages(request))


def in_order(graph: LayerGraph, exchanges: Iterable[Exchange]) -> tuple[Exchange, ...]:
    """Sort exchanges in execution order: forward, backward from the last layer on, update."""
    places = {node.name: place for place, node in enumerate(graph.layers)}
    phases = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)

    def key(exchange: Exchange) -> tuple[int, int]:
        place = places[exchange.after_layer]
        return phases.index(exchange.phase), -place if exchange.phase is Phase.BACKWARD else place

    return tuple(sorted(exchanges, key=key))


def placement_of_phase(placement: Placement, phase: Phase) -> Placement:
    """Keep the exchanges of one phase."""
    if phase is Phase.STEP:
        return placement

    def happens(exchange: Exchange) -> bool:
        if exchange.phase is Phase.UPDATE:  # sums of tied tables' gradients are not part of an update's own work
            return Phase.BACKWARD in phase.parts and exchange.kind != "all_gather"
        return exchange.phase in phase.parts

    stages = tuple(replace(stage, exchanges=tuple(filter(happens, stage.exchanges))) for stage in placement.stages)
    return replace(placement, stages=stages)


MOST_MADE: Final = 1024
"""Stages that one function has made of others and a graph keeps; the oldest is dropped first. [1]"""


def kept_by_graph(function: Callable[..., StageGraph]) -> Callable[..., StageGraph]:
    """Return a function that makes a stage of another one, with a cache in their graph.

    Results hold the graph: in a cache elsewhere they would keep it for ever.
    """

    @wraps(function)
    def remembered(stage: StageGraph, *arguments: Any, **named: Any) -> StageGraph:
        def make() -> tuple[StageGraph, StageGraph]:
            return stage, function(stage, *arguments, **named)  # both stay, so that no other stage gets its id

        made: tuple[StageGraph, StageGraph] = kept(
            stage.graph.kept(function.__qualname__), (id(stage), *arguments, *named.items()), make, most=MOST_MADE
        )
        return made[1]

    return remembered


@kept_by_graph
def with_repeated_exchanges(stage: StageGraph, *, recompute: Recompute, alike: LayerGraph | None = None) -> StageGraph:
    """Repeat the exchanges within layers that are computed again; ``alike`` is a graph of the same structure.

    Like operations, exchanges are repeated only if back-propagation reads their result: the sum that gives the next
    checkpoint is not.
    """
    inside = [sent for sent in stage.exchanges if sent.group in ("tensor", "context") and sent.phase is Phase.FORWARD]
    alike = stage.graph if alike is None else alike
    places = _rerun_places(alike, len(alike.layers), stage.input_gradient, recompute) if inside else ()
    if not places:
        return stage
    recomputed = {node.name for place, node in enumerate(stage.graph.layers) if place in places}
    repeated: list[Exchange] = [
        replace(exchange, phase=Phase.BACKWARD) for exchange in inside if exchange.after_layer in recomputed
    ]
    return replace(stage, exchanges=(*stage.exchanges, *repeated))


@derived
def _rerun_places(graph: LayerGraph, layer_count: int, input_gradient: bool, recompute: Recompute) -> frozenset[int]:
    """Places of the layers that are computed again."""
    del layer_count  # a graph may have grown since then
    how: dict[str, Any] = {"input_gradient": input_gradient, "recompute": recompute}
    if (short := shortened_for(graph, **how)) is not None:
        places = _rerun_places(short.graph, len(short.graph.layers), **how)
        return frozenset(whole for place in places for whole in short.places_in_whole(place))
    names = {node.name for part in graph.segments(**how) for node in part.again}
    return frozenset(place for place, node in enumerate(graph.layers) if node.name in names)
