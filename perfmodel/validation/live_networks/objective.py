"""A module with its loss, its optimizer and the tensors of a step, as a user would write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perfmodel.validation.live_networks.catalogue import LiveNetwork

OPTIMIZERS: Final[Mapping[str, Callable[..., torch.optim.Optimizer]]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-4),
}
"""Optimizer by perfmodel's name for it; at rates at which the loss stays finite on random data."""


class WithLoss(nn.Module):
    """A network and the cross entropy of its scores: what training runs forward."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, target: Tensor, *inputs: Tensor) -> dict[str, Any]:
        """Return the loss under the name by which an import knows it."""
        scores = self.network(*inputs)
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, -2), target.flatten())}


def tensors(network: LiveNetwork, *, batch_size: int, device: str = "cpu") -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the targets and inputs of a step.

    Parameters
    ----------
    network : LiveNetwork
        Which network. [-]
    batch_size : int
        Samples. [samples]
    device : str
        Where they lie, as torch names it. [-]

    Returns
    -------
    tuple of Tensor and tuple of Tensor
        Targets, and inputs. [-]
    """
    inputs = tuple(each.drawn(batch_size).to(device) for each in network.inputs)
    return network.target.drawn(batch_size).to(device), inputs
