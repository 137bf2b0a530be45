"""Activations: element-wise functions of one input."""
