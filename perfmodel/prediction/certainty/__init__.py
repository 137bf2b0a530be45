"""Uncertainty of a prediction, and the sources of its constants."""
