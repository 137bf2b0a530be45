"""Reports say what the job cannot do, where it does not fit and what differs, wherever a prediction is printed."""

import perfmodel as pm

GPU = "gtx_1080"
LSTM = pm.zoo.lstm32()


def test_advice_rejects_a_framework_that_cannot_run_the_job_with_the_reason():
    advice = pm.advise(LSTM, kinds="framework", device=GPU, batch_size=4)
    lines = {}
    for name in ("caffe_1_0_rc3", "torch_423cfba"):
        lines[name] = pm.predict(LSTM, device=GPU, batch_size=4, framework=name).basis.prepared.shortfalls
    assert lines["caffe_1_0_rc3"]
    assert not lines["torch_423cfba"]
    rejected = {entry.change: entry.reason for entry in advice.rejected}
    assert rejected["framework caffe_1_0_rc3"] == lines["caffe_1_0_rc3"][0]
    assert "framework torch_423cfba" in {row.change for row in advice.rows}
    for row in advice.rows:
        assert not pm.predict(LSTM, **advice.arguments_with(row)).basis.prepared.shortfalls


def test_a_shortfall_that_the_job_itself_has_does_not_reject_other_changes():
    advice = pm.advise(LSTM, kinds="batch_size", device=GPU, batch_size=4, framework="caffe_1_0_rc3")
    assert advice.base.basis.prepared.shortfalls
    assert advice.rows
