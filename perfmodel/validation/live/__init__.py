"""Networks measured on this machine, compared with what its calibration predicts."""
