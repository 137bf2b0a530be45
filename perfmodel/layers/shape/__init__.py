"""Layers that move, cut, join or view memory."""
