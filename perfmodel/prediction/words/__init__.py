"""Predictions in words."""
