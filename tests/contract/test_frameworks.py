"""Every framework profile loads, and predicts every published network on every kind of processor that is shipped."""

import math
import os
from itertools import product
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.hardware import spec_files
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.layers.optimizers import OPTIMIZERS
from perfmodel.prediction.job.subject import subject_of_run

FILES = sorted((shipped_folder() / "frameworks").glob("*.toml"))
GRAPHS = {name: pm.zoo.build(name) for name in pm.zoo.names()}


def test_the_files_of_the_issue_are_there():
    names = {path.stem for path in FILES}
    assert names >= {"caffe_1_0_rc3", "cntk_1_5_rc", "tensorflow_0_9", "torch_423cfba", "generic"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_loads_and_names_libraries_that_exist(path):
    profile = pm.load_framework(Path(path))
    named = {profile.library.gpu_blas, profile.library.gpu_dnn, profile.library.cpu_blas}
    named |= {name for roles in profile.library.by_architecture.values() for name in roles.values()}
    assert named <= set(spec_files.names("libraries"))
    assert profile.source
    assert all(source.fields for source in profile.source)
    assert pm.load_framework(path.stem) == profile


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_pass_rules_are_for_passes_that_exist(path):
    # a rule for a misspelt pass would never be looked up: free work
    profile = pm.load_framework(path)
    seen = set()
    runs = [subject_of_run(run).graph for run in pm.measurements.load("shi2016").runs]
    for graph in (*GRAPHS.values(), *runs):
        for phase in ("forward", "backward"):
            for _, operation in graph.operations(batch_size=2, phase=phase):
                if operation.kind == "memory_pass":
                    seen.add(operation.name if operation.role == "output" else f"{operation.name}_backward")
    seen |= {
        *OPTIMIZERS,
        "adafactor_moments",
        "adafactor_direction",
        "lamb_direction",
        "gradient_norm",
        "gradient_scale",
    }
    seen |= {f"{layer}{suffix}" for layer in pm.layers.LAYERS for suffix in ("", "_backward", "_weight_gradient")}
    seen |= {"avg_pool", "avg_pool_backward"}
    for processor in (profile.gpu, profile.cpu):
        assert set(processor.lowering.passes) <= seen


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_predicts_on_every_device(path):
    for device in spec_files.names("devices"):
        p = pm.predict(GRAPHS["alexnet"], batch_size=16, framework=path.stem, device=device)
        assert 0 < p.step_s < math.inf, device


def places():
    """Return one board of each architecture, for a framework tells no others apart, and the systems."""
    of_architecture = {pm.load_device(name).architecture: name for name in spec_files.names("devices")}
    systems = sorted(spec_files.names("systems"))
    return [*({"device": name} for name in of_architecture.values()), *({"system": name} for name in systems)]


PLACES = places()
FULL = bool(os.environ.get("PERFMODEL_FULL_WALK"))


def kinds_of(network):
    """Kinds of operations, all that a framework tells apart."""
    graph = GRAPHS[network]
    operations = [row for phase in ("forward", "backward") for _, row in graph.operations(batch_size=2, phase=phase)]
    return {(operation.kind, getattr(operation, "name", ""), operation.role) for operation in operations}


def representatives():
    """Return networks that have every kind of operation between them, small and varied ones first."""
    kinds = {network: kinds_of(network) for network in sorted(GRAPHS)}
    missing, chosen = set().union(*kinds.values()), []
    while missing:
        chosen.append(
            max(kinds, key=lambda network: len(kinds[network] & missing) / len(GRAPHS[network].layers) ** 0.5)
        )
        missing -= kinds[chosen[-1]]
    return chosen


NETWORKS = sorted(GRAPHS) if FULL else sorted(representatives())
"""Networks that meet every framework and every place; the others have no kind of operation that these have not."""
STEP = 1 if FULL else min(len(FILES), len(NETWORKS))
"""One place in so many for a network under a framework, another one under the next, so that every pair of two of the
three still meets: with a larger step some would not. ``PERFMODEL_FULL_WALK=1`` takes every network and place."""


def walk():
    """Return framework, network and places: every pair of two of the three meets, and other networks a framework."""
    cases = product(enumerate(FILES), enumerate(NETWORKS))
    met = [(path, network, PLACES[(i + j) % STEP :: STEP]) for (i, path), (j, network) in cases]
    others = enumerate(sorted({*GRAPHS} - {*NETWORKS}))
    return met + [(FILES[j % len(FILES)], network, PLACES[j % len(PLACES) :: len(PLACES)]) for j, network in others]


def test_the_walk_meets_every_pair():
    assert len(PLACES) >= 10
    assert {"system": "desktop_i7_3820"} in PLACES
    cases = [(path, network, str(where)) for path, network, somewhere in walk() for where in somewhere]
    assert {network for _, network, _ in cases} == {*GRAPHS}
    met = [case for case in cases if case[1] in NETWORKS]
    every = (FILES, NETWORKS, [str(where) for where in PLACES])
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert {(case[first], case[second]) for case in met} == set(product(every[first], every[second]))


@pytest.mark.parametrize(("path", "network", "somewhere"), walk(), ids=lambda part: getattr(part, "stem", None))
def test_it_predicts_every_network_everywhere(path, network, somewhere):
    for where in somewhere:
        p = pm.predict(GRAPHS[network], batch_size=16, framework=path.stem, **where)
        assert math.isfinite(p.step_s), where
        assert p.step_s > 0
        assert all(row.seconds > 0 for row in p.layers if row.launches), where
        assert 0 < p.memory.total_bytes < math.inf
