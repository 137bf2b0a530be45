"""Pages that hold computed figures, and code in pages, are true."""

import ast
import importlib
import json
import re
import shlex
import shutil
from functools import partial
from pathlib import Path

import pytest

import generate_layers
import generate_sources
import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.layers import Dense
from perfmodel.validation.reports import mullapudi
from tests.counted_kernels import count_kernels

ROOT = Path(__file__).resolve().parent.parent


def test_the_layer_of_the_page_works_in_a_graph(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "adding_things.md").read_text()
    (diff,) = (text for text in re.findall(r"```diff\n(.*?)```", page, re.DOTALL) if "layers/__init__.pyi" in text)
    listing, family = diff.split("--- a/perfmodel/layers/activation.py\n")
    added, of_family = (
        [line[1:] for line in part.splitlines() if line.startswith("+") and not line.startswith("+++")]
        for part in (listing, family)
    )
    assert added == ["from perfmodel.layers.activation import Softsign as Softsign"]
    context = [line[1:] for line in listing.splitlines() if line.startswith(" ")]
    assert set(context) <= set((ROOT / "perfmodel" / "layers" / "__init__.pyi").read_text().splitlines())
    before = (ROOT / "perfmodel" / "layers" / "activation.py").read_text()
    (tmp_path / "softsign.py").write_text("\n".join([before, *of_family]))
    monkeypatch.syspath_prepend(tmp_path)
    softsign = importlib.import_module("softsign").Softsign
    graph = pm.LayerGraph("page", input_shape=(10,))
    x = graph.add("dense", Dense(units=5), inputs=graph.input)
    graph.add("softsign", softsign(), inputs=x)
    # dense: 2 * 4 * 10 * 5; softsign: 3 FLOP on 4 * 5 elements
    assert graph.work(batch_size=4, phase="forward").flop_count == 400 + 60
    assert pm.predict(graph, batch_size=4, device="gtx_1080", phase="forward_backward").step_s > 0


def test_the_layers_page_is_what_the_code_counts():
    assert generate_layers.page() == (ROOT / "docs" / "layers.md").read_text(), "run python tools/generate_layers.py"


def test_the_importing_page_runs():
    namespace = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "importing.md").read_text(), re.DOTALL):
        exec(compile(code, "docs/importing.md", "exec"), namespace)
    assert namespace["p"].batch_size == 256


