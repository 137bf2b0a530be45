"""``perfmodel plan``: what to hire for a job, in time and for the money."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer

from perfmodel.cli.arguments import takes_arguments
from perfmodel.cli.networks import NetworkArgument, OptionOption, load_graph
from perfmodel.cli.output import number_as_typed
from perfmodel.errors import ArgumentError

Number: TypeAlias = str | None
"""A number as typed, which the library checks."""

CANDIDATE_HELP = (
    "What may be hired: a price or instance, e.g. p3.2xlarge; with numbers of workers p2.16xlarge:4,8,16; or "
    "price=0.5;system=survey_fig5;workers=1,2,4 (a number is USD an hour of one device of your own); with --dataset "
    "also input_from=object_store;decode_cores=8. Repeatable."
)


CandidateOption: TypeAlias = Annotated[list[str], typer.Option(metavar="WHAT", help=CANDIDATE_HELP)]
SizeOption: TypeAlias = Annotated[Number, typer.Option(metavar="N", help="Samples of an epoch, in host memory.")]
SamplesOption: TypeAlias = Annotated[Number, typer.Option(metavar="N", help="Samples in all, instead of epochs.")]
SyncOption: TypeAlias = Annotated[
    str, typer.Option(metavar="HOW,HOW...", help="Ways to agree: ring_all_reduce, downpour ...")
]
PurchaseOption: TypeAlias = Annotated[str, typer.Option(metavar="HOW,HOW", help="on_demand, spot or both.")]
InterruptionsOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="X", help="How often an instance on spot is taken away, your own.")
]
CheckpointOption: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Storage of checkpoints.")]
RestartOption: TypeAlias = Annotated[Number, typer.Option(metavar="S", help="Until a new instance is there.")]
StorageOption: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Price of storage.")]
StoredOption: TypeAlias = Annotated[Number, typer.Option(metavar="GB", help="Storage of each instance.")]
EnergyOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="USD", help="A kWh of electricity for machines of your own.")
]
PenaltyOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="X", help="Share of updates that one update of staleness adds, your own.")
]
NUMBERS = (
    "dataset_size", "epochs", "samples", "deadline_hours", "budget_usd",
    "interruptions_per_hour", "restart_s", "storage_gb", "usd_per_kwh", "staleness_penalty",
)  # fmt: skip
"""Options that are numbers."""
TEXTS = ("checkpoint_to", "storage_price")
"""Options that are given on as they are typed."""


@takes_arguments(own=("device", "system", "workers", "sync"), plot="Draw money over time (png, pdf, svg).")
def plan_command(
    graph: NetworkArgument,
    arguments: dict[str, Any],
    candidate: CandidateOption,
    dataset_size: SizeOption = None,
    epochs: Annotated[Number, typer.Option(metavar="N", help="Epochs.")] = None,
    samples: SamplesOption = None,
    deadline_hours: Annotated[Number, typer.Option(metavar="H", help="Most hours.")] = None,
    budget_usd: Annotated[Number, typer.Option(metavar="USD", help="Most money.")] = None,
    sync: SyncOption = "ring_all_reduce",
    purchase: PurchaseOption = "on_demand",
    interruptions_per_hour: InterruptionsOption = None,
    checkpoint_to: CheckpointOption = None,
    restart_s: RestartOption = "0",
    storage_price: StorageOption = None,
    storage_gb: StoredOption = None,
    usd_per_kwh: EnergyOption = None,
    staleness_penalty: PenaltyOption = "0",
    option: OptionOption = None,
) -> Any:
    """Say what to hire: hours and money of every candidate, the best, what binds, what would have to change."""
    typed = dict(locals())  # every option by its name, which is the library's too
    from perfmodel.planning.plans.plan import plan

    return plan(
        load_graph(graph, options=option or []),
        candidates=[candidate_as_typed(each) for each in candidate],
        sync=sync.split(","),
        purchase=purchase.split(","),
        **{name: number_as_typed(typed[name]) for name in NUMBERS},
        **{name: typed[name] for name in TEXTS},
        **arguments,
    )


def candidate_as_typed(typed: str) -> dict[str, Any]:
    """Return what ``plan`` takes for ``p2.16xlarge:4,8`` or ``price=0.5;system=survey_fig5;workers=1,2``.

    Parameters
    ----------
    typed : str
        What was typed for ``--candidate``. [-]

    Returns
    -------
    dict
        Keys of a candidate. [-]

    Raises
    ------
    ArgumentError
        If a part of it has no ``=``, or a key is there twice.

    Examples
    --------
    >>> candidate_as_typed("p2.16xlarge:4,8")
    {'price': 'p2.16xlarge', 'workers': (4, 8)}
    >>> candidate_as_typed("price=0.5;device=gtx_1080")
    {'price': 0.5, 'device': 'gtx_1080'}
    """
    if "=" not in typed:
        price, colon, workers = typed.rpartition(":")
        stated = {"price": price, "workers": workers} if colon else {"price": typed}
    else:
        pairs = [part.partition("=") for part in typed.split(";")]
        if any(not equals or not key for key, equals, _ in pairs):
            raise ArgumentError("--candidate", typed, "a price, price:workers, or key=value;key=value")
        keys = [key.strip() for key, _, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ArgumentError("--candidate", typed, f"{' and '.join(twice)} once: which value is meant is not told")
        stated = {key.strip(): value.strip() for key, _, value in pairs}
    candidate: dict[str, Any] = dict(stated)
    if "workers" in candidate:
        candidate["workers"] = tuple(number_as_typed(count) for count in stated["workers"].split(","))
    for name in ("price", "decode_cores"):
        if isinstance(number := number_as_typed(stated.get(name)), int | float):
            candidate[name] = number
    return candidate
