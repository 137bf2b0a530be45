"""Cost of a prediction in money and energy: which instances it rents, and their charge for its time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from perfmodel.cost.money import energy, hire_cost
from perfmodel.errors import ArgumentError, is_one_of
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.numeric import is_real
from perfmodel.prediction.arguments.checks import flag, from_zero_to, positive
from perfmodel.prediction.arguments.finite import finite_answer
from perfmodel.prediction.energy import StepEnergy, step_energy

if TYPE_CHECKING:
    from perfmodel.hardware.price import InstancePrice
    from perfmodel.hardware.system import System
    from perfmodel.prediction.device.target import Target
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.prediction import Prediction

MOST_OVERHEAD = 10.0
"""Largest power usage effectiveness accepted; a larger number is a typing error. [1]"""


class Billed:
    """Cost of a prediction: the methods of :class:`Prediction` that take a price or a power."""

    @finite_answer
    def cost_usd(
        self,
        price: str | Path | InstancePrice | float,
        *,
        dataset_size: int | None = None,
        spot: bool = False,
    ) -> float:
        """Cost of one step, or of one epoch.

        Parameters
        ----------
        price : str, Path, InstancePrice or float
            Price of an instance, as :func:`perfmodel.load_price` takes it; every instance with a working device is paid
            in full, without long-term discounts. A number is the price of one GPU, or of one machine where machines
            compute on their cores; there it pays for the machines of a server too. [USD/h]
        dataset_size : int
            Samples of an epoch, to return its cost; None for the cost of a step. [samples]
        spot : bool
            Whether to pay for spot instances; lost work after an interruption counts only in :func:`perfmodel.plan`.
            [-]

        Returns
        -------
        float
            Cost. [USD]

        Raises
        ------
        ArgumentError
            If the instance has other devices or processors, fewer than work on one host, or no spot price.
        UnknownNameError
            If no price has that name; suggests the nearest.
        """
        p = cast("Prediction", self)
        duration_s = p.step_s if dataset_size is None else p.epoch_s(dataset_size=dataset_size)
        usd_per_hour, count = hire_of(p, price, spot=flag("spot", spot))
        return float(hire_cost(duration_s=duration_s, usd_per_hour=usd_per_hour, instance_count=count))

    @finite_answer
    def energy_j(
        self,
        *,
        dataset_size: int | None = None,
        part: str | None = None,
        utilisation: float | None = None,
        idle_w: float | None = None,
        power_usage_effectiveness: float = 1.0,
    ) -> float:
        """Energy of the devices in one step or epoch; without GPUs, of the sockets of a server's own machines too.

        It follows from the energy of arithmetic and memory traffic if the device's file states them. For other devices,
        and with a utilisation, it follows from the thermal design power: an upper bound at full utilisation.

        Parameters
        ----------
        dataset_size : int
            Samples of an epoch, to return its energy; None for the energy of a step. [samples]
        part : str, optional
            Return only the part ``"idle"``, ``"arithmetic"`` or ``"memory"``; the parts sum to the whole. [-]
        utilisation : float, optional
            Share of the time in which a device draws its thermal design power; otherwise it is at rest. [1]
        idle_w : float
            Power of a device at rest; required with a utilisation below 1 if its file states none. [W]
        power_usage_effectiveness : float
            Ratio of the building's power to that of its machines. [1]

        Returns
        -------
        float
            Energy of all devices, without their hosts. [J]

        Raises
        ------
        ArgumentError
            If a number is not allowed, or a power is unknown.
        """
        p = cast("Prediction", self)
        duration_s = p.step_s if dataset_size is None else p.epoch_s(dataset_size=dataset_size)
        by_part = step_energy(p) if utilisation is None and idle_w is None else None
        if part is not None and (by_part is None or not is_one_of(part, by_part._fields)):
            allowed = f"one of {', '.join(StepEnergy._fields)}, for a GPU with a [power] table, without utilisation="
            raise ArgumentError("part", part, allowed)
        if by_part is not None:
            of_device = by_part.total if part is None else float(getattr(by_part, part))
            overhead = effectiveness_of(power_usage_effectiveness)
            return overhead * processors_of(p) * of_device * duration_s / float(p.step_s)
        share = 1.0 if utilisation is None else from_zero_to(1, "utilisation", utilisation)
        busy_w, rest_w = power_of(p, idle_w=idle_w, utilisation=share)
        target, overhead = p.basis.prepared.target, effectiveness_of(power_usage_effectiveness)
        servers = [(host.processor.tdp_w, host.socket_count) for host in server_machines(target, p.agreement)]
        return sum(
            float(
                energy(
                    duration_s=duration_s,
                    busy_w=watts,
                    idle_w=min(rest_w, watts),
                    utilisation=share,
                    device_count=count,
                    power_usage_effectiveness=overhead,
                )
            )
            for watts, count in [(busy_w, processors_of(p)), *servers]
        )


def effectiveness_of(effectiveness: float) -> float:
    """Check a power usage effectiveness."""
    if not is_real(effectiveness) or not 1 <= effectiveness <= MOST_OVERHEAD:
        raise ArgumentError("power_usage_effectiveness", effectiveness, f"a number from 1 to {MOST_OVERHEAD:g}")
    return float(effectiveness)


def processors_of(p: Prediction) -> int:
    """Count the devices that work: GPUs, or CPU sockets."""
    return processor_count(p.basis.prepared.target)


def processor_count(target: Target) -> int:
    """Count the devices of a target: GPUs, or CPU sockets."""
    if target.system_part is not None:
        return target.system_part.worker_count * target.socket_count
    return target.socket_count


def server_machines(target: Target, agreement: Agreement | None) -> list[System]:
    """Return the machines that hold only shards of a server, where workers compute on cores."""
    part, server = target.system_part, getattr(agreement, "server", None)
    if part is None or server is None or not part.computes_on_hosts:
        return []
    return [part.system.hosts[name] for name in dict.fromkeys(server.machines) if name not in part.worker_nodes]


def server_power_w(target: Target, agreement: Agreement | None) -> float:
    """Thermal design power of the ``server_machines``. [W]"""
    return sum(host.processor.tdp_w * host.socket_count for host in server_machines(target, agreement))


def host_count_of(p: Prediction) -> int:
    """Count the machines in which a device works, and the ``server_machines``."""
    return _host_count(p.basis.prepared.target, p.agreement)


def _host_count(target: Target, agreement: Agreement | None) -> int:
    part = target.system_part
    return 1 if part is None else len(part.hosts) + len(server_machines(target, agreement))


def paid_count(target: Target, agreement: Agreement | None) -> int:
    """Count what a price per hour pays for: GPUs, or else machines with the ``server_machines``."""
    part = target.system_part
    if part is not None and not part.computes_on_hosts:
        return part.worker_count
    return _host_count(target, agreement)


def rate_text(p: Prediction, usd_per_hour: float) -> str:
    """Write a price per hour and what it pays for."""
    target = p.basis.prepared.target
    is_machine = getattr(target, "system", None) is not None
    if target.system_part is not None:
        is_machine = target.system_part.computes_on_hosts
    count = paid_count(target, p.agreement)
    paid = f"; {count} machines are paid for" if is_machine and count > 1 else ""
    return f"{usd_per_hour:g} USD/h for each {'machine' if is_machine else 'device'}{paid}"


def mean_power_of(p: Prediction) -> float | None:
    """Mean power for each device over a step; None for a measured machine, whose file states none. [W]"""
    if getattr(p.basis.prepared.target.processor_spec, "tdp_w", None) is None:
        return None
    return p.energy_j() / (processors_of(p) * float(p.step_s))


def power_of(p: Prediction, *, idle_w: float | None, utilisation: float) -> tuple[float, float]:
    """Power of one device at work and at rest. [W, W]"""
    device = p.basis.prepared.target.processor_spec
    busy_w = getattr(device, "tdp_w", None)
    if busy_w is None:
        raise ArgumentError("device", device.name, "one whose file states its power; a measured machine has none")
    rest_w = getattr(device, "idle_w", None) if idle_w is None else from_zero_to(busy_w, "idle_w", idle_w)
    if rest_w is None and utilisation < 1:
        raise ArgumentError(
            "idle_w", None, f"a number of watts with utilisation={utilisation:g}, because no file states it"
        )
    if rest_w is not None and rest_w > busy_w:  # by its own file
        raise ArgumentError("idle_w", rest_w, f"at most the {busy_w:g} W of {device.name} at work")
    return busy_w, 0.0 if rest_w is None else rest_w


def hire_of(p: Prediction, price: str | Path | InstancePrice | float, *, spot: bool) -> tuple[float, int]:
    """Hourly price of one instance, and the number of instances rented. [USD/h, 1]"""
    from perfmodel.hardware.catalogue import load_instance_price

    if is_real(price):
        if spot:
            raise ArgumentError("spot", spot, "False if price is a number")
        return positive("price", price), paid_count(p.basis.prepared.target, p.agreement)
    known: InstancePrice = load_instance_price(price)  # type: ignore[arg-type]
    count = instances_of(p, known)
    if not spot:
        return known.usd_per_hour, count
    if known.spot_usd_per_hour is None:
        raise ArgumentError("spot", spot, f"False, because {known.stem} states no spot price of {known.instance}")
    return known.spot_usd_per_hour, count


def check_processors(target: Target, price: InstancePrice) -> None:
    """Raise if the file of an instance names another processor than the target's, or too few threads.

    Virtual processors are threads of cores. A file that states neither virtual processors nor a system fits any CPU.
    """
    from perfmodel.hardware.catalogue import load_system

    if target.processor != "cpu" or price.accelerators is not None:
        return
    named, spec = price.stem or price.name, target.processor_spec
    system = None if price.system is None else load_system(price.system)
    threads = _threads_of(target)
    most = price.processor_count if system is None else system.thread_count
    if most is not None and threads > most:
        allowed = f"that of an instance with at least {threads} virtual processors, the threads of {target.name}; "
        raise ArgumentError("price", named, f"{allowed}{price.instance} has {most}")
    if system is not None and isinstance(spec, Cpu) and spec.stem != system.processor.stem:
        allowed = f"that of an instance with {spec.stem}; the system of {price.instance} has {system.processor.stem}"
        raise ArgumentError("price", named, allowed)


def _threads_of(target: Target) -> int:
    """Count the threads of all cores of CPUs; for a measured machine, those found by its calibration. [1]"""
    spec = target.processor_spec
    if isinstance(spec, MeasuredMachine):
        return max(spec.machine.core_count, spec.machine.threads or 0)
    assert isinstance(spec, Cpu)
    return target.socket_count * spec.thread_count


def instances_of(p: Prediction, price: InstancePrice) -> int:
    """Count the instances rented: one for each host with a working device, and for each server among CPU machines."""
    target = p.basis.prepared.target
    owned = price.accelerators
    named = price.stem or price.name
    if target.processor == "cpu" and target.lowered_for != "measured" and owned is not None:
        raise ArgumentError(
            "price", named, f"that of an instance without GPUs, because the prediction is for {target.name}"
        )
    check_processors(target, price)
    if target.processor != "gpu" or (target.measured is not None and target.system_part is None):
        return host_count_of(p)
    card = target.processor_spec.card
    if owned is None or (card is not None and Path(owned.device).stem != card.stem):
        has, wanted = "no device" if owned is None else owned.device, "GPUs" if card is None else card.stem
        raise ArgumentError("price", named, f"that of an instance with {wanted}; {price.instance} has {has}")
    on_hosts = [1] if target.system_part is None else [host.worker_count for host in target.system_part.hosts]
    if max(on_hosts) > owned.count:
        allowed = (
            f"one with at least {max(on_hosts)} devices, which work on one host; {price.instance} has {owned.count}"
        )
        raise ArgumentError("price", named, allowed)
    return len(on_hosts)
