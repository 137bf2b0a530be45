"""Importers: networks of other programs as layer graphs.

``torch`` records a torch module without running it, ``onnx`` reads an ONNX file without its weights, ``huggingface``
reads a transformer's configuration. ``program`` is what an importer of operators hands on, ``build`` makes the graph of
it; ``load`` finds what a user names; ``audit`` compares the counts with another program's.
"""

from __future__ import annotations
