"""``perfmodel predict``: how long a step takes, why, and beside it what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from perfmodel.cli.bill import bill_of
from perfmodel.cli.networks import load_graph
from perfmodel.cli.output import JsonOption, OutOption, check_plot, check_writable, emit, key_values, number_as_typed

if TYPE_CHECKING:
    from perfmodel.cli.bill import Bill
    from perfmodel.cli.executed import Executed
    from perfmodel.graph import LayerGraph
    from perfmodel.prediction.prediction import Prediction

StragglerOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="KIND=X", help="How workers' times vary: normal=0.1; or last: unequal=1,1,2,1, one for each worker."
    ),
]
NETWORK_HELP = (
    "A network of the zoo; the path of a graph's JSON file, an ONNX file or a config.json of a transformer; or "
    "file.py:function that returns (module, example_inputs) of torch."
)
LARGEST = "max"
"""What ``--batch-size`` takes for as many samples as memory holds."""
JOB = (
    "workers", "sync", "straggler", "backup_workers", "parallelism", "stages", "micro_batches", "tensor_size",
    "dataset", "input_from", "prefetch", "decode_cores", "input_variation", "pinned",
)  # fmt: skip
"""Options of a job on a system, which leave ``predict`` its defaults where they are not given."""
SYNC_OPTIONS = (
    "overlap", "bucket_bytes", "server_count", "group_size", "staleness_bound", "push_period", "pull_period",
)  # fmt: skip
"""Keys of ``--sync-option``."""
PARALLEL_OPTIONS = ("schedule", "interleave", "sequence_parallel", "shard_stage", "accumulation_steps")
"""Keys of ``--parallel-option``."""
SPREADING = {"parallelism", "stages", "micro_batches", "tensor_size", *PARALLEL_OPTIONS}
"""Options of ``predict`` that spread a network over devices or micro-batches."""
WITHOUT_EFFECT_ON_SIZE = {"calibration", *JOB, *SYNC_OPTIONS} - {"workers"}
"""Options of ``predict`` that do not change how many samples memory holds."""
NO_TABLE = "none"
"""What ``--measured`` takes to look nothing up."""


def predict_command(
    graph: Annotated[str, typer.Argument(help=NETWORK_HELP)],
    batch_size: Annotated[
        str, typer.Option(metavar="N|max", help="Samples per step; max for as many as memory holds.")
    ],
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="A GPU, or one CPU socket: name or TOML file.")
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A machine with all its CPU sockets: name or TOML file."),
    ] = None,
    framework: Annotated[str, typer.Option(metavar="NAME", help="Framework profile: name or TOML file.")] = "generic",
    threads: Annotated[
        str | None, typer.Option(metavar="N", help="CPU threads; one per physical core unless given.")
    ] = None,
    phase: Annotated[str, typer.Option(metavar="PHASE", help="step, forward_backward or forward.")] = "step",
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="Data type, e.g. fp32.")] = "fp32",
    optimizer: Annotated[str, typer.Option(metavar="NAME", help="none, sgd, momentum, nesterov, adam.")] = "sgd",
    recompute: Annotated[
        str | None, typer.Option(metavar="HOW", help="Activations made a second time going back: full or sqrt.")
    ] = None,
    library: Annotated[
        str | None, typer.Option(metavar="NAME", help="A library in place of the framework's own.")
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Fitted factors on the constants (perfmodel fit --save): name or TOML file."),
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="N", help="GPUs of the system that work, each on a mini-batch of its own.")
    ] = None,
    sync: Annotated[
        str | None,
        typer.Option(
            metavar="HOW", help="How several workers agree: ring_all_reduce, parameter_server, downpour, none."
        ),
    ] = None,
    sync_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of it: overlap, bucket_bytes, server_count, group_size, staleness_bound, push_period, "
            "pull_period; repeatable.",
        ),
    ] = None,
    straggler: StragglerOption = None,
    backup_workers: Annotated[str | None, typer.Option(metavar="N", help="Workers not waited for.")] = None,
    parallelism: Annotated[
        str | None, typer.Option(metavar="KIND", help="What devices share: data, model, pipeline, tensor, hybrid.")
    ] = None,
    stages: Annotated[
        str | None, typer.Option(metavar="N", help="Devices of each worker that have its layers in turn.")
    ] = None,
    micro_batches: Annotated[
        str | None, typer.Option(metavar="N", help="Parts of a worker's mini-batch that follow one another.")
    ] = None,
    tensor_size: Annotated[
        str | None, typer.Option(metavar="N", help="Devices of each worker that share each layer.")
    ] = None,
    parallel_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Further: schedule, interleave, sequence_parallel, shard_stage, accumulation_steps; repeatable.",
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Data set that is read and decoded: name or TOML file.")
    ] = None,
    input_from: Annotated[
        str | None, typer.Option(metavar="NAME", help="Storage of the system, storage by its file, or memory.")
    ] = None,
    prefetch: Annotated[
        str | None, typer.Option(metavar="N", help="Mini-batches fetched ahead; 0 for none, 1 unless given.")
    ] = None,
    decode_cores: Annotated[
        str | None, typer.Option(metavar="N", help="Cores that decode; all of the hosts' unless given.")
    ] = None,
    input_variation: Annotated[
        str | None,
        typer.Option(metavar="X", help="Coefficient of variation of the time that preparing a mini-batch takes."),
    ] = None,
    pageable: Annotated[
        bool, typer.Option("--pageable", help="Copies from pageable buffers where the framework would pin them.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write steps as a trace for a trace viewer (JSON).")
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Price or instance, or USD an hour of one device: what a step costs."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of the builder, config or function, or free size of an ONNX file; repeatable.",
        ),
    ] = None,
    measured: Annotated[
        str, typer.Option(metavar="TABLE", help="Measurement table to compare with, or 'none'.")
    ] = "shi2016",
    top: Annotated[int, typer.Option(metavar="N", min=0, help="Layers to list.")] = 8,
    explain: Annotated[bool, typer.Option("--explain", help="Say in words why, and whence the constants.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the parts of the step (png, pdf, svg).")
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Predict the time of one step, its parts, its bottleneck and its memory."""
    from perfmodel.prediction.predict import predict

    check_writable(out, argument="--out")
    check_writable(trace, argument="--trace")
    check_plot(plot)
    place: dict[str, Any] = {
        "device": device,
        "system": system,
        "threads": number_as_typed(threads),
        "library": library,
        "dtype": dtype,
        "calibration": calibration,
        "workers": number_as_typed(workers),
        "sync": sync,
        "backup_workers": number_as_typed(backup_workers),
        "parallelism": parallelism,
        "stages": number_as_typed(stages),
        "micro_batches": number_as_typed(micro_batches),
        "tensor_size": number_as_typed(tensor_size),
        "dataset": dataset,
        "input_from": input_from,
        "prefetch": number_as_typed(prefetch),
        "decode_cores": number_as_typed(decode_cores),
        "input_variation": number_as_typed(input_variation),
        "pinned": False if pageable else None,
    }
    place = {name: value for name, value in place.items() if name not in JOB or value is not None}
    place |= {} if straggler is None else {"straggler": straggler_option(straggler)}
    place |= sync_options(sync_option or [])
    place |= _options(parallel_option or [], argument="--parallel-option", known=PARALLEL_OPTIONS)
    how: dict[str, Any] = {"framework": framework, "phase": phase, "optimizer": optimizer, "recompute": recompute}
    network = load_graph(graph, options=option or [])
    samples = largest_batch_size(network, how | place) if batch_size == LARGEST else number_as_typed(batch_size)
    prediction = predict(network, batch_size=samples, **how, **place)
    bill = None if price is None else bill_of(prediction, number_as_typed(price))
    if plot is not None:
        prediction.plot(plot)
    if trace is not None:
        prediction.timeline.save(trace)
    executed = None
    if measured != NO_TABLE:
        from perfmodel.cli.executed import find_executed

        target = device or system or ""
        executed = find_executed(
            measured, network=graph, framework=framework, batch_size=samples, target=target, options=place
        )
    emit(
        lambda: _text(prediction, executed, bill, layers_shown=top, in_words=explain),
        lambda: _content(prediction, executed, bill, layers_shown=top, in_words=explain),
        as_json=as_json,
        out=out,
    )


