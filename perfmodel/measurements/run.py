"""What a measured row really executed: builder, optimizer, phase, feed, each with its evidence. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

OPTIMIZERS = ("none", "sgd", "momentum", "nesterov", "adam")
"""Optimizer names a run may carry; ``none`` means that nothing updates the parameters."""

CLIPPINGS = ("none", "per_batch", "per_sample")
"""Gradient clipping: none, by the norm of all gradients together, or against a threshold for each sample."""

PHASES = ("step", "forward_backward", "forward")

CPU_DTYPES = ("fp32", "fp64")

GPU_DTYPES = ("fp32", "tf32", "fp16", "bf16")

ORIGINS = ("reader", "host_tensor", "interpreter")
"""Where a fed array lives: a reader's buffer, a framework's tensor in host memory, an array of the script."""

Option = str | int | float | bool


class Evidence(NamedTuple):
    """Why one fact of a run is believed: a script's line or arithmetic, never the residual of a model.

    Parameters
    ----------
    fact : str
        Name of the field of Run that the text supports. [-]
    text : str
        The script's path and line, or the arithmetic. [-]
    """

    fact: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedItem:
    """One array that every step takes from host memory.

    Parameters
    ----------
    name : str
        What it holds. [-]
    elements_per_sample : int
        Elements for each sample of the mini-batch. [1]
    element_bytes : int
        Size of one element as it is copied to the device. [B]
    origin : str
        One of ORIGINS. [-]
    prefetched : bool
        True where a background thread copies it while the previous step computes. [-]
    """

    name: str
    elements_per_sample: int
    element_bytes: int = 4
    origin: str = "host_tensor"
    prefetched: bool = False

    @property
    def bytes_per_sample(self) -> int:
        """Bytes copied for each sample [B]."""
        return self.elements_per_sample * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was executed for the rows of one framework, network and batch size; the same on every device.

    Parameters
    ----------
    table : str
        Key of the measurement table. [-]
    network, framework : str
        As in the table's rows. [-]
    batch_size : int
        Samples in a mini-batch. [samples]
    builder : str
        Name of the builder in the zoo. [-]
    builder_options : mapping of str to str, int, float or bool
        Keyword arguments of the builder; read-only by convention. [-]
    optimizer : str
        One of OPTIMIZERS. [-]
    optimizer_options : mapping of str to float
        For example ``momentum`` and ``weight_decay``. [1]
    clipping : str
        One of CLIPPINGS. [-]
    phase : str
        One of PHASES. [-]
    training_mode : bool
        True where a forward pass alone ran as in training: statistics of the mini-batch, dropout. [-]
    feed : tuple of FeedItem
        What each step takes from host memory; empty where the input stays on the device. [-]
    input_gradient : bool
        True where the gradient of the network's own input is computed too. [-]
    cpu_dtype : str
        One of CPU_DTYPES: the type of the script's tensors where it runs on CPUs. [-]
    gpu_dtype : str
        One of GPU_DTYPES: the type of its products on GPUs. [-]
    subnormal_products_per_sample : float
        SIMD multiplications (8 numbers) of one step with a subnormal operand or result, where nothing flushes subnormal
        numbers to zero. [1]
    averaged_steps : int
        Steps whose mean was printed, the first of the process among them, which also sets up libraries and memory; 0
        where the first steps were left out. [1]
    hosts : mapping of str to str
        The machine that each GPU of the table was in, where that is known; read-only by convention. [-]
    evidence : tuple of Evidence
        A (fact, text) for each fact that somebody has to believe. [-]

    Examples
    --------
    >>> run = Run(table="mine", network="fcn5", framework="generic", batch_size=64, builder="fcn5",
    ...           feed=(FeedItem(name="features", elements_per_sample=26752),))
    >>> run.phase, run.optimizer, run.feed_bytes
    ('step', 'sgd', 6848512)
    """

    table: str
    network: str
    framework: str
    batch_size: int
    builder: str
    builder_options: Mapping[str, Option] = field(default_factory=dict, hash=False)
    optimizer: str = "sgd"
    optimizer_options: Mapping[str, float] = field(default_factory=dict, hash=False)
    clipping: str = "none"
    phase: str = "step"
    training_mode: bool = False
    feed: tuple[FeedItem, ...] = ()
    input_gradient: bool = False
    cpu_dtype: str = "fp32"
    gpu_dtype: str = "fp32"
    subnormal_products_per_sample: float = 0.0
    averaged_steps: int = 0
    hosts: Mapping[str, str] = field(default_factory=dict, hash=False)
    evidence: tuple[Evidence, ...] = ()

    @property
    def key(self) -> tuple[str, str, int]:
        """Framework, network and batch size: what identifies the run in its table."""
        return self.framework, self.network, self.batch_size

    def dtype_on(self, processor: str) -> str:
        """Return the data type in which the script computed.

        Parameters
        ----------
        processor : str
            ``gpu`` or ``cpu``. [-]

        Returns
        -------
        str
            ``cpu_dtype`` or ``gpu_dtype``. [-]
        """
        return self.cpu_dtype if processor == "cpu" else self.gpu_dtype

    @property
    def feed_bytes_per_sample(self) -> int:
        """Bytes taken from host memory for each sample, prefetched or not [B]."""
        return sum(item.bytes_per_sample for item in self.feed)

    @property
    def feed_bytes(self) -> int:
        """Bytes taken from host memory in each step, prefetched or not [B]."""
        return self.batch_size * self.feed_bytes_per_sample
