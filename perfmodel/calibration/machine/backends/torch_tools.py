"""Tensors for the kernels of torch: normal random content, made quickly, never zeros or subnormal numbers."""

from __future__ import annotations

import math
from typing import Any, Final

POOL: Final = 1 << 22
"""Random numbers that are drawn; larger tensors repeat them [1]."""


class TorchTools:
    """Makes operands on a device in a data type.

    Parameters
    ----------
    torch : module
        The library. [-]
    device : str
        ``cpu`` or ``cuda:N``. [-]
    dtype : str
        Name of a data type of torch, e.g. ``float32``. [-]
    seed : int
        Of the random numbers. [1]
    pool : int
        Random numbers that are drawn. [1]
    """

    def __init__(self, torch: Any, *, device: str, dtype: str, seed: int, pool: int = POOL) -> None:
        self.torch = torch
        self.device = torch.device(device)
        self.dtype = getattr(torch, dtype)
        self._seed = seed
        self._generator = torch.Generator(device=self.device).manual_seed(seed)
        self._pool = torch.randn(pool, generator=self._generator, device=self.device).to(self.dtype)
        self._shift = 0

    def restart(self) -> None:
        """Begin again, so that the same operands come as the first time."""
        self._generator.manual_seed(self._seed)
        self.torch.manual_seed(self._seed)
        self._shift = 0

    @property
    def on_gpu(self) -> bool:
        """Whether kernels run on a GPU."""
        return bool(self.device.type == "cuda")

    def normal(self, *shape: int, grad: bool = False) -> Any:
        """Return a tensor of random normal numbers [1] in its own memory, that wants a gradient or not."""
        count = math.prod(shape)
        self._shift = (self._shift + 9973) % (len(self._pool) // 2)
        tensor = self.torch.empty(count, dtype=self.dtype, device=self.device)
        start = self._shift
        for first in range(0, count, len(self._pool) - start):
            piece = tensor[first : first + len(self._pool) - start]
            piece.copy_(self._pool[start : start + piece.numel()])
        return tensor.view(shape).requires_grad_(grad)

    def integers(self, high: int, *shape: int) -> Any:
        """Return a tensor of random whole numbers below ``high`` [1]."""
        return self.torch.randint(high, shape, generator=self._generator, device=self.device)

    def full(self, value: float, *shape: int) -> Any:
        """Return a tensor of one value [1]."""
        return self.torch.full(shape, value, dtype=self.dtype, device=self.device)
