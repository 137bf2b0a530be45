"""What a measured benchmark really executed, predicted and set beside the time it took."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import UnknownNameError
from perfmodel.presentation.quantities import bytes_text, seconds_text
from perfmodel.presentation.tables import facts_text

if TYPE_CHECKING:
    from perfmodel.measurements import MeasuredRow, Run
    from perfmodel.prediction.prediction import Prediction


@dataclass(frozen=True, slots=True)
class Executed:
    """A run of a measurement table, its prediction, and the cells that measured it.

    Parameters
    ----------
    run : Run
        What was executed. [-]
    prediction : Prediction
        How long that takes. [-]
    cells : tuple of MeasuredRow
        Measurements on the same target with as many threads; empty where nobody measured it. [-]
    """

    run: Run
    prediction: Prediction
    cells: tuple[MeasuredRow, ...]


def find_executed(table: str, *, network: str, prediction: Prediction) -> Executed | None:
    """Return the run of a measurement table that a request corresponds to, predicted.

    Parameters
    ----------
    table : str
        Key or path of a measurement table. [-]
    network : str
        As in the table. [-]
    prediction : Prediction
        What was asked; a Run says itself which framework, optimizer and phase it had, where nobody asked otherwise. [-]

    Returns
    -------
    Executed or None
        None where the table has no such run. [-]
    """
    from perfmodel import measurements
    from perfmodel.prediction.arguments.table import names_of
    from perfmodel.prediction.job import Job

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
    """Return what was executed and how long it took, predicted and measured.

    Parameters
    ----------
    executed : Executed
        The run. [-]
    with_evidence : bool
        Whether to add why each fact is believed. [-]

    Returns
    -------
    str
        Several lines. [-]
    """
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
    if cell.step_s is None:
        return "missing"
    return seconds_text(cell.step_s) + ("" if cell.status == "measured" else f", {cell.status}")


def executed_dict(executed: Executed) -> dict[str, Any]:
    """Return the same as plain values, for JSON.

    Parameters
    ----------
    executed : Executed
        The run. [-]

    Returns
    -------
    dict
        The run with its evidence, its prediction, its measurements. [s, B]
    """
    run = asdict(executed.run) | {
        "feed_bytes": executed.run.feed_bytes,
        "evidence": [evidence._asdict() for evidence in executed.run.evidence],
    }
    return {
        "run": run,
        "prediction": executed.prediction.to_dict(),
        "measured": [{"step_s": cell.step_s, "status": cell.status, "note": cell.note} for cell in executed.cells],
    }
