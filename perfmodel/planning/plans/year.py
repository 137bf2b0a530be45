"""Cost of instances that run all year."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfmodel.cost.money import hire_cost, storage_cost, sustained_use_hours
from perfmodel.hardware.catalogue import load_instance_price
from perfmodel.planning.plans.bill import storage_terms
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.prediction.arguments.verbs import gated

if TYPE_CHECKING:
    from perfmodel.hardware.price import InstancePrice, StoragePrice

HOURS: Final = 8760
"""A year of 365 days. [h]"""


@gated
def cost_per_year(
    price: str | Path | InstancePrice,
    *,
    instances: int = 1,
    storage_price: str | Path | StoragePrice | None = None,
    storage_gb: float | None = None,
) -> float:
    """Return the cost of instances that run all year.

    Parameters
    ----------
    price : str, Path or InstancePrice
        Price of one instance. [USD/h]
    instances : int
        Instances, a server's too. [1]
    storage_price : str, Path, StoragePrice or None
        Price of storage in each instance; None for none. [USD/(GB month)]
    storage_gb : float or None
        Storage in each instance. [GB]

    Returns
    -------
    float
        Cost, with the discount of sustained use where the price has one. [USD]

    Raises
    ------
    ArgumentError
        If a number is not allowed, or a storage price is given without a size or the other way round.

    Notes
    -----
    Valid for: whole months at one price. Ignores: traffic, taxes, changes of prices.

    Examples
    --------
    >>> disk = {"storage_price": "gce_local_ssd_2015", "storage_gb": 375}
    >>> round(cost_per_year("gce_n1_highmem_16_2016", instances=4, **disk))
    27157
    """
    count, known = whole_number("instances", instances), load_instance_price(price)
    rule = known.sustained_use
    hours = HOURS if rule is None else sustained_use_hours(used_hours=HOURS, **rule.model_dump())
    usd = hire_cost(duration_s=3600 * hours, usd_per_hour=known.usd_per_hour)
    stored = storage_terms(storage_price=storage_price, storage_gb=storage_gb)
    if stored:
        usd += storage_cost(
            size_bytes=stored["storage_bytes"],
            duration_s=3600 * HOURS,
            usd_per_gb_month=stored["storage_usd_per_gb_month"],
            hours_per_month=HOURS / 12,
        )
    return float(count * usd)
