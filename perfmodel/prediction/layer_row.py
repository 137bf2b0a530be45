"""One operation of a predicted step, as a row of a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One operation of the step.

    Parameters
    ----------
    layer : str
        Name of the layer. [-]
    phase : str
        ``forward``, ``backward`` or ``update``. [-]
    role : str
        ``output``, ``input_gradient``, ``weight_gradient`` or ``update``. [-]
    kernel : str
        The alternative that was chosen. [-]
    launches : float
        Kernels launched. [1]
    flop_count : float
        Arithmetic that really runs (a Winograd kernel runs less than its convolution counts). [FLOP]
    bytes : float
        Device-memory traffic. [B]
    seconds : float
        Kernel time and launch gaps. [s]
    bound_by : str
        ``compute``, ``memory_bandwidth`` or ``launch``: the largest part of ``seconds``. [-]
    """

    layer: str
    phase: str
    role: str
    kernel: str
    launches: float
    flop_count: float
    bytes: float
    seconds: float
    bound_by: str