def test_the_commands_of_the_pages_on_calibration_run(tmp_path, monkeypatch, capsys):
    """Each command as it stands, with fewer kernels to measure; then the Python, on the file that came of it."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    count_kernels(monkeypatch, 100, cold_points=1)
    less = {
        "calibrate": ["--budget", "15"],  # from so many seconds on the reuse of data is measured
        "validate": ["--network", "mnist_classifier", "--repeats", "1", "--steps", "1"],
    }
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("calibrating.md", "measured_machine.md")]
    lines = [line for page in pages for line in page.splitlines() if line.startswith("perfmodel ")]
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    assert {" ".join(words[:2]) for words in commands} >= {"calibrate cpu", "calibration show", "calibration diff"}
    for words in commands:
        if words[:2] == ["calibration", "diff"]:
            shutil.copy("my_machine.toml", words[2])
        assert run([*words, *less.get(words[0], [])]) == 0, words
    capsys.readouterr()
    assert Path("my_machine.png").is_file()
    for block in re.findall(r"```python\n(.*?)```", pages[1], re.DOTALL):
        exec(compile(block, "measured_machine.md", "exec"), {})
    assert "my_machine.toml" in "".join(pages)


def test_the_readme_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, namespace = (ROOT / "README.md").read_text(), {}
    own, fed = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(own, "README.md", "exec"), namespace)
    shown_s, interval_s, *rest = ast.literal_eval(re.search(r"```text\n(\(.*\))\n```", text)[1])
    p = namespace["p"]
    assert (shown_s, interval_s) == (round(p.step_s, 4), tuple(round(end, 4) for end in p.interval_s))
    assert rest == [p.bottleneck, p.memory.fits]
    exec(compile(fed.replace("print(", "str("), "README.md", "exec"), namespace)
    assert namespace["p"].bottleneck == "decode"
    (said,) = re.findall(r'# "(With .*?)"', fed)
    assert said in " ".join(namespace["p"].explain().split())


def test_the_tour_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tour.md").read_text(), re.DOTALL):
        exec(compile(code.replace("print(", "str("), "tour.md", "exec"), namespace)
    assert (tmp_path / "classifier.json").is_file()


def test_the_readme_is_short_and_shows_what_its_first_command_prints(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 600
    (command,) = re.findall(r"&& \.venv/bin/perfmodel (predict .*)", text)
    shown = re.search(r"```text\n(.*?)\n\.\.\.\n```", text, re.DOTALL)[1]
    assert run(shlex.split(command)) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(shown)
    of_the_run = printed.split("really executed")[1]
    predicted, measured = (re.search(rf"{word} +(\d+\.\d+) ms", of_the_run)[1] for word in ("predicted", "measured"))
    assert f"{predicted} ms, measured {measured}." in " ".join(text.split())


def test_scores_of_the_readme_are_those_of_the_pages():
    """Every number of the list is on one of the pages that it links."""
    said = (ROOT / "README.md").read_text(encoding="utf-8").split("## How good is it?")[1].split("## Tests")[0]
    pages = " ".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8")
        for name in ("accuracy.md", "live_check.md", "synchronisation.md", "scoreboard.md")
    )
    numbers = re.findall(r"(?<![\w.])\d+\.\d+", said)
    assert len(numbers) >= 8
    assert not [number for number in numbers if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", pages)]


def _score(table, subset, protocol, model):
    scores = json.loads((ROOT / "docs" / "scoreboard.json").read_text(encoding="utf-8"))["scores"]
    key = (table, subset, protocol, model, "all")
    (mape,) = [
        s["mape"] for s in scores if tuple(s[k] for k in ("table", "subset", "protocol", "model", "part")) == key
    ]
    return mape


def test_scores_of_the_readme_are_those_of_the_scoreboard():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.split(r"\n- ", readme.split("## How good is it?")[1].split("\n\n## Tests")[0])
    lines = {" ".join(line.split())[:12]: re.findall(r"\d+\.\d+", line) for line in lines}
    unseen = "leave_one_device_out"
    sister = "sqrt(FLOP/s x bandwidth) scaling"
    expected = {
        "63 GPU cells": [
            ("shi2016", "gpu", "nothing_fitted", "perfmodel"),
            ("shi2016", "gpu", unseen, "perfmodel"),
            ("shi2016", "gpu", unseen, sister),
        ],
        "167 CPU cell": [
            ("shi2016", "cpu", "nothing_fitted", "perfmodel"),
            ("shi2016", "cpu", unseen, "perfmodel"),
            ("shi2016", "cpu", unseen, "same time as the other CPU"),
            ("shi2016", "cpu", unseen, "same time as the other CPU, same threads"),
        ],
        "Speed-up of ": [
            ("tensorflow_2017_k80_speedups", "tesla_k80_gk210", "nothing_fitted", "perfmodel"),
            ("tensorflow_2017_k80_speedups", "tesla_k80_gk210", "nothing_fitted", "linear scaling"),
            ("korthikanti2022", "a100_80_sxm", "nothing_fitted", "perfmodel"),
            ("mpt_fsdp_a100", "steps", "nothing_fitted", "perfmodel"),
        ],
    }
    for line, keys in expected.items():
        assert lines[line] == [f"{_score(*key):.1f}" for key in keys], line
    shown = re.search(r"```text\n(cells of .*?)```", readme, re.DOTALL)[1]
    for model in ("perfmodel", sister):
        (row,) = [line for line in shown.splitlines() if f"  {model}  " in line]
        assert row.split()[-2] == f"{_score('shi2016', 'gpu', unseen, model):.1f}"


def test_ranges_of_the_live_check_are_the_same_on_every_page():
    page = (ROOT / "docs" / "live_check.md").read_text(encoding="utf-8")
    step, forward = (re.search(rf"\| {name} \| (\d+ to \d+) \|", page)[1] for name in ("training step", "inference"))
    for name in ("README.md", "docs/tour.md"):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        said = re.search(r"torch networks [^.]*?(\d+ to \d+)[^.]*?(\d+ to \d+)", text)
        assert said.groups() == (step, forward), name


def test_the_list_of_pages_is_whole():
    listed = re.findall(r"\(([\w.]+\.md)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    assert sorted(set(listed)) == sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md")


def test_doctests_of_pages_stand_in_fences():
    for path in sorted((ROOT / "docs").glob("*.md")):
        outside = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        assert ">>>" not in outside, path.name


@pytest.fixture(scope="module")
def sources():
    return generate_sources.PAGE.read_text(encoding="utf-8")


def test_the_sources_page_is_what_its_commands_print(sources, monkeypatch):
    # the page quotes the closed forms of this table, not what is played beside them
    monkeypatch.setattr(mullapudi, "illustrate", partial(mullapudi.illustrate, played_steps=0))
    assert generate_sources.page(sources) == sources, "run python tools/generate_sources.py"


def test_every_printed_figure_of_the_sources_is_a_claim_of_the_page(sources):
    """Each measured cell, epoch time, share of time and yearly price that the sources print stands in some claim."""
    claims = " ".join(row.claim for row in generate_sources.rows(sources))
    claimed = {float(figure) for figure in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", claims)}
    tables = map(pm.measurements.load, ("shi2016", "wuensche2018"))
    printed = {row.step_s for table in tables for row in table.rows if row.step_s is not None}
    printed |= {row["epoch_s"] for row in pm.measurements.load_scaling("mullapudi2017").rows}
    printed |= {
        round(100 * row["time_reduction"]) for row in pm.measurements.load_scaling("wuensche2018_multi_gpu").rows
    }
    prices = map(pm.load_price, ("gce_n1_standard_1_2016", "gce_n1_standard_8_2016", "gce_n1_highmem_16_2016"))
    printed |= {price.published.usd_per_year for price in prices}
    assert len(printed) > 250
    assert not printed - claimed


def test_rows_of_the_sources_have_a_verdict_and_whatever_cannot_be_asked_a_reason(sources):
    rows = generate_sources.rows(sources)
    words = ["agrees", "near", "differs", "holds", "does not hold", "answered", "refused", "cannot be answered"]
    assert not [row.claim for row in rows if not row.verdict.startswith(tuple(f"**{word}**" for word in words))]
    unasked = [row for row in rows if "cannot be answered" in row.verdict or "refused" in row.verdict]
    assert len(unasked) < len(rows) / 5
    assert all(len(row.reason) > 10 for row in unasked)


def test_verdicts_of_the_sources_page_follow_what_is_printed():
    page = f"""```python
HALF = 0.5
```

