"""Texts of formulas whose parts are long: what is hidden in them, and how often it is worked out."""

import pytest
import sympy

import perfmodel as pm
from perfmodel.planning.formulas import named_expressions

JOB = {"system": "survey_fig5", "workers": 2, "batch_size": 16, "framework": "torch_423cfba"}


@pytest.fixture
def stale():
    """Bounded staleness iterates, so that an expression is in the next one several times over."""
    return pm.formula(
        "step_s", graph=pm.zoo.fcn5(), sync="bounded_staleness", staleness_bound=2,
        free=["batch_size", "peak_flop_per_s"], **JOB,
    )  # fmt: skip


def test_an_iterated_expression_is_hidden_in_sums_and_written_out_on_its_branch(stale):
    point = stale.stated_point
    written = stale.on_branch()
    assert point.hidden
    assert not written.has(sympy.Dummy)
    elsewhere = point.at | {stale.symbols["peak_flop_per_s"]: 1.001 * stale.stated["peak_flop_per_s"]}
    for at in (point.at, elsewhere):  # no branch changes so near
        expected = stale(**{symbol.name: value for symbol, value in at.items()})
        assert float(written.xreplace(at)) == pytest.approx(expected, rel=1e-9)
    assert "Dummy" not in str(stale)
    assert "Dummy" not in stale._repr_latex_()


def test_terms_that_share_an_iterated_expression_write_it_out_once(stale):
    written, point = stale.on_branch(), stale.stated_point
    iterated = {
        point.hidden.expressions[dummy] for dummy in point.hidden.expressions.keys() - point.hidden.short.keys()
    }
    # products of iterated expressions; apart from sums of computing they are but a few
    long = [term for term in sympy.Add.make_args(written) if len(str(term)) > 1000]
    assert len(long) <= 2 * len(iterated)
    assert len(str(written)) < 100_000  # 219,952 with every term of the computing time multiplied out


def test_what_is_shown_does_not_depend_on_what_is_hidden(stale, monkeypatch):
    texts = []
    for nodes in (named_expressions.MOST_NODES, 300):
        monkeypatch.setattr(named_expressions, "MOST_NODES", nodes)
        stale.__dict__.pop("stated_point", None)
        leading = [
            named_expressions.leading_terms(stale.stated_point, stale.named_parts[part])
            for part in ("compute_s", "exposed_sync_s")
        ]
        texts.append([(terms, round(rest, 12)) for terms, _, rest in leading])
    assert texts[0] == texts[1]


def test_two_texts_multiply_out_once(stale, monkeypatch):
    expand, calls = sympy.expand, []
    monkeypatch.setattr(named_expressions.sympy, "expand", lambda *of, **how: calls.append(of) or expand(*of, **how))
    str(stale)
    once = len(calls)
    stale._repr_latex_()
    assert len(calls) == once > 0


def test_another_algorithm_at_a_solution_is_named():
    f = pm.formula(graph=pm.zoo.alexnet(), device="gtx_1080", batch_size=128, free="batch_size")
    found = f.solve_for("batch_size", 0.1)
    assert found.value == 195
    assert found.branches[0] == "algorithm of conv3 backward: winograd_nonfused below, fft above"
    for batch_size, algorithm in ((194, "winograd_nonfused"), (195, "fft")):
        chosen = {row.wins for row in f.active({"batch_size": batch_size}).rows if row.where.startswith("algorithm of")}
        assert algorithm in chosen
    (stepped,) = found.branches[1:]
    assert stepped.endswith("ceilings change: of tiles, and of units that share them")


def test_what_rounding_leaves_of_terms_is_not_shown():
    job = {"graph": pm.zoo.gpt(layers=4, width=512, heads=8, sequence_length=512, vocabulary=8192), "workers": 16}
    software = {"dtype": "bf16", "framework": "pytorch_2", "sync": "all_reduce", "shard_stage": 3}
    f = pm.formula(**job, **software, batch_size=2, system="dgx_h100", machines=2, free="batch_size")
    shown = [line for line in str(f).splitlines() if line.startswith("    there: ")]
    assert len(shown) >= 5
    assert not [line for line in shown if "e-17" in line or "e-18" in line or "+ -" in line]
