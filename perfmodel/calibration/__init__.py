"""Measuring the machine at hand, ``pm.calibrate``: kernels are timed, and constants fitted to their times."""