{generate_sources.HEADER}
|---|---|---|---|---|
| a | half `0.5` | `HALF` | `7` | **?**: why |
| b | a pair `(1, 0.6)` | `(1.0, HALF)` | `?` | **agrees** |
| c | three `3` | `HALF` | `?` | **near**, 1.2 times: because |
| d | a claim | `HALF > 1` | `?` | **holds** |
| e | systems | `perfmodel specs list system` | `system k80_card` | **answered** |
| f | a name | `__import__("perfmodel").load_device("no_such")` | `?` | **answered**: why not |
| g | 3 % | - | - | **cannot be answered**: so |
"""
    found = generate_sources.rows(generate_sources.page(page))
    assert [row.verdict for row in found[:4]] == [
        "**agrees**: why",
        "**near**, 0.833 times",
        "**differs**, 0.167 times: because",
        "**does not hold**",
    ]
    assert [row.prints for row in found[:4]] == ["`0.5`", "`(1, 0.5)`", "`0.5`", "`False`"]
    assert found[4].prints.startswith("`system k80_card 1 x Intel Xeon E5-2630 v3, ")
    assert found[5].prints.startswith("`UnknownNameError: ")
    assert found[5].verdict == "**refused**: why not"
    assert found[6] == generate_sources.rows(page)[6]