def straggler_option(typed: str) -> dict[str, Any]:
    """Return what ``straggler`` of ``predict`` takes for ``KIND=X``.

    Parameters
    ----------
    typed : str
        What was typed for ``--straggler``. [-]

    Returns
    -------
    dict
        The distribution with its one parameter. [-]

    Raises
    ------
    ArgumentError
        If it has no ``=``.

    Examples
    --------
    >>> straggler_option("unequal=1,1,2")
    {'distribution': 'unequal', 'times': (1, 1, 2)}
    """
    from perfmodel.prediction.straggler import parameter_of

    ((name, value),) = key_values([typed], argument="--straggler").items()
    return {"distribution": name, parameter_of(name): value}


def sync_options(pairs: list[str]) -> dict[str, Any]:
    """Return the options of ``predict`` that say how workers agree.

    Parameters
    ----------
    pairs : list of str
        What was typed for ``--sync-option``. [-]

    Returns
    -------
    dict
        Value by name. [-]

    Raises
    ------
    UnknownNameError
        If there is no such option; names the nearest.
    """
    return _options(pairs, argument="--sync-option", known=SYNC_OPTIONS)


def _options(pairs: list[str], *, argument: str, known: tuple[str, ...]) -> dict[str, Any]:
    """Return options of ``predict`` that stand together."""
    from perfmodel.errors import UnknownNameError

    given = key_values(pairs, argument=argument)
    for name in given:
        if name not in known:
            raise UnknownNameError(kind=argument, name=name, known=known)
    return given


