"""The worth of each physical term: the score of a protocol without it, with everything else fitted anew.

Run:  python tools/ablation.py [TABLE] --only gpu --protocol leave_one_device_out
      python tools/ablation.py timm_rtx3090_amp --data FOLDER       (a table of networks; nothing is fitted)
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import typer

from perfmodel.errors import PerfmodelError
from perfmodel.fitting.fit import fit_folds
from perfmodel.hardware.fit_file import load_fit_plan
from perfmodel.measurements.scaling_tables import read_network_table
from perfmodel.measurements.table import SUBSETS
from perfmodel.prediction.device.cpu_target import CpuNumbers, CpuTarget
from perfmodel.prediction.device.factors import NO_FACTORS, Factors
from perfmodel.prediction.device.gpu_libraries import MatmulLibrary, StreamEfficiency
from perfmodel.prediction.device.gpu_target import GpuNumbers, GpuTarget
from perfmodel.prediction.job.prepare import prepare
from perfmodel.prediction.job.prepared import Prepared
from perfmodel.presentation.tables import Table
from perfmodel.validation.protocols.cells import MeasuredCell
from perfmodel.validation.protocols.protocols import (
    NOTHING_FITTED,
    PLAN_OF_SUBSET,
    Fold,
    check_protocol,
    compiled,
    folds_of,
)
from perfmodel.validation.reports.torch_networks import AS_SHIPPED, job_of, profile_of, rows_with_graphs
from perfmodel.validation.scores import metrics
from perfmodel.validation.scores.table_report import printed
from perfmodel.validation.validate import scored_cells

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.measurements.table import MeasurementTable
    from perfmodel.prediction.device.step_time import ProcessorNumbers
    from perfmodel.prediction.job.job import Job

BOUNDLESS: Final = 1e9
"""Factor that makes a rate so high that the work it limits takes no time. [1]"""

LIBRARY_KINDS: Final = ("blas", "dnn")
"""Kinds of libraries, in the order of a GPU's numbers. [-]"""

NumbersChange = Callable[[Any], Any]
LibraryChange = Callable[[MatmulLibrary], MatmulLibrary]
PreparedChange = Callable[[Prepared], Prepared]


@dataclass(frozen=True, slots=True)
class Term:
    """A physical term, and how to do without it.

    Parameters
    ----------
    name : str
        For reports. [-]
    subsets : tuple of str
        Cells that it is left out of. [-]
    prepared : callable or None
        A prepared step to one without the term: another fact of what ran, or of the files. [-]
    numbers : callable or None
        Numbers of the processor to numbers without the term. [-]
    """

    name: str
    subsets: tuple[str, ...] = ()
    prepared: PreparedChange | None = None
    numbers: NumbersChange | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Ablated(Prepared):
    """A prepared step without one term."""

    term: Term

    def numbers(self, factors: Factors = NO_FACTORS) -> ProcessorNumbers:
        """Return the numbers of hardware and software without the term."""
        numbers = Prepared.numbers(self, factors)
        return numbers if self.term.numbers is None else self.term.numbers(numbers)


def without(cell: MeasuredCell, term: Term) -> MeasuredCell:
    """Return a measured cell whose predictions do without a term."""
    prepared = cell.prepared if term.prepared is None else term.prepared(cell.prepared)
    stated = {entry.name: getattr(prepared, entry.name) for entry in fields(Prepared)}
    return replace(cell, prepared=Ablated(**stated, term=term))


def _of_subject(**facts: Any) -> PreparedChange:
    """Change facts of the program that ran."""
    return lambda prepared: prepared.with_subject(replace(prepared.subject, **facts))


def _of_table(change: Callable[[KernelTable], KernelTable]) -> PreparedChange:
    """Change the lowered graph."""
    return lambda prepared: prepared.with_lowered(replace(prepared.lowered, table=change(prepared.lowered.table)))


def _stated(**values: Any) -> NumbersChange:
    """Change numbers of the processor."""
    return lambda numbers: replace(numbers, **values)


