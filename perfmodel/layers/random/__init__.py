"""Layers that draw random numbers."""
