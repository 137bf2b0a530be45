"""Layers that pick, scatter and order elements by index."""
