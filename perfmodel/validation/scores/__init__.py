"""Scores of predictions: errors, intervals, collectives."""
