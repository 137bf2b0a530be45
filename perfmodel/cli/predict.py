"""``perfmodel predict``: the time of a step, the reasons for it, and measurements to compare with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.output import Answer, Network, check_writable, number_as_typed, takes_arguments
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.units import MEGA

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.price import InstancePrice
    from perfmodel.measurements import MeasuredRow, Run
    from perfmodel.prediction.prediction import Prediction


LARGEST = "max"
"""Value of ``--batch-size`` for the most samples that memory holds."""
NO_TABLE = "none"
"""Value of ``--measured`` for no comparison."""
TABLE = "shi2016"
"""Measurement table to compare with; it has no run of the default framework, which is none of the measured ones."""


@takes_arguments(not_options=("batch_size",), plot="Draw the parts of the step (png, pdf, svg).")
def predict_command(
    network: Network,
    arguments: dict[str, Any],
    *,
    batch_size: str | None = None,
    trace: Path | None = None,
    price: str | None = None,
    measured: str = TABLE,
    top: Annotated[int, typer.Option(min=0)] = 8,
    explain: bool = False,
) -> Any:
    """Predict the time of one step, its parts, its bottleneck and its memory.

    Parameters
    ----------
    batch_size : N|max
        Samples per step; max for as many as memory holds. [samples]
    trace : FILE
        Write steps as a trace for a trace viewer (JSON). [-]
    price : NAME
        Print the cost of a step: give a price, an instance, or USD per hour for one device. [-]
    measured : TABLE
        Measurement table to compare with, or 'none'. [-]
    top : N
        Layers to list. [1]
    explain : bool
        Explain the time in words, with the source of each constant. [-]
    """
    from perfmodel.prediction.predict import predict

    check_writable(trace, argument="--trace")
    graph = network.loaded
    if batch_size is not None:
        is_largest = batch_size == LARGEST
        arguments["batch_size"] = largest_batch_size(graph, arguments) if is_largest else number_as_typed(batch_size)
    prediction = predict(graph, **arguments)
    bill = None if price is None else bill_of(prediction, number_as_typed(price))
    if trace is not None:
        prediction.timeline.save(trace)
    executed = None
    may_be_measured = measured != TABLE or "framework" in prediction.job.asked
    if measured != NO_TABLE and may_be_measured and network.prune is None:  # the tables measured whole networks
        executed = find_executed(measured, network=network.graph, prediction=prediction)

    def text() -> str:
        from perfmodel.prediction.words.prediction_text import report

        blocks = [report(prediction, layers_shown=top)]
        blocks += [] if bill is None else [bill_text(bill)]
        blocks += [prediction.explain()] if explain else []
        blocks += [] if executed is None else [executed_text(executed, with_evidence=explain)]
        return "\n\n".join(blocks)

    def content() -> dict[str, Any]:
        from perfmodel.prediction.words.prediction_text import layer_totals

        more: dict[str, Any] = {"longest_layers": layer_totals(prediction).head(top).to_dicts()}
        more |= {"explanation": prediction.explain()} if explain else {}
        more |= {} if bill is None else {"bill": bill}
        return prediction.to_dict() | more | {"executed": None if executed is None else executed_dict(executed)}

    return Answer(text=text, content=content, plot=prediction.plot)


def largest_batch_size(graph: LayerGraph, arguments: dict[str, Any]) -> int:
    """Return the largest batch size that memory holds."""
    from perfmodel.prediction.arguments.table import names_of
    from perfmodel.prediction.memory.batch_limit import max_batch_size, without_sizes

    spreading = [name for name in names_of("spread") if name in arguments]
    if spreading:
        allowed = f"a number if {spreading[0]} is given; max is searched only for a whole network on one device"
        raise ArgumentError("--batch-size", LARGEST, allowed)
    batch_size = max_batch_size(graph, **without_sizes(arguments))
    if not batch_size:
        raise ArgumentError("--batch-size", LARGEST, "a number; not even one sample fits in memory")
    return batch_size


def bill_of(p: Prediction, price: str | float) -> dict[str, Any]:
    """Return the cost of a step, a million samples and an epoch at a price, and the energy of a step."""
    from perfmodel.prediction.bill import rate_text

    priced: InstancePrice | float
    if isinstance(price, str):
        from perfmodel.hardware.catalogue import load_instance_price

        priced = load_instance_price(price)
        price_text = priced.describe()
    else:
        priced, price_text = price, rate_text(p, price)
    usd_per_step, dataset = p.cost_usd(priced), None if p.data_path is None else p.data_path.dataset
    try:
        step_j = p.energy_j()
    except ArgumentError:  # a measured machine states no power
        step_j = None
    return {
        "price": price_text,
        "usd_per_step": usd_per_step,
        "usd_per_million_samples": MEGA * usd_per_step / (p.samples_per_s * p.step_s),
        "usd_per_epoch": None if dataset is None else p.cost_usd(priced, dataset_size=dataset.example_count),
        "step_j": step_j,
    }


def bill_text(bill: dict[str, Any]) -> str:
    """Return a bill as the command prints it."""
    from perfmodel.presentation.quantities import usd_text
    from perfmodel.presentation.tables import facts_text

    epoch = "" if bill["usd_per_epoch"] is None else f", {usd_text(bill['usd_per_epoch'])} an epoch"
    cost = f"{bill['usd_per_step']:.3g} USD a step, {bill['usd_per_million_samples']:,.3g} a million samples{epoch}"
    energy = {} if bill["step_j"] is None else {"energy": f"{bill['step_j']:,.4g} J a step: devices without hosts"}
    return facts_text({"price": bill["price"], "cost": cost, **energy})


@dataclass(frozen=True, slots=True)
class Executed:
    """A run of a measurement table, its prediction, and its measured times."""

    run: Run
    prediction: Prediction
    cells: tuple[MeasuredRow, ...]


def find_executed(table: str, *, network: str, prediction: Prediction) -> Executed | None:
    """Return the measured run that matches a prediction's request, with a prediction of that run."""
    from perfmodel import measurements
    from perfmodel.prediction.arguments.table import names_of
    from perfmodel.prediction.job.job import Job

    job = prediction.job
    loaded = measurements.load(table)
    try:
        run = loaded.run(str(job.framework), network, batch_size=prediction.batch_size)
    except UnknownNameError:
        return None
    left_out = {*names_of("batch"), "framework", "optimizer", "phase", "recompute"}
    executed = Job(run, **{name: value for name, value in job.asked.items() if name not in left_out}).predict()
    place = (Path(str(job.device or job.system)).stem, executed.threads)
    cells = tuple(row for row in loaded if row.run_key == run.key and (row.device, row.threads) == place)
    return Executed(run, executed, cells)


