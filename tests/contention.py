"""Which steps of several devices the closed form and a played timeline see differently."""

from itertools import combinations


def contends(p):
    """Tell whether flows of a step meet of which the closed form does not know."""
    reductions = getattr(p.agreement, "reductions", ())
    if p.agreement is not None and p.agreement.name == "parameter_server":
        return True
    if len(reductions) > 1 and any(getattr(each, "among_copies", None) for each in reductions):
        return (
            True  # sums among copies slow down turns of a pipeline, of which the closed form adds the time at the end
        )
    used = [set(each.placed.call(1e6).placed.channel_bytes(1e6)) for each in reductions]
    return any(one & other for one, other in combinations(used, 2))  # devices with other layers, at the same time
