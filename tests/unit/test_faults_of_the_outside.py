"""What the world around the command does wrong ends in one line: streams, disks, settings, Ctrl-C."""

import os
import subprocess
import sys

import pytest

import perfmodel as pm
from perfmodel.layers import Dense

WAIT_S = 500.0
"""Time after which a command hangs, on the busiest machine too. [s]"""

PREDICT = ("predict", "lenet5", "--device", "gtx_1080", "--batch-size", "4", "--framework", "caffe_1_0_rc3")


def in_shell(words, redirected, **environment):
    command = f"{sys.executable} -m perfmodel {' '.join(words)} {redirected}"
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, env=os.environ | environment, timeout=120
    )


@pytest.mark.parametrize(
    ("redirected", "said"),
    [("> /dev/full", "the output: No space left on device"), (">&-", "the output: standard output is closed")],
)
def test_output_that_goes_nowhere(redirected, said):
    ended = in_shell(("specs", "list", "devices"), redirected)
    assert (ended.returncode, ended.stderr) == (2, f"perfmodel: error: {said}\n")


@pytest.mark.parametrize("redirected", ["2> /dev/full", "2>&- >&-"])
def test_errors_that_go_nowhere(redirected):
    ended = in_shell(("predict", "nothing"), redirected)
    assert (ended.returncode, ended.stdout + ended.stderr) == (2, "")


def test_a_backend_that_matplotlib_does_not_know(tmp_path):
    ended = in_shell((*PREDICT, "--plot", str(tmp_path / "figure.svg")), "> /dev/null", MPLBACKEND="nonsense")
    assert ended.returncode == 2
    assert ended.stderr.startswith("perfmodel: error: MPLBACKEND must be unset, or a name that matplotlib knows")
    assert ended.stderr.count("\n") == 1


def test_a_name_that_looks_like_a_formula(tmp_path):
    graph = pm.LayerGraph("a$b_{", input_shape=(8,))
    graph.add("c$d_{", Dense(units=4), inputs="input")
    prediction = pm.predict(graph, batch_size=4, device="gtx_1080", framework="caffe_1_0_rc3")
    prediction.plot_roofline(tmp_path / "roofline.svg")
    prediction.plot_timeline(tmp_path / "timeline.png")
    pm.sweep(graph, batch_size=[4, 8], device="gtx_1080").plot("batch_size", path=tmp_path / "sweep.pdf")
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("module", ["typer", "perfmodel.cli.specs", "numpy", "perfmodel.prediction.job.compose"])
def test_ctrl_c_ends_in_one_line_whatever_is_being_imported(module):
    code = f"""
import os, signal, sys

class Interrupts:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.argv = ["perfmodel", *{PREDICT!r}]
from perfmodel.__main__ import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "perfmodel: interrupted\n")


@pytest.mark.usefixtures("hears_ctrl_c")
def test_an_interrupt_that_a_callback_swallows_comes_again():
    """As in the callback of a weak reference, by which results go with the object they are of."""
    code = """
import signal, sys, time, weakref
import perfmodel.cli

app = sys.modules["perfmodel.cli.app"]

class Of: ...

def waits(words):
    of = Of()
    callback = weakref.ref(of, lambda _: signal.raise_signal(signal.SIGINT))
    del of
    time.sleep(600)

app._app_for = lambda words: lambda **_: waits(words)
app.main([])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert (ended.returncode, ended.stderr) == (130, "perfmodel: interrupted\n")


@pytest.mark.usefixtures("hears_ctrl_c")
def test_an_interrupt_that_becomes_another_error_is_one_all_the_same():
    """As in ``__set_name__``, whose errors Python 3.11 wraps, and in what makes the classes of pydantic."""
    code = """
import signal, sys
import perfmodel.cli

app = sys.modules["perfmodel.cli.app"]

class Named:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)

def wraps(words):
    try:
        type("Owner", (), {"named": Named()})
    except BaseException as error:
        raise ValueError("made of another") from error

app._app_for = lambda words: lambda **_: wraps(words)
app.main([])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert (ended.returncode, ended.stderr) == (130, "perfmodel: interrupted\n")
