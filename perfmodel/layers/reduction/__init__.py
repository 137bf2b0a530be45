"""Reductions along axes, and running totals."""
