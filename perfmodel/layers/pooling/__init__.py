"""Poolings: one number for each window."""
