"""Fitting constants of spec files to measured rows: ``pm.fit``. Nothing here decides what may be scored.

- ``problem``: predicted times of measured rows as functions of the free constants, by the path of a prediction.
- ``kernel_boards``: the same for tables of timed kernels.
- ``fit``: least squares with priors, and intervals of what was fitted.
- ``interval_scale_fit``: the scale of prediction intervals.
"""
