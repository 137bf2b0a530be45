"""Public names of today: what people's notebooks and scripts call must not be lost, however the code is rearranged.

A name may be added without touching the lists. One that goes must go through a deprecation and the changelog first.
"""

from dataclasses import fields, is_dataclass

import pytest
import typer

import perfmodel as pm
from perfmodel.cli import app

PACKAGE = """
    Advice Calibration Comparison Dataset Formula FrameworkProfile LayerGraph Plan Prediction ScalingReport Sweep
    Work __version__ advise audit calibrate catalogue compare errors fit formula from_deeplearning4j
    from_huggingface_config from_keras from_onnx from_torch layers load_calibration load_dataset load_device
    load_framework load_library load_link load_price load_storage load_system max_batch_size measurements plan
    predict refresh scaling straggler_slowdown sweep transfer validate validate_live zoo
"""

ANSWERS = {
    "Prediction": """
        agreement basis batch_size bottleneck breakdown cost_usd counted_workers data_path dtype energy_j epoch_s
        explain framework groups interval interval_s launch_gap_s layers mean_staleness memory
        memory_bandwidth_bytes_per_s parts peak_flop_per_s phase play plot plot_timeline provenance remarks
        samples_per_s samples_per_update sources spread stages step_overhead_s subject table target threads
        timeline to_dict updates_per_s worker_count
    """,
    "Sweep": """
        best chunks codes columns feasible pareto plot prediction reasons results row rows space taken to_csv
        to_frame to_parquet to_table
    """,
    "Formula": """
        active crossover definitions elasticities expression lambdify named_parts of on_branch opened parts point
        prediction quantity solve_for stated symbols unit
    """,
    "Plan": """
        best best_hours best_usd binding changes is_feasible limits nearest_miss notes pareto plot rows title
        to_dict to_frame
    """,
    "Advice": """
        arguments arguments_with base best_of_each_kind rejected rows to_dict to_frame
    """,
    "Comparison": """
        first inputs layers main_term memory per plot ratio second terms to_dict to_frame total verdict
    """,
    "ScalingReport": """
        is_strong kind notes one_worker_s plot rows title to_dict to_frame
    """,
}

TIMES = """
    bubble_s compute_s dispatch_s exposed_sync_s exposed_transfer_s input_wait_s launch_s memory_bound_s overhead_s
    step_s straggler_s sync_s transfer_s update_s
"""
"""Seconds that a prediction answers, which are no fields of its class."""

MODULES = {
    "zoo": """
        BUILDERS alexnet autoencoder bert build convolutional convolutional_autoencoder dcgan_discriminator
        dcgan_generator deconvolutional deepseek deep_belief_network densenet121 fcn5 fcn8 feed_forward
        generative_adversarial_network googlenet gpt gpt2 inception_v3 lenet5 llama lstm32 lstm64 lstm_classifier
        mixtral mnist_classifier mobilenet_v2 names nin recurrent_network recursive_network resnet101 resnet152 resnet18
        resnet200 resnet34 resnet50 restricted_boltzmann_machine seq2seq unet variational_autoencoder vgg11 vgg13
        vgg16 vgg19 vit
    """,
    "layers": """
        Accuracy AdaptiveAveragePool AdaptiveMaxPool Add AveragePool1d AveragePool2d AveragePool3d BatchNorm
        BatchView Binary BinaryCrossEntropy ClassSoftmax Concat Constant ContrastiveDivergence Convolution1d
        Convolution2d Convolution3d Copy CrossEntropy Cumulative Dense Detach Dropout Embedding Expand Fill
        Flatten GELU GLU GRU GaussianSample GroupNorm Huber KLDivergence LAYERS LSTM LatentAttention Layer LayerNorm
        LeakyReLU LocalResponseNorm LogSoftmax MatMul MaxPool1d MaxPool2d MaxPool3d MeanAbsoluteError
        MeanSquaredError MixtureOfExperts MultiHeadAttention OPTIMIZERS Opaque Optimizer Output Overwrite Pad
        Parameter PositionalEmbedding RMSNorm
        RNN ReLU ReLU6 Rearrange RecurrentState Reduction Reshape RotaryEmbedding Scale ScaledDotProductAttention
        Scatter Shape ShapeMismatchError ShardView SharedShape SiLU Sigmoid Slice Softmax Take Tanh TopK Transpose
        TransposedConvolution1d TransposedConvolution2d TransposedConvolution3d Unary Upsample Where
        load_optimizer
    """,
    "measurements": """
        Erratum Evidence FeedItem Hardware MeasuredRow MeasurementTable Run ScalingTable from_frame load
        load_scaling names scaling_names
    """,
    "errors": """
        ArgumentError BackwardWarning CalibrationError CallError FixedBatchWarning FreeSizeError GraphError
        MissingPackageError NotYetAvailableError OpaqueLayerWarning ParameterWarning PerfmodelError
        PerfmodelWarning PrecisionWarning ShapeError SpecError TableError TaskError TraceError UnknownNameError
        WorkerError
    """,
}

COMMANDS = """
    advise
    audit
    calibrate
    calibration diff
    calibration show
    compare
    fit
    plan
    predict
    scaling
    specs check
    specs list
    specs show
    stragglers
    sweep
    transfer
    validate
    validate live
"""


def names_of(kind: type) -> set[str]:
    """Return attributes, methods and fields: a field without a default is no attribute of its class."""
    return set(dir(kind)) | ({field.name for field in fields(kind)} if is_dataclass(kind) else set())


def command_names(command: object, before: str = "") -> set[str]:
    """Return the commands below one, those of a group with the group's name before them."""
    names = set()
    for name, inner in getattr(command, "commands", {}).items():
        names |= command_names(inner, f"{before}{name} ") or {before + name}
    return names


def test_package_keeps_its_names() -> None:
    listed = set(PACKAGE.split())
    assert listed <= set(pm.__all__)
    assert listed <= set(dir(pm))
    for name in listed:
        getattr(pm, name)  # the lazy table leads somewhere


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_keep_their_fields(answer: str) -> None:
    assert set(ANSWERS[answer].split()) <= names_of(getattr(pm, answer))


def test_predictions_keep_their_times() -> None:
    prediction = pm.predict(pm.zoo.lenet5(), batch_size=16, device="gtx_1080", framework="torch_423cfba")
    assert [name for name in TIMES.split() if not getattr(prediction, name) >= 0] == []


@pytest.mark.parametrize("module", MODULES)
def test_modules_keep_their_names(module: str) -> None:
    assert set(MODULES[module].split()) <= set(dir(getattr(pm, module)))


def test_command_line_keeps_its_commands() -> None:
    listed = {line.strip() for line in COMMANDS.strip().splitlines()}
    assert listed <= command_names(typer.main.get_command(app))


def test_losing_a_name_is_noticed() -> None:
    assert not {"no_such_name"} <= names_of(pm.Prediction)
