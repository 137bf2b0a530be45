"""Measured kernels: what is read, what is refused, and what a row means."""

import pytest

from perfmodel.errors import TableError, UnknownNameError
from perfmodel.fitting.kernel_boards import boards_of, dtype_of_text, operations_of
from perfmodel.hardware.library import device_of_text, library_of_text, version_of_text
from perfmodel.measurements.kernel_tables import read_data_folder, read_kernels
from perfmodel.records import Contraction, Convolution, Recurrence, Role

GEMM = "device,version,precision,phase,M,N,K,transA,transB,seconds\n"
GEMM_ROW = "Tesla M40,CUDA 7.5.18; cuDNN 5; driver 352,Float,gemm,1760,16,1024,N,N,0.000192\n"
CONV = (
    "device,version,precision,phase,W,H,C,N,K,S_filter_w,R_filter_h,pad_w,pad_h,stride_w,stride_h,"
    "P_out_h,Q_out_w,seconds\n"
)
CONV_ROW = "Tesla M40,CUDA 7.5; cuDNN 5,Float,backward_weight,700,161,1,4,32,20,5,0,0,2,2,79,341,0.000369\n"
RNN = "device,version,precision,phase,cell,hidden,N,timesteps,seconds\n"
RNN_ROW = "Titan X (Pascal),CUDA 8; cuDNN 5,Float,{phase},lstm,512,16,25,0.007\n"
LOG = "framework_version,device,network,layer,layer_type,params,top_shape,batch_size,phase,seconds\n"
LOG_ROWS = (
    "r,Titan X (Maxwell),net,input,Input,bottom=,2x3x8x8,2,forward,1e-6\n"
    "r,Titan X (Maxwell),net,conv1,Convolution,num_output=4 pad=1 kernel_size=3 bottom=data,2x4x8x8,2,{phase},1e-3\n"
    "r,Titan X (Maxwell),net,fc,InnerProduct,num_output=5 bottom=conv1/3x3,2x5,2,{phase},1e-3\n"
    "r,Titan X (Maxwell),net,__total__,,,,,{phase},2e-3\n"
)


def written(tmp_path, text, name="table.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_columns_of_a_product_are_samples(tmp_path):
    table = read_kernels(written(tmp_path, GEMM + GEMM_ROW))
    (operation,) = operations_of(table.rows[0], kind="gemm")
    assert operation == Contraction(m=16, n=1760, k=1024, role=Role.OUTPUT)


@pytest.mark.parametrize(("layout", "role"), [("T,N", Role.INPUT_GRADIENT), ("N,T", Role.WEIGHT_GRADIENT)])
def test_layouts_are_roles(tmp_path, layout, role):
    table = read_kernels(written(tmp_path, GEMM + GEMM_ROW.replace("N,N", layout)))
    assert operations_of(table.rows[0], kind="gemm")[0].role is role


def test_a_convolution_keeps_height_and_width_apart(tmp_path):
    table = read_kernels(written(tmp_path, CONV + CONV_ROW))
    (operation,) = operations_of(table.rows[0], kind="conv")
    assert isinstance(operation, Convolution)
    assert (operation.input_size, operation.kernel_size, operation.output_size) == ((161, 700), (5, 20), (79, 341))
    assert operation.role is Role.WEIGHT_GRADIENT
    # 2 N K P Q C R S by hand
    assert operation.work(element_bytes=4).flop_count == 2 * 4 * 32 * 79 * 341 * 1 * 5 * 20


@pytest.mark.parametrize(("phase", "count"), [("forward", 1), ("backward_weight", 1), ("backward", 2)])
def test_a_recurrent_row_has_the_operations_of_its_phase(tmp_path, phase, count):
    table = read_kernels(written(tmp_path, RNN + RNN_ROW.format(phase=phase)))
    operations = operations_of(table.rows[0], kind="rnn")
    assert len(operations) == count
    assert all(isinstance(each, Recurrence) and each.gate_count == 4 for each in operations)


def test_a_layer_of_a_log_reads_what_the_layer_before_it_yields(tmp_path):
    table = read_kernels(written(tmp_path, LOG + LOG_ROWS.format(phase="forward")))
    assert (len(table.rows), table.skipped) == (2, 2)  # the input and the total time nothing
    (convolution,) = operations_of(table.rows[0], kind="layer")
    (product,) = operations_of(table.rows[1], kind="layer")
    assert (convolution.in_channels, convolution.out_channels) == (3, 4)
    assert (product.m, product.n, product.k) == (2, 5, 4 * 8 * 8)


def test_the_first_layer_of_a_log_needs_no_gradient_of_images(tmp_path):
    table = read_kernels(written(tmp_path, LOG + LOG_ROWS.format(phase="backward")))
    roles = [{operation.role for operation in operations_of(row, kind="layer")} for row in table.rows]
    assert Role.INPUT_GRADIENT not in roles[0]
    assert Role.INPUT_GRADIENT in roles[1]


def test_a_missing_column_is_named_with_what_is_there(tmp_path):
    path = written(tmp_path, (GEMM + GEMM_ROW).replace("seconds", "second"))
    with pytest.raises(TableError, match=r"gemm kernels lacks column seconds \(nearest: second\)"):
        read_kernels(path)


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        ("-16", "16", "row 2, column N: must be"),
        ("1.5", "1760", "row 2, column M: must be"),
        ("0", "0.000192", "row 2, column seconds: must be"),
        ("nan", "0.000192", "row 2, column seconds: must be"),
    ],
)
def test_a_wrong_value_is_named(tmp_path, wrong, right, told):
    path = written(tmp_path, GEMM + GEMM_ROW.replace(f",{right}", f",{wrong}"))
    with pytest.raises(TableError, match=told):
        read_kernels(path)


