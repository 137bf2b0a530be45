"""How far off predictions are: errors, their intervals, kernels, collectives."""
