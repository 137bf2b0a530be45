"""Whatever a network or a file is called, what is shown of it is text: no tag, no formula, no command to a terminal."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, PerfmodelError, SpecError
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.layers import Dense, ReLU

HOSTILE = "<script>alert(1)</script>|a$b_{ & \"'</td>--> \\ [red]"
"""A printable name that is markup somewhere."""

GARBLING = ["\x1b[31mred", "two\nlines", "back\rover", "a\x00b", "\x9b2J", "left\u202eright", "half\ud800"]
"""What a terminal obeys, lines that are no lines, and text that turns around or ends."""

BATCH = {"batch_size": 4, "framework": "caffe_1_0_rc3"}


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    """A device file whose every text is hostile."""
    text = (shipped_folder() / "devices" / "gtx_1080.toml").read_text()
    quoted = json.dumps(HOSTILE)
    text = re.sub(r'^(name|title|note) = ".*"$', lambda found: f"{found[1]} = {quoted}", text, flags=re.MULTILINE)
    path = tmp_path_factory.mktemp("specs") / "<b>bold|$x_{.toml"
    path.write_text(text)
    return pm.load_device(path)


@pytest.fixture(scope="module")
def graph():
    made = pm.LayerGraph(HOSTILE, inputs={f"in {HOSTILE}": (64,)})
    made.add(f"dense {HOSTILE}", Dense(units=32), inputs=f"in {HOSTILE}")
    made.add(f"relu {HOSTILE}", ReLU(), inputs=f"dense {HOSTILE}")
    made.add("last", Dense(units=4), inputs=f"relu {HOSTILE}")
    return made


@pytest.fixture(scope="module")
def answers(graph, device):
    """An answer of each verb."""
    here = BATCH | {"device": device}
    prediction = pm.predict(graph, **here)
    return {
        "graph": graph,
        "summary": graph.summary(batch_size=4),
        "prediction": prediction,
        "layers": prediction.layers,
        "comparison": pm.compare(prediction, pm.predict(graph, **here | {"batch_size": 8})),
        "advice": pm.advise(graph, **here, kinds=["batch_size", "framework"]),
        "sweep": pm.sweep(graph, **here | {"batch_size": [4, 8]}),
        "formula": pm.formula("step_s", graph=graph, free="batch_size", **here),
    }


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = set(), ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags |= {tag, *(name for name, _ in attrs if name.startswith("on"))}

    def handle_data(self, data):
        self.text += data


OURS = {"table", "caption", "thead", "tbody", "tr", "th", "td", "div", "p", "b", "br", "ul", "li", "span"}


def test_no_name_becomes_a_tag_in_a_notebook(answers):
    shown = {name: answer._repr_html_() for name, answer in answers.items() if hasattr(answer, "_repr_html_")}
    assert len(shown) > 5
    pages = {name: Tags(page) for name, page in shown.items()}
    assert {name: page.tags - OURS for name, page in pages.items() if page.tags - OURS} == {}
    assert HOSTILE in pages["layers"].text


def test_a_text_that_is_printed_keeps_its_lines(answers):
    for name, answer in answers.items():
        for text in (str(answer), repr(answer)):
            assert all(line.isprintable() for line in text.split("\n")), name
    assert HOSTILE in str(answers["layers"])
    assert answers["prediction"].explain()


def test_no_name_becomes_markup_of_a_picture(answers, tmp_path):
    prediction, path = answers["prediction"], tmp_path / "x.svg"
    pictures = {
        "roofline": lambda: prediction.plot_roofline(path),
        "timeline": lambda: prediction.plot_timeline(path),
        "sweep": lambda: answers["sweep"].plot("batch_size", path=path),
    }
    for name, draw in pictures.items():
        draw()
        kinds = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}
        assert not kinds & {"script", "foreignObject", "a", "b"}, name


def test_a_trace_is_json_with_the_names_as_they_are(answers, tmp_path):
    path = tmp_path / "step.json"
    answers["prediction"].timeline.save(path)
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    assert any(HOSTILE in event["name"] for event in events)


@pytest.mark.parametrize("name", ["\x1b[31mred", "a\x00b", "\x9b2J", "left\u202eright"], ids=ascii)
def test_a_text_of_a_spec_file(name, tmp_path):
    """Notes may have lines, and TOML itself refuses halves of pairs."""
    text = (shipped_folder() / "devices" / "gtx_1080.toml").read_text()
    path = tmp_path / "gpu.toml"
    path.write_text(re.sub(r'^name = ".*"$', lambda _: f"name = {json.dumps(name)}", text, flags=re.MULTILINE))
    with pytest.raises(SpecError, match="control characters") as refused:
        pm.load_device(path)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", GARBLING, ids=ascii)
class TestGate:
    """Where a name enters, in Python or in a file."""

    def test_names_of_a_graph(self, name):
        with pytest.raises(ArgumentError, match="control characters"):
            pm.LayerGraph(name, input_shape=(4,))
        with pytest.raises(ArgumentError, match="control characters"):
            pm.LayerGraph("net", inputs={name: (4,)})
        with pytest.raises(ArgumentError, match="control characters"):
            pm.LayerGraph("net", input_shape=(4,)).add(name, ReLU(), inputs="input")

    def test_a_graph_file(self, name, graph, tmp_path):
        path = tmp_path / "net.json"
        graph.save(path)
        path.write_text(path.read_text(encoding="utf-8").replace('"last"', json.dumps(name)))
        with pytest.raises(PerfmodelError, match="control characters") as refused:
            pm.LayerGraph.load(path)
        assert str(refused.value).isprintable()

    def test_a_table(self, name, tmp_path):
        path = tmp_path / "mine.csv"
        text = f'network,framework,batch_size,device,step_s\n"{name}",caffe_1_0_rc3,16,gtx_980,0.1\n'
        path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        with pytest.raises(PerfmodelError) as refused:
            pm.measurements.load(path)
        assert str(refused.value).isprintable()

    def test_a_path_and_a_name_that_is_unknown(self, name, tmp_path, capsys):
        for refuse in (pm.load_device, pm.from_onnx, pm.LayerGraph.load, pm.zoo.build):
            with pytest.raises(PerfmodelError) as refused:
                refuse(f"{name}.toml" if refuse == pm.load_device else name)
            assert str(refused.value).isprintable()
        assert run(["predict", name, "--device", "gtx_1080"]) == 2
        assert run([name]) == 2
        said = capsys.readouterr().err
        assert all(line.isprintable() for line in said.split("\n"))
        assert said.count("\n") == 2
