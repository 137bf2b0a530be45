"""Job: the record of a prediction's arguments, each checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Never, NoReturn, Unpack

import numpy as np

from perfmodel.calls import check_call
from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, short_repr
from perfmodel.graph import LayerGraph
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.wiring import Wired
from perfmodel.layers.optimizers import load_optimizer
from perfmodel.measurements.table import Run
from perfmodel.parallelism.base import SIZES, Layout, Placement, whole_on_each
from perfmodel.prediction.arguments.checks import NO_SYNC, of_type, resolved_batch_size
from perfmodel.prediction.arguments.signatures import shows_arguments
from perfmodel.prediction.arguments.table import ARGUMENTS, DEFAULTS, asked_of, check_together, names_of
from perfmodel.prediction.arguments.typed import JobArguments, JobAttributes
from perfmodel.prediction.certainty.basis import timed_prediction
from perfmodel.prediction.device.targets import resolve_by_name, resolve_target
from perfmodel.prediction.job.data_path import resolve_data_path
from perfmodel.prediction.job.prepare import prepare_job
from perfmodel.prediction.job.subject import Subject, subject_of_graph, subject_of_run
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.fit_file import FitFile
    from perfmodel.layers.optimizers import Optimizer
    from perfmodel.prediction.device.target import Target
    from perfmodel.prediction.job.data_path import DataPath
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.prediction import Prediction

SUBJECTS: Final = (LayerGraph, Run)
"""What a job may run."""
_SPREAD = frozenset(names_of("spread"))
_OF_SEVERAL = frozenset(names_of("workers", "exchange", "spread"))
_OF_ONE_BY_NAME = DEFAULTS.keys() - _OF_SEVERAL - {"system", "threads"}
"""Arguments with which ``device`` still names a single device."""


class Job(JobAttributes):
    """Arguments of a prediction: a network or a Run, and every argument of :func:`perfmodel.predict`.

    Frozen: arguments are attributes, and ``replace`` makes another job. Invalid or contradictory arguments raise when
    the job is made; limits of hardware and files raise when it is predicted.

    Parameters
    ----------
    graph : LayerGraph or Run
        What runs. [-]
    **arguments : object
        As :func:`perfmodel.predict` takes them. [unit of each argument]

    Raises
    ------
    ArgumentError
        If a value is not allowed.
    UnknownNameError
        If an argument or a name is unknown; suggests the nearest.

    Examples
    --------
    >>> import perfmodel as pm
    >>> job = pm.Job(pm.zoo.alexnet(), batch_size=16, device="gtx_1080")
    >>> twice = job.replace(batch_size=32)
    >>> twice.batch_size, twice.workers, job.predict().step_s < twice.predict().step_s
    (32, 1, True)
    """

    graph: LayerGraph | Run
    asked: Mapping[str, Any]
    """Checked arguments that differ from their defaults. [-]"""

    @shows_arguments
    def __init__(self, graph: LayerGraph | Run, *unnamed: Never, **arguments: Unpack[JobArguments]) -> None:
        if unnamed:
            check_call(Job, (graph, *unnamed), arguments)
        if not isinstance(graph, SUBJECTS):
            allowed = "a LayerGraph (see pm.zoo) or a Run of a measurement table; job.replace(...) changes a job"
            raise ArgumentError("graph", graph, allowed)
        asked = asked_of(arguments)
        attributes = self.__dict__
        attributes["graph"] = graph
        attributes["asked"] = MappingProxyType(asked)
        attributes.update(asked)
        check_together(asked)
        if "machines" in asked:
            from perfmodel.hardware.cluster import several

            system, machines = asked["system"], asked["machines"]
            is_loaded = isinstance(system, Wired)
            attributes["system"] = several(system, machines) if is_loaded else load_system(system, machines=machines)
        if "straggler" in asked:
            from perfmodel.prediction.job.straggler import straggler_of_job

            attributes["straggler"] = straggler_of_job(asked)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        message = f"a Job is frozen: job.replace({name}=...) makes another"
        raise FrozenInstanceError(message)

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("graph", *self.asked)} | {"asked": dict(self.asked)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, asked=MappingProxyType(state["asked"]))

    def __eq__(self, other: object) -> bool:
        """Whether another job has the same arguments and network."""
        if not isinstance(other, Job):
            return NotImplemented
        alike = self.graph is other.graph or _content(self.graph) == _content(other.graph)
        return alike and self.asked == other.asked

    def __hash__(self) -> int:
        plain = ((name, value) for name, value in self.asked.items() if isinstance(value, str | int | float))
        return hash((getattr(self.graph, "name", None), frozenset(plain)))

    def __repr__(self) -> str:
        stated = [f"{name}={short_repr(value)}" for name, value in self.asked.items()]
        return f"Job({', '.join([getattr(self.graph, 'name', None) or str(self.graph), *stated])})"

    def replace(self, **arguments: Unpack[JobArguments]) -> Job:
        """Copy the job with some arguments changed.

        Parameters
        ----------
        **arguments : object
            As :func:`perfmodel.predict` takes them; a default value removes the argument. [unit of each argument]

        Returns
        -------
        Job
            A new job. [-]
        """
        return Job(self.graph, **{**self.asked, **arguments})

    def resolved(self, **values: Any) -> Job:
        """Copy the job with computed values, unchecked."""
        made = Job.__new__(Job)
        made.__setstate__(self.__getstate__() | values)
        return made

    def predict(self) -> Prediction:
        """Predict the job.

        Raises
        ------
        ArgumentError
            If hardware, software or network cannot run the job.
        UnknownNameError
            If a name is unknown; suggests the nearest.
        SpecError
            If a spec file is invalid; lists every fault.
        """
        layers = None if (kept := getattr(self.graph, "kept", None)) is None else kept("jobs")
        if self.__dict__.setdefault("_layers", layers) is not layers:  # the graph has grown since then
            return Job(self.graph, **self.asked).predict()
        try:
            return timed_prediction(self.prepared, calibration=None if self.calibration is None else self.fit, job=self)
        except OverflowError as error:
            raise ArgumentError("graph", self.graph, "a network whose sizes and counts a float holds") from error

    @derived_property
    def prepared(self) -> Prepared:
        """The job placed and lowered: complete except for the numbers of hardware and software."""
        return prepare_job(self)

    def prepared_on(self, placement: Placement | None) -> Prepared:
        """Prepare the job on a placement [-] made before, or on a new one for None."""
        of_type("placement", placement, (Placement,), "the placement of a job that is prepared, or None for a new one")
        return prepare_job(self, placement)

    @property
    def device_count(self) -> int:
        """Devices in use. [1]"""
        return self.workers * self.stages * self.tensor_size * self.context_size

    @property
    def is_of_several(self) -> bool:
        """Whether any argument concerns several workers or devices."""
        return not _OF_SEVERAL.isdisjoint(self.asked)

    @derived_property
    def layout(self) -> Layout:
        """How devices are divided among roles, checked against the parallelism."""
        if _SPREAD.isdisjoint(self.asked):
            return whole_on_each(self.workers)
        from perfmodel.parallelism.registry import PARALLELISMS

        sizes = {name: getattr(self, name) for name in SIZES}
        layout = Layout(workers=self.device_count, schedule=self.schedule, **sizes)
        layout = PARALLELISMS[self.parallelism].resolved(layout)
        self._refuse_sharing()
        self._refuse_context()
        return layout

    @derived_property
    def target(self) -> Target:
        """The device or part of a system that runs the job."""
        framework = self._framework
        if type(self.device) is str and type(framework) is str and self.asked.keys() <= _OF_ONE_BY_NAME:
            target, self.__dict__["profile"] = resolve_by_name((self.device, framework))
            return target
        system: Any = self.system
        device_count = self.device_count
        if device_count > self.workers:
            if system is not None and not isinstance(system, Wired):
                system = load_system(system)
            self._refuse_missing_devices(system)
        target = resolve_target(device=self.device, system=system, threads=self.threads, workers=device_count)
        if "sync" in self.asked:
            from perfmodel.prediction.job.agreement_options import WITH_SERVER

            target = target.beside_server() if self.sync in WITH_SERVER else target
        return target if self.reordered_by is None else self._in_order(target)

    @property
    def reordered_by(self) -> tuple[int, ...] | None:
        """Sizes that decide where copies of a pipeline lie on the system; None with one copy or one stage. [1]"""
        has_copies = self.workers * self.context_size > 1
        return (self.stages, self.context_size, self.tensor_size) if has_copies and self.stages > 1 else None

    def _in_order(self, target: Target) -> Target:
        """Return the target with the stages of a copy of the network one after another.

        On the system the devices of a context group are neighbours, each with a copy of all stages, and frameworks
        differ in whether the stages of a worker or the workers of a stage are nearer to one another.
        """
        part = target.system_part
        assert part is not None
        is_by_stage = target.profile_of(self._framework).exchange.outermost == "stages"
        outer = (self.stages, self.workers) if is_by_stage else (self.workers, self.stages)
        by_role = np.array(part.names, dtype=object).reshape(*outer, self.context_size, self.tensor_size)
        by_role = by_role.swapaxes(0, 1) if is_by_stage else by_role
        return target.on(part.only(tuple(by_role.swapaxes(1, 2).ravel().tolist())))

    def _refuse_missing_devices(self, system: Wired | None) -> None:
        """Raise if the system has fewer devices than the job needs; without a system there is one device."""
        known = 1 if system is None else len(system.devices) or system.node_count
        if self.device_count > known:
            sizes = {name: getattr(self, name) for name in ("workers", "stages", "tensor_size")}
            if self.context_size > 1:
                sizes["context_size"] = self.context_size
            argument, asked = " x ".join(sizes), self.device_count
            allowed = "1 with device=; pass system= to use several devices"
            if system is not None:
                allowed = f"at most {known}, the devices of {system.name}"
            raise ArgumentError(argument, f"{' x '.join(map(str, sizes.values()))} = {asked}", allowed)

    def _refuse_context(self) -> None:
        """Raise if devices that share sequences could not add up their gradients, or would read samples twice."""
        from perfmodel.prediction.job.agreement_options import WITH_SERVER
        from perfmodel.sync.asynchronous import SCHEMES

        if self.context_size == 1:
            return
        trains, allowed = self.subject.phase is not Phase.FORWARD, None
        if trains and (self.sync == NO_SYNC or self.sync in (*WITH_SERVER, *SCHEMES)):
            allowed = f"1 with sync={self.sync!r}; devices that share a sequence have to add up all their gradients"
        elif self.backup_workers or self.dataset is not None:
            allowed = "1 with backup_workers or dataset, which are not predicted for shared sequences"
        elif self.straggler is not None and self.straggler.times.lasting_count is not None:
            allowed = "1 with workers of unequal speed, which are not predicted for shared sequences"
        if allowed is not None:
            raise ArgumentError("context_size", self.context_size, allowed)

    def _refuse_sharing(self) -> None:
        """Raise if workers that share state cannot agree this way, or do not train."""
        from perfmodel.prediction.job.agreement_options import WITH_SERVER
        from perfmodel.sync.asynchronous import SCHEMES

        if self.workers * self.context_size == 1:
            return
        sync, shared, allowed = self.sync, self.shard_stage, None
        if shared and sync == NO_SYNC:
            allowed = "0 with sync='none', because sharded state must be exchanged"
        elif shared and sync in WITH_SERVER:
            allowed = f"0 with sync={sync!r}, because the server holds the state that workers would share"
        elif shared in (1, 2) and self.subject.phase is Phase.FORWARD:
            allowed = "0 or 3 with phase='forward', which has no optimizer state and no gradients to share"
        if allowed is not None:
            raise ArgumentError("shard_stage", shared, allowed)
        if self.parallelism == "hybrid" and sync in SCHEMES:
            allowed = "one in which all workers wait, such as ring_all_reduce, with parallelism='hybrid', "
            raise ArgumentError("sync", sync, f"{allowed}whose workers share the dense layers in every step")

    @derived_property
    def profile(self) -> FrameworkProfile:
        """The framework; for a Run, the framework that executed it."""
        return self.target.profile_of(self._framework)

    @property
    def _framework(self) -> Any:
        return self.graph.framework if isinstance(self.graph, Run) else self.framework

    @derived_property
    def data_path(self) -> DataPath:
        """Source of its mini-batches."""
        return resolve_data_path(self.target, self)

    @property
    def _updates(self) -> str | Optimizer:
        """The optimizer, with the penalty of the weights that the loss has."""
        if self.weight_penalty is None:
            return self.optimizer
        if self.phase != Phase.STEP:
            allowed = f"None with phase={self.phase!r}; its passes belong to the update of phase='step'"
            raise ArgumentError("weight_penalty", self.weight_penalty, allowed)
        return replace(load_optimizer(self.optimizer), weight_penalty=self.weight_penalty)

    @derived_property
    def subject(self) -> Subject:
        """The network, with the facts of how it runs."""
        if not isinstance(self.graph, Run):
            graph = self.graph
            if self.weight_dtype is not None:
                trains = Phase.BACKWARD in Phase(self.phase).parts
                frozen_only = trains and bool(graph.frozen_weighted_layers)
                graph = graph.quantised(self.weight_dtype, frozen_only=frozen_only)
            return subject_of_graph(graph, optimizer=self._updates, phase=self.phase)
        for name in ("weight_penalty", "weight_dtype"):
            if name in self.asked:
                raise ArgumentError(name, self.asked[name], "None for a Run, whose script is as it was measured")
        for name, value in self.asked.items():
            row = ARGUMENTS[name]
            if not row.ran:
                continue
            ran = self.element_type if row.ran == "element_type" else getattr(self.graph, row.ran)
            if value != ran and (row.loads is None or row.loads(name, value) != row.loads(name, ran)):
                raise ArgumentError(name, value, f"{ran!r}, which the Run executed; leave it out")
        return subject_of_run(self.graph)

    @property
    def element_type(self) -> str:
        """Data type; for a Run, the type it computed in. [-]"""
        return self.graph.dtype_on(self.target.processor) if isinstance(self.graph, Run) else self.dtype

    @derived_property
    def samples(self) -> int:
        """Samples per worker and step, from the job or else from the Run or graph. [samples]"""
        batch_size = self.batch_size
        if batch_size is not None and self.global_batch_size is None:
            return batch_size
        if batch_size is None and self.global_batch_size is None:
            graph = self.graph
            batch_size = graph.batch_size if isinstance(graph, Run) else graph.fixed_batch_size
        return resolved_batch_size(batch_size, self.global_batch_size, workers=self.workers)

    @derived_property
    def fit(self) -> FitFile:
        """Fitted factors on the constants of the files."""
        from perfmodel.hardware.fit_file import load_fit

        assert self.calibration is not None
        return load_fit(self.calibration)


def _content(graph: LayerGraph | Run) -> Any:
    """Content that identifies a network."""
    return graph if isinstance(graph, Run) or graph.free_sizes else graph.fingerprint
