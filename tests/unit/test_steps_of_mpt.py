"""Steps of MPT from a table elsewhere: the PyTorch of each row, by its mode of mixed precision."""

import pytest

from perfmodel.errors import TableError
from perfmodel.validation.reports.clusters import sharded_steps

COLUMNS = (
    "device,gpus,model,sequence_length,micro_batch_samples_per_gpu,accumulation_steps,global_batch_samples,"
    "mixed_precision_mode,activation_checkpointing,step_s,mfu_percent"
)


def report(folder, *modes):
    rows = [f"a100_80_sxm,8,125m,512,64,1,512,{mode},True,0.1,40" for mode in modes]
    (folder / "steps.csv").write_text("\n".join([COLUMNS, *rows]))
    return sharded_steps(folder / "steps.csv")


def test_blocks_run_again_whole_in_rows_of_the_older_pytorch(tmp_path):
    older, later = report(tmp_path, "PURE", "DEFAULT").rows
    # the last products of 12 blocks, of 4 x 768^2, for 64 x 512 tokens, at most at 312 TFLOP/s
    least_s = 2 * 64 * 512 * 12 * 4 * 768**2 / 312e12
    assert older.predicted_s - later.predicted_s > least_s


def test_other_modes_are_refused(tmp_path):
    with pytest.raises(TableError, match=r"mixed_precision_mode must be one of PURE, DEFAULT \(got FULL\)"):
        report(tmp_path, "FULL")
