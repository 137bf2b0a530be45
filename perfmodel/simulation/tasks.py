"""What is simulated: tasks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from perfmodel.errors import TaskError

_INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Task:
    """Something that takes time: work on a resource, a transfer over channels, or both one after the other.

    It starts once all tasks it comes after have ended and a unit of its resource is free, and holds the unit until it
    ends. First ``duration_s`` and ``latency_s`` pass, then its bytes flow, at the rate the channels grant.

    Parameters
    ----------
    name : str
        Name, unique among the tasks of a simulation. [-]
    resource : str or None
        What it holds one unit of, e.g. a device, a pool of cores, a copy engine; None for nothing. [-]
    duration_s : float
        How long it works, however much else is going on. [s]
    after : tuple of str
        Tasks that must have ended before. [-]
    flow_bytes : float
        Bytes it sends over each of its channels. [B]
    channels : tuple of str
        Channels that the bytes pass, each as often as it is named. [-]
    latency_s : float
        Time from its start until its first byte flows. [s]
    kind : str
        What it is, for colours and totals, e.g. ``read``, ``compute``. [-]

    Raises
    ------
    TaskError
        If a number is negative or not finite, or bytes have no channel.

    Examples
    --------
    >>> Task("copy", flow_bytes=1e6, channels=("root0 to gpu0",), latency_s=1e-5).kind
    'task'
    """

    name: str
    _: KW_ONLY
    resource: str | None = None
    duration_s: float = 0.0
    after: tuple[str, ...] = ()
    flow_bytes: float = 0.0
    channels: tuple[str, ...] = ()
    latency_s: float = 0.0
    kind: str = "task"

    def __post_init__(self) -> None:
        if not (
            0 <= self.duration_s < _INFINITY and 0 <= self.latency_s < _INFINITY and 0 <= self.flow_bytes < _INFINITY
        ):
            for field in ("duration_s", "latency_s", "flow_bytes"):
                value = getattr(self, field)
                if not 0 <= value < _INFINITY:
                    raise TaskError(self.name, f"{field}={value!r} is not allowed: finite and not below 0")
        if self.flow_bytes and not self.channels:
            raise TaskError(self.name, f"flow_bytes={self.flow_bytes!r} need at least one channel to flow over")
        for field in ("after", "channels"):
            if isinstance(getattr(self, field), str):
                given = getattr(self, field)
                raise TaskError(self.name, f"{field}={given!r} is not allowed: a tuple of names, e.g. ({given!r},)")