def test_a_log_that_reads_an_unknown_blob_is_refused(tmp_path):
    path = written(tmp_path, LOG + LOG_ROWS.format(phase="forward").replace("bottom=conv1/3x3", "bottom=conw1"))
    with pytest.raises(TableError, match=r"row 4, column params: reads 'conw1'.*nearest: conv1"):
        read_kernels(path)


def test_operands_that_no_layer_has_are_refused(tmp_path):
    table = read_kernels(written(tmp_path, GEMM + GEMM_ROW.replace("N,N", "T,T")))
    with pytest.raises(TableError, match="row 2"):
        operations_of(table.rows[0], kind="gemm")


def test_an_unknown_phase_is_named_with_the_nearest(tmp_path):
    table = read_kernels(written(tmp_path, CONV + CONV_ROW.replace("backward_weight", "backward_weights")))
    with pytest.raises(UnknownNameError, match="Did you mean 'backward_weight'"):
        operations_of(table.rows[0], kind="conv")


def test_another_format_is_not_read(tmp_path):
    assert read_kernels(written(tmp_path, "trace,start_s,duration_s,kernel\na,0,1e-6,sgemm\n")) is None


def test_a_folder_without_tables_is_refused(tmp_path):
    with pytest.raises(TableError, match="is no folder"):
        read_data_folder(tmp_path / "nowhere")
    with pytest.raises(TableError, match=r"holds neither kernels/\*\.csv nor systems/\*\.csv"):
        read_data_folder(tmp_path)


def test_the_hash_is_that_of_the_content(tmp_path):
    one = read_kernels(written(tmp_path, GEMM + GEMM_ROW))
    same = read_kernels(written(tmp_path, GEMM + GEMM_ROW, name="other.csv"))
    changed = read_kernels(written(tmp_path, GEMM + GEMM_ROW.replace("192", "193")))
    assert one.sha256 == same.sha256 != changed.sha256


@pytest.mark.parametrize(
    ("text", "stem"),
    [
        ("Tesla P100-PCIE (host X99-E WS)", "tesla_p100_pcie"),
        ("Titan X (Pascal)", "titan_x_pascal"),
        ("Titan X (Maxwell)", "titan_x_maxwell"),
        ("Tesla T4", "t4"),
        ("GTX 1080 Ti", "gtx_1080_ti"),
        ("GTX 1080", "gtx_1080"),
        ("Tesla K80 (one GK210; GCE n1-standard-32-k80x8)", "tesla_k80_gk210"),
    ],
)
def test_boards_are_known_by_their_words(text, stem):
    assert device_of_text(text) == stem


def test_an_unknown_board_is_named_with_the_nearest(tmp_path):
    table = read_kernels(written(tmp_path, GEMM + GEMM_ROW.replace("Tesla M40", "Tesla M4O")))
    with pytest.raises(UnknownNameError, match="Did you mean 'tesla_m40'"):
        boards_of(table)


def test_a_library_is_the_newest_that_is_not_newer_than_stated():
    assert library_of_text("CUDA 7.5.18; cuDNN 5", "blas").stem == "cublas_7_5"
    assert library_of_text("CUDA 8; cuDNN 5", "blas").stem == "cublas_8_0"
    assert library_of_text("CUDA 6.0; cuDNN 5", "blas").stem == "cublas_7_5"  # older than any: the oldest
    assert library_of_text("no version", "dnn") is None
    assert version_of_text("cuDNN 7.6.2.24; driver 418", "cuDNN") == (7, 6, 2, 24)


def test_what_multiplies_in_another_type_than_it_stores_is_not_predicted(tmp_path):
    pseudo = "16 bit inputs; 32 bit multiplication; 32 bit addition"
    table = read_kernels(written(tmp_path, GEMM + GEMM_ROW + GEMM_ROW.replace("Float", pseudo)))
    boards, left_out = boards_of(table)
    assert [len(board.rows) for board in boards] == [1]
    assert left_out == {pseudo: 1}
    integers = "GEMM, Conv: Int8 multiplication; RNN: single precision"
    assert dtype_of_text(integers, kind="gemm") is None
    assert dtype_of_text(integers, kind="rnn") == "fp32"