def executed_text(executed: Executed, *, with_evidence: bool) -> str:
    """Return the run with its predicted and measured times as text."""
    from perfmodel.presentation.quantities import bytes_text, seconds_text
    from perfmodel.presentation.tables import facts_text

    run, prediction = executed.run, executed.prediction
    feed = ", ".join(item.name for item in run.feed)
    facts = {
        "network": _with_options(run.builder, run.builder_options),
        "optimizer": _with_options(run.optimizer, run.optimizer_options),
        "clipping": run.clipping,
        "phase": run.phase,
        "feed a step": f"{bytes_text(run.feed_bytes)} ({feed})" if run.feed else "none: it is on the device already",
        "input gradient": "computed" if run.input_gradient else "not computed",
        "predicted": f"{seconds_text(prediction.step_s)}, bottleneck {prediction.bottleneck}",
        "measured": "; ".join(map(_measured_text, executed.cells)) or "not on this target",
    }
    ratios = [f"{prediction.step_s / cell.step_s:.2f}" for cell in executed.cells if cell.step_s]
    if ratios:
        facts["predicted / measured"] = ", ".join(ratios)
    if notes := " ".join(dict.fromkeys(cell.note for cell in executed.cells if cell.note)):
        facts["note"] = notes
    if with_evidence:
        facts |= {f"why {evidence.fact}": evidence.text for evidence in run.evidence}
    return f"what {run.table} really executed\n{facts_text(facts)}"


def _with_options(name: str, options: Any) -> str:
    listed = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return f"{name}({listed})" if listed else name


def _measured_text(cell: MeasuredRow) -> str:
    from perfmodel.presentation.quantities import seconds_text

    if cell.step_s is None:
        return "missing"
    return seconds_text(cell.step_s) + ("" if cell.status == "measured" else f", {cell.status}")


def executed_dict(executed: Executed) -> dict[str, Any]:
    """Return the run with its predicted and measured times as plain values, for JSON."""
    run = asdict(executed.run) | {
        "feed_bytes": executed.run.feed_bytes,
        "evidence": [evidence._asdict() for evidence in executed.run.evidence],
    }
    return {
        "run": run,
        "prediction": executed.prediction.to_dict(),
        "measured": [{"step_s": cell.step_s, "status": cell.status, "note": cell.note} for cell in executed.cells],
    }


@takes_arguments(verb="perfmodel.planning.transfer:transfer", takes_job=False)
def transfer_command(
    system: str,
    copies: list[str],
    arguments: dict[str, Any],
    *,
    trace: Path | None = None,
) -> Any:
    """Predict the times of simultaneous copies, with their routes and bottlenecks.

    Parameters
    ----------
    system : str
        A system with wiring: name or TOML file. [-]
    copies : FROM:TO...
        Pairs of places, or patterns such as host:gpu*; host is the memory next to the other end. [-]
    trace : FILE
        Write a Chrome trace of the copies to FILE. [-]
    """
    from perfmodel.planning.transfer import transfer

    check_writable(trace, argument="--trace")
    answer = transfer(system, copies, **arguments)
    if trace is not None:
        answer.timeline.save(trace)
    return answer
