"""Fitting the constants of spec files to measured rows; nothing here decides what may be scored.

- ``fit_plan``: which constants are free, how far their sourced values may be off, which hang together.
- ``problem``: rows compiled into functions of the unknowns, through the same path as a prediction.
- ``fit``: least squares with priors; intervals; the calibration file.
"""
