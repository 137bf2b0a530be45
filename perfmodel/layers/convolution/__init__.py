"""Convolutions over one, two or three spatial dimensions."""