def _of_libraries(change: LibraryChange, *, kinds: tuple[str, ...] = LIBRARY_KINDS) -> NumbersChange:
    """Change the efficiencies of matrix products of libraries of these kinds."""

    def of_gpu(numbers: GpuNumbers) -> GpuNumbers:
        libraries = zip(LIBRARY_KINDS, numbers.matmul_libraries, strict=True)
        changed = tuple(change(library) if kind in kinds else library for kind, library in libraries)
        return replace(numbers, matmul_libraries=changed)

    return of_gpu


def _on_device(**values: Any) -> LibraryChange:
    """Change the cost of a library's products on a device."""
    return lambda library: library._replace(**values)


def _reaching(**values: Any) -> LibraryChange:
    """Change the facts of products in a library's file."""
    return lambda library: library._replace(reach=replace(library.reach, **values))


def _no_update(table: KernelTable) -> KernelTable:
    return replace(table, multiplicity=table.multiplicity * ~table.is_update)


def _no_quantisation(library: MatmulLibrary) -> MatmulLibrary:
    """Give every tile the rate of the largest; the ways to split the sum stay."""
    one = np.ones_like(library.reach.tile_rows)
    return _reaching(tile_rows=one, tile_columns=one, tile_efficiency=one)(library)


def _free_streams(numbers: GpuNumbers) -> GpuNumbers:
    return replace(numbers, stream_efficiency=StreamEfficiency(dict.fromkeys(numbers.stream_efficiency, BOUNDLESS)))


def _native_kernels(prepared: Prepared) -> Prepared:
    """Let every library's kernels be made for the architecture."""
    libraries = {}
    for role, library in prepared.libraries.items():
        native = {
            name: profile.model_copy(update={"translation_efficiency": 1.0})
            for name, profile in library.architecture.items()
        }
        libraries[role] = library.model_copy(update={"architecture": native})
    return replace(prepared, libraries=libraries)


def _average_host(prepared: Prepared) -> Prepared:
    """Take the GPU out of the machine that is known to hold it."""
    target = prepared.target
    return replace(prepared, target=GpuTarget(target.device)) if isinstance(target, GpuTarget) else prepared


def _unlimited_workspace(prepared: Prepared) -> Prepared:
    gpu = prepared.profile.gpu
    unlimited = gpu.model_copy(update={"lowering": gpu.lowering.model_copy(update={"workspace_limit_mib": None})})
    return replace(prepared, profile=prepared.profile.model_copy(update={"gpu": unlimited}))


def _one_operation_at_a_time(prepared: Prepared) -> Prepared:
    """Let the framework's pool have no threads."""
    cpu = prepared.profile.cpu
    alone = cpu.model_copy(update={"constants": {**cpu.constants, "scheduler_threads_per_core": 0.0}})
    return replace(prepared, profile=prepared.profile.model_copy(update={"cpu": alone}))


def _single_precision(prepared: Prepared) -> Prepared:
    """Lower again in fp32 the work that a script does in a wider type."""
    if prepared.dtype != "fp64":
        return prepared
    return prepare(
        prepared.subject,
        target=prepared.target,
        profile=prepared.profile,
        batch_size=prepared.batch_size,
        dtype="fp32",
        pinned=prepared.pinned,
    )


def _local_pages(prepared: Prepared) -> Prepared:
    """Let the pages lie on the sockets whose threads use them."""
    target = prepared.target
    if not isinstance(target, CpuTarget) or target.system is None:
        return prepared
    file = target.system.file
    local = file.model_copy(update={"memory": file.memory.model_copy(update={"remote_fraction": 0.0})})
    system = replace(target.system, file=local)
    return replace(prepared, target=CpuTarget(target.cpu, system=system, threads=target.threads))


def _law_without(name: str, neutral: float) -> NumbersChange:
    def change(numbers: CpuNumbers) -> CpuNumbers:
        return replace(
            numbers,
            matmul_law={**numbers.matmul_law, name: neutral},
            pass_law={**numbers.pass_law, name: neutral},
        )

    return change