def largest_batch_size(graph: LayerGraph, options: dict[str, Any]) -> int:
    """Return as many samples as memory holds.

    Parameters
    ----------
    graph : LayerGraph
        The network. [-]
    options : dict
        Arguments of ``predict``; of a job only its workers change what fits. [-]

    Returns
    -------
    int
        Samples. [samples]

    Raises
    ------
    ArgumentError
        If not even one fits, or the network is spread over devices.
    """
    from perfmodel.errors import ArgumentError
    from perfmodel.prediction.batch_limit import max_batch_size

    spreading = [name for name in options if name in SPREADING]
    if spreading:
        argument, allowed = "--batch-size", f"a number with {spreading[0]}: max is that of a whole network on a device"
        raise ArgumentError(argument, LARGEST, allowed)
    of_size = {name: value for name, value in options.items() if name not in WITHOUT_EFFECT_ON_SIZE}
    found = max_batch_size(graph, **of_size)
    if not found:
        argument, allowed = "--batch-size", "a number: not even one sample fits in memory"
        raise ArgumentError(argument, LARGEST, allowed)
    return found


def _text(
    prediction: Prediction, executed: Executed | None, bill: Bill | None, *, layers_shown: int, in_words: bool
) -> str:
    from perfmodel.cli.executed import executed_text
    from perfmodel.prediction.report import report

    blocks = [report(prediction, layers_shown=layers_shown)]
    if bill is not None:
        blocks.append(bill.to_text())
    if in_words:
        blocks.append(prediction.explain())
    if executed is not None:
        blocks.append(executed_text(executed, with_evidence=in_words))
    return "\n\n".join(blocks)


def _content(
    prediction: Prediction, executed: Executed | None, bill: Bill | None, *, layers_shown: int, in_words: bool
) -> dict[str, Any]:
    from perfmodel.cli.executed import executed_dict
    from perfmodel.prediction.report import layer_totals

    content = prediction.to_dict() | {"longest_layers": layer_totals(prediction).head(layers_shown).to_dicts()}
    if in_words:
        content["explanation"] = prediction.explain()
    if bill is not None:
        content["bill"] = bill.to_dict()
    return content | {"executed": None if executed is None else executed_dict(executed)}
