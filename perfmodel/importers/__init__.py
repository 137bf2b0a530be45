"""Importers: networks of other programs as layer graphs.

``torch`` records a torch module without running it, ``onnx`` reads an ONNX file without its weights; ``translation``
turns their operator calls into layers, and ``build`` makes a graph of them. ``keras`` and ``deeplearning4j`` read
configurations of layers, from which ``assembly`` makes a graph; ``huggingface`` reads a transformer's configuration.
``loading`` loads any network that a user names. ``audit`` compares our counts with torch's.
"""

from __future__ import annotations
