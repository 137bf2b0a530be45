"""Importers: networks of other programs as layer graphs.

``torch`` records a torch module without running it, ``onnx`` reads an ONNX file without its weights, ``huggingface``
reads a transformer's configuration and loads any network that a user names. ``translation`` turns operator calls into
layers, and ``build`` makes a graph of them. ``audit`` compares our counts with torch's.
"""

from __future__ import annotations
