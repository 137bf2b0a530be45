"""Networks run on the machine at hand, beside what a calibration of it predicts."""
