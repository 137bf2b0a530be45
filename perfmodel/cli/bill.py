"""What ``perfmodel predict --price`` prints: what a step, a million samples and an epoch cost, and their energy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.errors import ArgumentError
from perfmodel.units import MEGA

if TYPE_CHECKING:
    from perfmodel.hardware.price import InstancePrice
    from perfmodel.prediction.prediction import Prediction


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What a prediction costs.

    Parameters
    ----------
    price : str
        Of which instance, with region and date; or of one device. [-]
    usd_per_step, usd_per_million_samples : float
        Cost of a step, and of a million samples. [USD]
    usd_per_epoch : float or None
        Cost of an epoch; None without a data set. [USD]
    step_j : float or None
        Energy of a step at thermal design power; None where no file states it. [J]
    """

    price: str
    usd_per_step: float
    usd_per_million_samples: float
    usd_per_epoch: float | None
    step_j: float | None

    def to_text(self) -> str:
        """Return it in a few lines."""
        epoch = "" if self.usd_per_epoch is None else f", {self.usd_per_epoch:,.2f} an epoch"
        lines = [
            f"price   {self.price}",
            f"cost    {self.usd_per_step:.3g} USD a step, {self.usd_per_million_samples:,.3g} a million samples{epoch}",
        ]
        if self.step_j is not None:
            lines.append(f"energy  at most {self.step_j:,.4g} J a step: devices at thermal design power, without hosts")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def bill_of(p: Prediction, price: str | float) -> Bill:
    """Return what a prediction costs at a price.

    Parameters
    ----------
    p : Prediction
        A step. [-]
    price : str or float
        Price, instance, or USD an hour of one device. [USD/h]

    Returns
    -------
    Bill
        Costs and energy. [-]

    Raises
    ------
    ArgumentError
        If the price is of other devices.
    UnknownNameError
        If there is no such price; names the nearest.
    """
    given: InstancePrice | float
    if isinstance(price, str):
        from perfmodel.hardware.price_catalogue import load_instance_price

        given = load_instance_price(price)
        told = given.describe()
    else:
        given, told = price, f"{price:g} USD/h for each device"
    usd_per_step = p.cost_usd(given)
    path = p.data_path
    dataset = None if path is None else path.dataset
    try:
        step_j = p.energy_j()
    except ArgumentError:  # a measured machine states no power
        step_j = None
    return Bill(
        price=told,
        usd_per_step=usd_per_step,
        usd_per_million_samples=MEGA * usd_per_step / (p.samples_per_s * p.step_s),
        usd_per_epoch=None if dataset is None else p.cost_usd(given, dataset_size=dataset.example_count),
        step_j=step_j,
    )