def _no_packing(numbers: CpuNumbers) -> CpuNumbers:
    boundless = {
        name: numbers.of_products[name] * BOUNDLESS for name in ("packing_efficiency", "core_copy_bytes_per_s")
    }
    return replace(numbers, of_products={**numbers.of_products, **boundless})


def _no_scalar_code(numbers: CpuNumbers) -> CpuNumbers:
    return replace(
        numbers,
        cycles_per_flop=dict.fromkeys(numbers.cycles_per_flop, 0.0),
        cycles_per_byte=dict.fromkeys(numbers.cycles_per_byte, 0.0),
    )


_ALL, _GPU = ("gpu", "cpu", "cpu_oversubscribed"), ("gpu",)
_CPU, _TO_CORES, _BEYOND_CORES = _ALL[1:], ("cpu",), ("cpu_oversubscribed",)

_REGISTRY: Final = (
    Term("dispatch", _ALL, numbers=_stated(dispatch_s=0.0, library_issue_s=0.0, step_overhead_s=0.0)),
    Term("launch gap", _GPU, numbers=_stated(launch_s=0.0)),
    Term(
        "library calls dispatched once",
        _GPU,
        numbers=lambda numbers: replace(numbers, library_issue_s=numbers.dispatch_s),
    ),
    Term("first step of a process", _GPU, prepared=_of_subject(averaged_steps=0)),
    Term("slower host of the GPU", _GPU, prepared=_average_host),
    Term("host feed", _ALL, prepared=_of_subject(feed=())),
    Term("optimizer", _ALL, prepared=_of_table(_no_update)),
    Term("memory time of passes", _GPU, numbers=_free_streams),
    Term("tile and wave quantisation", _GPU, numbers=_of_libraries(_no_quantisation)),
    Term("latency of a step of the sum", _GPU, numbers=_of_libraries(_on_device(latency_s=0.0))),
    Term("filling and draining of tiles", _GPU, numbers=_of_libraries(_on_device(ramp_steps=0.0), kinds=("blas",))),
    Term("write-out of tiles of convolutions", _GPU, numbers=_of_libraries(_on_device(ramp_steps=0.0), kinds=("dnn",))),
    Term("slow skinny products", _GPU, numbers=_of_libraries(_reaching(skinny_bandwidth_fraction=None))),
    Term("transposed weights", _GPU, numbers=_of_libraries(_reaching(strided_bandwidth_fraction=BOUNDLESS))),
    Term("rows that one thread reduces", _GPU, numbers=_stated(serial_step_s=0.0)),
    Term("kernels made for another architecture", _GPU, prepared=_native_kernels),
    Term("FFT convolution", _GPU, prepared=_of_table(lambda table: table.without_alternatives(("fft", "fft_tiling")))),
    Term("workspace limit", _GPU, prepared=_unlimited_workspace),
    Term("serial fraction", _CPU, numbers=_law_without("serial_fraction", 0.0)),
    Term("packing of operands", _CPU, numbers=_no_packing),
    Term("last-level cache", _CPU, numbers=_stated(cache_bytes=1.0)),
    Term("narrow products on one thread", _CPU, numbers=_stated(smallest_side_per_thread=0.0)),
    Term("cycles of scalar code", _CPU, numbers=_no_scalar_code),
    Term("fork and join", _CPU, numbers=_stated(fork_join_s=0.0)),
    Term("subnormal products", _CPU, prepared=_of_subject(subnormal_products_per_sample=0.0)),
    Term("double precision of scripts", _CPU, prepared=_single_precision),
    Term("pages on one socket", _CPU, prepared=_local_pages),
    Term("operations beside each other", _TO_CORES, prepared=_one_operation_at_a_time),
    Term("over-subscription", _BEYOND_CORES, numbers=_law_without("oversubscription_penalty", 1.0)),
    Term("two threads on a core", _BEYOND_CORES, numbers=_law_without("smt_gain", 1.0)),
)

TERMS: Final[dict[str, tuple[Term, ...]]] = {
    subset: tuple(term for term in _REGISTRY if subset in term.subsets) for subset in SUBSETS
}
"""Terms that can be left out, by subset: each changes the prediction of some scored cell of ``shi2016`` there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """Score of one protocol without one term."""

    subset: str
    protocol: str
    without: str
    mape: float
    typical_factor_percent: float
    change: float


def ablation(
    table: str | Path | MeasurementTable = "shi2016",
    *,
    protocols: Sequence[str],
    only: str = "gpu",
    progress: Callable[[int, int], None] | None = None,
) -> Table[AblationRow]:
    """Score protocols without each physical term."""
    for protocol in protocols:
        check_protocol(protocol)
    loaded, cells = scored_cells(table, only)
    terms = (Term("nothing"), *TERMS[only])
    rows: list[AblationRow] = []
    for index, protocol in enumerate(protocols):
        ratios = {}
        for place, term in enumerate(terms):
            ablated = [without(cell, term) for cell in cells]
            ratios[term.name] = np.exp(_log_ratios(ablated, subset=only, protocol=protocol))
            if progress is not None:
                progress(index * len(terms) + place + 1, len(protocols) * len(terms))
        ones = np.ones_like(ratios[terms[0].name])
        rows += ablation_rows(ratios, measured=ones, subset=only, protocol=protocol)
    return Table(tuple(rows), title=f"{loaded.key}, {only}: without each physical term")


def ablation_rows(predicted: Mapping[str, Any], *, measured: Any, subset: str, protocol: str) -> Iterator[AblationRow]:
    """Yield the score without each term, and its change from the first score, which has all terms."""
    whole = None
    for term, values in predicted.items():
        typical = metrics.typical_factor_percent(values, measured=measured)
        whole = typical if whole is None else whole
        yield AblationRow(
            subset=subset,
            protocol=protocol,
            without=term,
            mape=metrics.mape(values, measured=measured),
            typical_factor_percent=typical,
            change=typical - whole,
        )


def _log_ratios(cells: Sequence[MeasuredCell], *, subset: str, protocol: str) -> Any:
    """Return ln(predicted / measured) of every scored cell of every fold."""
    problem = compiled(cells, load_fit_plan(PLAN_OF_SUBSET[subset]))
    everything = tuple(range(len(cells)))
    if protocol == NOTHING_FITTED:
        folds = [Fold("none", everything, everything)]
        log_factors_of_folds = [np.zeros(len(problem.unknowns))]
    else:
        folds = folds_of(protocol, cells)
        log_factors_of_folds = [fit.log_factors for fit in fit_folds(problem, [fold.trained for fold in folds])]
    errors = []
    for fold, log_factors in zip(folds, log_factors_of_folds, strict=True):
        times, _ = problem.log_times(log_factors, fold.scored)
        errors.append(times - problem.log_measured[list(fold.scored)])
    return np.concatenate(errors)


Change = Callable[["Job"], dict[str, Any]]
"""Arguments of a job without a term, those that differ."""


def _of_profile(change: Callable[[FrameworkProfile], dict[str, Any]]) -> Change:
    """Change the table of a framework for GPUs."""

    def arguments(job: Job) -> dict[str, Any]:
        gpu = job.profile.gpu.model_copy(update=change(job.profile))
        return {"framework": job.profile.model_copy(update={"gpu": gpu})}

    return arguments


def _lowering(**rules: Any) -> Change:
    """Change rules of the lowering."""
    return _of_profile(lambda profile: {"lowering": profile.gpu.lowering.model_copy(update=rules)})


def _profile_constants(change: Callable[[dict[str, Any]], dict[str, float]]) -> Change:
    """Change constants of a framework."""
    return _of_profile(lambda profile: {"constants": {**profile.gpu.constants, **change({**profile.gpu.constants})}})


def _of_convolutions(change: Callable[[Any], dict[str, Any]]) -> Change:
    """Change every tensor-core table of the library of convolutions."""

    def arguments(job: Job) -> dict[str, Any]:
        library: LibraryProfile = job.prepared.libraries["gpu_dnn"]
        tables = {name: table.model_copy(update=change(table)) for name, table in library.tensor_core.items()}
        return {"library": library.model_copy(update={"tensor_core": tables})}

    return arguments


def _one_dispatch(constants: dict[str, Any]) -> dict[str, float]:
    """Let every call cost as much as one from Python."""
    return {
        "recording_us": 0.0,
        **dict.fromkeys(("backward_dispatch_us", "update_dispatch_us"), constants["dispatch_us"]),
    }


def _as_element_wise(constants: dict[str, Any]) -> dict[str, float]:
    """Let the gradients of depth-wise convolutions stream as element-wise passes do."""
    names = [name for name in constants if name.startswith("bandwidth_fraction_depthwise")]
    return dict.fromkeys(names, constants["bandwidth_fraction_elementwise"])


def _boundless_power(job: Job) -> dict[str, Any]:
    """Let the board keep its highest clock."""
    return {"device": job.target.device.model_copy(update={"power": None})}  # type: ignore[attr-defined]


NOTHING: Final = "nothing"
"""Name of the first score of each part, which has all terms. [-]"""

NETWORK_TERMS: Final[dict[str, Change]] = {
    NOTHING: lambda _: {},
    "types and casts of mixed precision": _lowering(mixed_precision=None),
    "calls by part of the step": _profile_constants(_one_dispatch),
    "a host that runs ahead": _of_profile(lambda _: {"runs_ahead": False}),
    "the clock under the power limit": _boundless_power,
    "what feeds an SM": _of_convolutions(lambda _: {"fed_flop_per_clock": 1e6}),
    "write-out of tiles of convolutions": _of_convolutions(lambda _: {"ramp_steps": 0.0}),
    "grouped convolutions on tensor cores": _of_convolutions(lambda _: {"grouped_channels": None}),
    "slow gradients of depth-wise convolutions": _profile_constants(_as_element_wise),
    "layout of images": lambda _: {"image_layout": "channels_first"},
}
"""Terms that can be left out, and how. [-]"""


def network_ablation(file: Path) -> Table[AblationRow]:
    """Score each part of a table of networks with all terms, then without each."""
    table = read_network_table(file)
    profile = profile_of(table)
    measured: dict[str, list[float]] = defaultdict(list)
    predicted: dict[str, dict[str, list[float]]] = defaultdict(lambda: {term: [] for term in NETWORK_TERMS})
    for row, graph in rows_with_graphs(table):
        if isinstance(graph, str):  # it cannot be imported
            continue
        part, job = ", ".join((row.device, *row.cell)), job_of(row, graph, framework=profile)
        measured[part].append(row.measured_s)
        for term, change in NETWORK_TERMS.items():
            step_s = job_of(row, graph, **{"framework": profile, **change(job)}).predict().step_s
            predicted[part][term].append(float(step_s))
    rows = [
        row
        for part in sorted(measured)
        for row in ablation_rows(predicted[part], measured=measured[part], subset=part, protocol=AS_SHIPPED)
    ]
    return Table(rows, title=f"{file.stem}: without each term", row_type=AblationRow)


def main(
    table: str = typer.Argument("shi2016", help="A measurement table by its name, or the path of a CSV."),
    protocol: list[str] = typer.Option([NOTHING_FITTED], metavar="NAME", help="May be given several times."),  # noqa: B008
    only: str = typer.Option("gpu", metavar="SUBSET", help="gpu, cpu or cpu_oversubscribed."),
    data: Path | None = typer.Option(None, metavar="FOLDER", help="Folder that holds a table of networks."),  # noqa: B008
) -> None:
    """Score protocols with all physical terms, then without each of them; a table of networks as its files are."""
    if data is None:
        rows = ablation(table, protocols=protocol, only=only)
    else:
        rows = network_ablation(data / "nets" / f"{table}.csv")
    sys.stdout.write(f"{printed(rows)}\n")


if __name__ == "__main__":
    try:
        typer.run(main)
    except PerfmodelError as error:
        sys.exit(f"ablation: {error}")
